//! The state directory: damaged, lost, full, exported, of earlier versions, and after a loss of power.

mod damage;
mod disk_full;
mod dump;
mod failing_calls;
mod frozen;
mod killed_calls;
mod killed_commands;
mod lost;
mod power_loss;
mod rebuild;
mod system_calls;
