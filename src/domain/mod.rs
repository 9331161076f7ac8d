//! The pure core: what things are and what is decided about them.
//!
//! Nothing here may read a clock, draw a random number, touch a file or a socket, or be `async`.
//! Time comes in as an argument; effects go out as values.

pub mod absent_rows;
pub mod adaptive_limit;
pub mod admission;
pub mod balance_check_interval;
pub mod batch_origin;
pub mod batch_terms;
pub mod budget;
pub mod budget_group;
pub mod charge_drift;
pub mod credit_hold;
pub mod credits;
pub mod default_fields;
pub mod diagnostic;
pub mod exit_code;
pub mod gauge_values;
pub mod gone_input;
pub mod hex;
pub mod idempotency_key;
pub mod ids;
pub mod input_file;
pub mod job;
pub mod job_label;
pub mod job_reference;
pub mod job_state;
pub mod json_object;
pub mod ledger;
pub mod manifest;
pub mod number_text;
pub mod out_of_credits;
pub mod parked_reason;
pub mod path_text;
pub mod pilot;
pub mod plural;
pub mod poll_interval;
pub mod queue_class;
pub mod quote;
pub mod recovered_job_state;
pub mod reference_graph;
pub mod remedy;
pub mod report_group;
pub mod request;
pub mod retry_delay;
pub mod review;
pub mod row_changes;
pub mod row_selection;
pub mod row_verdict;
pub mod row_versions;
pub mod schedule;
pub mod shell_word;
pub mod short_list;
pub mod slow_download;
pub mod task;
pub mod text_prefix;
pub mod time;
pub mod url_policy;
pub mod utc_day;

pub use job::lifecycle;
