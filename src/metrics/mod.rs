//! Metrics for a monitoring system. `registry` has every metric, `labels` the labels and their values, `exposition` the text
//! format.

mod exposition;
mod labels;
mod registry;

pub use self::labels::{Answer, Endpoint};
pub use self::registry::{CONTENT_TYPE, Metrics, Moved};
