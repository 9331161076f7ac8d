//! The pure core: what things are and what is decided about them.
//!
//! Nothing here may read a clock, draw a random number, touch a file or a socket, or be `async`.
//! Time comes in as an argument; effects go out as values.

pub mod account;
pub mod admission;
pub mod budget;
pub mod credits;
pub mod drift;
pub mod exit;
pub mod ids;
pub mod job;
pub mod label;
pub mod ledger;
pub mod lifecycle;
pub mod manifest;
pub mod origin;
pub mod policy;
pub mod poll_interval;
pub mod problem;
pub mod queue_class;
pub mod quote;
pub mod reach;
pub mod recovery;
pub mod release;
pub mod request;
pub mod retry;
pub mod revision;
pub mod schedule;
pub mod slow_download;
pub mod standing;
pub mod task;
pub mod throttle;
pub mod time;
