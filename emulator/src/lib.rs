//! The service of the document, offline: real HTTP, real credits on an imaginary account, real media.
//!
//! For a newcomer's first minute, for a pipeline's own tests, and for ours. This crate shares nothing with
//! the client, so that it can disagree with it.
//!
//! [`start`] opens two origins on loopback: the API of the document, and the media that results come from.
//! Reading order: `tasks` (a task's life), `task_outcome` (what will become of it), `account`, `validation`, `pricing`,
//! `state` (the state machine that holds them), `persistence` (its log of records), `service` (state, log and clock
//! behind a lock), `faults` (which faults apply to a call), `http` (routes; `fault_injection` applies the faults).
//!
//! # Beside the document
//!
//! The API origin also answers, without a key:
//!
//! | call | body | what it does |
//! |---|---|---|
//! | `GET /emulator/audit` | | what was charged, refunded, sent twice, polled; `?tasks=false` for the sums alone |
//! | `GET`, `POST /emulator/faults` | a plan (TOML or JSON), or `{"plan": "storm"}` | what goes wrong; see [`FaultPlan`] |
//! | `GET`, `POST /emulator/clock` | `{"advance_ms": 5000}` | steps time forwards |
//! | `GET`, `POST /emulator/account` | `{"credits": 5, "plan": "ultra", "key_valid": false}`, all optional | sets the account |
//! | | `{"top_up": 100, "spend": 30, "use_allowance": {"images": 20, "house_seconds": 295}}` | what happens to it elsewhere |
//! | `GET`, `POST /emulator/catalog` | a catalog file, in part or whole; `{"multiply": 2}` | what may be asked for and what it costs, from now on |
//! | `POST /emulator/tasks/{id}` | `{"status": "canceled"}`, `success`, or `failed` with `error_code` and `reason` | ends a running task now |
//!
//! # Where the document is silent
//!
//! - An old key is answered with its task before the body is looked at, since bodies are not compared.
//! - A body larger than 1 MiB, or that is not JSON, is 400 `invalid_request`.
//! - The price of an exact `size` is that of the smallest resolution that holds its pixels and of the nearest
//!   listed aspect ratio.
//! - A picture of an exact `size` has that size in pixels; all others have their aspect ratio and 512 pixels on
//!   the longest side.
//! - Characters of a text are Unicode scalar values.
//! - Two `Idempotency-Key` headers on one call are an invalid key.
//! - Each origin has at most 1024 connections at once; the next one waits until another ends.
//! - The older endpoints under `/api/ai` have no documented shape and are 404.
//! - `costCredits` keeps the price of a refunded task: it is what was deducted.
//! - Shorts Studio takes any object, costs 20 credits, and is polled with the `taskId` or `requestId` it answered;
//!   the two differ. Its errors carry no task, so what it refuses it refuses before there is one.
//! - Music costs the base price of the catalog's first model, or more by its length.
//! - A price is whole before audio multiplies it. A note that says by how much (`1.5x`) is taken at its word.
//! - Synchronous calls that take longer than ten minutes (at speed 1) answer with the task as it is.

#![warn(missing_docs)]

mod account;
mod audit;
mod catalog;
mod clock;
mod errors;
mod faults;
mod http;
mod inputs;
mod media;
mod openapi;
mod options;
mod persistence;
mod pricing;
mod refund;
mod server;
mod service;
mod state;
mod task_duration;
mod task_outcome;
mod tasks;
mod usage;
mod validation;
mod wire;

pub use account::Plan;
pub use faults::{FaultPlan, READY_PLANS};
pub use options::{DEFAULT_API_KEY, Options, StartError};
pub use server::{Emulator, start};
