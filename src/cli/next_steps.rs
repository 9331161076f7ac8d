//! What can be done when a command has run or waited, as commands to copy.

use std::path::{Path, PathBuf};

use crate::cli::continue_pilot;
use crate::cli::invocation::{BudgetSource, Invocation};
use crate::cli::terminal::{self, Tone};
use crate::cli::{printable, printable_path};
use crate::client::Client;
use crate::domain::job::{OutputFile, RESOLVED};
use crate::domain::job_state::JobState;
use crate::domain::parked_reason::Parked;
use crate::domain::pilot::Pilot;
use crate::domain::remedy::{Remedy, remedy_for};
use crate::domain::shell_word::job_argument;
use crate::ingest::receipt::Receipt;
use crate::output::report::Listed;
use crate::server::protocol::{BatchStatus, JobSummary, JobsRequest};

/// Jobs and lines that are named; the rest are counted.
pub(super) const NAMED_MAX: usize = 5;

/// Up to so many jobs of a daemon's batch are asked for their files, or for what they wait for.
const LOOKED_FOR_MAX: u32 = 10_000;

/// A job that failed or is in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailedJob {
    /// The job's label.
    pub(super) id: String,
    /// Its line in the manifest.
    pub(super) line: u64,
    pub(super) reason: String,
    /// A person has told what became of it.
    pub(super) is_resolved: bool,
    /// What helps, where it failed.
    pub(super) remedy: Option<Remedy>,
}

impl FailedJob {
    pub(super) fn of(listed: &Listed) -> FailedJob {
        let Listed { id, line, reason, code, remedy } = listed.clone();
        FailedJob { id, line, reason, is_resolved: code.is_some_and(|code| code == RESOLVED), remedy }
    }

    /// From a line of the response to a question for jobs; none where nothing went wrong.
    fn of_summary(job: JobSummary) -> Option<FailedJob> {
        let JobSummary { id, line, state, superseded, error, charged_credits, inputs, job, .. } = job;
        let error = error?;
        if superseded && state == JobState::Failed.name() {
            return None;
        }
        // Its label means the version that is wanted.
        let id = if superseded && !job.is_empty() { job } else { id };
        let (reason, is_resolved) = (error.to_string(), error.code == RESOLVED);
        let remedy = (state == JobState::Failed.name())
            .then(|| remedy_for(&error.code, !charged_credits.is_zero(), !inputs.is_empty()));
        Some(FailedJob { id, line, reason, is_resolved, remedy })
    }
}

/// How a batch stands when the command ends.
#[derive(Debug)]
pub(super) struct BatchEnd<'a> {
    pub(super) status: &'a BatchStatus,
    /// The manifest that the command got for it.
    pub(super) manifest: Option<&'a Path>,
    /// Only a part of it was handed in.
    pub(super) is_part: bool,
    pub(super) failed: Vec<FailedJob>,
    pub(super) in_doubt: Vec<FailedJob>,
    /// Outputs that were downloaded and are not on disk any more.
    pub(super) missing_files: u32,
    /// Jobs that expired and whose own deadline has passed; nothing where that is not known.
    pub(super) past_deadline: Option<u32>,
    /// The first job that waits and takes outputs of other rows.
    pub(super) waits_for_rows: Option<String>,
}

impl<'a> BatchEnd<'a> {
    /// As a daemon tells of it, whose outputs are below `output`. What it does not answer is left out.
    pub(super) async fn ask(
        client: &Client,
        status: &'a BatchStatus,
        receipts: &'a [Receipt],
        output: &Path,
    ) -> BatchEnd<'a> {
        let mut end = BatchEnd {
            status,
            manifest: manifest_of(receipts, status),
            is_part: is_part(receipts, status),
            failed: Vec::new(),
            in_doubt: Vec::new(),
            missing_files: 0,
            past_deadline: None,
            waits_for_rows: None,
        };
        let dir = output.join(status.name.as_str());
        for state in [JobState::Failed, JobState::InDoubt, JobState::Succeeded, JobState::Queued] {
            let is_listed = matches!(state, JobState::Failed | JobState::InDoubt);
            let is_many = !is_listed && status.in_state(state) > LOOKED_FOR_MAX;
            let is_asked = state != JobState::Queued || status.parked_by == Some(Parked::Inputs);
            if status.in_state(state) == 0 || is_many || !is_asked {
                continue;
            }
            let request =
                JobsRequest { batch: Some(status.name.clone()), state: Some(state.name().to_owned()) };
            let mut take = |line: &[u8]| {
                let job: JobSummary = serde_json::from_slice(line)?;
                let is_missing = |file: &&OutputFile| {
                    file.object.is_none() && dir.join(&file.path).symlink_metadata().is_err()
                };
                match state {
                    JobState::Failed => end.failed.extend(FailedJob::of_summary(job)),
                    JobState::InDoubt => end.in_doubt.extend(FailedJob::of_summary(job)),
                    JobState::Queued if !job.inputs.is_empty() && !job.superseded => {
                        end.waits_for_rows.get_or_insert(job.id);
                    }
                    JobState::Queued => {}
                    _ => {
                        let missing = job.files.iter().filter(is_missing).count();
                        end.missing_files += u32::try_from(missing).unwrap_or(u32::MAX);
                    }
                }
                Ok(())
            };
            // What comes next is said as far as it is known: the batch has ended as its status says.
            let _ = client.lines(&request, &mut take).await;
        }
        end
    }
}

/// Says of batches what can be done. A batch that is as it should be is not mentioned.
pub(super) fn say(ends: &[BatchEnd<'_>], invocation: &Invocation) {
    for end in ends {
        for line in lines(end, invocation) {
            match line {
                Line::Command(command) => terminal::print_command(&command),
                Line::Text(text, tone) => terminal::print_wrapped(&printable(&text), tone),
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Text(String, Tone),
    Command(String),
}

impl Line {
    fn plain(text: String) -> Line {
        Line::Text(text, Tone::Plain)
    }
}

fn lines(end: &BatchEnd<'_>, invocation: &Invocation) -> Vec<Line> {
    let (status, name) = (end.status, end.status.name.as_str());
    let mut lines = Vec::new();
    for (troubles, state) in [(&end.failed, JobState::Failed), (&end.in_doubt, JobState::InDoubt)] {
        for FailedJob { id, line, reason, .. } in troubles.iter().take(NAMED_MAX) {
            lines.push(Line::Text(format!("{name}/{id} (line {line}): {reason}"), Tone::Failed));
        }
        let count = status.in_state(state) as usize;
        let more = count.saturating_sub(troubles.len().min(NAMED_MAX));
        if more > 0 && !troubles.is_empty() {
            lines.push(Line::plain(format!("and {more} more {}", state.name().replace('_', " "))));
        }
    }
    failures(end, invocation, &mut lines);
    if !end.in_doubt.is_empty() {
        lines.push(Line::plain(format!(
            "{name}: {} in doubt; look up the charge in the account and record it, or --not-charged:",
            jobs(end.in_doubt.len())
        )));
    }
    for job in end.in_doubt.iter().take(NAMED_MAX) {
        let job = job_argument(name, &job.id);
        lines.push(Line::Command(invocation.command(&["resolve", &job, "--charged", "N"])));
    }
    let past = end.past_deadline.unwrap_or_default();
    for state in [JobState::Canceled, JobState::Expired] {
        let count = status.in_state(state);
        let count = if state == JobState::Expired { count.saturating_sub(past) } else { count };
        if count > 0 {
            let first = match (state, end.past_deadline) {
                (JobState::Expired, Some(_)) => "submit the manifest with a later policy.expires, and then, ",
                (JobState::Expired, None) => {
                    "add the rows whose own deadline has passed with other ids; for the others, submit the manifest with \
                     a later policy.expires, and then, "
                }
                _ => "",
            };
            let along = queued_along(end, state);
            lines.push(Line::plain(format!("{name}: {count} {state}; {first}to queue them again{along}:")));
            lines.push(Line::Command(invocation.command(&["retry", name])));
        }
    }
    if past > 0 {
        let (rows, ids) = if past == 1 { ("its row", "another id") } else { ("their rows", "other ids") };
        lines.push(Line::plain(format!(
            "{name}: {past} expired, because the deadline of {rows} had passed; a retry would expire, too: to have {} \
             made, add {rows} with {ids} and a later deadline",
            if past == 1 { "it" } else { "them" }
        )));
    }
    if end.missing_files > 0 {
        let (succeeded, missing) = (status.in_state(JobState::Succeeded), end.missing_files);
        let files = if missing == 1 { "file" } else { "files" };
        lines.push(Line::plain(format!("{name}: {succeeded} succeeded, {missing} {files} missing:")));
        lines.push(Line::Command(invocation.download(name)));
    }
    parked(end, invocation, &mut lines);
    lines
}

/// What a retry of a whole batch queues again beside its jobs in `state`: `, together with 2 failed`.
fn queued_along(end: &BatchEnd<'_>, state: JobState) -> String {
    let is_queued = |job: &&FailedJob| job.remedy.is_some_and(Remedy::is_retry);
    let count = |state: JobState| match state {
        JobState::Failed => end.failed.iter().filter(is_queued).count(),
        JobState::Expired => {
            end.status.in_state(state).saturating_sub(end.past_deadline.unwrap_or_default()) as usize
        }
        _ => end.status.in_state(state) as usize,
    };
    let others = [JobState::Failed, JobState::Canceled, JobState::Expired].into_iter();
    let others = others.filter(|other| *other != state).map(|other| (count(other), other));
    let others: Vec<String> =
        others.filter(|(count, _)| *count > 0).map(|(count, other)| format!("{count} {other}")).collect();
    if others.is_empty() { String::new() } else { format!(", together with {}", others.join(" and ")) }
}

/// The command for the manifest again. Of one that was handed in in part that would buy the rest. A budget that was just raised
/// is not given again.
fn hand_in_again(end: &BatchEnd<'_>, invocation: &Invocation) -> Line {
    let budget = invocation.budget.filter(|_| end.status.parked_by == Some(Parked::BatchBudget));
    if end.is_part {
        let otherwise = match budget {
            Some(BudgetSource::Environment) => " and with CALLSHEET_BUDGET unset, without --budget",
            Some(BudgetSource::Flag) => " and without --budget",
            None => "",
        };
        return Line::plain(format!(
            "    repeat this command, with the same part of the manifest{otherwise}"
        ));
    }
    let again = invocation.again(end.status.name.as_str(), end.manifest);
    Line::Command(match budget {
        Some(BudgetSource::Environment) => format!("env -u CALLSHEET_BUDGET {again}"),
        Some(BudgetSource::Flag) | None => again,
    })
}

/// What helps failed jobs, by what they failed of.
fn failures(end: &BatchEnd<'_>, invocation: &Invocation, lines: &mut Vec<Line>) {
    let name = end.status.name.as_str();
    let of = |wanted: &[Remedy]| {
        let is_wanted = |job: &&FailedJob| job.remedy.is_some_and(|remedy| wanted.contains(&remedy));
        end.failed.iter().filter(|job| !job.is_resolved).filter(is_wanted).collect::<Vec<_>>()
    };
    let unchanged = of(&[Remedy::ChangeRow, Remedy::SetLength]);
    if !unchanged.is_empty() {
        let file = end.manifest.map(|path| format!(" of {}", printable_path(path))).unwrap_or_default();
        lines.push(Line::plain(format!(
            "{name}: {}; change {}{file}, then:",
            if unchanged.len() == 1 {
                "1 row would fail again as it is".to_owned()
            } else {
                format!("{} rows would fail again as they are", unchanged.len())
            },
            numbers(&unchanged)
        )));
        // What is new waits with the rest, unless it is chosen for the pilot.
        match end.status.pilot {
            Some(_) => lines.push(hand_in_again(end, &invocation.as_pilot())),
            None => lines.push(hand_in_again(end, invocation)),
        }
    }
    let limited = of(&[Remedy::RaiseLimit]);
    if let Some(first) = limited.first() {
        lines.push(Line::plain(format!(
            "{name}: {} above max_credits; to allow N credits:",
            jobs(limited.len())
        )));
        let job = job_argument(name, &first.id);
        lines.push(Line::Command(invocation.command(&["retry", &job, "--max-credits", "N"])));
    }
    let paid = of(&[Remedy::Download]);
    if !paid.is_empty() {
        lines.push(Line::plain(format!("{name}: {} paid for and not downloaded:", jobs(paid.len()))));
        lines.push(Line::Command(invocation.download(name)));
    }
    let made = of(&[Remedy::MoveFileAway]);
    if let Some(first) = made.first() {
        lines.push(Line::plain(format!(
            "{name}: {} made and paid for before, and nothing was bought. To pay for one again, move the file away that its \
             error names, then:",
            jobs(made.len())
        )));
        let job = job_argument(name, &first.id);
        lines.push(Line::Command(invocation.command(&["retry", &job])));
    }
    let without_input = of(&[Remedy::RestoreInput]);
    if !without_input.is_empty() {
        let (count, take) = match without_input.len() {
            1 => ("1 job".to_owned(), "takes"),
            many => (format!("{many} jobs"), "take"),
        };
        let lead = if without_input.len() == 1 { "its error says" } else { "their errors say" };
        lines.push(Line::plain(format!(
            "{name}: {count} {take} an input that is gone; do what {lead}, then:"
        )));
    }
    let again = of(&[Remedy::Retry]);
    if !again.is_empty() {
        let failed = if again.len() == 1 { "failed job".to_owned() } else { "failed jobs".to_owned() };
        lines.push(Line::plain(format!("{name}: {} {failed} may succeed at another attempt:", again.len())));
    }
    if !again.is_empty() || !without_input.is_empty() {
        // What was canceled or has expired may not be wanted any more.
        let is_dropped = |state| end.status.in_state(state) > 0;
        let has_dropped = is_dropped(JobState::Canceled) || is_dropped(JobState::Expired);
        let words: &[&str] = if has_dropped { &["retry", name, "--failed"] } else { &["retry", name] };
        lines.push(Line::Command(invocation.command(words)));
        if invocation.verb == "run" {
            lines.push(hand_in_again(end, invocation));
        }
    }
}

/// `line 3`, `lines 3, 8, 9, 12, 14 and 3 more`.
fn numbers(jobs: &[&FailedJob]) -> String {
    let mut lines: Vec<u64> = jobs.iter().map(|job| job.line).collect();
    lines.sort_unstable();
    lines.dedup();
    let shown: Vec<String> = lines.iter().take(NAMED_MAX).map(u64::to_string).collect();
    let more = lines.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let word = if lines.len() == 1 { "line" } else { "lines" };
    format!("{word} {}{more}", shown.join(", "))
}

/// `1 job is`, `3 jobs are`.
fn jobs(count: usize) -> String {
    if count == 1 { "1 job is".to_owned() } else { format!("{count} jobs are") }
}

/// What a parked batch needs, as a number where there is one.
fn parked(end: &BatchEnd<'_>, invocation: &Invocation, lines: &mut Vec<Line>) {
    let BatchStatus { name, needed_credits, balance_credits, budget_credits, .. } = end.status;
    let name = name.as_str();
    let mut wait = |text: String| lines.push(Line::Text(text, Tone::Waiting));
    let is_parked = end.status.parked_by.is_some_and(|parked| parked != Parked::NoProcess);
    if end.status.watched > 0 && is_parked {
        wait(still_running(name, end.status.watched, invocation));
        if invocation.verb == "run" {
            lines.push(hand_in_again(end, invocation));
        }
    }
    let mut wait = |text: String| lines.push(Line::Text(text, Tone::Waiting));
    if let Some(shortage) = &end.status.budget_shortage {
        wait(format!("{name}: {shortage}"));
    }
    match (end.status.parked_by, needed_credits, balance_credits) {
        (Some(Parked::BatchBudget), Some(needed), _) => {
            let left = end.status.left_credits();
            wait(format!(
                "{name}: the next job needs {needed}, {left} of {budget_credits} credits are left; for that job, or \
                 for all of the batch:"
            ));
            let mut budgets: Vec<u64> =
                end.status.larger_budgets().map(|(next, all)| vec![next, all]).unwrap_or_default();
            budgets.dedup();
            for budget in budgets {
                lines.push(Line::Command(invocation.command(&["budget", name, &budget.to_string()])));
            }
        }
        (Some(Parked::Credits), Some(needed), Some(balance)) => {
            let missing = needed.saturating_sub(*balance);
            wait(match end.status.refused_although_covered {
                true => format!(
                    "{name}: the next job needs {needed} credits and the service refuses it for want of credits (402), \
                     although it gives the balance as {balance}: ask its support, or add credits, then:"
                ),
                false => format!(
                    "{name}: the next job needs {needed} credits, the balance is {balance}: add {missing} or more, then:"
                ),
            });
            if invocation.verb == "submit" {
                lines.push(Line::Command(invocation.command(&["resume", name])));
            }
        }
        (Some(Parked::MinBalance), Some(needed), Some(balance)) => {
            let then = if invocation.verb == "run" { ", then:" } else { "" };
            wait(format!(
                "{name}: the next job needs {needed} credits, the balance is {balance}, of which budget.min_balance \
                 must stay: add credits or lower budget.min_balance{then}"
            ));
        }
        (Some(Parked::Inputs), ..) => {
            let pilot = end.status.pilot.filter(|pilot| pilot.rest_jobs > 0);
            let rest = pilot.map_or(0, |pilot| pilot.rest_jobs);
            let queued = end.status.in_state(JobState::Queued).saturating_sub(rest);
            wait(format!(
                "{name}: {} queued and {} rows that are not done; what a job waits for:",
                jobs(queued as usize),
                if queued == 1 { "refers to" } else { "refer to" }
            ));
            let job = end.waits_for_rows.as_ref().map(|label| job_argument(name, label));
            let job = job.unwrap_or_else(|| format!("{name}/JOB"));
            lines.push(Line::Command(invocation.command(&["explain", &job])));
            if let Some(numbers) = pilot {
                continue_with_rest(name, numbers, invocation, lines);
            }
        }
        (Some(Parked::Pilot), ..) => {
            let numbers = end.status.pilot.unwrap_or_default();
            wait(format!("{name}: {}; to look at it:", continue_pilot::done(end.status, numbers)));
            lines.push(Line::Command(invocation.command(&["open", name])));
            continue_with_rest(name, numbers, invocation, lines);
        }
        (Some(Parked::PerhapsSent), ..) => {
            let queued = end.status.in_state(JobState::Queued) as usize;
            wait(format!(
                "{name}: {} queued and may have been sent before the state was rebuilt or imported: what is past its time, or \
                 costs more than its max_credits, is neither sent nor dropped; to end a job, as the account shows, or to \
                 allow it N credits:",
                jobs(queued)
            ));
            let job = format!("{name}/JOB");
            for words in [["resolve", &job, "--charged", "N"], ["retry", &job, "--max-credits", "N"]] {
                lines.push(Line::Command(invocation.command(&words)));
            }
        }
        (Some(Parked::Paused), ..) => {
            wait(format!("{name}: paused; to continue:"));
            lines.push(Line::Command(invocation.command(&["resume", name])));
        }
        _ => {}
    }
    let is_waiting = !matches!(end.status.parked_by, None | Some(Parked::NoProcess));
    if is_waiting && invocation.verb == "run" {
        let again = hand_in_again(end, invocation);
        if !lines.contains(&again) {
            // What it waits for was said above, for all batches.
            let is_said = |line: &Line| matches!(line, Line::Text(_, Tone::Waiting));
            if !lines.iter().any(is_said) {
                lines.push(Line::Text(format!("{name}: not finished; to continue it:"), Tone::Waiting));
            }
            lines.push(again);
        }
    }
}

/// Says of jobs that are queued for another attempt that tasks which are paid for are still running.
fn still_running(name: &str, watched: u32, invocation: &Invocation) -> String {
    let tasks = match watched {
        1 => "the overdue task of 1 queued job is".to_owned(),
        _ => format!("the overdue tasks of {watched} queued jobs are"),
    };
    let collected = match invocation.verb {
        "run" => {
            "to collect what has succeeded by then, without paying for another attempt, repeat the command later:"
        }
        _ => {
            "what succeeds of it is collected, and only a larger budget, or more credits, pays for another attempt"
        }
    };
    format!("{name}: {tasks} still running and paid for; {collected}")
}

/// What has the rest sent that waits after a pilot.
fn continue_with_rest(name: &str, numbers: Pilot, invocation: &Invocation, lines: &mut Vec<Line>) {
    let rest = format!("{name}: {} wait until you continue:", continue_pilot::rest(numbers));
    lines.push(Line::Text(rest, Tone::Waiting));
    lines.push(Line::Command(invocation.command(&["continue", name])));
}

/// The manifest that a command got for a batch; nothing where it got several: which of them a row is of is not known, and one
/// that was handed in before another would bring back rows that the other has in a newer version.
pub(super) fn manifest_of<'a>(receipts: &'a [Receipt], status: &BatchStatus) -> Option<&'a Path> {
    let mut files = receipts.iter().filter(|receipt| receipt.batch.as_ref() == Some(&status.name));
    let first = PathBuf::as_path(&files.next()?.file);
    files.all(|receipt| receipt.file == first).then_some(first)
}

/// Whether only a part of a batch's manifest was handed in.
pub(super) fn is_part(receipts: &[Receipt], status: &BatchStatus) -> bool {
    receipts.iter().any(|receipt| receipt.batch.as_ref() == Some(&status.name) && receipt.left_out > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credit_hold::ABOVE_MAX;
    use crate::domain::job::DOWNLOAD_FAILED;

    fn status(more: &serde_json::Value) -> BatchStatus {
        let mut status = serde_json::json!({
            "name": "spring", "state": "done", "parked_by": null, "jobs": 12, "planned_credits": 48,
            "budget_credits": 16, "held_credits": 0, "charged_credits": 12, "waived_credits": 0,
            "refunded_credits": 0,
        });
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(status).unwrap()
    }

    fn trouble(line: u64, code: &str) -> FailedJob {
        let (id, reason) = (format!("gull-{line}"), format!("{code}: why"));
        FailedJob { id, line, reason, is_resolved: false, remedy: Some(remedy_for(code, false, false)) }
    }

    fn said(end: &BatchEnd<'_>, invocation: &Invocation) -> String {
        let text = |line| match line {
            Line::Text(text, _) => text,
            Line::Command(command) => format!("    {command}"),
        };
        lines(end, invocation).into_iter().map(text).collect::<Vec<_>>().join("\n")
    }

    fn run() -> Invocation {
        Invocation { verb: "run", ..Invocation::default() }
    }

    #[test]
    fn what_failed_is_told_with_what_helps_it() {
        let status = status(&serde_json::json!({ "failed": 9, "in_doubt": 1, "succeeded": 2 }));
        let mut failed: Vec<FailedJob> = (2..8).map(|line| trouble(line, "content_rejected")).collect();
        failed.extend([trouble(8, "busy"), trouble(9, ABOVE_MAX), trouble(10, DOWNLOAD_FAILED)]);
        let end = BatchEnd {
            status: &status,
            manifest: Some(Path::new("jobs/spring sale.csv")),
            is_part: false,
            failed,
            in_doubt: vec![trouble(11, "timeout")],
            missing_files: 1,
            past_deadline: Some(0),
            waits_for_rows: None,
        };
        let expected = "\
spring/gull-2 (line 2): content_rejected: why
spring/gull-3 (line 3): content_rejected: why
spring/gull-4 (line 4): content_rejected: why
spring/gull-5 (line 5): content_rejected: why
spring/gull-6 (line 6): content_rejected: why
and 4 more failed
spring/gull-11 (line 11): timeout: why
spring: 6 rows would fail again as they are; change lines 2, 3, 4, 5, 6 and 1 more of jobs/spring sale.csv, then:
    callsheet run 'jobs/spring sale.csv' --batch spring
spring: 1 job is above max_credits; to allow N credits:
    callsheet retry spring/gull-9 --max-credits N
spring: 1 job is paid for and not downloaded:
    callsheet download spring
spring: 1 failed job may succeed at another attempt:
    callsheet retry spring
    callsheet run 'jobs/spring sale.csv' --batch spring
spring: 1 job is in doubt; look up the charge in the account and record it, or --not-charged:
    callsheet resolve spring/gull-11 --charged N
spring: 2 succeeded, 1 file missing:
    callsheet download spring";
        assert_eq!(said(&end, &run()), expected);
    }

    #[test]
    fn the_command_for_failed_jobs_leaves_canceled_ones() {
        let status = status(&serde_json::json!({ "failed": 1, "canceled": 2, "expired": 1, "succeeded": 8 }));
        let end = BatchEnd {
            status: &status,
            manifest: Some(Path::new("spring.csv")),
            is_part: false,
            failed: vec![trouble(2, "busy")],
            in_doubt: Vec::new(),
            missing_files: 0,
            past_deadline: Some(0),
            waits_for_rows: None,
        };
        let expected = "\
spring/gull-2 (line 2): busy: why
spring: 1 failed job may succeed at another attempt:
    callsheet retry spring --failed
    callsheet run spring.csv
spring: 2 canceled; to queue them again, together with 1 failed and 1 expired:
    callsheet retry spring
spring: 1 expired; submit the manifest with a later policy.expires, and then, to queue them again, together with 1 \
                        failed and 2 canceled:
    callsheet retry spring";
        assert_eq!(said(&end, &run()), expected);
    }

    #[test]
    fn what_parks_a_batch_is_told_as_a_number() {
        let parked = |more: serde_json::Value, invocation: &Invocation| {
            let status = status(&more);
            let (failed, in_doubt) = (Vec::new(), Vec::new());
            let manifest = Some(Path::new("spring.csv"));
            said(
                &BatchEnd {
                    status: &status,
                    manifest,
                    is_part: false,
                    failed,
                    in_doubt,
                    missing_files: 0,
                    past_deadline: Some(0),
                    waits_for_rows: None,
                },
                invocation,
            )
        };
        let budget =
            serde_json::json!({ "state": "parked", "parked_by": "batch_budget", "needed_credits": 8 });
        let flags = vec!["--state".to_owned(), "other".to_owned()];
        let expected = "\
spring: the next job needs 8, 4 of 16 credits are left; for that job, or for all of the batch:
    callsheet budget spring 20 --state other
    callsheet budget spring 48 --state other
    callsheet run spring.csv --state other";
        assert_eq!(parked(budget, &Invocation { flags, ..run() }), expected);
        // As admission counts: what a lost state may have been charged is not left.
        let rebuilt = serde_json::json!({
            "state": "parked", "parked_by": "batch_budget", "needed_credits": 8, "may_be_charged_credits": 3,
            "beside_credits": 3,
        });
        let expected = "\
spring: the next job needs 8, 1 of 16 credits are left; for that job, or for all of the batch:
    callsheet budget spring 23
    callsheet budget spring 48
    callsheet run spring.csv";
        assert_eq!(parked(rebuilt, &run()), expected);
        let total = serde_json::json!({
            "state": "parked", "parked_by": "total_budget",
            "budget_shortage": {
                "setting": "budget.total", "limit_credits": 16, "left_credits": 4, "needed_credits": 8,
                "enough_credits": 20,
            },
        });
        let expected = "\
spring: the next job needs 8, 4 of 16 credits are left: 4 are missing; set budget.total to at least 20
    callsheet run spring.csv";
        assert_eq!(parked(total, &run()), expected);
        let disk = serde_json::json!({ "state": "parked", "parked_by": "disk" });
        assert_eq!(
            parked(disk, &run()),
            "spring: not finished; to continue it:\n    callsheet run spring.csv",
            "what is wrong with the disk was said above"
        );
        let credits = serde_json::json!({
            "state": "parked", "parked_by": "credits", "needed_credits": 8, "balance_credits": 3,
        });
        let expected = "\
spring: the next job needs 8 credits, the balance is 3: add 5 or more, then:
    callsheet resume spring";
        assert_eq!(parked(credits, &Invocation { verb: "submit", ..run() }), expected);
        let refused = serde_json::json!({
            "state": "parked", "parked_by": "credits", "needed_credits": 8, "balance_credits": 300,
            "refused_although_covered": true,
        });
        let expected = "\
spring: the next job needs 8 credits and the service refuses it for want of credits (402), although it gives the balance \
                        as 300: ask its support, or add credits, then:
    callsheet run spring.csv";
        assert_eq!(parked(refused, &run()), expected);
    }

    /// The whole manifest would buy the rows that were left out.
    #[test]
    fn after_a_part_of_a_manifest_no_command_hands_in_the_whole() {
        let status = status(&serde_json::json!({ "failed": 1 }));
        let end = BatchEnd {
            status: &status,
            manifest: Some(Path::new("spring.csv")),
            is_part: true,
            failed: vec![trouble(2, "content_rejected"), trouble(3, "busy")],
            in_doubt: Vec::new(),
            missing_files: 0,
            past_deadline: None,
            waits_for_rows: None,
        };
        let said = said(&end, &run());
        assert!(!said.contains("callsheet run"), "{said}");
        assert_eq!(said.matches("    repeat this command, with the same part of the manifest").count(), 2);
    }
}
