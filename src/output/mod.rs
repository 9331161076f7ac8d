//! What people find on disk: one folder a batch, outputs named after their jobs, a sidecar beside
//! each job's outputs, and the results of the whole batch.
//!
//! Architecture invariant: a file under its final name is whole, checked and synced. Anything else
//! is called `.part` and begins with a dot.

pub mod landing;
pub mod layout;
pub mod report;
pub mod results;
pub mod sidecar;
mod sniff;
mod whole;

pub use self::sniff::{Media, NotMedia, sniff};
pub use self::whole::is_cut_off;
