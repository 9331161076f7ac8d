//! What the scheduler is made of.
//!
//! Each part keeps its fields to itself and knows nothing of the scheduler, which composes them and passes between
//! them: what a part must know of another, it is given.

#![allow(unreachable_pub, reason = "`pub` marks what a part offers to the scheduler")]

pub mod account_state;
pub mod active_batch;
pub mod active_batches;
pub mod admission_candidates;
pub mod api_key_refusal;
pub mod attention;
pub mod budget_totals;
pub mod disk_state;
pub mod download_queue;
pub mod finished_jobs;
pub mod input_store_state;
pub mod input_waits;
pub mod job_counts;
pub mod job_inputs;
pub mod open_job;
pub mod open_jobs;
pub mod out_of_credits_wait;
pub mod outage_detector;
pub mod output_store_state;
pub mod pending_step;
pub mod prices;
pub mod queued_jobs;
pub mod reading_slots;
pub mod refused_folders;
pub mod row_windows;
pub mod scratch;
pub mod submit_rate;
pub mod task_owners;
pub mod timers;
pub mod wait_times;
