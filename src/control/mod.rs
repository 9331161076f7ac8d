//! How a running daemon is spoken to: JSON over HTTP on a Unix socket, and over TCP where the
//! configuration asks for it. `docs/control.md` documents it for pipelines.
//!
//! [`protocol`] says what is asked and answered; [`answers`] makes the answers from a
//! [`Desk`](crate::engine::desk::Desk), so that they are the same whether a daemon gives them or a command
//! finds them itself; [`server`] and [`client`] carry them, and [`listening`] lets in who may speak.

pub mod answers;
mod body;
pub mod client;
mod connections;
pub mod listening;
pub mod protocol;
pub mod server;
