//! What people hand in, and what the commands say and leave.

mod another_take;
mod bad_input;
mod batch_sources;
mod docs;
mod doctor;
mod edited_rows;
mod gallery;
mod gcs_store;
mod hostile_names;
mod init;
mod input_files;
mod log;
mod matrix;
mod measured_length;
mod output_store;
mod pilot;
mod plan;
mod reader_suites;
mod references;
mod report;
mod resubmit;
mod retry_edited;
mod review;
mod run;
mod sampling;
mod scratch;
mod secrets;
mod shorts_studio;
mod spreadsheet;
mod stdin;
mod store_faults;
mod store_names;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod which_state;
