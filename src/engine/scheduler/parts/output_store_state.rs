//! Whether the object store takes outputs. At a start it is asked before anything is sent. One that refuses is asked again by
//! each job that waits for it, and nothing new is sent meanwhile; downloads go on, since links do not last.

/// After so many faults of a store in a row, a run does not wait for it any more.
pub const STORE_FAULTS_MAX: u32 = 5;

/// Which check of the store an answer belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StoreCheckNo(u64);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct StoreState {
    faults: u32,
    check: Check,
    no: StoreCheckNo,
}

/// What came of asking it beside the outputs that are put into it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// It is not asked.
    #[default]
    None,
    /// It has not answered yet.
    Awaited,
    /// It did not answer so often in a row, and is asked again.
    Failed(u32),
    /// It answered, or took outputs while it was asked.
    Answered,
}

impl StoreState {
    /// Whether it refused what was last to be put into it, or did not answer.
    pub fn is_down(&self) -> bool {
        self.refuses() || self.is_unanswered()
    }

    /// Whether it refused what was last to be put into it.
    pub fn refuses(&self) -> bool {
        self.faults > 0
    }

    /// Whether it did not answer when it was asked, and is asked again.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.check, Check::Failed(_))
    }

    /// Whether it did not answer so often that its answer is not to be waited for.
    pub fn is_given_up(&self) -> bool {
        matches!(self.check, Check::Failed(times) if times >= STORE_FAULTS_MAX)
    }

    /// Whether it is not known yet if it answers.
    pub fn is_awaited(&self) -> bool {
        self.check == Check::Awaited
    }

    /// It is asked whether it answers, or none is there that could be. Answers to earlier checks count no more: they may be
    /// those of another store.
    pub fn is_asked(&mut self, is_asked: bool) -> StoreCheckNo {
        self.no.0 += 1;
        self.check = if is_asked { Check::Awaited } else { Check::None };
        if !is_asked {
            self.faults = 0;
        }
        self.no
    }

    /// It answered a check, or did not.
    pub fn answered(&mut self, no: StoreCheckNo, answers: bool) {
        if no != self.no {
            return;
        }
        self.check = match (answers, self.check) {
            (_, Check::None) => Check::None,
            (true, _) => Check::Answered,
            (false, Check::Failed(times)) => Check::Failed(times.saturating_add(1)),
            (false, _) => Check::Failed(1),
        };
    }

    /// It took outputs. True: it did not before. What it has not answered yet it still has to: the outputs may have gone to the
    /// store before it.
    pub fn took(&mut self) -> bool {
        let was_down = self.is_down();
        self.faults = 0;
        if self.is_unanswered() {
            self.check = Check::Answered;
        }
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
        let check = store.is_asked(true);
        assert!(store.is_awaited() && !store.is_down());
        store.answered(check, false);
        assert!(store.is_down() && !store.is_awaited());
        store.refused();
        assert!(!store.is_wanted_by_none() && store.is_down(), "it still does not answer");
        store.answered(check, true);
        assert!(!store.is_down() && !store.is_awaited());
        store.answered(check, false);
        assert!(store.took() && !store.is_down(), "it took outputs meanwhile");
    }

    #[test]
    fn an_answer_to_an_earlier_check_says_nothing_of_the_present_store() {
        let mut store = StoreState::default();
        let former = store.is_asked(true);
        let check = store.is_asked(true);
        store.answered(former, true);
        assert!(store.is_awaited(), "it was another store that answered");
        assert!(!store.took() && store.is_awaited(), "and that took outputs");
        store.answered(former, false);
        assert!(store.is_awaited());
        store.answered(check, false);
        store.refused();
        store.is_asked(false);
        assert!(!store.is_down(), "there is none any more");
        for late in [former, check] {
            store.answered(late, false);
            assert!(!store.is_down() && !store.is_awaited());
        }
    }

    #[test]
    fn one_that_never_answers_is_given_up() {
        let mut store = StoreState::default();
        let check = store.is_asked(true);
        for _ in 1..STORE_FAULTS_MAX {
            store.answered(check, false);
            assert!(!store.is_given_up());
        }
        store.answered(check, false);
        assert!(store.is_given_up() && store.is_down());
        store.answered(check, true);
        assert!(!store.is_given_up() && !store.is_down());
    }
}
