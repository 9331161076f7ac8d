//! `callsheet voices`: whose voices speech may use.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::{printable, service_target, table, written};
use crate::clock::Clock;
use crate::domain::exit_code::Exit;
use crate::domain::quote::catalog::CatalogPart;

/// Lists voices for speech.
#[derive(Debug, Args)]
pub(super) struct VoicesCommand {
    /// Only voices whose id, name or description contains this text
    #[arg(value_name = "FILTER")]
    pub(super) filter: Option<String>,
    /// Only voices that speak this language
    #[arg(long, value_name = "LANGUAGE")]
    pub(super) language: Option<String>,
}

/// What the table shows of a voice: heading and field.
const COLUMNS: [(&str, &str); 7] = [
    ("voice_id", "id"),
    ("name", "name"),
    ("gender", "gender"),
    ("language", "language"),
    ("accent", "accent"),
    ("use case", "use_case"),
    ("model", "recommended_model"),
];
/// Where a filter looks, beside the columns.
const DESCRIBED: &str = "description";

pub(super) async fn run(command: &VoicesCommand, global: &Global) -> Result<Exit, Failure> {
    let clock = Clock::start();
    let config = service_target::config(global)?;
    let asked = service_target::catalog_source(&config, global).await?;
    let catalogs = asked.catalogs(&clock).await;
    asked.end().await;
    let catalogs = catalogs?;
    let voices = &catalogs.catalog.voices;
    let given = &catalogs.raw["voices"];
    let entries = CatalogPart::Voices.entries_by_id(given);
    let chosen: Vec<&Map<String, Value>> = voices
        .voices
        .iter()
        .filter_map(|voice| entries.get(voice.id.as_str()).copied())
        .filter(|voice| command.filter.as_deref().is_none_or(|filter| mentions(voice, filter)))
        .filter(|voice| command.language.as_deref().is_none_or(|language| speaks(voice, language)))
        .collect();
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if global.json {
        written(json(&mut out, given, &chosen))?;
    } else {
        let credits = voices.characters_per_credit;
        written(list(&mut out, &chosen, credits.map(|number| number.normalize().to_string())))?;
    }
    Ok(Exit::Success)
}

fn text<'a>(voice: &'a Map<String, Value>, field: &str) -> &'a str {
    voice.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn holds(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

fn mentions(voice: &Map<String, Value>, filter: &str) -> bool {
    let fields = COLUMNS.iter().map(|(_, field)| *field).chain([DESCRIBED]);
    fields.into_iter().any(|field| holds(text(voice, field), filter))
}

/// By its main language, or one of all it speaks; `en` finds `English` and `en-GB`.
fn speaks(voice: &Map<String, Value>, language: &str) -> bool {
    let all = voice.get("languages").and_then(Value::as_array).into_iter().flatten();
    let mut all = all.filter_map(Value::as_str).chain([text(voice, "language")]);
    all.any(|spoken| spoken.to_lowercase().starts_with(&language.to_lowercase()))
}

/// The service's own object, with the chosen voices alone.
fn json(out: &mut impl Write, data: &Value, chosen: &[&Map<String, Value>]) -> io::Result<()> {
    let mut object = data.as_object().cloned().unwrap_or_default();
    object.retain(|_, value| !value.is_array());
    object.insert("voices".to_owned(), chosen.iter().map(|voice| Value::Object((*voice).clone())).collect());
    serde_json::to_writer_pretty(&mut *out, &object)?;
    writeln!(out)?;
    out.flush()
}

fn list(
    out: &mut impl Write,
    chosen: &[&Map<String, Value>],
    characters_per_credit: Option<String>,
) -> io::Result<()> {
    if chosen.is_empty() {
        writeln!(out, "no voice matches")?;
        return out.flush();
    }
    let mut table = table::with_headings(COLUMNS.map(|(heading, _)| heading));
    for voice in chosen {
        table.add_row(COLUMNS.map(|(_, field)| printable(text(voice, field))));
    }
    table::print(out, &table)?;
    if let Some(characters) = characters_per_credit {
        writeln!(out, "\n1 credit for {characters} characters, rounded up")?;
    }
    out.flush()
}
