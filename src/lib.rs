//! callsheet turns manifests (lists of prompts and options) into finished media files through a
//! pay-per-credit generation service, and treats every credit as money.
//!
//! Reading order, from the pure middle outwards. Each module may import the ones before it where
//! `tests/repo_lint/sources.rs` says so, and never one after it.
//!
//! 1. [`domain`]: what a job, a hold and a plan are, and every decision about them. No I/O.
//! 2. [`store`]: what is durable. The only user of the database.
//! 3. [`recovery`]: what to do about a state that is damaged, lost or carried elsewhere.
//! 4. [`api`]: the service from our side. The only user of the HTTP client.
//! 5. [`output`]: names, publishing, sidecars and results on disk.
//!    [`pages`]: what people look at in a browser.
//! 6. [`engine`]: decides, commits, does. One loop.
//! 7. [`ingest`]: the one path by which jobs are accepted.
//! 8. [`server`], [`hooks`] and [`daemon`]: the service that runs for months, its control API, and the
//!    notifications that it sends. [`client`]: how that API is reached, over the socket or in this process.
//! 9. [`config`] and [`cli`]: the configuration and the commands.
//!
//! The service itself, offline, is a crate of its own: `callsheet-emulator`, in `emulator/`.
//!
//! Beside them: [`clock`], the only reader of the system's clocks, [`metrics`], for a monitoring
//! system, [`file_system`], for names and folders on any disk, and [`failpoint`], where tests may kill the process.

pub mod api;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod domain;
pub mod engine;
pub mod failpoint;
pub mod file_system;
pub mod hooks;
pub mod ingest;
pub mod metrics;
pub mod object_storage;
pub mod output;
pub mod pages;
pub mod recovery;
pub mod server;
pub mod store;
