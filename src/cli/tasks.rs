//! `callsheet tasks`: what the service says of any task of the account.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use crate::cli::examples;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::service_target::{self, CatalogSource};
use crate::cli::{printable, written};
use crate::domain::exit_code::Exit;
use crate::domain::ids::TaskId;

/// What `tasks` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::TASKS))]
pub(super) struct TasksCommand {
    /// Task ids, from task_id in results.jsonl
    #[arg(required = true, value_name = "ID", value_parser = task_id)]
    pub(super) tasks: Vec<String>,
}

/// What can be the id of a task.
fn task_id(text: &str) -> Result<String, String> {
    let is_id = (1..=256).contains(&text.len()) && text != "." && text != "..";
    is_id
        .then(|| text.to_owned())
        .ok_or_else(|| String::from("a task id has 1 to 256 bytes, see task_id in results.jsonl"))
}

/// The fields of a task's record, in the order in which they are shown (Task object).
const FIELDS: [&str; 19] = [
    "id",
    "status",
    "mediaType",
    "model",
    "scene",
    "prompt",
    "options",
    "costCredits",
    "waivedCredits",
    "creditId",
    "fairUseKey",
    "createdAt",
    "updatedAt",
    "deletedAt",
    "taskId",
    "userId",
    "visibility",
    "taskInfo",
    "taskUrls",
];

pub(super) async fn run(command: &TasksCommand, global: &Global) -> Result<Exit, Failure> {
    let config = service_target::config(global)?;
    let asked = service_target::catalog_source(&config, global).await?;
    let outcome = show(&asked, command, global).await;
    asked.end().await;
    outcome
}

async fn show(asked: &CatalogSource, command: &TasksCommand, global: &Global) -> Result<Exit, Failure> {
    let Some((service, _)) = asked.service() else { return Err(service_target::not_configured()) };
    if !asked.has_key {
        return Err(service_target::no_key());
    }
    let mut exit = Exit::Success;
    for (index, id) in command.tasks.iter().enumerate() {
        let Some(record) = service.task(&TaskId(id.as_str().into())).await? else {
            let unknown = format!("the service knows no task {} on this account", printable(id));
            exit = Failure::new(Exit::Usage, unknown).report(global.json);
            continue;
        };
        let text = match (global.json, index) {
            (true, _) => record.to_string(),
            (false, 0) => table(&record),
            (false, _) => format!("\n{}", table(&record)),
        };
        written(writeln!(anstream::stdout(), "{text}"))?;
    }
    Ok(exit)
}

/// A record, a field a line. What is empty is left out.
fn table(record: &Value) -> String {
    let lines = FIELDS.iter().filter_map(|field| {
        let text = match record.get(*field)? {
            Value::Null => return None,
            Value::String(text) if text.is_empty() => return None,
            Value::String(text) => text.clone(),
            Value::Array(items) if items.is_empty() => return None,
            Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(" "),
            other => other.to_string(),
        };
        Some(format!("{field:<14} {}", printable(&text)))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_a_field_a_line_without_what_is_empty() {
        let record = json!({
            "id": "t1", "status": "success", "costCredits": 0, "fairUseKey": null, "prompt": "",
            "taskUrls": ["https://h/1.png", "https://h/2.png"], "creditId": "c\u{1b}1",
        });
        assert_eq!(
            table(&record),
            format!(
                "id             t1\nstatus         success\ncostCredits    0\ncreditId       {}\n\
                 taskUrls       https://h/1.png https://h/2.png",
                printable("c\u{1b}1")
            )
        );
    }
}
