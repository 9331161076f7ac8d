//! What helps a job that takes an output which the service has no more.

use crate::domain::ids::BatchName;
use crate::domain::shell_word::job_argument;

/// Code of a job whose input the service has no more, or whose file is neither in the state nor in the object store.
pub const INPUT_GONE: &str = "input_gone";

/// What the error of a row whose input is gone says of its charge. What helps follows it.
const NOTHING_CHARGED: &str = "; nothing was charged";

/// The error of a row whose input is gone.
pub fn gone_message(row: &str, why: &str) -> String {
    format!("the row {row} {why}{NOTHING_CHARGED}")
}

/// The part of that error which is true of a job that may have been sent, too.
pub fn why_gone(message: &str) -> &str {
    message.split_once(NOTHING_CHARGED).map_or(message, |(why, _)| why)
}

/// Why our own copy of an output was not used in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnusedCopy {
    /// No object store is configured from which it could be sent.
    NoStore,
    /// It is not on disk as it was downloaded.
    NotOnDisk {
        /// Where it was, below the folder of its batch.
        path: String,
        /// It was put into the object store of outputs.
        has_object: bool,
    },
    /// It cannot be an input.
    NoCopy,
    /// The row has no such output.
    NoSuchOutput,
}

impl UnusedCopy {
    /// What helps, as a part of a sentence. `job` is the one that takes the output, `parent` a job of the row that gives it.
    pub fn what_helps(&self, job: (&BatchName, &str), (parent_batch, parent): (&BatchName, &str)) -> String {
        let retry = format!("callsheet retry {}", job_argument(job.0, job.1));
        let another = job_argument(parent_batch, parent);
        let another = format!(
            "another take of {parent} can be bought and picked: callsheet review another-take {another}"
        );
        match self {
            UnusedCopy::NoStore => {
                format!("to have the copy on disk sent: set inputs.store in the configuration, then: {retry}")
            }
            UnusedCopy::NotOnDisk { path, has_object } => {
                let how = match has_object {
                    true => format!("callsheet outputs sync {parent_batch}"),
                    false => "put it back as it was downloaded".to_owned(),
                };
                format!(
                    "its copy {parent_batch}/{path} is not on disk as it was downloaded: {how}, then: {retry}; or {another}"
                )
            }
            UnusedCopy::NoSuchOutput => "name another output of it, and submit the manifest again".to_owned(),
            UnusedCopy::NoCopy => format!("there is no copy of it; {another}, then: {retry}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_helps_is_a_command_and_a_retry_alone_is_none() {
        let (children, parents) = ("ch".parse().unwrap(), "par".parse().unwrap());
        let helps = |copy: UnusedCopy| copy.what_helps((&children, "c0"), (&parents, "s0"));
        assert_eq!(
            helps(UnusedCopy::NoStore),
            "to have the copy on disk sent: set inputs.store in the configuration, then: callsheet retry ch/c0"
        );
        let not_on_disk = |has_object| UnusedCopy::NotOnDisk { path: "s0.png".to_owned(), has_object };
        assert_eq!(
            helps(not_on_disk(true)),
            "its copy par/s0.png is not on disk as it was downloaded: callsheet outputs sync par, then: callsheet retry \
             ch/c0; or another take of s0 can be bought and picked: callsheet review another-take par/s0"
        );
        assert!(
            helps(not_on_disk(false)).contains("put it back as it was downloaded, then: callsheet retry")
        );
        assert!(helps(UnusedCopy::NoCopy).starts_with("there is no copy of it; another take of s0"));
        let gone = gone_message("s0", "has no task");
        assert_eq!(why_gone(&format!("{gone}; {}", helps(UnusedCopy::NoStore))), "the row s0 has no task");
        assert_eq!(why_gone("cut off"), "cut off");
    }
}
