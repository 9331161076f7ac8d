//! A job as part of a state that is reached once. Its history is left out, and counts are cut short, so that what can
//! happen next is all that tells two states apart.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use callsheet::domain::job::Job;

/// See the module's documentation. Most steps leave a job as it is: its hash is kept with it, and both are shared by the
/// states that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life(Arc<(u64, Job)>);

impl Life {
    pub(crate) fn of(job: Job) -> Life {
        let mut hasher = DefaultHasher::new();
        format!("{job:?}").hash(&mut hasher);
        Life(Arc::new((hasher.finish(), job)))
    }
}

impl Deref for Life {
    type Target = Job;
    fn deref(&self) -> &Job {
        &self.0.1
    }
}

impl Hash for Life {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0.0);
    }
}
