//! Fields that few jobs or attempts have. Those that have none of them take a word for all together: jobs in flight are many.

use std::ops::Deref;

/// Fields that mostly have the values of [`RareFields::NONE`].
pub(super) trait RareFields: Default + PartialEq + 'static {
    /// All of them empty: what [`Default`] gives.
    const NONE: &'static Self;
}

/// See the module's documentation. Equal to another where all fields are: with nothing in them there is no box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rare<T>(Option<Box<T>>);

impl<T: RareFields> Rare<T> {
    /// With these fields.
    pub(super) fn new(fields: T) -> Rare<T> {
        Rare((fields != *T::NONE).then(|| Box::new(fields)))
    }

    /// Changes some of them.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        // Nothing is allocated where nothing is set.
        let Some(fields) = &mut self.0 else {
            let mut fields = T::default();
            let returned = change(&mut fields);
            *self = Rare::new(fields);
            return returned;
        };
        let returned = change(fields);
        if **fields == *T::NONE {
            self.0 = None;
        }
        returned
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Rare<T> {
        Rare(None)
    }
}

impl<T: RareFields> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Clone, PartialEq)]
    struct Fields {
        code: Option<u32>,
        words: Vec<String>,
    }

    impl RareFields for Fields {
        const NONE: &'static Fields = &Fields { code: None, words: Vec::new() };
    }

    #[test]
    fn fields_without_values_take_a_word() {
        assert_eq!(size_of::<Rare<Fields>>(), size_of::<usize>());
        let mut rare = Rare::new(Fields::default());
        assert_eq!((rare.0.is_none(), rare.code), (true, None));
        rare.change(|fields| fields.code = Some(3));
        assert_eq!(rare.code, Some(3));
        assert_ne!(rare, Rare::default());
        assert_eq!(rare.change(|fields| fields.code.take()), Some(3));
        assert!(rare.0.is_none());
        assert_eq!(rare, Rare::new(Fields::default()), "equal, since all their fields are");
    }
}
