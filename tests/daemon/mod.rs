//! The daemon: inboxes, the control socket, schedules, metrics, retention.

mod control_socket;
mod inbox_order;
mod input_files;
pub(crate) mod live_page;
mod log_reader;
mod metrics_of_a_run;
mod monitoring;
mod page_costs;
mod page_questions;
mod reload;
mod retention;
mod review_page;
mod schedule_table;
mod schedules;
mod service;
mod systemd;
