//! `callsheet retry --set`: the rows of jobs that failed, taken anew with other fields.

use std::io::Write;

use axum::http::Method;
use serde_json::json;

use crate::cli::client;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::retry::{RetryCommand, list};
use crate::cli::terminal::say;
use crate::cli::{submit, summary, written};
use crate::domain::exit_code::Exit;
use crate::domain::quote::kind_fields::is_on_unknown_option;
use crate::domain::shell_word::shell_word;
use crate::ingest::receipt::Receipt;
use crate::ingest::retry_edited::EditedRetry;
use crate::server::protocol::RetryEditedRequest;

pub(super) async fn run(command: &RetryCommand, global: &Global) -> Result<Exit, Failure> {
    let plan = RetryEditedRequest {
        name: command.named.name.clone(),
        set: command.set.clone(),
        max_credits: command.max_credits,
        failed: command.failed,
        plan: true,
    };
    plan.edits().map_err(|problem| Failure::new(Exit::Usage, format!("--set: {problem}")))?;
    client::with(global, Method::POST, async |client| {
        let planned = client.call(&plan).await?;
        let is_valid = planned.receipt.as_ref().is_some_and(|receipt| !receipt.has_problems());
        if !global.json {
            say_plan(&plan.name, &planned);
        }
        // A note tells of each row that goes back to an earlier request.
        let goes_back = |receipt: &Receipt| !receipt.notes.iter().all(is_on_unknown_option);
        let changes = |receipt: &Receipt| receipt.added() > 0 || goes_back(receipt);
        if is_valid && !planned.receipt.as_ref().is_some_and(changes) {
            if global.json {
                written(writeln!(anstream::stdout(), "{:#}", json!(planned)))?;
            }
            let message = format!(
                "{}: --set changes nothing that these jobs are made of, so nothing was accepted",
                plan.name
            );
            return Err(Failure::new(Exit::Usage, message).hint(format!(
                "id, meta, priority, deadline, max_credits and review are no part of a request; to queue the jobs again as they are: \
                 callsheet retry {}",
                shell_word(&plan.name)
            )));
        }
        if command.dry_run || !is_valid {
            if !global.json && is_valid {
                say!("nothing was accepted: --dry-run");
            }
            return end(&planned, global);
        }
        let request = RetryEditedRequest { plan: false, ..plan.clone() };
        let taken = client.call(&request).await?;
        if !global.json && taken.receipt.as_ref().is_some_and(Receipt::is_taken_in) {
            let next = client.next_step_without_manifest(&taken.batch).await?;
            let batch = &taken.batch;
            say!("{batch}: {}; {next}", accepted(&taken));
            if taken.receipt.as_ref().is_some_and(changes) {
                say!(
                    "the manifest of {batch} still has the old rows: change them in the same way, which costs nothing \
                     more; submitted unchanged, it goes back to them"
                );
            }
        }
        end(&taken, global)
    })
    .await
}

/// `2 rows accepted with the new fields`.
fn accepted(taken: &EditedRetry) -> String {
    match taken.receipt.as_ref().map(Receipt::added) {
        None | Some(0) => "the batch has all these jobs already, nothing is bought again".to_owned(),
        Some(1) => "1 new job accepted".to_owned(),
        Some(jobs) => format!("{jobs} new jobs accepted"),
    }
}

/// Says what would be accepted and what it would cost.
fn say_plan(name: &str, planned: &EditedRetry) {
    let EditedRetry { receipt, other_variations, dependent_jobs, without_id, paid, superseded, .. } = planned;
    match receipt {
        Some(receipt) => summary::receipt_of_edits(receipt),
        None if !without_id.is_empty() => say!("{name}: nothing was accepted"),
        None => say!("{name}: nothing to retry: no job failed, expired or was canceled"),
    }
    if *other_variations > 0 {
        let take = if *other_variations == 1 { "takes the place of one" } else { "take the place of ones" };
        say!(
            "all variations of a row are edited together: {other_variations} of these jobs {take} that the command does not \
             name"
        );
    }
    match dependent_jobs {
        0 => {}
        1 => say!("1 job that takes outputs of these rows becomes a new job, too, even if it succeeded"),
        jobs => {
            say!("{jobs} jobs that take outputs of these rows become new jobs, too, even if they succeeded");
        }
    }
    list(
        without_id,
        "have rows without an id, so that no other job can take their place: edit them in their manifest and submit it again",
    );
    list(superseded, "are older versions of edited rows: to want one again, submit a manifest with its text");
    let download = format!(
        "are paid for: callsheet download {} fetches their outputs, if their tasks are known",
        shell_word(name)
    );
    list(paid, &download);
}

fn end(retried: &EditedRetry, global: &Global) -> Result<Exit, Failure> {
    let receipt = retried.receipt.as_ref();
    let exit = match receipt {
        Some(receipt) if receipt.not_validated > 0 => Exit::Unreachable,
        Some(receipt) if receipt.has_problems() => Exit::Usage,
        None if !retried.without_id.is_empty() => Exit::Usage,
        _ => Exit::Success,
    };
    if global.json {
        written(writeln!(anstream::stdout(), "{:#}", json!(retried)))?;
        submit::report_problems(receipt, exit);
    }
    Ok(exit)
}
