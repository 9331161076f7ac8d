//! The control API of a running daemon: JSON over HTTP on a Unix socket, and over TCP where the
//! configuration asks for it. `docs/control.md` documents it for pipelines.
//!
//! [`protocol`] defines requests and responses; [`handlers`] makes the responses from a
//! [`EngineClient`](crate::engine::engine_client::EngineClient); [`routes`] holds the routes, and
//! [`listener`] authenticates connections. [`app`] puts an engine and its routes together. [`client`](crate::client)
//! sends requests: where no daemon runs, a command serves the same routes to itself.

pub mod access;
mod api_error;
pub mod app;
pub mod app_state;
mod batch_status;
mod connections;
mod error_body;
mod event_stream;
mod explain_answer;
pub mod handlers;
mod input_routes;
pub(crate) mod job_facts;
mod ledger_entry;
pub mod listener;
pub mod live_page;
mod next_step;
mod page_actions;
mod page_forms;
mod page_gallery;
mod page_output_files;
mod page_review;
mod page_routes;
mod page_schedules;
mod page_session;
mod page_state;
mod page_submit;
mod page_take;
mod page_views;
mod planned_manifests;
pub mod protocol;
mod refusals;
pub mod review_handlers;
pub mod review_protocol;
pub mod routes;
mod status_list;
