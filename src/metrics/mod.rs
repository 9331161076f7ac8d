//! Metrics for a monitoring system. `definitions` has every metric, `labels` the labels and their values, `exposition` the text
//! format.

mod definitions;
mod exposition;
mod labels;

pub use self::definitions::{CONTENT_TYPE, Metrics, Moved};
pub use self::labels::{Answer, Endpoint};
