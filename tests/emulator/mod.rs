//! The emulator: as a process, over HTTP, and against the wire fixtures that the client is held to as well.

mod bench;
mod command;
mod contract;
mod docs;
mod faults;
mod kill;
mod process;
mod state;
mod wire;
mod wire_client;
