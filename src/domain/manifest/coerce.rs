//! From a name and what was written beside it to a typed field of a row.
//!
//! CSV cells and JSON values meet here, so that the same row means the same in every format.

use std::sync::Arc;

use serde_json::{Map, Number, Value};

use crate::domain::credits::Credits;
use crate::domain::diagnostic::{Diagnostic, Diagnostics, Position};
use crate::domain::job_reference::is_reference;
use crate::domain::number_text::whole_in_text;
use crate::domain::request::{Kind, Request};

use super::boolean_words::{boolean_word, exact_boolean};
use super::cell_value::CellValue;
use super::fields::{BodyText, Field, OptionType, Slot};
use super::messages::{nearest, placed, plain, quoted};
use super::row::{BadRow, Deadline, MistypedOption, Row};
use super::spanned::value_in_cell;
use super::spreadsheet_values::{self, CellReading};
use super::{Limits, deadline, url_list::list};

/// Longest `id`, in characters.
pub(super) const ID_CHARS: usize = 200;

/// A row on its way: fields come in one by one, problems are kept, and at the end it is one or the
/// other.
#[derive(Debug)]
pub(super) struct RowBuilder<'l> {
    row: Row,
    problems: Diagnostics,
    has_unknown_fields: bool,
    limits: &'l Limits,
}

impl<'l> RowBuilder<'l> {
    /// A row in which nothing is given yet but what the manifest's defaults say.
    pub(super) fn new(position: Position, defaults: Option<&Row>, limits: &'l Limits) -> RowBuilder<'l> {
        let row = match defaults {
            Some(defaults) => Row { position, ..defaults.clone() },
            None => Row::at(position),
        };
        RowBuilder { row, problems: Diagnostics::default(), has_unknown_fields: false, limits }
    }

    /// Takes what is given for `field`, whose canonical name is `canonical` and which the manifest
    /// spells `spelled`.
    pub(super) fn set(
        &mut self,
        field: &Field,
        canonical: &Arc<str>,
        spelled: &str,
        at: Position,
        given: CellValue<'_>,
    ) {
        self.row.places.set(canonical, at);
        if let Field::Documented(known, accepts) = field {
            return self
                .set_documented(known.name, *accepts, given, |diagnostic| placed(diagnostic, spelled, at));
        }
        if let Err(diagnostic) = assign(&mut self.row, field, given, self.limits) {
            self.refuse(placed(diagnostic, spelled, at));
        }
    }

    /// An option that some kinds document. What is not of their type is kept as another kind would forward it,
    /// until it is known which kind the row is of.
    fn set_documented(
        &mut self,
        name: &str,
        accepts: OptionType,
        given: CellValue<'_>,
        problem: impl Fn(Diagnostic) -> Diagnostic,
    ) {
        let options = &mut self.row.request.options;
        let reading = match given {
            CellValue::Cell(cell) => spreadsheet_values::read(name, accepts, cell),
            CellValue::Json(_) => CellReading::Unknown,
        };
        if matches!(given, CellValue::Json(Value::Null)) {
            options.remove(name);
            self.row.mistyped.remove(name);
            return;
        }
        match option(accepts, &given) {
            Ok(None) => {}
            Ok(found) => {
                replace(options, name, found);
                self.row.mistyped.remove(name);
            }
            Err(diagnostic) => {
                let found = given.named();
                match forwarded(given) {
                    Ok(raw) => {
                        replace(options, name, Some(raw));
                        let mistyped = mistyped(&found, diagnostic, reading, problem);
                        self.row.mistyped.insert(name.to_owned(), mistyped);
                    }
                    Err(_) => self.refuse(problem(diagnostic)),
                }
            }
        }
    }

    /// Keeps the problem of a value that cannot be read: the field is given, and so not missing.
    pub(super) fn refuse_value(&mut self, canonical: &Arc<str>, at: Position, problem: Diagnostic) {
        self.row.places.set(canonical, at);
        self.refuse(problem);
    }

    /// Keeps a problem; the row is bad.
    pub(super) fn refuse(&mut self, problem: Diagnostic) {
        self.problems.push(problem);
    }

    /// Keeps the problem of a name that is no field: what it was meant for may be missing in the row.
    pub(super) fn refuse_unknown(&mut self, problem: impl FnOnce() -> Diagnostic) {
        self.problems.push_with(problem);
        self.has_unknown_fields = true;
    }

    /// The row, or everything wrong with it.
    pub(super) fn finish(self) -> Result<Box<Row>, BadRow> {
        let RowBuilder { mut row, problems, has_unknown_fields, .. } = self;
        let is_bad = !problems.is_empty();
        let mistyped = match row.kind {
            Some(kind) => {
                row.read_options(kind);
                row.type_problems(kind)
            }
            None if is_bad => row.unread_options().cloned().collect(),
            None => return Ok(Box::new(row)),
        };
        if !is_bad && mistyped.is_empty() {
            row.mistyped.clear();
            return Ok(Box::new(row));
        }
        let mut all = problems.finish().err().unwrap_or_default();
        if !mistyped.is_empty() {
            all.extend(mistyped);
            all.sort_by_key(|problem| problem.position);
        }
        Err(BadRow { problems: all, row: Some(Box::new(row)), has_unknown_fields })
    }
}

/// An option that is of another type than some kinds document, with the one way in which it can be read all the same.
fn mistyped(
    found: &str,
    diagnostic: Diagnostic,
    reading: CellReading,
    problem: impl Fn(Diagnostic) -> Diagnostic,
) -> MistypedOption {
    match reading {
        CellReading::As(value) => {
            let note = problem(Diagnostic::new(format!("{found} is read as {value}")));
            MistypedOption { problem: problem(diagnostic), reading: Some((value, note)) }
        }
        CellReading::Ambiguous(meanings) => {
            let diagnostic = diagnostic.hint(format!("write {meanings}"));
            MistypedOption { problem: problem(diagnostic), reading: None }
        }
        CellReading::Unknown => MistypedOption { problem: problem(diagnostic), reading: None },
    }
}

/// Blank text leaves what is there; `null` takes it away; all else replaces it.
fn assign(row: &mut Row, field: &Field, given: CellValue<'_>, limits: &Limits) -> Result<(), Diagnostic> {
    if matches!(given, CellValue::Json(Value::Null)) {
        clear(row, field);
        return Ok(());
    }
    match field {
        Field::Known(known) => assign_known(row, known.slot, given, limits),
        Field::Documented(..) => Ok(()),
        Field::Forwarded(name) => {
            replace(&mut row.request.options, name, Some(forwarded(given)?));
            Ok(())
        }
        Field::Meta(name) => {
            replace(&mut row.meta, name, meta(given)?);
            Ok(())
        }
    }
}

fn assign_known(row: &mut Row, slot: Slot, given: CellValue<'_>, limits: &Limits) -> Result<(), Diagnostic> {
    match slot {
        Slot::Id => keep(&mut row.id, id(&given)?),
        Slot::Kind => keep(&mut row.kind, kind(&given)?),
        Slot::Count => keep_value(&mut row.count, count(&given, limits.max_count)?),
        Slot::Priority => keep(&mut row.priority, priority(&given)?),
        Slot::Deadline => keep(&mut row.deadline, instant_or_span(&given)?),
        Slot::MaxCredits => keep(&mut row.max_credits, credits(&given)?),
        Slot::Review => keep(&mut row.review, yes_or_no(&given)?),
        Slot::Body(which) => keep(body(&mut row.request, which), text(&given)?),
        Slot::ImageUrls => keep_value(&mut row.request.image_urls, list(given)?),
        Slot::VideoUrls => keep_value(&mut row.request.video_urls, list(given)?),
        Slot::Option(_) => {}
    }
    Ok(())
}

fn clear(row: &mut Row, field: &Field) {
    match field {
        Field::Known(known) => match known.slot {
            Slot::Id => row.id = None,
            Slot::Kind => row.kind = None,
            Slot::Count => row.count = 1,
            Slot::Priority => row.priority = None,
            Slot::Deadline => row.deadline = None,
            Slot::MaxCredits => row.max_credits = None,
            Slot::Review => row.review = None,
            Slot::Body(which) => *body(&mut row.request, which) = None,
            Slot::ImageUrls => row.request.image_urls.clear(),
            Slot::VideoUrls => row.request.video_urls.clear(),
            Slot::Option(_) => {}
        },
        Field::Documented(..) => {}
        Field::Forwarded(name) => drop(row.request.options.remove(name)),
        Field::Meta(name) => drop(row.meta.remove(name)),
    }
}

fn body(request: &mut Request, which: BodyText) -> &mut Option<String> {
    match which {
        BodyText::Model => &mut request.model,
        BodyText::Prompt => &mut request.prompt,
        BodyText::Text => &mut request.text,
        BodyText::VoiceId => &mut request.voice_id,
        BodyText::Mode => &mut request.mode,
        BodyText::Scene => &mut request.scene,
    }
}

fn keep<T>(place: &mut Option<T>, found: Option<T>) {
    if found.is_some() {
        *place = found;
    }
}

fn keep_value<T>(place: &mut T, found: Option<T>) {
    if let Some(found) = found {
        *place = found;
    }
}

fn replace(map: &mut Map<String, Value>, name: &str, found: Option<Value>) {
    if let Some(found) = found {
        map.insert(name.to_owned(), found);
    }
}

/// Trimmed; none when nothing is left.
pub(super) fn text(given: &CellValue<'_>) -> Result<Option<String>, Diagnostic> {
    let found = match given {
        CellValue::Cell(cell) => (*cell).to_owned(),
        CellValue::Json(Value::String(text)) => text.trim().to_owned(),
        CellValue::Json(_) => return Err(Diagnostic::expected(&given.named(), "text")),
    };
    if found.contains('\0') {
        return Err(Diagnostic::expected(&quoted(&found), "text without NUL characters"));
    }
    Ok(Some(found).filter(|text| !text.is_empty()))
}

/// A label; a whole number will do as one.
fn id(given: &CellValue<'_>) -> Result<Option<String>, Diagnostic> {
    let found = match given {
        CellValue::Json(Value::Number(number)) if !number.is_f64() => Some(number.to_string()),
        other => text(other)?,
    };
    let Some(found) = found else { return Ok(None) };
    let length = found.chars().count();
    if length > ID_CHARS {
        let found = format!("{length} characters");
        return Err(Diagnostic::expected(&found, &format!("an id of at most {ID_CHARS} characters")));
    }
    if found.contains(char::is_control) {
        return Err(Diagnostic::expected(&quoted(&found), "an id on one line, without control characters"));
    }
    Ok(Some(found))
}

/// The kind that a cell names; nothing where it is empty.
///
/// # Errors
/// When it names none.
pub(super) fn kind(given: &CellValue<'_>) -> Result<Option<Kind>, Diagnostic> {
    if let CellValue::Cell(cell) = given
        && let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == *cell)
    {
        // Most say it so, in every row.
        return Ok(Some(kind));
    }
    let Some(found) = text(given)? else { return Ok(None) };
    // Cells come from people; JSON is written by programs, and means what its schema says.
    let is_meant = |kind: &Kind| match given {
        CellValue::Cell(_) => plain(kind.name()) == plain(&found),
        CellValue::Json(_) => kind.name() == found,
    };
    if let Some(kind) = Kind::ALL.into_iter().find(is_meant) {
        return Ok(Some(kind));
    }
    let names = Kind::ALL.map(Kind::name);
    let word = plain(&found);
    let Some((_, kinds)) = KIND_WORDS.iter().find(|(words, _)| words.contains(&word.as_str())) else {
        return Err(Diagnostic::new(not_one_of(&found, &names)));
    };
    let message = format!("found {}, did you mean {kinds}? one of {}", quoted(&found), names.join(", "));
    Err(Diagnostic::new(message))
}

/// What people call the kinds, as [`plain`] text. They suggest a kind and choose none: `audio` may be three.
const KIND_WORDS: [(&[&str], &str); 6] = [
    (&["audio"], "\"speech\", \"music\" or \"sound-effect\""),
    (&["fx", "sfx", "sound", "soundfx", "noise", "effect"], "\"sound-effect\""),
    (&["tts", "texttospeech", "voice", "voiceover", "narration"], "\"speech\""),
    (&["img", "jpg", "photo", "pic", "picture", "png"], "\"image\""),
    (&["animation", "clip", "film", "mov", "movie", "mp4"], "\"video\""),
    (&["jingle", "song", "track"], "\"music\""),
];

/// `found "vidoe", did you mean "video"? one of ...`
pub(super) fn not_one_of(found: &str, names: &[&str]) -> String {
    let accepted = names.join(", ");
    match nearest(found, names.iter().copied()) {
        Some(near) => format!("found {}, did you mean \"{near}\"? one of {accepted}", quoted(found)),
        None => format!("found {}, expected one of {accepted}", quoted(found)),
    }
}

fn count(given: &CellValue<'_>, most: u32) -> Result<Option<u32>, Diagnostic> {
    let accepted = format!("a whole number from 1 to {most}");
    whole(given, &accepted, |number| u32::try_from(number).ok().filter(|count| (1..=most).contains(count)))
}

pub(super) fn priority(given: &CellValue<'_>) -> Result<Option<i8>, Diagnostic> {
    whole(given, "a whole number from -128 to 127", |number| i8::try_from(number).ok())
}

pub(super) fn credits(given: &CellValue<'_>) -> Result<Option<Credits>, Diagnostic> {
    whole(given, "a whole number of credits, 0 or more", |number| u64::try_from(number).ok().map(Credits))
}

pub(super) fn instant_or_span(given: &CellValue<'_>) -> Result<Option<Deadline>, Diagnostic> {
    let found = match given {
        CellValue::Json(Value::Number(number)) => Some(number.to_string()),
        other => text(other)?,
    };
    found.map(|found| deadline::parse(&found)).transpose()
}

/// A whole number that `convert` accepts.
pub(super) fn whole<T>(
    given: &CellValue<'_>,
    accepted: &str,
    convert: impl Fn(i128) -> Option<T>,
) -> Result<Option<T>, Diagnostic> {
    let number = whole_number(given).and_then(convert);
    number.map(Some).ok_or_else(|| Diagnostic::expected(&given.named(), accepted))
}

fn whole_number(given: &CellValue<'_>) -> Option<i128> {
    match given {
        CellValue::Cell(cell) => whole_in_text(cell),
        CellValue::Json(Value::Number(number)) => whole_in_text(&number.to_string()),
        CellValue::Json(_) => None,
    }
}

/// `true` or `false`; a spreadsheet's `TRUE` and `FALSE` are the same.
pub(super) fn flag(given: &CellValue<'_>) -> Result<Option<bool>, Diagnostic> {
    let found = match given {
        CellValue::Cell(cell) => exact_boolean(cell),
        CellValue::Json(value) => value.as_bool(),
    };
    found.map(Some).ok_or_else(|| Diagnostic::expected(&given.named(), "true or false"))
}

/// The same, and in a cell the words that spreadsheets and people use.
fn yes_or_no(given: &CellValue<'_>) -> Result<Option<bool>, Diagnostic> {
    let found = match given {
        CellValue::Cell(cell) => boolean_word(cell),
        CellValue::Json(value) => value.as_bool(),
    };
    found.map(Some).ok_or_else(|| Diagnostic::expected(&given.named(), "true or false"))
}

/// A documented option; none when it is blank.
fn option(accepts: OptionType, given: &CellValue<'_>) -> Result<Option<Value>, Diagnostic> {
    match accepts {
        OptionType::Text => Ok(text(given)?.map(Value::String)),
        OptionType::Duration => duration(given),
        OptionType::Flag => Ok(flag(given)?.map(Value::Bool)),
        OptionType::Length if is_job_reference(given) => Ok(text(given)?.map(Value::String)),
        OptionType::Number | OptionType::Length => number(given).map(Some),
    }
}

fn is_job_reference(given: &CellValue<'_>) -> bool {
    match given {
        CellValue::Cell(cell) => is_reference(cell.trim()),
        CellValue::Json(value) => value.as_str().is_some_and(|text| is_reference(text.trim())),
    }
}

/// `8`, `8s`: the service takes both, as a whole number and as text.
fn duration(given: &CellValue<'_>) -> Result<Option<Value>, Diagnostic> {
    if let Some(seconds) = whole_number(given).and_then(|seconds| u64::try_from(seconds).ok()) {
        return Ok(Some(Value::from(seconds)));
    }
    match given {
        CellValue::Json(other) if !other.is_string() => {
            Err(Diagnostic::expected(&given.named(), "text such as \"8s\" or a whole number of seconds"))
        }
        given => Ok(text(given)?.map(Value::String)),
    }
}

/// A JSON number; one without a fraction is whole, so that `5` and `5.0` are the same request.
fn number(given: &CellValue<'_>) -> Result<Value, Diagnostic> {
    let found = match given {
        CellValue::Cell(cell) => serde_json::from_str::<Number>(cell).ok(),
        CellValue::Json(Value::Number(number)) => Some(number.clone()),
        CellValue::Json(_) => None,
    };
    let found = found.ok_or_else(|| Diagnostic::expected(&given.named(), "a number such as 5 or 0.5"))?;
    let whole = whole_in_text(&found.to_string()).and_then(|whole| i64::try_from(whole).ok());
    Ok(whole.map_or(Value::Number(found), Value::from))
}

/// An option that is not documented. In a CSV cell `true`, `false` and numbers are themselves, what
/// begins with `[`, `{` or `"` is JSON, and the rest is text.
fn forwarded(given: CellValue<'_>) -> Result<Value, Diagnostic> {
    let cell = match given {
        CellValue::Json(value) => return Ok(value),
        CellValue::Cell(cell) => cell,
    };
    if let Some(flag) = exact_boolean(cell) {
        return Ok(Value::Bool(flag));
    }
    if cell.starts_with(['[', '{', '"']) {
        return value_in_cell(cell)
            .map_err(|diagnostic| diagnostic.hint("text that begins so is written as a JSON string"));
    }
    if serde_json::from_str::<Number>(cell).is_ok() {
        return value_in_cell(cell).or_else(|_| Ok(Value::String(cell.to_owned())));
    }
    text(&CellValue::Cell(cell)).map(|text| text.map_or(Value::Null, Value::String))
}

/// A CSV cell stays text, whatever it looks like: `007` and `1.10` are keys to join on.
fn meta(given: CellValue<'_>) -> Result<Option<Value>, Diagnostic> {
    match given {
        CellValue::Cell(_) => Ok(text(&given)?.map(Value::String)),
        CellValue::Json(value) => Ok(Some(value)),
    }
}
