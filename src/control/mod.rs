//! The control API of a running daemon: JSON over HTTP on a Unix socket, and over TCP where the
//! configuration asks for it. `docs/control.md` documents it for pipelines.
//!
//! [`protocol`] defines requests and responses; [`handlers`] makes the responses from a
//! [`EngineClient`](crate::engine::engine_client::EngineClient); [`routes`] holds the routes, [`client`] sends
//! requests, and [`listener`] authenticates connections. [`app`] puts an engine and its routes together: where no
//! daemon runs, a command serves the same routes to itself.

pub mod app;
pub mod client;
mod connections;
mod error_body;
pub mod handlers;
pub mod listener;
pub mod protocol;
mod refusals;
pub mod routes;
