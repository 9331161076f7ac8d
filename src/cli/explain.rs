//! `callsheet explain`: the whole story of a job, and what comes next.

use std::io::Write;

use serde_json::json;

use crate::cli::client;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::invocation::with_typed_commands;
use crate::cli::name_arguments::JobArgument;
use crate::cli::{printable, written};
use crate::domain::exit_code::Exit;
use crate::pages::live_batch::QUOTED_FACTS;
use crate::server::job_facts::job_facts;
use crate::server::protocol::{ExplainRequest, Explanation};

/// How much of a text is shown, in characters.
const TEXT_MAX: usize = 100;

pub(super) async fn run(command: &JobArgument, global: &Global) -> Result<Exit, Failure> {
    let explanation = client::call(global, &ExplainRequest { job: command.job.clone() }).await?;
    let text = if global.json { format!("{:#}", json!(explanation)) } else { history_text(&explanation) };
    written(writeln!(anstream::stdout(), "{text}"))?;
    Ok(Exit::Success)
}

fn history_text(explanation: &Explanation) -> String {
    let Explanation { batch, spec, job, next, superseded, .. } = explanation;
    // The label alone means the version of its row that is wanted.
    let version = explanation.versions.iter().find(|version| *superseded && version.job == spec.id);
    let name = version.map_or(&spec.label, |version| &version.name);
    let mut lines = vec![format!("{batch}/{name}: {}", job.state().name())];
    let text = ("text", shorten(&spec.order.text()));
    let facts = [text].into_iter().chain(job_facts(explanation)).filter(|(about, _)| *about != "batch");
    // A text is in somebody's own words, too.
    let is_quoted = |about| about == "text" || QUOTED_FACTS.contains(&about);
    lines.extend(facts.map(|(about, fact)| match is_quoted(about) {
        true => format!("  {about:<9} {fact}"),
        false => with_typed_commands(&format!("  {about:<9} {fact}")),
    }));
    lines.push("history".to_owned());
    for line in job.history() {
        let movement = line.movement.map(|movement| format!(" [{movement}]")).unwrap_or_default();
        let what = with_typed_commands(&line.what);
        lines.push(format!("  {} #{} {what}{movement}", line.at, line.attempt.0));
    }
    if job.history().is_empty() {
        lines.push("  no history yet".to_owned());
    }
    lines.push(with_typed_commands(&format!("next: {next}")));
    // Whatever stands on a line, and from wherever it came.
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(TEXT_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
