//! `callsheet retry`: new attempts for jobs that failed, were canceled or expired.

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::name_arguments::NameArgument;
use crate::cli::terminal::say;
use crate::cli::{batch_outcomes, client, examples, printable};
use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::manifest::FieldEdit;
use crate::domain::plural::counted;
use crate::domain::remedy::keys_of_retry;
use crate::domain::shell_word::shell_word;
use crate::server::protocol::{Request, RetryRequest};

/// What `retry` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::RETRY))]
pub(super) struct RetryCommand {
    #[command(flatten)]
    pub(super) named: NameArgument,
    /// New price limit of each job, in place of its row's
    #[arg(long, value_name = "CREDITS", value_parser = Credits::amount)]
    pub(super) max_credits: Option<u64>,
    /// Only jobs that failed, and not those that were canceled or expired
    #[arg(long)]
    pub(super) failed: bool,
    /// Set a field of the rows, such as model=house-c1 or options.duration=5s, and make new jobs of them; repeat the
    /// flag for several fields; an empty value removes the field
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(super) set: Vec<FieldEdit>,
    /// With --set: show what would be accepted and what it would cost, and accept nothing
    #[arg(long, requires = "set")]
    pub(super) dry_run: bool,
}

/// Jobs named one by one.
const SHOWN_MAX: usize = 20;

pub(super) async fn run(command: &RetryCommand, global: &Global) -> Result<Exit, Failure> {
    let RetryCommand { named, max_credits, failed, .. } = command;
    let request = RetryRequest { name: named.name.clone(), max_credits: *max_credits, failed: *failed };
    client::with(global, RetryRequest::METHOD, async |client| {
        let outcomes = batch_outcomes::print(client.call(&request).await?, global)?;
        for outcome in outcomes.iter().filter(|outcome| outcome.result.refused.is_none()) {
            let result = &outcome.result;
            match result.jobs.saturating_sub(result.allowed) {
                0 if result.hopeless.is_empty()
                    && result.paid.is_empty()
                    && result.expired.is_empty()
                    && result.missed_deadline.is_empty()
                    && result.watched.is_empty()
                    && result.superseded.is_empty()
                    && result.allowed == 0 =>
                {
                    let name = &request.name;
                    match *failed {
                        false => say!("{name}: nothing to retry: no job failed, expired or was canceled"),
                        true => say!(
                            "{name}: nothing to retry: no job failed; --failed leaves out those that were canceled or expired: \
                             callsheet retry {} queues them again",
                            shell_word(name)
                        ),
                    }
                }
                0 if result.allowed > 0 => {}
                0 => say!("{}: nothing was queued again", request.name),
                jobs => {
                    let next = client.next_step(&outcome.batch).await?;
                    let keys = keys_of_retry(jobs, result.same_key, result.without_key);
                    say!("{}: {jobs} queued again, {keys}; {next}", outcome.batch);
                }
            }
            if let Some(most) = max_credits.filter(|_| result.allowed > 0) {
                let next = client.next_step(&outcome.batch).await?;
                let (batch, waiting) = (&outcome.batch, counted(result.allowed, "job"));
                let which = if result.allowed == 1 { "which waits and may" } else { "which wait and may each" };
                say!("{batch}: {waiting}, {which} cost up to {} now; {next}", Credits(most));
            }
            list(
                &result.made_before,
                "were made and paid for already, under a state that is gone: while the file is there that their error names, \
                 they fail again, free of charge; to pay for one again, move that file away first",
            );
            list(&result.hopeless, "would be rejected again: change their rows and submit the manifest again, or repeat the command with --set \
                 FIELD=VALUE");
            list(
                &result.expired,
                "would expire at once: set a later policy.expires (in the manifest, or in the configuration of its inbox \
                 or schedule), submit the manifest again, then retry",
            );
            list(
                &result.missed_deadline,
                "would expire at once, because the deadline of their row has passed: to have one made, add its row with \
                 another id and a later deadline",
            );
            list(
                &result.watched,
                "have ended, but the task of an earlier attempt has not: it is watched, and its outputs are kept if it \
                 succeeds. To end it first: callsheet resolve JOB --attempt N, see callsheet explain JOB",
            );
            list(
                &result.superseded,
                "are older versions of edited rows: to want one again, submit a manifest with its text",
            );
            let download = format!(
                "are paid for: callsheet download {} fetches their outputs; if no task of a job is known, callsheet explain JOB \
                 says what can be done",
                shell_word(&request.name)
            );
            list(&result.paid, &download);
        }
        batch_outcomes::exit(&outcomes, &request.name)
    })
    .await
}

pub(super) fn list(labels: &[String], why: &str) {
    if labels.is_empty() {
        return;
    }
    let shown: Vec<String> = labels.iter().take(SHOWN_MAX).map(|label| printable(label)).collect();
    let more = labels.len().saturating_sub(SHOWN_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    say!("{} {why}: {}{more}", labels.len(), shown.join(", "));
}
