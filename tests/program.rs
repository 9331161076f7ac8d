//! The program from outside: every test here starts it, or speaks to its emulator. One test binary, so that it is linked
//! once, and tests that wait have others beside them.
//!
//! ```text
//! cargo test --test program                        all of them
//! cargo test --test program faults::crash::        those of a file
//! ```

mod cli;
mod daemon;
mod emulator;
mod faults;
mod kills;
mod money;
mod state;
mod support;
