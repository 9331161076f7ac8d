//! What was asked for: validated, defaulted and priced. It never changes.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Number, Value};
use thin_vec::ThinVec;

use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::ids::{Fingerprint, JobId, Seq};
use crate::domain::input_file::InputFile;
use crate::domain::job_reference::{InputField, JobInput, length_reference};
use crate::domain::json_object::JsonObject;
use crate::domain::manifest::row::Deadline;
use crate::domain::out_of_credits::AllowanceUse;
use crate::domain::request::{Kind, Request};

/// What is wanted and at what price: validated, defaulted and priced. Never changes. Its terms are read as if they were its own
/// fields: `order.price`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "StoredOrder<'static>")]
pub struct Order {
    /// Line of the manifest.
    pub line: u64,
    /// The body of the POST.
    pub body: JsonObject,
    /// Addresses of the body that are outputs of other rows: the body holds references in their places.
    pub inputs: ThinVec<JobInput>,
    /// Files of this machine that the body names in the place of addresses.
    pub files: ThinVec<InputFile>,
    /// What its row asks for as it is written, where the body does not tell: a value was read otherwise, or is not sent.
    pub written: Option<Box<Request>>,
    /// The pipeline's own columns.
    pub meta: JsonObject,
    /// What it has in common with most rows of its manifest. Those in memory share it.
    pub terms: Arc<OrderTerms>,
}

/// What most rows of a manifest agree in: what is made, at what price, and when.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OrderTerms {
    /// What is generated.
    pub kind: Kind,
    /// Requested model, where the kind has one.
    pub model: Option<String>,
    /// Computed price; absent where the catalog does not tell.
    pub price: Option<Credits>,
    /// Without a price: the dearest that the catalog can reach; absent where nothing bounds it.
    pub bound: Option<Credits>,
    /// The least that it may cost, where its price hangs on a length that is measured before it is sent; `bound` is the
    /// most.
    pub cheapest: Option<Credits>,
    /// How the price was computed.
    pub formula: String,
    /// The part of the price that a plan allowance could cover.
    pub waivable: Credits,
    /// What it would draw from that allowance.
    pub allowance: Option<AllowanceUse>,
    /// The most it may cost.
    pub max_credits: Option<Credits>,
    /// Higher goes first.
    pub priority: i8,
    /// When it is overdue, where row or policy say so.
    pub deadline: Option<Deadline>,
    /// Its outputs wait for a person's decision.
    pub review: bool,
}

impl OrderTerms {
    /// Of a kind, and nothing else: no price, no model, no deadline.
    pub fn of(kind: Kind) -> OrderTerms {
        OrderTerms {
            kind,
            model: None,
            price: None,
            bound: None,
            cheapest: None,
            formula: String::new(),
            waivable: Credits::ZERO,
            allowance: None,
            max_credits: None,
            priority: 0,
            deadline: None,
            review: false,
        }
    }
}

impl Deref for Order {
    type Target = OrderTerms;

    fn deref(&self) -> &OrderTerms {
        &self.terms
    }
}

/// An order as it is stored: its terms lie among its other fields.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Order")]
struct StoredOrder<'a> {
    line: u64,
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<Cow<'a, str>>,
    body: Cow<'a, JsonObject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    price: Option<Credits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound: Option<Credits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cheapest: Option<Credits>,
    #[serde(default, skip_serializing_if = "is_default")]
    formula: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    waivable: Credits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowance: Option<Cow<'a, AllowanceUse>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_credits: Option<Credits>,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<Deadline>,
    #[serde(default, skip_serializing_if = "is_default")]
    review: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    inputs: Cow<'a, ThinVec<JobInput>>,
    #[serde(default, skip_serializing_if = "is_default")]
    files: Cow<'a, ThinVec<InputFile>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<Cow<'a, Request>>,
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    meta: Cow<'a, JsonObject>,
}

impl From<StoredOrder<'static>> for Order {
    fn from(stored: StoredOrder<'static>) -> Order {
        let terms = OrderTerms {
            kind: stored.kind,
            model: stored.model.map(Cow::into_owned),
            price: stored.price,
            bound: stored.bound,
            cheapest: stored.cheapest,
            formula: stored.formula.into_owned(),
            waivable: stored.waivable,
            allowance: stored.allowance.map(Cow::into_owned),
            max_credits: stored.max_credits,
            priority: stored.priority,
            deadline: stored.deadline,
            review: stored.review,
        };
        Order {
            line: stored.line,
            body: stored.body.into_owned(),
            inputs: stored.inputs.into_owned(),
            files: stored.files.into_owned(),
            written: stored.written.map(|written| Box::new(written.into_owned())),
            meta: stored.meta.into_owned(),
            terms: Arc::new(terms),
        }
    }
}

impl Serialize for Order {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Order { line, body, inputs, files, written, meta, terms } = self;
        let OrderTerms {
            kind,
            model,
            price,
            bound,
            cheapest,
            formula,
            waivable,
            allowance,
            max_credits,
            priority,
            deadline,
            review,
        } = &**terms;
        let stored = StoredOrder {
            line: *line,
            kind: *kind,
            model: model.as_deref().map(Cow::Borrowed),
            body: Cow::Borrowed(body),
            price: *price,
            bound: *bound,
            cheapest: *cheapest,
            formula: Cow::Borrowed(formula),
            waivable: *waivable,
            allowance: allowance.as_ref().map(Cow::Borrowed),
            max_credits: *max_credits,
            priority: *priority,
            deadline: *deadline,
            review: *review,
            inputs: Cow::Borrowed(inputs),
            files: Cow::Borrowed(files),
            written: written.as_deref().map(Cow::Borrowed),
            meta: Cow::Borrowed(meta),
        };
        stored.serialize(serializer)
    }
}

/// One wanted generation: an order, and who it is among the jobs of its batch. Never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its place in the batch.
    pub seq: Seq,
    /// Who it is.
    pub id: JobId,
    /// The row it is a variation of.
    pub fingerprint: Fingerprint,
    /// Which variation of the row, from 1.
    pub variation: u32,
    /// What people and file names call it.
    pub label: String,
    /// Another job's label differs from its own only by case or by Unicode normal form: its files carry its identity,
    /// so that they stay apart on every disk.
    #[serde(default, skip_serializing_if = "is_default")]
    pub apart: bool,
    /// What is wanted.
    pub order: Order,
}

impl Order {
    /// What was to be held for it when it was planned: its price, or for a job without one the most that it may cost.
    pub fn hold(&self) -> Option<Credits> {
        self.price.or(self.bound).or(self.max_credits)
    }

    /// The terms of an order that is not accepted yet, to be changed. It shares them with no other then.
    pub fn terms_mut(&mut self) -> &mut OrderTerms {
        Arc::make_mut(&mut self.terms)
    }

    /// What it would draw from a plan allowance. Rows from before pools were kept have one of their kind.
    pub fn allowance(&self) -> Option<AllowanceUse> {
        let of_its_kind = || AllowanceUse { pool: self.kind.name().to_owned(), units: 1 };
        self.allowance.clone().or_else(|| (!self.waivable.is_zero()).then(of_its_kind))
    }

    /// How many addresses of its body have to be found before it is sent: outputs of other rows, and files.
    pub fn inputs_to_find(&self) -> usize {
        self.inputs.len() + self.files.len()
    }

    /// What it takes, as people read it: outputs of other rows (`still-07`), and files by their names.
    pub fn inputs_shown(&self) -> Vec<String> {
        self.inputs_made_of(&[])
    }

    /// The same with the takes that gave them (`still-07-v2`), in the order of its inputs.
    pub fn inputs_made_of(&self, takes: &[u32]) -> Vec<String> {
        let take = |index: usize| takes.get(index).copied().unwrap_or_default();
        let inputs = self.numbered_inputs_by_row().map(|(index, input)| input.shown_take(take(index)));
        inputs.chain(self.files.iter().map(|file| file.name.clone())).collect()
    }

    /// Its inputs, without the length of a source video that is one of them itself.
    pub fn inputs_by_row(&self) -> impl Iterator<Item = &JobInput> {
        self.numbered_inputs_by_row().map(|(_, input)| input)
    }

    fn numbered_inputs_by_row(&self) -> impl Iterator<Item = (usize, &JobInput)> {
        let is_source = |input: &&JobInput| input.field.is_source_video();
        let source = self.inputs.iter().find(is_source).map(JobInput::identity);
        self.inputs.iter().enumerate().filter(move |(_, input)| {
            input.field != InputField::SourceVideoDurationSeconds || Some(input.identity()) != source
        })
    }

    /// Its body as it is sent: with what was found for its inputs in place of the references, and the addresses
    /// of its files in place of their names, in this order.
    pub fn body_with(&self, found: &[String]) -> Map<String, Value> {
        self.filled(found, |_| true)
    }

    /// Its body with the lengths that were sent in place of their references. Addresses are left out: they are keys to files
    /// that do not last.
    pub fn body_with_length(&self, found: &[String]) -> Map<String, Value> {
        self.filled(found, InputField::is_length)
    }

    fn filled(&self, found: &[String], is_wanted: impl Fn(InputField) -> bool) -> Map<String, Value> {
        let mut body = self.body.fields();
        let references = self.inputs.iter().map(|input| (input.field, input.place));
        let places = references.chain(self.files.iter().map(|file| (file.field, file.place)));
        for ((field, place), found) in places.zip(found).filter(|((field, _), _)| is_wanted(*field)) {
            let name = field.name();
            let slot = if field.is_length() {
                body.get_mut("options").and_then(|options| options.get_mut(name))
            } else {
                let place = usize::try_from(place).unwrap_or(usize::MAX);
                body.get_mut(name).and_then(|list| list.get_mut(place))
            };
            let number = found.parse::<Number>().ok().filter(|_| field.is_number());
            let value = number.map_or_else(|| Value::from(found.as_str()), Value::Number);
            slot.into_iter().for_each(|slot| *slot = value.clone());
        }
        body
    }

    /// The length that is sent, of what was found for its inputs, where it is that of one of them.
    pub fn sent_length<'a>(&self, found: &'a [String]) -> Option<&'a str> {
        let own = InputField::length_of(self.kind)?;
        let mut found = self.inputs.iter().zip(found);
        found.find(|(input, _)| input.field == own).map(|(_, found)| found.as_str())
    }

    /// Whether a length in it is measured before it is sent: the body has a reference in its place.
    pub fn has_open_length(&self) -> bool {
        InputField::lengths_of(self.kind).iter().any(|field| self.is_open(*field))
    }

    /// Whether that length is.
    pub fn is_open(&self, field: InputField) -> bool {
        // Only an input is ever put in its place.
        if self.inputs.iter().all(|input| input.field != field) {
            return false;
        }
        let options = self.body.get("options");
        let options = options.as_ref().and_then(Value::as_object);
        options.is_some_and(|options| length_reference(field, options).is_some())
    }

    /// The text that describes it: its prompt, or what is to be said.
    pub fn text(&self) -> String {
        let field = |name: &str| match self.body.get(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        field("prompt").or_else(|| field("text")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_with_every_field_is_written_as_it_was_read() {
        let inputs = r#"[{"field":"image_urls","place":0,"row":"still","fingerprint":"00000000000000000000000000000000","takes":2,"variation":1,"output":1}]"#;
        let files = r#"[{"field":"image_urls","place":1,"name":"a \"b\".png","sha256":"0a","bytes":3,"media":"png"}]"#;
        let text = format!(
            r#"{{"line":2,"kind":"video","model":"house-c1","body":{{"prompt":"a \"gull\""}},"price":8,"bound":9,"cheapest":7,"formula":"2 x 4","waivable":3,"allowance":{{"pool":"videos","units":1}},"max_credits":12,"priority":-1,"deadline":{{"after":1800000}},"review":true,"inputs":{inputs},"files":{files},"written":{{"prompt":"a gull"}},"meta":{{"client":"acme"}}}}"#
        );
        let order: Order = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&order).unwrap(), text);
        let least = r#"{"line":2,"kind":"image","body":{}}"#;
        let order: Order = serde_json::from_str(least).unwrap();
        assert_eq!(serde_json::to_string(&order).unwrap(), least);
    }
}
