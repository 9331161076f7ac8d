//! Values that a catalog lists, written otherwise than it spells them: `16:09`, `5 s`, `House-C1`.
//!
//! Such a value is an error of its row. Where exactly one listed value can be meant, that one is sent and a note tells
//! so. Only the body on the wire is touched: a row's identity is what was written, so no key moves.

use std::borrow::Cow;

use serde_json::Value;

use super::builtin_model_rules::{SCENES, VIDEO_MODES};
use super::canonical_request::{image_scene, video_mode};
use super::catalog::{Catalog, CatalogEntry};
use super::catalog_list::CatalogList;
use super::duration::{same_seconds, seconds_of};
use super::model_rules::Rules;
use super::validate::{found, option};
use crate::domain::diagnostic::Diagnostic;
use crate::domain::number_text::{decimal_text, without_unit};
use crate::domain::request::{Kind, Request};

/// The request in the catalog's spelling, and a note for each value that was read.
pub(super) fn listed<'r>(
    kind: Kind,
    request: &'r Request,
    catalog: &Catalog,
    rules: &Rules,
) -> (Cow<'r, Request>, Vec<Diagnostic>) {
    let mut spelling = Spelling { request: Cow::Borrowed(request), notes: Vec::new() };
    match kind {
        Kind::Video => spelling.video(catalog, rules),
        Kind::Image => spelling.image(catalog, rules),
        Kind::Speech => spelling.voice(catalog),
        Kind::Music | Kind::SoundEffect | Kind::ShortsStudio => {}
    }
    (spelling.request, spelling.notes)
}

/// The id of a list that differs from `id` in case alone, where there is one such id.
pub(super) fn same_but_case<'l, T: CatalogEntry>(list: &'l CatalogList<T>, id: &str) -> Option<&'l str> {
    if list.get(id).is_some() {
        return None;
    }
    only(list.iter().map(CatalogEntry::id).filter(|listed| listed.eq_ignore_ascii_case(id)))
}

struct Spelling<'r> {
    request: Cow<'r, Request>,
    notes: Vec<Diagnostic>,
}

impl Spelling<'_> {
    fn video(&mut self, catalog: &Catalog, rules: &Rules) {
        self.model(&catalog.video, rules);
        let model = self.request.model.as_deref().and_then(|id| catalog.video.get(id));
        if let Some(mode) = self.request.mode.clone() {
            let listed = model.map(|model| model.modes.keys().map(String::as_str)).into_iter().flatten();
            let mut known: Vec<&str> = listed.collect();
            if known.is_empty() {
                known = VIDEO_MODES.to_vec();
            }
            if let Some(listed) = same_words(&known, &mode) {
                self.request.to_mut().mode = Some(listed.to_owned());
                self.note("mode", &Value::from(mode), listed);
            }
        }
        let Some(entry) = model.and_then(|model| model.modes.get(video_mode(&self.request))) else { return };
        let lists: [(&str, &Option<Vec<String>>, Reading); 3] = [
            ("duration", &entry.durations, same_length),
            ("resolution", &entry.resolutions, same_resolution),
            ("aspect_ratio", &entry.aspect_ratios, same_ratio),
        ];
        for (name, list, reading) in lists {
            self.option(name, list.as_deref().unwrap_or_default(), reading);
        }
    }

    fn image(&mut self, catalog: &Catalog, rules: &Rules) {
        self.model(&catalog.image, rules);
        if let Some(scene) = self.request.scene.clone()
            && let Some(listed) = same_words(&SCENES, &scene)
        {
            self.request.to_mut().scene = Some(listed.to_owned());
            self.note("scene", &Value::from(scene), listed);
        }
        let model = self.request.model.as_deref().and_then(|id| catalog.image.get(id));
        let Some(mode) = model.and_then(|model| model.modes.get(image_scene(&self.request))) else { return };
        self.option("aspect_ratio", &mode.aspect_ratios, same_ratio);
        self.option("quality", &mode.qualities, same_resolution);
    }

    fn voice(&mut self, catalog: &Catalog) {
        let Some(id) = self.request.voice_id.clone() else { return };
        if let Some(listed) = same_but_case(&catalog.voices.voices, &id) {
            self.request.to_mut().voice_id = Some(listed.to_owned());
            self.note("voice_id", &Value::from(id), listed);
        }
    }

    /// What the rules say of an id is said of it as it is written.
    fn model<T: CatalogEntry>(&mut self, list: &CatalogList<T>, rules: &Rules) {
        let Some(id) = self.request.model.clone().filter(|id| rules.model(id).is_none()) else { return };
        if let Some(listed) = same_but_case(list, &id) {
            self.request.to_mut().model = Some(listed.to_owned());
            self.note("model", &Value::from(id), listed);
        }
    }

    fn option(&mut self, name: &str, list: &[String], reading: Reading) {
        let Some(given) = self.request.options.get(name).cloned() else { return };
        let Value::String(word) = &given else { return };
        let is_accepted = |listed: &String| match name {
            "aspect_ratio" => listed == word,
            "duration" => same_seconds(listed, word),
            _ => listed.eq_ignore_ascii_case(word),
        };
        if list.iter().any(is_accepted) {
            return;
        }
        let is_meant = |listed: &&String| listed.eq_ignore_ascii_case(word) || reading(listed, word);
        let readable = list.iter().filter(is_meant);
        if let Some(listed) = only(readable) {
            self.request.to_mut().options.insert(name.to_owned(), Value::from(listed.as_str()));
            self.note(&option(name), &given, listed);
        }
    }

    fn note(&mut self, field: &str, given: &Value, listed: &str) {
        let message = format!("{} is read as {listed}", found(given));
        self.notes.push(Diagnostic::new(message).in_field(field));
    }
}

/// The only one of them.
fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    found.next().filter(|_| found.next().is_none())
}

/// The one of `known` that has the same words, whatever their case and what stands between them. Nothing for one that
/// is known as it is.
fn same_words<'k>(known: &[&'k str], text: &str) -> Option<&'k str> {
    let words = |text: &str| text.replace(['_', ' '], "-").to_lowercase();
    let meant = words(text);
    if known.contains(&text) { None } else { only(known.iter().copied().filter(|k| words(k) == meant)) }
}

/// Whether a listed value can be meant by a text.
type Reading = fn(listed: &str, text: &str) -> bool;

/// `5 s`, `5 sec` and `5,0` are 5s.
fn same_length(listed: &str, text: &str) -> bool {
    let seconds = decimal_text(without_unit(text)).and_then(|text| seconds_of(&text));
    seconds.is_some() && seconds_of(listed) == seconds
}

/// `1080 p` and `1080` are 1080p.
fn same_resolution(listed: &str, text: &str) -> bool {
    let text: String = text.split_whitespace().collect();
    let lines = |letter: char| listed.strip_suffix(letter) == Some(&text);
    listed.eq_ignore_ascii_case(&text) || lines('p') || lines('P')
}

/// `16:09`, which spreadsheets make of `16:9`, `16:09:00`, `16x9`, `16/9` and `16 : 9` are 16:9.
fn same_ratio(listed: &str, text: &str) -> bool {
    sides(text).is_some_and(|sides_of_text| sides(listed) == Some(sides_of_text))
}

fn sides(text: &str) -> Option<(u32, u32)> {
    let side = |text: &str| text.trim().parse::<u32>().ok().filter(|side| (1..=99).contains(side));
    let parts: Vec<&str> = text.split([':', 'x', 'X', '×', '/']).collect();
    match parts.as_slice() {
        [width, height] | [width, height, "00"] => Some((side(width)?, side(height)?)),
        _ => None,
    }
}
