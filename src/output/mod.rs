//! What people find on disk: one folder a batch, outputs named after their jobs, a sidecar beside
//! each job's outputs, and the results of the whole batch.
//!
//! Architecture invariant: a file under its final name is whole, checked and synced. Anything else
//! is called `.part` and begins with a dot.

mod integrity;
pub mod layout;
mod media_type;
pub mod publish;
pub mod report;
pub mod results;
pub mod sidecar;

pub use self::integrity::is_truncated;
pub use self::media_type::{Media, NotMedia, detect_media_type};
