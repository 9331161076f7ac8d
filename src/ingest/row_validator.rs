//! One row of a manifest: its identity, and everything that is wrong with it.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::ids::{BatchName, Fingerprint};
use crate::domain::input_file::InputFile;
use crate::domain::job::{Order, OrderTerms};
use crate::domain::job_reference::{InputField, JobInput, is_reference};
use crate::domain::manifest::row::{BadRow, Deadline, Policy, ReadRow, Row};
use crate::domain::out_of_credits::AllowanceUse;
use crate::domain::queue_class::{Classes, GroupHash};
use crate::domain::quote::{self, AccountPlan, Allowance, CatalogPart, LengthError, Quote};
use crate::domain::request::{Kind, Request};
use crate::domain::shell_word::job_argument;
use crate::domain::time::{Millis, Timestamp};
use crate::ingest::input_files::{self, InputFiles};
use crate::ingest::newer_catalog::{self, NewerCatalog};
use crate::ingest::receipt::{LATER, MISSED_DEADLINE, is_for_now};
use crate::ingest::row_references::{ChoiceOfTakes, RowReferences, with_identities};
use crate::ingest::validation_cache::ValidationCache;
use crate::ingest::{IngestContext, accepted_row};
use crate::store::staging::{AllowanceDraw, RowRequest, StagedOrder, StagedRow};

/// What a row comes to by itself.
#[derive(Debug, PartialEq)]
pub(super) enum ValidateStep {
    Row(StagedRow),
    /// It has no identity: its line, its `id` where that could be read, and what is wrong with it.
    Unread(u64, Option<String>, Vec<Diagnostic>),
}

/// A row that was validated by itself.
#[derive(Debug, PartialEq)]
pub(super) struct RowValidation {
    pub step: ValidateStep,
    /// What is worth saying of it and refuses nothing.
    pub notes: Vec<Diagnostic>,
    /// Whether it was a row, and not what could not be read further.
    pub is_row: bool,
}

/// What rows are validated by, whichever batch they are for.
#[derive(Clone, Copy)]
pub(super) struct RowRules<'a> {
    pub policy: &'a Policy,
    pub context: &'a IngestContext<'a>,
    /// The files that they name.
    pub files: &'a InputFiles<'a>,
    /// When they are validated.
    pub now: Timestamp,
}

/// What rows of a batch are validated by.
#[derive(Clone, Copy)]
pub(super) struct RowValidator<'a> {
    pub batch: &'a BatchName,
    pub rules: RowRules<'a>,
    /// Whom its rows mean by their references.
    pub references: &'a RowReferences,
}

impl RowValidator<'_> {
    /// `cache` has rows that the same thread validated before.
    pub(super) fn validate_row(&self, read: &mut ReadRow, cache: &mut ValidationCache<'_>) -> RowValidation {
        let mut notes = Vec::new();
        let (is_row, step) = match read {
            ReadRow::Good(row) => {
                self.rules.fill(row);
                self.set_meta(row);
                (true, self.typed_row(row, cache, &mut notes))
            }
            ReadRow::Bad(bad) => {
                // A problem may be some lines below the beginning of its row, where a cell has line breaks.
                let begins = bad.row.as_ref().map(|row| row.position.line);
                let line = begins.or(bad.problems.first().map(Diagnostic::line)).unwrap_or_default();
                let id = bad.row.clone().and_then(|mut row| {
                    self.rules.fill(&mut row);
                    row.id
                });
                (true, ValidateStep::Unread(line, id, self.rules.all_problems(bad.clone())))
            }
            // What comes after it is lost to the reader, so it counts as one invalid row.
            ReadRow::Unreadable(problem) => {
                (false, ValidateStep::Unread(problem.line(), None, vec![problem.clone()]))
            }
        };
        RowValidation { step, notes, is_row }
    }

    /// Who a row is that is left out, where it counts among the rows that want the same.
    pub(super) fn occurrence(&self, row: &mut Row) -> Option<Fingerprint> {
        self.rules.fill(row);
        let IdentifiedRow { kind, fingerprint, .. } = self.identify(row).ok()?;
        row.type_problems(kind).is_empty().then_some(fingerprint)
    }

    /// Sets the values of `meta` that are not the row's to choose. They are no part of its identity.
    fn set_meta(&self, row: &mut Row) {
        for (name, value) in &self.rules.context.options.meta {
            // Budgets and selections find a column in any case, so none beside it may say otherwise.
            let given = row.meta.keys().filter(|column| column.eq_ignore_ascii_case(name));
            for column in given.cloned().collect::<Vec<_>>() {
                let before = row.meta.remove(&column);
                if before.as_ref().and_then(Value::as_str) != Some(value) {
                    let field = format!("meta.{column}");
                    let message =
                        format!("is set to \"{value}\" by the inbox; what the row says is not used");
                    row.notes.push(Diagnostic::at(row.place(&field), message).in_field(field));
                }
            }
            row.meta.insert(name.clone(), Value::from(value.as_str()));
        }
    }

    /// One whose kind cannot be told has no identity; one that the quote refuses has, because the
    /// batch may have it from a time when it was valid.
    fn typed_row(
        &self,
        row: &mut Row,
        cache: &mut ValidationCache<'_>,
        notes: &mut Vec<Diagnostic>,
    ) -> ValidateStep {
        if let Some((staged, said)) = cache.find(row) {
            notes.extend(said.iter().map(|note| in_place(row, note)));
            return ValidateStep::Row(staged);
        }
        let as_read = cache.may_know(row).then(|| row.clone());
        let IdentifiedRow { kind, fingerprint, mut inputs, files, body } = match self.identify(row) {
            Ok(identified) => identified,
            Err(Unidentified::Kind(diagnostic)) => {
                if newer_catalog::is_of_unlisted_model(&row.request, self.rules.context.catalog) {
                    self.rules.want_newer_catalog();
                }
                let unread = row.unread_options().cloned();
                let problems = std::iter::once(placed(row, diagnostic)).chain(unread).collect();
                return ValidateStep::Unread(row.position.line, row.id.clone(), problems);
            }
            Err(Unidentified::Inputs(kind, problems)) => {
                let mut problems: Vec<Diagnostic> =
                    problems.into_iter().map(|problem| placed(row, problem)).collect();
                problems.extend(row.type_problems(kind));
                let others = self.rules.problems_beside(row, kind, &problems);
                // What the row that is meant would have told.
                let no_source = problems.iter().any(|problem| problem.field.as_deref() == Some("video_urls"));
                let follows = |other: &Diagnostic| {
                    no_source && other.field.as_ref().is_some_and(|field| field.ends_with(SOURCE_SECONDS))
                };
                problems.extend(others.into_iter().filter(|other| !follows(other)));
                return ValidateStep::Unread(row.position.line, row.id.clone(), problems);
            }
        };
        let has_length = inputs.iter().any(|input| input.field.is_length());
        let asked = has_length.then(|| row.request.clone());
        self.fill_source_seconds(kind, &mut inputs, &files, row);
        let too_long = self.fill_length(kind, &inputs, row).err();
        let row = &*row;
        let mut mistyped = row.type_problems(kind);
        if !mistyped.is_empty() {
            let others = self.rules.problems_beside(row, kind, &mistyped);
            mistyped.extend(others);
            return ValidateStep::Unread(row.position.line, row.id.clone(), mistyped);
        }
        // A row that needs no other row and no file may be like one that comes after it.
        let as_read = as_read.filter(|_| inputs.is_empty() && files.is_empty() && row.notes.is_empty());
        let identity = as_read.is_some().then(|| body.clone());
        let (mut draws, mut said) = (None, Vec::new());
        let mut may_be_listed = newer_catalog::is_unlisted(kind, &row.request, self.rules.context.catalog);
        let wanted = match (self.rules.quoted(row, kind), too_long) {
            (quoted @ Err(_), too_long) | (quoted, too_long @ Some(_)) => {
                let errors = too_long.into_iter().chain(quoted.err().into_iter().flatten());
                let errors = errors.chain(self.rules.missed_deadline(row));
                let errors = errors.map(|error| placed(row, error));
                RowRequest::Invalid(errors.collect())
            }
            (Ok(quote), None) => {
                notes.extend(row.notes.iter().chain(&quote.notes).map(|note| in_place(row, note)));
                said = quote.notes.clone();
                let has_catalog = CatalogPart::needed_by(kind).is_some();
                may_be_listed |= has_catalog && quote.price.is_none() && quote.cheapest.is_none();
                draws =
                    quote.waivable.as_ref().and_then(|allowance| draw(self.rules.context.plan, allowance));
                let identified = IdentifiedRow { kind, fingerprint, inputs, files, body };
                let asked = asked.as_ref().unwrap_or(&row.request);
                self.order((row, asked), identified, quote, draws.as_ref())
            }
        };
        if may_be_listed && matches!(wanted, RowRequest::Invalid(_)) {
            self.rules.want_newer_catalog();
        }
        let label = row.id.clone();
        let (count, line, cell) = (row.count, row.position.line, row.cell);
        let staged = StagedRow { fingerprint, label, count, line, cell, draws, apart: false, wanted };
        if let (Some(as_read), Some(identity)) = (as_read, identity) {
            cache.keep(as_read, &staged, &identity, &said);
        }
        ValidateStep::Row(staged)
    }

    /// What makes a row the same row. Its options are read as its kind takes them.
    pub(super) fn identify(&self, row: &mut Row) -> Result<IdentifiedRow, Unidentified> {
        let kind = self.rules.kind_of(row).map_err(Unidentified::Kind)?;
        row.read_options(kind);
        let inputs = self.references.inputs_of(kind, row, self.batch);
        let (inputs, files) = match (inputs, self.rules.files.files_of(row)) {
            (Ok(inputs), Ok(files)) => (inputs, files),
            (inputs, files) => {
                let problems = [inputs.err(), files.err()].into_iter().flatten().flatten().collect();
                return Err(Unidentified::Inputs(kind, problems));
            }
        };
        let (fingerprint, body) = self.identity(kind, row, &inputs, &files);
        let inputs = match self.references.choice(fingerprint, row.count, &inputs) {
            ChoiceOfTakes::Otherwise(inputs) => inputs,
            ChoiceOfTakes::AsWritten => return Ok(IdentifiedRow { kind, fingerprint, inputs, files, body }),
            ChoiceOfTakes::Mixed { variation, inputs: chosen } => {
                self.note_mixed(row, variation, &inputs, &chosen);
                return Ok(IdentifiedRow { kind, fingerprint, inputs, files, body });
            }
        };
        let (fingerprint, body) = self.identity(kind, row, &inputs, &files);
        Ok(IdentifiedRow { kind, fingerprint, inputs, files, body })
    }

    /// Where a row is in a random order. Who a row is that takes outputs of others is not known before these are, so it
    /// is drawn by its body as it is written.
    pub(super) fn identity_for_drawing(&self, row: &mut Row) -> Option<Fingerprint> {
        match self.identify(row) {
            Ok(identified) => Some(identified.fingerprint),
            Err(Unidentified::Inputs(kind, _)) => {
                self.rules.files.files_of(row).is_ok().then(|| self.identity(kind, row, &[], &[]).0)
            }
            Err(Unidentified::Kind(_)) => None,
        }
    }

    /// Notes that variations of a row were made of different takes, and how more of them are made of the chosen ones.
    fn note_mixed(&self, row: &mut Row, variation: u32, inputs: &[JobInput], chosen: &[JobInput]) {
        let (Some(id), Some((input, now))) =
            (row.id.as_deref(), inputs.iter().zip(chosen).find(|(input, now)| input != now))
        else {
            return;
        };
        let field = input.field.name();
        let message = format!(
            "{id} was made of another take of {} than {}, which is chosen by now, but {id}-v{variation} was made of that \
             one: nothing of it is made anew",
            input.shown(),
            now.shown()
        );
        let hint = format!(
            "for one more of it from {}: callsheet review another-take {}",
            now.shown(),
            job_argument(self.batch, id)
        );
        row.notes.push(Diagnostic::at(row.place(field), message).in_field(field).hint(hint));
    }

    /// Who a row with these inputs is, and the body that says so.
    fn identity(
        &self,
        kind: Kind,
        row: &Row,
        inputs: &[JobInput],
        files: &[InputFile],
    ) -> (Fingerprint, Map<String, Value>) {
        let body = match inputs.is_empty() && files.is_empty() {
            true => quote::canonical_body(kind, &row.request),
            false => quote::canonical_body(kind, &with_identities(&row.request, inputs, files)),
        };
        let (namespace, id) = (self.rules.context.namespace, row.id.as_deref());
        (Fingerprint::derive(namespace, self.batch, id, kind.endpoint(), &body), body)
    }

    /// The length of a source video that another row makes is known from that row, where its options tell, and that of a
    /// file from the file. What is not known yet is measured before the row is sent, where its model needs it. It is no
    /// part of the identity: who makes the video is, or its content.
    fn fill_source_seconds(
        &self,
        kind: Kind,
        inputs: &mut Vec<JobInput>,
        files: &[InputFile],
        row: &mut Row,
    ) {
        let written = row.request.options.get(SOURCE_SECONDS);
        let is_written = written.is_some_and(|written| !written.as_str().is_some_and(is_reference));
        if kind != Kind::Video || is_written {
            return;
        }
        let (is_wanted, named): (fn(InputField) -> bool, &str) = match written {
            Some(_) => (|field| field == InputField::SourceVideoDurationSeconds, SOURCE_FIELD),
            None => (InputField::is_source_video, "video_urls"),
        };
        let is_measured = written.is_some();
        let (seconds, message) =
            if let Some((seconds, from)) = self.references.seconds_of(inputs, self.batch, is_wanted) {
                let message = format!("is {seconds}, the duration of {from}");
                (seconds, message)
            } else if is_measured {
                return;
            } else if let Some((seconds, name)) = input_files::source_seconds(files) {
                let message = format!("is {seconds}, the length of {name}");
                (seconds, message)
            } else {
                let Some(source) = inputs.iter().find(|input| input.field.is_source_video()).cloned() else {
                    return;
                };
                let IngestContext { catalog, rules, .. } = *self.rules.context;
                let place = usize::try_from(source.place).unwrap_or(usize::MAX);
                let Some(reference) = row.request.video_urls.get(place).cloned() else { return };
                if !quote::wants_source_seconds(&row.request, catalog, rules) {
                    return;
                }
                let message = format!("is the length of {}, which is not made yet", source.shown());
                let field = InputField::SourceVideoDurationSeconds;
                inputs.push(JobInput { field, place: 0, ..source });
                (Value::from(reference), message)
            };
        row.notes.push(Diagnostic::at(row.place(named), message).in_field(SOURCE_FIELD));
        row.request.options.insert(SOURCE_SECONDS.to_owned(), seconds);
    }

    /// A length that is taken from another row is known here where the options of that row tell it. The identity does
    /// not include it either.
    ///
    /// # Errors
    /// It is longer than the service takes.
    fn fill_length(&self, kind: Kind, inputs: &[JobInput], row: &mut Row) -> Result<(), Diagnostic> {
        let Some(option) = InputField::length_of(kind) else { return Ok(()) };
        let length = self.references.seconds_of(inputs, self.batch, |field| field == option);
        let Some((seconds, from)) = length else { return Ok(()) };
        let IngestContext { catalog, rules, .. } = *self.rules.context;
        let field = format!("options.{}", option.name());
        match quote::fitting_length((kind, &row.request), option, &seconds, catalog, rules) {
            Ok(length) => {
                let shown = length.as_str().map_or_else(|| length.to_string(), str::to_owned);
                let message = format!("is {shown}: {from} is {seconds} s long");
                row.notes.push(Diagnostic::at(row.place(&field), message).in_field(field));
                row.request.options.insert(option.name().to_owned(), length);
                Ok(())
            }
            Err(why @ LengthError::TooLong { .. }) => {
                Err(Diagnostic::new(format!("{from} {why}")).in_field(field))
            }
            // The quote says what is wrong.
            Err(LengthError::NotTaken(_)) => Ok(()),
        }
    }

    fn order(
        &self,
        (row, asked): (&Row, &Request),
        IdentifiedRow { inputs, files, body: identity, .. }: IdentifiedRow,
        quote: Quote,
        draws: Option<&AllowanceDraw>,
    ) -> RowRequest {
        let RowRules { policy, context, .. } = self.rules;
        if let Some(problem) = self.rules.missed_deadline(row) {
            return RowRequest::Invalid(vec![placed(row, problem)]);
        }
        if let Some(problem) = self.rules.outlives_links(row, &files) {
            return RowRequest::Invalid(vec![problem]);
        }
        if let Some(problem) = self.rules.too_dear(row, &quote) {
            return RowRequest::Invalid(vec![problem]);
        }
        let price = quote.price;
        let written = accepted_row::written(asked, quote.kind, &identity, &quote.body);
        let terms = OrderTerms {
            kind: quote.kind,
            model: quote.model,
            price,
            bound: Some(quote.bound.dearest).filter(|_| price.is_none() && quote.bound.is_firm),
            cheapest: quote.cheapest,
            formula: quote.formula,
            waivable: price.filter(|_| draws.is_some()).unwrap_or_default(),
            allowance: draws.map(|draw| AllowanceUse { pool: draw.pool.clone(), units: draw.units }),
            // A limit is for the price that is paid, which may be another by then.
            max_credits: [row.max_credits, context.options.max_credits].into_iter().flatten().min(),
            priority: row.priority.or(policy.priority).unwrap_or_default(),
            deadline: row.deadline.or(policy.deadline),
            review: row.review.or(policy.review).unwrap_or_default(),
        };
        let order = Order {
            line: row.position.line,
            body: quote.body.into(),
            inputs: inputs.into(),
            files: files.into(),
            written,
            meta: row.meta.clone().into(),
            terms: Arc::new(terms),
        };
        let classes = Classes::of(&order, GroupHash::of(context.group_limits.keys(), &order.meta));
        RowRequest::Order(Box::new(StagedOrder::new(&order, classes, row.id.is_some())))
    }
}

/// Who a row is.
pub(super) struct IdentifiedRow {
    pub kind: Kind,
    pub fingerprint: Fingerprint,
    /// Its inputs that are outputs of other rows.
    pub inputs: Vec<JobInput>,
    /// Its inputs that are files of this machine.
    pub files: Vec<InputFile>,
    /// The canonical body from which that follows.
    pub body: Map<String, Value>,
}

/// Longest deadline of a job that takes a file: links to objects of S3 live 7 days at most.
const LINKED_DEADLINE_MAX: Millis = Millis::from_secs(6 * 24 * 3600);

/// The option that says how long a source video is.
const SOURCE_SECONDS: &str = "source_video_duration_seconds";
/// The same as a field.
const SOURCE_FIELD: &str = "options.source_video_duration_seconds";

/// Why nobody can say who a row is.
pub(super) enum Unidentified {
    /// Its kind cannot be told.
    Kind(Diagnostic),
    /// It names rows that cannot be meant, or files that cannot be taken.
    Inputs(Kind, Vec<Diagnostic>),
}

impl RowRules<'_> {
    /// A row is refused that newer catalogs may accept.
    fn want_newer_catalog(&self) {
        self.context.newer_catalog.into_iter().for_each(NewerCatalog::want);
    }

    /// Fills the placeholders of a schedule. Before identity is derived: another day is another job.
    pub(super) fn fill(&self, row: &mut Row) {
        if let Some(occasion) = &self.context.options.occasion {
            occasion.fill(row);
        }
    }

    pub(super) fn kind_of(&self, row: &Row) -> Result<Kind, Diagnostic> {
        let IngestContext { catalog, rules, .. } = *self.context;
        if let Some(kind) = row.kind {
            return Ok(kind);
        }
        // A catalog that is missing may list the model, too, and so leave its kind open.
        let lists = [CatalogPart::Video, CatalogPart::Image, CatalogPart::Music];
        let missing = lists.into_iter().find_map(|part| catalog.unavailable(part));
        if let Some(why) = missing.filter(|_| row.request.model.is_some()) {
            let message = format!("the kind of the model is unknown: {why}");
            return Err(not_now("model", message));
        }
        quote::infer_kind(&row.request, catalog, rules)
    }

    /// What the service would make of a row, or everything wrong with it.
    fn quoted(&self, row: &Row, kind: Kind) -> Result<Quote, Vec<Diagnostic>> {
        let IngestContext { catalog, rules, .. } = *self.context;
        if let Some(why) = CatalogPart::needed_by(kind).and_then(|part| catalog.unavailable(part)) {
            let field = if kind == Kind::Speech { "voice_id" } else { "model" };
            return Err(vec![not_now(field, why)]);
        }
        let misspelt = match self.policy.allow_unknown_options {
            Some(true) => Vec::new(),
            _ => quote::kind_fields::misspelt_options(kind, &row.request),
        };
        match quote::quote(Some(kind), &row.request, catalog, rules) {
            Ok(quote) if misspelt.is_empty() => Ok(quote),
            Ok(_) => Err(misspelt),
            Err(errors) => Err(misspelt.into_iter().chain(errors).collect()),
        }
    }

    /// Everything wrong with a row that could not be typed, with what only the catalogs tell.
    pub(super) fn all_problems(&self, bad: BadRow) -> Vec<Diagnostic> {
        let BadRow { mut problems, row, has_unknown_fields } = bad;
        let Some(mut row) = row else { return problems };
        let kind_is_bad = row.places.get("kind").is_some_and(|at| is_blamed(&problems, at));
        let kind = match self.kind_of(&row) {
            // What its fields suggest may not be what is meant.
            Ok(_) if kind_is_bad && row.request.model.is_none() => return problems,
            Ok(kind) => kind,
            Err(error) if kind_is_bad || is_for_now(&error) => return problems,
            Err(error) => {
                let error = placed(&row, error);
                if !has_unknown_fields || row.places.get("kind").is_some() {
                    problems.push(error);
                }
                return problems;
            }
        };
        row.read_options(kind);
        if problems.is_empty() {
            problems = row.type_problems(kind);
        }
        let others = self.problems_beside(&row, kind, &problems);
        problems.extend(others.into_iter().filter(|problem| {
            let field = problem.field.as_deref().unwrap_or_default();
            !has_unknown_fields || row.places.get(field).is_some()
        }));
        problems.sort_by_key(|problem| problem.position);
        problems
    }

    /// What is wrong with a row beside what its fields are blamed for already.
    fn problems_beside(&self, row: &Row, kind: Kind, blamed: &[Diagnostic]) -> Vec<Diagnostic> {
        let errors = match self.quoted(row, kind) {
            // No limit can be compared with a price that hangs on a value that is wrong.
            Ok(_) => return Vec::new(),
            Err(errors) => errors.into_iter(),
        };
        let is_new = |error: &Diagnostic| {
            let place = error.field.as_deref().and_then(|field| row.places.get(field));
            place.is_none_or(|at| !is_blamed(blamed, at))
        };
        errors.filter(|error| !is_for_now(error)).filter(is_new).map(|error| placed(row, error)).collect()
    }

    /// A row whose deadline is an instant that has passed: its job would expire unsent.
    fn missed_deadline(&self, row: &Row) -> Option<Diagnostic> {
        let Some(Deadline::At(at)) = row.deadline.or(self.policy.deadline) else { return None };
        let field = if row.deadline.is_some() { "deadline" } else { "policy.deadline" };
        let message = format!("is {at}, which has passed: the job would not be sent");
        (at <= self.now).then(|| Diagnostic::new(message).in_field(field).hint(MISSED_DEADLINE))
    }

    /// A row whose deadline is later than a link to a file can live.
    fn outlives_links(&self, row: &Row, files: &[InputFile]) -> Option<Diagnostic> {
        let deadline = row.deadline.or(self.policy.deadline).filter(|_| !files.is_empty())?;
        let Deadline::After(span) = deadline else { return None };
        (span > LINKED_DEADLINE_MAX).then(|| {
            let message = "is more than 6 days: a link to a file lives 7 days at most";
            Diagnostic::at(row.place("deadline"), message).in_field("deadline").hint("set it to 6d or less")
        })
    }

    /// A row that may cost more than it, or the command, allows.
    fn too_dear(&self, row: &Row, quote: &Quote) -> Option<Diagnostic> {
        let refuse = |message: String, hint: &str| {
            Some(Diagnostic::at(row.place("max_credits"), message).in_field("max_credits").hint(hint))
        };
        let Quote { formula, bound, .. } = quote;
        let dearest = bound.dearest;
        let may_cost = match (dearest.is_zero(), bound.is_firm) {
            (true, _) => String::new(),
            (false, true) => format!("; it may cost up to {dearest}"),
            (false, false) => format!("; it may cost {dearest}, or more"),
        };
        let enough = format!("set max_credits to {} or more", dearest.0);
        match (quote.price, row.max_credits, self.context.options.max_credits) {
            (None, _, Some(most)) if !bound.is_firm || most < dearest => {
                let message = format!(
                    "the price is not known, and at most {most} a row are allowed: {formula}{may_cost}"
                );
                refuse(message, "omit --max-credits, or remove the row")
            }
            // What only its length leaves open is known at both ends.
            (None, None, None) if quote.cheapest.is_some() => None,
            (None, None, None) => {
                let message = format!("missing, and the price is not known: {formula}{may_cost}");
                let hint = if dearest.is_zero() {
                    "give the most this row may cost in max_credits"
                } else {
                    &enough
                };
                refuse(message, hint)
            }
            (None, Some(most), _) if most < dearest => {
                let message = format!("is {}, but the price is not known: {formula}{may_cost}", most.0);
                refuse(message, &enough)
            }
            (Some(price), _, Some(most)) if price > most => {
                let message =
                    format!("at most {most} a row are allowed, but it costs {}: {formula}", price.0);
                refuse(message, "raise --max-credits, or ask for less")
            }
            (Some(price), Some(most), _) if price > most => {
                let message = format!("is {}, but the row costs {}: {formula}", most.0, price.0);
                let problem = refuse(message, "raise max_credits, or ask for less");
                problem.map(|problem| Diagnostic { price: Some(price), ..problem })
            }
            _ => None,
        }
    }
}

/// Whether one of `problems` is about what stands at `at`.
fn is_blamed(problems: &[Diagnostic], at: Position) -> bool {
    problems.iter().any(|problem| problem.position == Some(at))
}

fn not_now(field: &str, message: String) -> Diagnostic {
    Diagnostic::new(message).in_field(field).hint(LATER)
}

/// Where a diagnostic's field stands in the manifest.
fn position_in(row: &Row, diagnostic: &Diagnostic) -> Position {
    diagnostic.field.as_deref().map_or(row.position, |field| row.place(field))
}

/// A note of a row, in its place.
fn in_place(row: &Row, note: &Diagnostic) -> Diagnostic {
    let position = note.position.unwrap_or_else(|| position_in(row, note));
    note.clone().positioned(position)
}

fn placed(row: &Row, diagnostic: Diagnostic) -> Diagnostic {
    let position = position_in(row, &diagnostic);
    let placed = diagnostic.positioned(position);
    match &row.combination {
        Some(combination) => placed.for_combination(combination),
        None => placed,
    }
}

/// What a job may draw from the account's allowance; nothing where the plan has none, or where one
/// day's allowance is less than the job needs: it covers all of a job or nothing.
fn draw(plan: AccountPlan, allowance: &Allowance) -> Option<AllowanceDraw> {
    let per_day = allowance.rule.per_day(plan);
    let pool = allowance.rule.pool.clone();
    (allowance.units <= per_day && per_day > 0).then_some(AllowanceDraw {
        pool,
        units: allowance.units,
        per_day,
    })
}
