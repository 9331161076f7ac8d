//! References to outputs of other rows, where the service takes an address or a length: `job:still-07`,
//! `job:still-07-v2#1`.
//!
//! A row that has some is a *child* of the rows that it names. It may be sent once the take of each that is wanted is done
//! and, where a review is asked for, approved. What decides that stands here; whose outcomes are known is the engine's.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::domain::gone_input::why_gone;
use crate::domain::ids::{BatchName, BatchNo, Fingerprint, JobId, JobKey, Seq};
use crate::domain::job_state::JobState;
use crate::domain::quote::seconds_as_number;
use crate::domain::request::Kind;
use crate::domain::review::Verdict;
use crate::domain::task::Fault;
use crate::domain::time::Millis;

/// What a reference begins with.
const SCHEME: &str = "job:";
/// How a reference is written, for messages.
pub const FORM: &str = "job:ID, job:ID-v2 for one variation, job:ID#2 for its second output, job:BATCH/ID for a row of another batch";

/// A reference as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReference {
    /// The batch of the row, where one is named.
    pub batch: Option<BatchName>,
    /// The id of the row, or the label of one of its variations. `%2F`, `%23` and `%25` stand for `/`, `#` and `%`.
    pub row: String,
    /// Which output of it, from 1.
    pub output: u32,
}

/// Whether a text is meant as a reference.
pub fn is_reference(text: &str) -> bool {
    text.starts_with(SCHEME)
}

impl JobReference {
    /// Reads a reference; nothing where the text is none.
    ///
    /// # Errors
    /// What is wrong with one, as a sentence without its subject.
    pub fn parse(text: &str) -> Option<Result<JobReference, String>> {
        is_reference(text).then(|| JobReference::of(text.get(SCHEME.len()..).unwrap_or_default()))
    }

    fn of(rest: &str) -> Result<JobReference, String> {
        let (path, output) = match rest.split_once('#') {
            None => (rest, 1),
            Some((path, number)) => match number.parse::<u32>() {
                Ok(output) if output > 0 => (path, output),
                _ => {
                    let message = format!("has \"#{number}\"; the number of an output, from 1, is accepted");
                    return Err(message);
                }
            },
        };
        let decoded = |text: &str| {
            let text = percent_encoding::percent_decode_str(text).decode_utf8();
            text.map(std::borrow::Cow::into_owned)
                .map_err(|_| "is not UTF-8 once its % signs are read".to_owned())
        };
        let (batch, path) = match path.split_once('/') {
            None => (None, path),
            Some((batch, path)) => {
                let name = decoded(batch)?.parse::<BatchName>();
                (Some(name.map_err(|error| format!("names the batch \"{batch}\": {error}"))?), path)
            }
        };
        if path.contains('/') {
            return Err("has two \"/\"; one that is part of an id is written %2F".to_owned());
        }
        let row = decoded(path)?;
        if row.trim().is_empty() {
            return Err(format!("names no row; {FORM} is accepted"));
        }
        Ok(JobReference { batch, row, output })
    }

    /// A label that ends in the number of a variation (`still-07-v2`), cut in two.
    pub fn variation_of(label: &str) -> Option<(&str, u32)> {
        let (row, number) = label.rsplit_once("-v")?;
        let plain = !row.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0');
        Some((row, number.parse().ok()?)).filter(|_| plain)
    }
}

/// The field of a request that takes addresses, or the option that takes a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputField {
    ImageUrls,
    VideoUrls,
    /// How long a video is to be: as long as the output at least.
    Duration,
    /// The same of music and sound effects.
    DurationSeconds,
    /// How long the source video is that a video is made from.
    SourceVideoDurationSeconds,
}

impl InputField {
    /// The name in bodies and manifests.
    pub fn name(self) -> &'static str {
        match self {
            InputField::ImageUrls => "image_urls",
            InputField::VideoUrls => "video_urls",
            InputField::Duration => "duration",
            InputField::DurationSeconds => "duration_seconds",
            InputField::SourceVideoDurationSeconds => "source_video_duration_seconds",
        }
    }

    /// The option of a kind that may be the length of another row's output.
    pub fn length_of(kind: Kind) -> Option<InputField> {
        match kind {
            Kind::Video => Some(InputField::Duration),
            Kind::Music | Kind::SoundEffect => Some(InputField::DurationSeconds),
            Kind::Image | Kind::Speech | Kind::ShortsStudio => None,
        }
    }

    /// All options of a kind that may be the length of another row's output.
    pub fn lengths_of(kind: Kind) -> &'static [InputField] {
        match kind {
            Kind::Video => &[InputField::Duration, InputField::SourceVideoDurationSeconds],
            Kind::Music | Kind::SoundEffect => &[InputField::DurationSeconds],
            Kind::Image | Kind::Speech | Kind::ShortsStudio => &[],
        }
    }

    /// Whether it takes the address of a source video.
    pub fn is_source_video(self) -> bool {
        self == InputField::VideoUrls
    }

    /// Whether it takes the length of an output, and not its address.
    pub fn is_length(self) -> bool {
        !matches!(self, InputField::ImageUrls | InputField::VideoUrls)
    }

    /// Whether it is sent as a JSON number.
    pub fn is_number(self) -> bool {
        matches!(self, InputField::DurationSeconds | InputField::SourceVideoDurationSeconds)
    }

    /// What it takes of outputs of rows of a kind.
    pub fn takes(self, kind: Kind) -> bool {
        match self {
            InputField::ImageUrls => kind == Kind::Image,
            InputField::VideoUrls | InputField::SourceVideoDurationSeconds => kind == Kind::Video,
            InputField::Duration | InputField::DurationSeconds => {
                matches!(kind, Kind::Video | Kind::Music | Kind::Speech | Kind::SoundEffect)
            }
        }
    }
}

/// The reference that options have in the place of a length.
pub fn length_reference(field: InputField, options: &Map<String, Value>) -> Option<&str> {
    options.get(field.name())?.as_str().filter(|text| is_reference(text))
}

/// A row that another one may take outputs of.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferredRow {
    /// Who it is.
    pub fingerprint: Fingerprint,
    /// What its outputs are.
    pub kind: Kind,
    /// Its variations.
    pub count: u32,
    /// How long its outputs are by its options, in seconds, in the form that a number of the body has.
    pub seconds: Option<Number>,
}

impl ReferredRow {
    /// One that is sent with this body.
    pub fn new(fingerprint: Fingerprint, kind: Kind, count: u32, body: &Map<String, Value>) -> ReferredRow {
        let seconds = match seconds_of(kind, body) {
            Some(Value::Number(seconds)) => Some(seconds),
            _ => None,
        };
        ReferredRow { fingerprint, kind, count, seconds }
    }
}

/// How long an output is by the options of its body, where these say it, as a JSON number of seconds.
pub fn seconds_of(kind: Kind, body: &Map<String, Value>) -> Option<Value> {
    let option = InputField::length_of(kind)?.name();
    seconds_as_number(body.get("options")?.get(option)?)
}

/// Another batch than the one of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputBatch {
    /// Its number.
    pub no: BatchNo,
    /// Its name.
    pub name: BatchName,
}

/// An input of a job that is an output of another row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInput {
    /// The field of the body in which it stands.
    pub field: InputField,
    /// Its place in that list, from 0; 0 for an option.
    pub place: u32,
    /// The batch of that row, where it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<InputBatch>,
    /// The id of the row that it names.
    pub row: String,
    /// Who that row is.
    pub fingerprint: Fingerprint,
    /// How many variations that row asks for.
    pub takes: u32,
    /// The variation that is named, from 1; without one it is the chosen one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation: Option<u32>,
    /// Which output, from 1.
    pub output: u32,
}

impl JobInput {
    /// The jobs that may be meant, by their identity.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        let (first, last) = match self.variation {
            Some(variation) => (variation, variation),
            None => (1, self.takes),
        };
        (first..=last).map(|variation| JobId::derive(self.fingerprint, variation))
    }

    /// The takes of a row of which the chosen one is meant that were asked for after it was named, by their identity.
    pub fn later_jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        let later = match self.variation {
            Some(_) => 0,
            None => LATER_TAKES,
        };
        (1..=later).map(|more| JobId::derive(self.fingerprint, self.takes.saturating_add(more)))
    }

    /// The batch of the row that it names, for a job of the batch `own`.
    pub fn batch_of(&self, own: BatchNo) -> BatchNo {
        self.batch.as_ref().map_or(own, |batch| batch.no)
    }

    /// The job with this number in that batch.
    pub fn key_of(&self, own: BatchNo, seq: Seq) -> JobKey {
        JobKey { batch: self.batch_of(own), seq }
    }

    /// Whether it is the chosen one of several takes that its row asked for when it was named.
    pub fn is_choice(&self) -> bool {
        self.variation.is_none() && self.takes > 1
    }

    /// Which variation a job is that is chosen among several.
    pub fn choice(&self, job: JobId) -> Option<u32> {
        if self.variation.is_some() {
            return None;
        }
        let place = self.jobs().chain(self.later_jobs()).position(|meant| meant == job)?;
        let take = u32::try_from(place).ok()?.checked_add(1)?;
        (take > 1 || self.takes > 1).then_some(take)
    }

    /// What stands in its place when identities are derived: who is meant, however it is written.
    pub fn identity(&self) -> String {
        let variation = self.variation.unwrap_or(0);
        format!("{SCHEME}{}/{variation}#{}", self.fingerprint, self.output)
    }

    /// Where it stands, as it is shown: `image_urls[0]`, `duration`.
    pub fn shown_field(&self) -> String {
        let name = self.field.name();
        if self.field.is_length() { name.to_owned() } else { format!("{name}[{}]", self.place) }
    }

    /// How it is shown: `still-07`, `still-07-v2#3`, `spring/still-07`.
    pub fn shown(&self) -> String {
        self.shown_with(self.variation)
    }

    /// The same of the take that gave it, where that was chosen among several; 0 where there was no choice.
    pub fn shown_take(&self, take: u32) -> String {
        self.shown_with(self.variation.or(Some(take).filter(|take| *take > 1)))
    }

    fn shown_with(&self, variation: Option<u32>) -> String {
        let variation = variation.map(|variation| format!("-v{variation}")).unwrap_or_default();
        let output = if self.output == 1 { String::new() } else { format!("#{}", self.output) };
        let batch = self.batch.as_ref().map(|batch| format!("{}/", batch.name)).unwrap_or_default();
        format!("{batch}{}{variation}{output}", self.row)
    }
}

/// Takes of a row that were asked for after another row named it, and that are looked for to feed that one. More are not:
/// each row that waits keeps as many lines in memory.
const LATER_TAKES: u32 = 16;

/// Where an input lies, and which take of its row it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundInput {
    /// The service's result link; of a length, what is sent for it.
    pub address: String,
    /// The variation of the row that gives it, where it was chosen among several.
    pub take: Option<u32>,
    /// How long the output is, where the reference takes its length and the order does not tell.
    pub length: Option<Millis>,
}

/// Code of a job that would be as long as an output that is longer than the service takes.
pub const INPUT_TOO_LONG: &str = "input_too_long";
/// Code of a job that would be as long as an output whose length cannot be told, or that takes no length any more.
pub const INPUT_LENGTH: &str = "input_length";

/// Looks for the inputs of a job that may have been sent before its state was lost, before they count as gone.
const GONE_AFTER: u32 = 5;

/// Why nobody knows what became of a job that may have been sent by a process whose state was lost, and that cannot be sent
/// again: the output whose length it takes does not fit, or its inputs were gone `looks` times in a row. Nothing where
/// another look may find them.
pub fn unfit_after_a_loss(fault: &Fault, looks: u32) -> Option<Fault> {
    let why = match fault.code.as_str() {
        INPUT_TOO_LONG | INPUT_LENGTH => "the output whose length it takes does not fit",
        _ if looks >= GONE_AFTER => why_gone(&fault.message),
        _ => return None,
    };
    let message = format!("it may have been sent before its state was lost, and cannot be sent again: {why}");
    Some(Fault::new(&fault.code, message))
}

/// A take of a row as the choice among several has to know it, or a child with the takes that it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedTake {
    /// What was decided about its outputs.
    pub verdict: Option<Verdict>,
    /// The takes that its inputs are, in their order, 0 where there was no choice; empty unless it was sent with them, or
    /// succeeded, and some were chosen among several.
    pub made_of: Vec<u32>,
}

/// The chosen one of several takes of a row: the picked one, or the only one that is approved.
pub fn chosen(input: &JobInput, verdict_of: impl Fn(JobId) -> Option<Verdict>) -> Option<u32> {
    let last = input.takes.saturating_add(LATER_TAKES);
    let verdicts = (1..=last).map(|take| (take, verdict_of(JobId::derive(input.fingerprint, take))));
    let with = |verdict: Verdict| verdicts.clone().filter(move |(_, found)| *found == Some(verdict));
    let approved = with(Verdict::Approved);
    let only = approved.clone().next().filter(|_| approved.count() == 1);
    with(Verdict::Picked).next().or(only).map(|(take, _)| take)
}

/// The inputs of a row that was made of other takes than those that are chosen now: these named one by one, which makes it
/// another job. Nothing where it was made of the chosen ones, or was not made.
pub fn chosen_otherwise(
    inputs: &[JobInput],
    made_of: &[u32],
    verdict_of: impl Fn(JobId) -> Option<Verdict>,
) -> Option<Vec<JobInput>> {
    // A length that was measured for it comes after those that are written.
    if made_of.len() < inputs.len() {
        return None;
    }
    let other = |(input, used): (&JobInput, &u32)| {
        // What was no choice then stays: it was the only take of its row.
        let is_choice = input.variation.is_none() && *used > 0;
        let take = chosen(input, &verdict_of).filter(|take| is_choice && take != used);
        take.map_or_else(|| input.clone(), |take| JobInput { variation: Some(take), ..input.clone() })
    };
    let others: Vec<JobInput> = inputs.iter().zip(made_of).map(other).collect();
    (others != inputs).then_some(others)
}

/// How a job ended, as far as its children have to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedTake {
    /// Its place in the batch.
    pub seq: Seq,
    /// How it ended.
    pub state: JobState,
    /// Its row asks for a decision about its outputs.
    pub wants_review: bool,
    /// What was decided about them.
    pub verdict: Option<Verdict>,
}

impl EndedTake {
    /// Whether it has outputs that were not rejected.
    pub fn may_give(&self) -> bool {
        self.state == JobState::Succeeded && !self.is_rejected()
    }

    fn is_rejected(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Rejected | Verdict::NotPicked))
    }

    fn is_approved(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Approved | Verdict::Picked))
    }
}

/// Why an input is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingInput {
    /// Its job has not ended.
    Unfinished,
    /// Its job has ended so.
    Ended(JobState),
    /// Its outputs wait for a decision.
    AwaitsReview,
    /// Its outputs were rejected.
    Rejected,
    /// Several takes are there, and none is picked.
    AwaitsPick,
}

/// The job that gives an input: of a row with one variation that one, of several the one that is picked, or else the only
/// one that is approved. `later` are takes that were asked for after the row was named, as far as they have ended: one of
/// them gives it where it is picked, or where it is the only one that is approved and the others give nothing.
///
/// # Errors
/// Why there is none yet.
pub fn parent(
    input: &JobInput,
    takes: &[Option<EndedTake>],
    later: &[EndedTake],
) -> Result<Seq, MissingInput> {
    let first = parent_of_named(input, takes);
    if input.variation.is_some() {
        return first;
    }
    // One may be picked while a take that was asked for before has not ended, and is undecided when it has.
    let all = || takes.iter().flatten().chain(later).filter(|take| take.state == JobState::Succeeded);
    let with = |verdict| all().filter(move |take| take.verdict == Some(verdict));
    if let Some(picked) = with(Verdict::Picked).next() {
        return Ok(picked.seq);
    }
    let mut approved = with(Verdict::Approved);
    match (first, approved.next(), approved.next()) {
        (Err(why), Some(only), None) if why != MissingInput::Unfinished => Ok(only.seq),
        (first, ..) => first,
    }
}

/// The same of the takes that the row asked for when it was named.
fn parent_of_named(input: &JobInput, takes: &[Option<EndedTake>]) -> Result<Seq, MissingInput> {
    let ended = || takes.iter().flatten();
    if let [take] = takes {
        let take = take.ok_or(MissingInput::Unfinished)?;
        return match take.state {
            // A take that is named is meant whatever is picked.
            JobState::Succeeded if input.variation.is_some() && take.verdict == Some(Verdict::NotPicked) => {
                Ok(take.seq)
            }
            JobState::Succeeded if take.is_rejected() => Err(MissingInput::Rejected),
            JobState::Succeeded if take.wants_review && !take.is_approved() => {
                Err(MissingInput::AwaitsReview)
            }
            JobState::Succeeded => Ok(take.seq),
            other => Err(MissingInput::Ended(other)),
        };
    }
    // Several takes: no variation is named, since one variation is one take.
    let succeeded = || ended().filter(|take| take.state == JobState::Succeeded);
    let with = |verdict| succeeded().filter(move |take| take.verdict == Some(verdict));
    if let Some(picked) = with(Verdict::Picked).next() {
        return Ok(picked.seq);
    }
    if takes.iter().any(Option::is_none) {
        return Err(MissingInput::Unfinished);
    }
    let mut approved = with(Verdict::Approved);
    match (approved.next(), approved.next(), succeeded().next()) {
        (Some(only), None, _) => Ok(only.seq),
        (_, _, Some(_)) if succeeded().all(EndedTake::is_rejected) => Err(MissingInput::Rejected),
        (_, _, Some(_)) => Err(MissingInput::AwaitsPick),
        (_, _, None) => Err(MissingInput::Ended(ended().next().map_or(JobState::Failed, |take| take.state))),
    }
}

impl MissingInput {
    /// Whether only a person's command brings it.
    pub fn waits_for_a_person(self) -> bool {
        self != MissingInput::Unfinished
    }

    /// What keeps it, as people read it, after the name of the row.
    pub fn explain(self) -> String {
        match self {
            MissingInput::Unfinished => "has not ended".to_owned(),
            MissingInput::Ended(state) => format!("is {state}"),
            MissingInput::AwaitsReview => "waits for review".to_owned(),
            MissingInput::Rejected => "was rejected".to_owned(),
            MissingInput::AwaitsPick => "has several takes, none of which is picked".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(String, u32), String> {
        let reference = JobReference::parse(text).expect("it is a reference");
        reference.map(|JobReference { batch, row, output }| {
            let batch = batch.map(|batch| format!("{batch}: ")).unwrap_or_default();
            (batch + &row, output)
        })
    }

    #[test]
    fn references_as_people_write_them() {
        assert_eq!(parsed("job:still-07"), Ok(("still-07".to_owned(), 1)));
        assert_eq!(parsed("job:still-07#2"), Ok(("still-07".to_owned(), 2)));
        assert_eq!(parsed("job:a%2Fb%23c%25"), Ok(("a/b#c%".to_owned(), 1)));
        assert_eq!(parsed("job:größe"), Ok(("größe".to_owned(), 1)));
        assert_eq!(parsed("job:spring/a%2Fb-v2#3"), Ok(("spring: a/b-v2".to_owned(), 3)));
        for bad in [
            "job:",
            "job:#1",
            "job:a#0",
            "job:a#x",
            "job:a#",
            "job:%ff",
            "job:spring/",
            "job:/a",
            "job:a/b/c",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(JobReference::parse("https://example.com/job:a").is_none());
        assert_eq!(JobReference::variation_of("a-v2"), Some(("a", 2)));
        assert_eq!(JobReference::variation_of("-v2"), None);
        assert_eq!(JobReference::variation_of("a-v02"), None);
        assert_eq!(JobReference::variation_of("a-v"), None);
    }

    fn input(takes: u32) -> JobInput {
        JobInput {
            field: InputField::ImageUrls,
            place: 0,
            batch: None,
            row: "still-07".to_owned(),
            fingerprint: Fingerprint([7; 16]),
            takes,
            variation: None,
            output: 1,
        }
    }

    fn take(seq: u32, state: JobState, wants_review: bool, verdict: Option<Verdict>) -> Option<EndedTake> {
        Some(EndedTake { seq: Seq(seq), state, wants_review, verdict })
    }

    #[test]
    fn the_only_take_feeds_unless_it_is_to_be_looked_at() {
        use JobState::{Failed, Succeeded};
        let check = |given, expected: Result<u32, MissingInput>| {
            assert_eq!(parent(&input(1), &[given], &[]), expected.map(Seq), "{given:?}");
        };
        check(None, Err(MissingInput::Unfinished));
        check(take(3, Succeeded, false, None), Ok(3));
        check(take(3, Succeeded, false, Some(Verdict::Rejected)), Err(MissingInput::Rejected));
        check(take(3, Succeeded, true, None), Err(MissingInput::AwaitsReview));
        check(take(3, Succeeded, true, Some(Verdict::Withdrawn)), Err(MissingInput::AwaitsReview));
        check(take(3, Succeeded, true, Some(Verdict::Approved)), Ok(3));
        check(take(3, Failed, false, None), Err(MissingInput::Ended(Failed)));
    }

    #[test]
    fn of_several_takes_the_picked_one_feeds() {
        use JobState::{Failed, Succeeded};
        let check = |takes: &[Option<EndedTake>], expected: Result<u32, MissingInput>| {
            assert_eq!(parent(&input(2), takes, &[]), expected.map(Seq), "{takes:?}");
        };
        let plain = |seq| take(seq, Succeeded, false, None);
        check(&[plain(1), plain(2)], Err(MissingInput::AwaitsPick));
        check(&[plain(1), None], Err(MissingInput::Unfinished));
        check(&[plain(1), take(2, Succeeded, false, Some(Verdict::Picked))], Ok(2));
        check(&[None, take(2, Succeeded, false, Some(Verdict::Picked))], Ok(2));
        check(&[plain(1), take(2, Succeeded, false, Some(Verdict::Approved))], Ok(2));
        let both = [take(1, Succeeded, false, Some(Verdict::Rejected)), take(2, Failed, false, None)];
        check(&both, Err(MissingInput::Rejected));
        check(
            &[take(1, Failed, false, None), take(2, Failed, false, None)],
            Err(MissingInput::Ended(Failed)),
        );
    }

    #[test]
    fn a_take_that_was_asked_for_later_feeds_where_it_is_chosen() {
        use JobState::{Failed, Succeeded};
        let check =
            |first: Option<EndedTake>, later: &[Option<EndedTake>], expected: Result<u32, MissingInput>| {
                let later: Vec<EndedTake> = later.iter().copied().flatten().collect();
                let found = parent(&input(1), &[first], &later);
                assert_eq!(found, expected.map(Seq), "{first:?} {later:?}");
            };
        let with = |seq, verdict| take(seq, Succeeded, true, verdict);
        let (rejected, approved, picked) =
            (Some(Verdict::Rejected), Some(Verdict::Approved), Some(Verdict::Picked));
        check(with(1, rejected), &[], Err(MissingInput::Rejected));
        check(with(1, rejected), &[with(2, None)], Err(MissingInput::Rejected));
        check(with(1, rejected), &[with(2, approved)], Ok(2));
        check(with(1, rejected), &[with(2, approved), with(3, approved)], Err(MissingInput::Rejected));
        check(with(1, approved), &[with(2, approved)], Ok(1));
        check(with(1, approved), &[with(2, picked)], Ok(2));
        check(with(1, Some(Verdict::NotPicked)), &[with(2, picked)], Ok(2));
        check(with(1, None), &[with(2, approved)], Ok(2));
        check(take(1, Succeeded, false, None), &[with(2, picked)], Ok(2));
        check(None, &[with(2, picked)], Ok(2));
        check(take(1, Succeeded, false, None), &[with(2, approved)], Ok(1));
        check(take(1, Failed, false, None), &[with(2, approved)], Ok(2));
        check(take(1, Failed, false, None), &[take(2, Failed, true, None)], Err(MissingInput::Ended(Failed)));
        check(None, &[with(2, approved)], Err(MissingInput::Unfinished));
        let named = JobInput { variation: Some(1), ..input(1) };
        let found = parent(&named, &[with(1, rejected)], with(2, picked).as_slice());
        assert_eq!(found, Err(MissingInput::Rejected), "that take is meant");
        let beside_a_picked_one =
            parent(&named, &[with(1, Some(Verdict::NotPicked))], with(2, picked).as_slice());
        assert_eq!(beside_a_picked_one, Ok(Seq(1)), "whatever is picked");
        assert_eq!(
            (named.later_jobs().count(), named.choice(JobId::derive(named.fingerprint, 1))),
            (0, None)
        );
        let later = input(1).later_jobs().next().unwrap();
        assert_eq!((later, input(1).choice(later)), (JobId::derive(Fingerprint([7; 16]), 2), Some(2)));
    }

    #[test]
    fn another_choice_names_the_take_and_the_same_choice_changes_nothing() {
        let (still, single) = (input(2), input(1));
        let job = |take| JobId::derive(still.fingerprint, take);
        let picked = |take: u32| move |found: JobId| (found == job(take)).then_some(Verdict::Picked);
        assert_eq!(chosen(&still, picked(2)), Some(2));
        assert_eq!(chosen(&still, |_| Some(Verdict::Approved)), None, "two are no choice");
        let inputs = [still.clone(), single];
        assert_eq!((still.choice(job(2)), inputs[1].choice(job(1))), (Some(2), None));
        assert_eq!(chosen_otherwise(&inputs, &[2, 0], picked(2)), None);
        assert_eq!(chosen_otherwise(&inputs, &[1, 0], |_| None), None, "nothing is chosen");
        assert_eq!(chosen_otherwise(&inputs, &[], picked(2)), None, "it was not made");
        let other = chosen_otherwise(&inputs, &[1, 0], picked(2)).unwrap();
        assert_eq!((other[0].variation, other[1].variation), (Some(2), None));
        // A take that was asked for later.
        let single = [input(1)];
        assert_eq!(chosen_otherwise(&single, &[2], picked(2)), None);
        assert_eq!(chosen_otherwise(&single, &[0], picked(2)), None, "there was no other take then");
        assert_eq!(chosen_otherwise(&single, &[2], picked(1)).unwrap()[0].variation, Some(1));
        let named = [JobInput { variation: Some(1), ..still.clone() }];
        assert_eq!(
            chosen_otherwise(&named, &[1], picked(2)),
            None,
            "that take is wanted, whatever is picked"
        );
    }

    /// Never edit the expected value: children are bought under keys that were derived from it.
    #[test]
    fn what_a_child_hashes_of_a_reference() {
        let plain = input(1);
        assert_eq!(plain.identity(), "job:07070707070707070707070707070707/0#1");
        let second = JobInput { variation: Some(2), output: 3, ..input(2) };
        assert_eq!(second.identity(), "job:07070707070707070707070707070707/2#3");
        assert_eq!(second.shown(), "still-07-v2#3");
        let batch = InputBatch { no: BatchNo(4), name: "spring".parse().unwrap() };
        let foreign = JobInput { batch: Some(batch), ..second.clone() };
        assert_eq!(foreign.identity(), second.identity(), "who is meant says which batch");
        assert_eq!(foreign.shown(), "spring/still-07-v2#3");
        assert_eq!((foreign.batch_of(BatchNo(1)), second.batch_of(BatchNo(1))), (BatchNo(4), BatchNo(1)));
        assert_eq!(second.jobs().count(), 1);
        assert_eq!(input(2).jobs().count(), 2);
    }
}
