//! `callsheet models`: what can be asked for, so that a manifest row can be written from it.

use std::io::{self, Write};

use clap::Args;
use clap::ValueEnum;
use rust_decimal::Decimal;
use serde_json::{Map, Value};

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::table::{self, Table};
use crate::cli::terminal;
use crate::cli::{printable, service_target, written};
use crate::clock::Clock;
use crate::domain::exit_code::Exit;
use crate::domain::quote::catalog::{About, CatalogPart, ImageMode, MusicModel, VideoMode};
use crate::domain::quote::model_rules::{Bounds, InputLimits};
use crate::domain::quote::{Catalog, Prices, Rules};
use crate::ingest::catalog_refresh::Catalogs;

/// What `models` takes.
#[derive(Debug, Args)]
pub(super) struct ModelsCommand {
    /// Only models whose id, label, vendor or mode contains this text
    #[arg(value_name = "FILTER")]
    pub(super) filter: Option<String>,
    /// Only models of this type
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(super) media: Option<MediaType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MediaType {
    Video,
    Image,
    Music,
}

pub(super) async fn run(command: &ModelsCommand, global: &Global) -> Result<Exit, Failure> {
    let clock = Clock::start();
    let config = service_target::config(global)?;
    let rules = config.rules()?;
    let asked = service_target::catalog_source(&config, global).await?;
    let catalogs = asked.catalogs(&clock).await;
    asked.end().await;
    let catalogs = catalogs?;
    let choice = Choice { filter: command.filter.as_deref(), media: command.media };
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if global.json {
        written(json(&mut out, &catalogs, choice))?;
    } else {
        written(tables(&mut out, &catalogs.catalog, &rules, choice))?;
    }
    Ok(Exit::Success)
}

/// Which models are wanted.
#[derive(Clone, Copy)]
struct Choice<'a> {
    filter: Option<&'a str>,
    media: Option<MediaType>,
}

impl Choice<'_> {
    fn wants(self, media: MediaType) -> bool {
        self.media.is_none_or(|wanted| wanted == media)
    }

    /// Whether a model is meant: by its id, label or vendor, or by one of its modes.
    fn means<'m>(self, about: &About, modes: impl IntoIterator<Item = &'m String>) -> bool {
        let Some(filter) = self.filter.map(str::to_lowercase) else { return true };
        let holds = |text: &str| text.to_lowercase().contains(&filter);
        let words = [Some(&about.id), about.label.as_ref(), about.vendor.as_ref()];
        words.into_iter().flatten().any(|word| holds(word)) || modes.into_iter().any(|mode| holds(mode))
    }
}

/// A recorded catalog: what the service gave, part by part. The voices go with the whole of it.
fn json(out: &mut impl Write, catalogs: &Catalogs, choice: Choice<'_>) -> io::Result<()> {
    fn entries<'a>(raw: &Value, part: CatalogPart, chosen: impl Iterator<Item = &'a About>) -> Value {
        let entries = part.entries_by_id(&raw[part.name()]);
        let chosen = chosen.filter_map(|about| entries.get(about.id.as_str()).copied());
        chosen.cloned().map(Value::Object).collect()
    }
    let Catalogs { catalog, raw, .. } = catalogs;
    let mut parts = Map::new();
    if choice.wants(MediaType::Video) {
        let chosen = catalog.video.iter().filter(|model| choice.means(&model.about, model.modes.keys()));
        let chosen = chosen.map(|model| &model.about);
        parts.insert("video".to_owned(), entries(raw, CatalogPart::Video, chosen));
    }
    if choice.wants(MediaType::Image) {
        let chosen = catalog.image.iter().filter(|model| choice.means(&model.about, model.modes.keys()));
        let chosen = chosen.map(|model| &model.about);
        parts.insert("image".to_owned(), entries(raw, CatalogPart::Image, chosen));
    }
    if choice.wants(MediaType::Music) {
        let chosen = catalog.music.iter().map(|model| &model.about);
        let chosen = chosen.filter(|about| choice.means(about, []));
        parts.insert("music".to_owned(), entries(raw, CatalogPart::Music, chosen));
    }
    if choice.media.is_none() && choice.filter.is_none() {
        parts.insert("voices".to_owned(), raw["voices"].clone());
    }
    serde_json::to_writer_pretty(&mut *out, &parts)?;
    writeln!(out)?;
    out.flush()
}

fn tables(out: &mut impl Write, catalog: &Catalog, rules: &Rules, choice: Choice<'_>) -> io::Result<()> {
    let mut sections = Vec::new();
    if choice.wants(MediaType::Video) {
        sections.push(videos(catalog, rules, choice));
    }
    if choice.wants(MediaType::Image) {
        sections.push(images(catalog, rules, choice));
    }
    if choice.wants(MediaType::Music) {
        sections.push(music(catalog, choice));
    }
    for (index, table) in sections.iter().filter(|table| !table.is_empty()).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        table::print(out, table)?;
    }
    if sections.iter().all(Table::is_empty) {
        writeln!(out, "no model matches")?;
    } else {
        let legend = "\n* is the default, used and billed if the option is omitted; - means that there is no such option";
        terminal::write_wrapped(out, legend)?;
    }
    out.flush()
}

fn videos(catalog: &Catalog, rules: &Rules, choice: Choice<'_>) -> Table {
    let mut table = table::with_headings([
        "video model",
        "mode",
        "inputs",
        "duration",
        "resolution",
        "aspect_ratio",
        "audio",
        "credits",
    ]);
    for model in catalog.video.iter().filter(|model| choice.means(&model.about, model.modes.keys())) {
        for (name, mode) in &model.modes {
            let limits = rules.model(&model.about.id).and_then(|rules| rules.inputs.get(name));
            table.add_row([
                named(&model.about),
                printable(name),
                limits.map_or("not known".to_owned(), inputs),
                values(mode.durations.as_deref(), mode.defaults.get("duration")),
                values(mode.resolutions.as_deref(), mode.defaults.get("resolution")),
                values(mode.aspect_ratios.as_deref(), mode.defaults.get("aspect_ratio")),
                if mode.audio_toggle { "may be true" } else { "-" }.to_owned(),
                video_price(mode),
            ]);
        }
    }
    table
}

fn images(catalog: &Catalog, rules: &Rules, choice: Choice<'_>) -> Table {
    let mut table = table::with_headings([
        "image model",
        "scene",
        "quality",
        "resolution",
        "aspect_ratio",
        "size",
        "credits",
    ]);
    for model in catalog.image.iter().filter(|model| choice.means(&model.about, model.modes.keys())) {
        let exact = rules.model(&model.about.id).and_then(|rules| rules.exact_pixels.as_ref());
        for (name, mode) in &model.modes {
            let default = |name: &str, exact: Option<&String>| exact.or(mode.defaults.get(name)).cloned();
            table.add_row([
                named(&model.about),
                printable(name),
                values(
                    Some(&mode.qualities),
                    default("quality", exact.map(|exact| &exact.default_quality)).as_ref(),
                ),
                values(
                    exact.map(|exact| exact.resolutions.as_slice()),
                    exact.map(|exact| &exact.default_resolution),
                ),
                values(
                    Some(&mode.aspect_ratios),
                    default("aspect_ratio", exact.map(|exact| &exact.default_aspect_ratio)).as_ref(),
                ),
                exact.map_or("-".to_owned(), |exact| format!("up to {} px", exact.longest_side)),
                image_price(mode),
            ]);
        }
    }
    table
}

fn music(catalog: &Catalog, choice: Choice<'_>) -> Table {
    let mut table = table::with_headings(["music model", "label", "credits"]);
    for model in catalog.music.iter().filter(|model| choice.means(&model.about, [])) {
        let MusicModel { about, credits } = model;
        let label = about.label.as_deref().unwrap_or("-");
        table.add_row([
            named(about),
            printable(label),
            credits.as_ref().map_or("-".to_owned(), |prices| printable(&format!("from {}", plain(prices)))),
        ]);
    }
    table
}

fn named(about: &About) -> String {
    let soon = if about.coming_soon { " (announced)" } else { "" };
    printable(&format!("{}{soon}", about.id))
}

/// `1 image`, `1-4 images + 0-1 video`, `text only`.
fn inputs(limits: &InputLimits) -> String {
    let count = |bounds: Bounds, what: &str| match (bounds.min, bounds.max) {
        (_, 0) => None,
        (1, 1) => Some(format!("1 {what}")),
        (min, max) if min == max => Some(format!("{max} {what}s")),
        (min, 1) => Some(format!("{min}-1 {what}")),
        (min, max) => Some(format!("{min}-{max} {what}s")),
    };
    let parts: Vec<String> =
        [count(limits.videos, "video"), count(limits.images, "image")].into_iter().flatten().collect();
    if parts.is_empty() { "text only".to_owned() } else { parts.join(" + ") }
}

/// The values an option takes, its default marked; `-` where it must be left out.
fn values(list: Option<&[String]>, default: Option<&String>) -> String {
    let marked = |value: &String| {
        if default == Some(value) { format!("{value}*") } else { value.clone() }
    };
    match list {
        None => "any".to_owned(),
        Some([]) => "-".to_owned(),
        Some(list) => match run_of_seconds(list) {
            Some((first, last)) => {
                let default = default.map_or(String::new(), |default| format!(" ({default}*)"));
                printable(&format!("{first} to {last}{default}"))
            }
            None => printable(&list.iter().map(marked).collect::<Vec<_>>().join(" ")),
        },
    }
}

/// First and last of durations that leave no second out.
fn run_of_seconds(list: &[String]) -> Option<(&String, &String)> {
    let seconds: Option<Vec<u32>> = list.iter().map(|word| word.strip_suffix('s')?.parse().ok()).collect();
    let is_run = seconds?.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    (is_run && list.len() > 4).then_some(list.first().zip(list.last())).flatten()
}

fn video_price(mode: &VideoMode) -> String {
    let mut parts = Vec::new();
    parts.extend(mode.credits.as_ref().map(plain));
    parts.extend(mode.credits_per_second.as_ref().map(|rates| format!("{} a second", plain(rates))));
    parts.extend(
        mode.credits_per_second_with_video_input
            .as_ref()
            .map(|rates| format!("{} a second with a source video", plain(rates))),
    );
    parts.extend(mode.pricing_note.clone());
    joined(&parts)
}

fn image_price(mode: &ImageMode) -> String {
    let prices = [&mode.credits_by_resolution_and_aspect_ratio, &mode.credits, &mode.credits_per_generation];
    joined(&prices.into_iter().flatten().map(plain).collect::<Vec<_>>())
}

fn joined(parts: &[String]) -> String {
    if parts.is_empty() { "not listed".to_owned() } else { printable(&parts.join("; ")) }
}

/// Few prices one by one (`1K 10, 2K 20`), many as a range.
fn plain(prices: &Prices) -> String {
    let mut cells = Vec::new();
    collect(prices, "", &mut cells);
    cells.sort_by_key(|(_, price)| *price);
    let of = |price: &Option<Decimal>| price.map_or("?".to_owned(), |price| price.normalize().to_string());
    let lowest = cells.iter().map(|(_, price)| price).min();
    let highest = cells.iter().map(|(_, price)| price).max();
    match (cells.as_slice(), lowest.zip(highest)) {
        ([], _) | (_, None) => "not listed".to_owned(),
        (_, Some((lowest, highest))) if lowest == highest => of(lowest),
        (few, _) if few.len() <= 6 => {
            few.iter().map(|(key, price)| format!("{} for {key}", of(price))).collect::<Vec<_>>().join(", ")
        }
        (_, Some((lowest, highest))) => format!("{} to {}", of(lowest), of(highest)),
    }
}

fn collect(prices: &Prices, path: &str, cells: &mut Vec<(String, Option<Decimal>)>) {
    match prices {
        Prices::One(price) => cells.push((path.to_owned(), Some(*price))),
        Prices::Unreadable => cells.push((path.to_owned(), None)),
        Prices::By(map) => {
            for (key, inner) in map {
                let path = match (path, key.as_str()) {
                    (path, "per_generation") => path.to_owned(),
                    ("", key) => key.to_owned(),
                    (path, key) => format!("{path} {key}"),
                };
                collect(inner, &path, cells);
            }
        }
    }
}
