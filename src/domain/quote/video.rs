//! Videos: mode, inputs, options (POST /api/v1/videos).

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::audio_note::{AudioNote, audio_note};
use super::builtin_model_rules::{VIDEO, VIDEO_MODES};
use super::canonical_request::video_mode;
use super::catalog::{VideoMode, VideoModel};
use super::duration::{plain, same_seconds, seconds, seconds_of};
use super::model_rules::{Allowance, BilledSource, Bounds, InputLimits, ModelRules};
use super::price_formula::Priced;
use super::validate::{boolean, either, found, nearest, not_one_of, option};
use super::video_price::{self, Terms, UnsaidSource};
use super::{Catalog, PricedBody, QuoteContext, Rules, find_model, request_body, spelling, validate};
use crate::domain::diagnostic::Diagnostics;
use crate::domain::request::{Kind, Request};

/// Validates, defaults and prices a video.
pub(super) fn draft(basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) -> PricedBody {
    let request = basis.request;
    let prompt = validate::prompt("prompt", request.prompt.as_deref(), basis.rules, diagnostics);
    validate::urls("image_urls", &request.image_urls, diagnostics);
    validate::urls("video_urls", &request.video_urls, diagnostics);
    let mut options = validate::present(&request.options);
    let found_model = find_model::find(Kind::Video, &basis.catalog.video, basis, diagnostics);
    let mode = mode_of(basis, found_model, diagnostics);
    let job = Job { basis, mode, id: request.model.as_deref().unwrap_or_default() };
    job.check_inputs(diagnostics);
    let source = job.source_seconds(found_model, &options, diagnostics);
    let mut waivable = None;
    let priced = match found_model.map(|model| (model, model.modes.get(mode))) {
        Some((model, Some(entry))) => {
            check_prompt_length(model, &prompt, diagnostics);
            let terms = job.settle(entry, &mut options, source, diagnostics);
            waivable = job.allowance(&terms);
            let priced = video_price::price(entry, &terms);
            labelled(priced, model, entry)
        }
        _ => Priced::unpriced("the video catalog does not list it"),
    };
    let fields = [
        ("model", request.model.as_deref().map(Value::from)),
        ("prompt", Some(Value::from(prompt))),
        ("mode", Some(Value::from(mode))),
        ("image_urls", request_body::list(&request.image_urls)),
        ("video_urls", request_body::list(&request.video_urls)),
    ];
    PricedBody::new(request.model.clone(), request_body::body(fields, options), priced).waivable(waivable)
}

/// The durations that a video may have as it is asked for, by their seconds, shortest first. Never empty.
///
/// # Errors
/// Why there are none to choose from, as a sentence without its subject.
pub(super) fn durations(basis: &QuoteContext<'_>) -> Result<Vec<(Decimal, String)>, String> {
    // What is wrong with the request is said where it is validated.
    let unsaid = &mut Diagnostics::default();
    let (job, found_model) = job_of(basis);
    let (mode, id) = (job.mode, job.id);
    let entry = found_model.and_then(|model| model.modes.get(mode));
    let listed = entry.and_then(|entry| Some((entry, entry.durations.as_deref()?)));
    let Some((entry, listed)) = listed else {
        return Err(format!(
            "takes the length of an output, but the catalog lists no durations of {id}; write the duration"
        ));
    };
    let mut options = validate::present(&basis.request.options);
    let resolution = job.choose("resolution", entry, &mut options, unsaid);
    let at_resolution = job.durations_at(entry, resolution.as_deref());
    let is_left = |duration: &&str| {
        at_resolution.iter().all(|list| list.iter().any(|listed| same_seconds(listed, duration)))
    };
    let left: Vec<&str> = listed.iter().map(String::as_str).filter(is_left).collect();
    if left.is_empty() {
        return Err(format!(
            "takes the length of an output, and {id} takes no duration in {mode}; leave it out"
        ));
    }
    let read = |text: &&str| Some((seconds_of(text)?, (*text).to_owned()));
    let mut found: Vec<(Decimal, String)> =
        left.iter().map(read).collect::<Option<_>>().ok_or_else(|| {
            format!("takes the length of an output, and {id} takes {}; write one of them", either(&left))
        })?;
    found.sort();
    Ok(found)
}

/// What a request comes to that has a source video, looked at without saying what is wrong with it.
fn job_of<'a>(basis: &'a QuoteContext<'a>) -> (Job<'a>, Option<&'a VideoModel>) {
    let unsaid = &mut Diagnostics::default();
    let found_model = find_model::find(Kind::Video, &basis.catalog.video, basis, unsaid);
    let mode = mode_of(basis, found_model, unsaid);
    (Job { basis, mode, id: basis.request.model.as_deref().unwrap_or_default() }, found_model)
}

/// Whether the seconds of its source video decide about a video: they must be sent, or there is a limit to them. The model
/// may be spelled as [`quote`](super::quote) reads it.
pub fn wants_source_seconds(request: &Request, catalog: &Catalog, rules: &Rules) -> bool {
    let (request, _) = spelling::listed(Kind::Video, request, catalog, rules);
    let basis = QuoteContext { request: &request, catalog, rules };
    let (job, found_model) = job_of(&basis);
    let has_limit = job.limits().is_some_and(|limits| limits.source_seconds_max.is_some());
    !request.video_urls.is_empty() && (has_limit || job.needs_source_seconds(found_model))
}

/// The longest source video that is taken, in seconds, where there is a limit.
pub(super) fn source_seconds_max(basis: &QuoteContext<'_>) -> Option<u32> {
    job_of(basis).0.limits()?.source_seconds_max
}

/// The seconds of source videos that cost the least and the most.
///
/// # Errors
/// Why that is not known, as a sentence without its subject.
pub(super) fn priced_source_seconds(basis: &QuoteContext<'_>) -> Result<Vec<u32>, String> {
    const LEAST: u32 = 1;
    let (job, found_model) = job_of(basis);
    let entry = found_model.and_then(|model| model.modes.get(job.mode));
    let has_rate = entry.is_some_and(|entry| {
        entry.credits_per_second.is_some() || entry.credits_per_second_with_video_input.is_some()
    });
    match basis.rules.billed_source(job.id) {
        BilledSource::UpTo(billed) => {
            let most = job.limits().and_then(|limits| limits.source_seconds_max);
            let most = most.map_or(billed, |most| most.min(billed));
            Ok(if most > LEAST { vec![LEAST, most] } else { vec![LEAST] })
        }
        BilledSource::Unsaid if has_rate => {
            Err(format!("takes the length of an output, and {}; or write the seconds", unsaid_source(job.id)))
        }
        BilledSource::Nothing | BilledSource::Unsaid => Ok(vec![LEAST]),
    }
}

/// What is missing for the price of a model with a source video.
fn unsaid_source(id: &str) -> String {
    format!(
        "the catalog does not say whether {id} bills the seconds of a source video; set inherit or \
         billed_source_seconds_max in [rules.models.\"{id}\"] of the configuration"
    )
}

/// The mode, given or by default; a finding when the model has no such mode.
fn mode_of<'a>(
    basis: &QuoteContext<'a>,
    model: Option<&VideoModel>,
    diagnostics: &mut Diagnostics,
) -> &'a str {
    let mode = video_mode(basis.request);
    let Some(model) = model.filter(|model| !model.modes.is_empty()) else {
        if !VIDEO_MODES.contains(&mode) {
            diagnostics.push(not_one_of("mode", mode, &VIDEO_MODES));
        }
        return mode;
    };
    if !model.modes.contains_key(mode) {
        let modes: Vec<&str> = model.modes.keys().map(String::as_str).collect();
        let how = if basis.request.mode.is_some() { "" } else { ", which the inputs imply" };
        let message = format!("{} has no {mode}{how}; {} is accepted", model.about.id, either(&modes));
        match nearest(mode, modes.into_iter()).first() {
            Some(near) if basis.request.mode.is_some() => {
                diagnostics.refuse_with("mode", message, format!("did you mean {near}?"));
            }
            _ => diagnostics.refuse("mode", message),
        }
    }
    mode
}

fn check_prompt_length(model: &VideoModel, prompt: &str, diagnostics: &mut Diagnostics) {
    let Some(most) = model.max_prompt_length else { return };
    let length = prompt.chars().count();
    if u64::try_from(length).unwrap_or(u64::MAX) > most {
        let id = &model.about.id;
        diagnostics.refuse("prompt", format!("has {length} characters; {id} takes {most} at most"));
    }
}

/// One video: what is asked, and in which mode.
struct Job<'a> {
    basis: &'a QuoteContext<'a>,
    mode: &'a str,
    id: &'a str,
}

impl Job<'_> {
    fn rules(&self) -> Option<&ModelRules> {
        self.basis.rules.model(self.id)
    }

    fn limits(&self) -> Option<&InputLimits> {
        self.basis.rules.inputs(self.id, self.mode)
    }

    /// Counts of inputs (Input limits). An id without rules is validated by what holds for all models:
    /// one source video at most, and one where the mode needs it.
    fn check_inputs(&self, diagnostics: &mut Diagnostics) {
        let needed = u32::from(self.mode == VIDEO);
        let videos = self.limits().map_or(Bounds { min: needed, max: 1 }, |limits| limits.videos);
        if let Some(limits) = self.limits() {
            self.check_count(
                "image_urls",
                "image",
                self.basis.request.image_urls.len(),
                limits.images,
                diagnostics,
            );
        }
        self.check_count("video_urls", "video", self.basis.request.video_urls.len(), videos, diagnostics);
    }

    fn check_count(
        &self,
        field: &str,
        what: &str,
        count: usize,
        bounds: Bounds,
        diagnostics: &mut Diagnostics,
    ) {
        if bounds.hold(count) {
            return;
        }
        let accepted = match (bounds.min, bounds.max) {
            (_, 0) => format!("no {what}"),
            (1, 1) => format!("1 {what}"),
            (min, max) if min == max => format!("{max} {what}s"),
            (min, max) => format!("{min} to {max} {what}s"),
        };
        let subject = if self.id.is_empty() { "a video" } else { self.id };
        let message = format!("{count} given; {subject} takes {accepted} in {}", self.mode);
        match self.fitting_modes() {
            modes if modes.is_empty() => diagnostics.refuse(field, message),
            modes => {
                diagnostics.refuse_with(field, message, format!("these inputs fit mode {}", either(&modes)));
            }
        }
    }

    /// The model's modes that would take the inputs as they are.
    fn fitting_modes(&self) -> Vec<&str> {
        let (images, videos) = (self.basis.request.image_urls.len(), self.basis.request.video_urls.len());
        let modes = self.rules().into_iter().flat_map(|rules| &rules.inputs);
        modes
            .filter(|(_, limits)| limits.images.hold(images) && limits.videos.hold(videos))
            .map(|(mode, _)| mode.as_str())
            .collect()
    }

    /// `source_video_duration_seconds`: required where seconds are priced, and within the model's limits.
    fn source_seconds(
        &self,
        model: Option<&VideoModel>,
        options: &Map<String, Value>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Decimal> {
        const NAME: &str = "source_video_duration_seconds";
        let field = option(NAME);
        let sent = !self.basis.request.video_urls.is_empty();
        let Some(value) = options.get(NAME) else {
            if sent && self.needs_source_seconds(model) {
                let subject = self.id;
                diagnostics.refuse(&field, format!("is missing; {subject} needs the source video's seconds"));
            }
            return None;
        };
        let given = seconds(value).filter(|seconds| value.is_number() && *seconds > Decimal::ZERO);
        match given {
            None => {
                diagnostics.refuse(&field, format!("found {}; a number above 0 is accepted", found(value)));
            }
            Some(_) if !sent => diagnostics.note(&field, "requires video_urls"),
            Some(seconds) => self.check_source_length(&field, seconds, diagnostics),
        }
        given.filter(|_| sent)
    }

    fn needs_source_seconds(&self, model: Option<&VideoModel>) -> bool {
        let per_second = model
            .and_then(|model| model.modes.get(self.mode))
            .is_some_and(|mode| mode.credits_per_second.is_some());
        let billed = matches!(self.basis.rules.billed_source(self.id), BilledSource::UpTo(_));
        per_second || billed || self.limits().is_some_and(|limits| limits.source_seconds_required)
    }

    /// Lengths that the provider refuses, or uses in part (footnotes 2 and 3 of Input limits).
    fn check_source_length(&self, field: &str, seconds: Decimal, diagnostics: &mut Diagnostics) {
        let (max, used) = self
            .limits()
            .map_or((None, None), |limits| (limits.source_seconds_max, limits.source_seconds_used));
        let found = plain(seconds);
        match (max, used) {
            (Some(max), _) if seconds > Decimal::from(max) => {
                let message = format!("found {found} s; {} takes source videos of at most {max} s", self.id);
                diagnostics.refuse_with(field, message, "a longer one fails after it was submitted");
            }
            (_, Some(used)) if seconds > Decimal::from(used) => {
                diagnostics.note(field, format!("of {found} s the first {used} s are used"));
            }
            _ => {}
        }
    }

    /// Fills and spells the options, and gathers what the price depends on.
    fn settle(
        &self,
        entry: &VideoMode,
        options: &mut Map<String, Value>,
        source: Option<Decimal>,
        diagnostics: &mut Diagnostics,
    ) -> Terms {
        let [resolution, duration, _] = ["resolution", "duration", "aspect_ratio"]
            .map(|name| self.choose(name, entry, options, diagnostics));
        self.check_duration_at(entry, resolution.as_deref(), duration.as_deref(), diagnostics);
        let audio = self.audio(entry, options, diagnostics);
        Terms {
            seconds: duration.as_deref().and_then(seconds_of),
            resolution,
            audio,
            video_sent: !self.basis.request.video_urls.is_empty(),
            source_seconds: self.billed_source(source, diagnostics),
        }
    }

    /// The value of an option with a list that is used and billed.
    fn choose(
        &self,
        name: &'static str,
        entry: &VideoMode,
        options: &mut Map<String, Value>,
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        let (list, same): (_, Same) = match name {
            "resolution" => (&entry.resolutions, str::eq_ignore_ascii_case),
            "duration" => (&entry.durations, same_seconds),
            _ => (&entry.aspect_ratios, |a, b| a == b),
        };
        let default = entry.defaults.get(name).map(String::as_str);
        let choice = Choice { name, id: self.id, mode: self.mode, list: list.as_deref(), default, same };
        choice.make(options, diagnostics)
    }

    /// `true` only where the mode lets it be switched. Where it decides the price, its absence is
    /// spelled out as `false`, which every model accepts.
    fn audio(
        &self,
        entry: &VideoMode,
        options: &mut Map<String, Value>,
        diagnostics: &mut Diagnostics,
    ) -> bool {
        let given = boolean(options, "audio", diagnostics);
        if given == Some(true) && !entry.audio_toggle {
            let message =
                format!("found true; {} makes no audio in {}, so false is accepted", self.id, self.mode);
            diagnostics.refuse("options.audio", message);
        }
        let noted = entry.audio_toggle && audio_note(entry.pricing_note.as_deref()) != AudioNote::Silent;
        if !options.contains_key("audio") && (noted || video_price::by_audio(entry)) {
            options.insert("audio".to_owned(), Value::Bool(false));
        }
        given.unwrap_or(false)
    }

    /// The durations that are left at a resolution, by the rules and by the price matrix.
    fn durations_at<'b>(&'b self, entry: &'b VideoMode, resolution: Option<&str>) -> Vec<Vec<&'b str>> {
        let Some(resolution) = resolution else { return Vec::new() };
        let ruled = self.rules().and_then(|rules| {
            let at = rules.durations_at.iter().find(|(name, _)| name.eq_ignore_ascii_case(resolution));
            at.map(|(_, durations)| durations.iter().map(String::as_str).collect())
        });
        [ruled, video_price::durations_at(entry, resolution)].into_iter().flatten().collect()
    }

    /// Some resolutions have fewer durations: by the price matrix, or by the rules (`model-r`).
    fn check_duration_at(
        &self,
        entry: &VideoMode,
        resolution: Option<&str>,
        duration: Option<&str>,
        diagnostics: &mut Diagnostics,
    ) {
        let (Some(resolution), Some(duration)) = (resolution, duration) else { return };
        for durations in self.durations_at(entry, Some(resolution)) {
            if !durations.iter().any(|listed| same_seconds(listed, duration)) {
                let accepted = either(&durations);
                let id = self.id;
                let message =
                    format!("{duration} is not available at {resolution}; {id} takes {accepted} there");
                diagnostics.refuse("options.duration", message);
                return;
            }
        }
    }

    /// The source seconds that are billed beside the output's (Video cost). No catalog says it, so that of an id
    /// that nobody has told about it is not known.
    fn billed_source(
        &self,
        source: Option<Decimal>,
        diagnostics: &mut Diagnostics,
    ) -> Result<Option<Decimal>, UnsaidSource> {
        if self.basis.request.video_urls.is_empty() {
            return Ok(None);
        }
        let most = match self.basis.rules.billed_source(self.id) {
            BilledSource::UpTo(most) => Decimal::from(most),
            BilledSource::Nothing => return Ok(None),
            BilledSource::Unsaid => {
                return Err(UnsaidSource { why: unsaid_source(self.id), seconds: source });
            }
        };
        let Some(source) = source else { return Ok(None) };
        let billed = source.min(most);
        let message = format!("of {} s of source video {} s are billed", plain(source), plain(billed));
        diagnostics.note("options.source_video_duration_seconds", message);
        Ok(Some(billed))
    }

    fn allowance(&self, terms: &Terms) -> Option<Allowance> {
        let units = super::price_matrix::round_up(terms.seconds?)?;
        self.basis.rules.allowance(self.id, units.0)
    }
}

/// Whether two spellings are the same value of an option.
type Same = fn(&str, &str) -> bool;

/// One option with a list of allowed values: `duration`, `resolution` or `aspect_ratio`.
struct Choice<'a> {
    name: &'static str,
    id: &'a str,
    mode: &'a str,
    list: Option<&'a [String]>,
    default: Option<&'a str>,
    same: Same,
}

impl Choice<'_> {
    /// The value that is used and billed; it is left in `options` in the catalog's spelling.
    fn make(&self, options: &mut Map<String, Value>, diagnostics: &mut Diagnostics) -> Option<String> {
        let Some(given) = options.get(self.name) else { return self.fill(options) };
        let Some(word) = self.word(given) else {
            self.refuse(given, diagnostics);
            return None;
        };
        let Some(list) = self.list else { return Some(word) };
        let Some(listed) = list.iter().find(|listed| (self.same)(listed, &word)) else {
            self.refuse(given, diagnostics);
            return None;
        };
        options.insert(self.name.to_owned(), Value::from(listed.as_str()));
        Some(listed.clone())
    }

    /// The default, sent along where the list holds it.
    fn fill(&self, options: &mut Map<String, Value>) -> Option<String> {
        let default = self.default?;
        let listed = self.list.unwrap_or_default().iter().find(|listed| (self.same)(listed, default));
        if let Some(listed) = listed {
            options.insert(self.name.to_owned(), Value::from(listed.as_str()));
        }
        Some(listed.map_or(default, String::as_str).to_owned())
    }

    /// A text; for durations also a number.
    fn word(&self, given: &Value) -> Option<String> {
        match given {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) if self.name == "duration" => Some(number.to_string()),
            _ => None,
        }
    }

    fn refuse(&self, given: &Value, diagnostics: &mut Diagnostics) {
        let (field, given_text) = (option(self.name), found(given));
        let Choice { name, id, mode, .. } = self;
        match self.list {
            Some([]) => {
                let message = format!("found {given_text}; {id} takes no {name} in {mode}, leave it out");
                diagnostics.refuse(&field, message);
            }
            Some(list) => {
                let message = format!("found {given_text}; {id} takes {} in {mode}", either(list));
                let near = given.as_str().and_then(|text| list.iter().find(|l| l.eq_ignore_ascii_case(text)));
                match near {
                    Some(near) => diagnostics.refuse_with(&field, message, format!("case counts: {near}")),
                    None => diagnostics.refuse(&field, message),
                }
            }
            None => diagnostics.refuse(&field, format!("found {given_text}; a text is accepted")),
        }
    }
}

/// An unpriced video shows the catalog's display labels, which are no price.
fn labelled(priced: Priced, model: &VideoModel, entry: &VideoMode) -> Priced {
    let label = entry.pricing_note.as_deref().or(model.about.credits_label.as_deref());
    match (priced.credits, label) {
        (None, Some(label)) => {
            let formula = format!("{}; the catalog's label says \"{label}\"", priced.formula);
            Priced { formula, ..priced }
        }
        _ => priced,
    }
}
