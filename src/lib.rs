//! callsheet turns manifests (lists of prompts and options) into finished media files through a
//! pay-per-credit generation service, and treats every credit as money.
//!
//! Reading order, from the pure middle outwards:
//!
//! 1. [`domain`]: what a job, a hold and a plan are, and every decision about them. No I/O.
//! 2. [`emulator`]: the service itself, offline. Imports nothing from the other rooms.

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod emulator;
pub mod engine;
pub mod failpoint;
pub mod intake;
pub mod output;
pub mod store;
