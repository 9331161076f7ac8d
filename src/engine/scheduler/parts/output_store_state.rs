//! Whether the object store takes outputs. One that refuses is asked again by each job that waits for it, and nothing new
//! is sent meanwhile; downloads go on, since links do not last.

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct StoreState {
    faults: u32,
}

impl StoreState {
    /// Whether it refused what was last to be put into it.
    pub fn is_down(&self) -> bool {
        self.faults > 0
    }

    /// It took outputs. True: it did not before.
    pub fn took(&mut self) -> bool {
        std::mem::take(&mut self.faults) > 0
    }

    /// It refused outputs. Returns how many faults in a row came before.
    pub fn refused(&mut self) -> u32 {
        let before = self.faults;
        self.faults = before.saturating_add(1);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_down_until_it_takes_something() {
        let mut store = StoreState::default();
        assert!(!store.is_down() && !store.took());
        assert_eq!((store.refused(), store.refused()), (0, 1));
        assert!(store.is_down() && store.took() && !store.is_down());
        assert_eq!(store.refused(), 0);
    }
}
