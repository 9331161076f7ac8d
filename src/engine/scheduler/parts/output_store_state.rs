//! Whether the object store takes outputs. At a start it is asked before anything is sent. One that refuses is asked again by
//! each job that waits for it, and nothing new is sent meanwhile; downloads go on, since links do not last.

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct StoreState {
    faults: u32,
    check: Check,
}

/// What came of asking it beside the outputs that are put into it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// It answered, or it is not asked.
    #[default]
    Done,
    /// It has not answered yet.
    Awaited,
    /// It did not answer, and is asked again.
    Failed,
}

impl StoreState {
    /// Whether it refused what was last to be put into it, or did not answer.
    pub fn is_down(&self) -> bool {
        self.faults > 0 || self.is_unanswered()
    }

    /// Whether it did not answer when it was asked, and is asked again.
    pub fn is_unanswered(&self) -> bool {
        self.check == Check::Failed
    }

    /// Whether it is not known yet if it answers.
    pub fn is_awaited(&self) -> bool {
        self.check == Check::Awaited
    }

    /// It is asked whether it answers, or none is there that could be.
    pub fn is_asked(&mut self, is_asked: bool) {
        self.check = match (is_asked, self.check) {
            (false, _) => Check::Done,
            // What was found of the one before stands until this one answers.
            (true, Check::Failed) => Check::Failed,
            (true, _) => Check::Awaited,
        };
    }

    /// It answered, or did not.
    pub fn answered(&mut self, answers: bool) {
        self.check = if answers { Check::Done } else { Check::Failed };
    }

    /// It took outputs. True: it did not before.
    pub fn took(&mut self) -> bool {
        let was_down = self.is_down();
        *self = StoreState::default();
        was_down
    }

    /// No outputs wait any more that it refused. True: it counts as taking them again.
    pub fn is_wanted_by_none(&mut self) -> bool {
        std::mem::take(&mut self.faults) > 0 && !self.is_down()
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

    #[test]
    fn one_that_does_not_answer_is_down_until_it_does() {
        let mut store = StoreState::default();
        store.is_asked(true);
        assert!(store.is_awaited() && !store.is_down());
        store.answered(false);
        assert!(store.is_down() && !store.is_awaited());
        store.refused();
        assert!(!store.is_wanted_by_none() && store.is_down(), "it still does not answer");
        store.answered(true);
        assert!(!store.is_down() && !store.is_awaited());
        store.answered(false);
        assert!(store.took() && !store.is_down(), "it took outputs meanwhile");
    }
}
