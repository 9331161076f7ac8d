//! How commands reach the control API: over the socket of a daemon, or in this process.

mod control_client;
mod in_process;

pub use crate::client::control_client::{Client, ClientError};
pub use crate::client::in_process::InProcess;
