//! Outputs that are asked for again after a job was over: nothing is bought by that, whatever the record of its task says
//! meanwhile, and what was recorded before stays where nothing is found.

use thin_vec::ThinVec;

use crate::domain::ids::TaskId;
use crate::domain::job::lifecycle::Change;
use crate::domain::job::lifecycle::history::DOWNLOAD_GIVEN_UP;
use crate::domain::job::{Attempt, DOWNLOAD_FAILED, OutputFile, RESOLVED, State};
use crate::domain::task::Fault;

impl Attempt {
    /// Whether it was over before its outputs were asked for again, and its task was not seen to have succeeded since.
    pub(super) fn was_over(&self) -> bool {
        let failed_before = |fault: &Fault| [DOWNLOAD_FAILED, RESOLVED].contains(&fault.code.as_str());
        matches!(&self.state, State::Fetching { files, .. } if !files.is_empty())
            || self.rare.rejected.as_ref().is_some_and(failed_before)
    }

    /// Whether a person had recorded what it was charged before its outputs were asked for again.
    pub(super) fn was_resolved(&self) -> bool {
        self.rare.rejected.as_ref().is_some_and(|fault| fault.code == RESOLVED)
    }
}

impl Change {
    /// Its outputs are asked for again. How it had failed is kept until its task is seen to have succeeded.
    pub(super) fn fetch_again(&mut self, state: State) {
        let (task, files, failed) = match state {
            State::Succeeded { task, files } => (task, files, None),
            State::Failed { task: Some(task), fault } => (task, ThinVec::new(), Some(fault)),
            _ => return,
        };
        self.end(State::Fetching { task, urls: ThinVec::new(), files }, "its outputs are downloaded again");
        self.attempt_mut().rare.change(|rare| rare.rejected = failed);
    }

    /// A download is given up. A job that had outputs before has succeeded with these: they may be in the object store, or
    /// edited, and are found there again. What a person had recorded of one without stays recorded.
    pub(super) fn give_up_download(
        &mut self,
        task: TaskId,
        files: ThinVec<OutputFile>,
        fault: Fault,
        why: &str,
    ) {
        let before = self.attempt_mut().take_rejected().filter(|before| before.code == RESOLVED);
        if !files.is_empty() {
            let what = format!("{DOWNLOAD_GIVEN_UP}: {why}; its earlier outputs stay recorded");
            self.end(State::Succeeded { task, files }, &what);
        } else if let Some(before) = before {
            let what = format!("{DOWNLOAD_GIVEN_UP}: {why}; what was recorded of its charge stays");
            self.end(State::Failed { fault: before, task: Some(task) }, &what);
        } else {
            self.end(State::Failed { fault, task: Some(task) }, &format!("{DOWNLOAD_GIVEN_UP}: {why}"));
        }
    }
}
