//! A JSON object that is kept as its text: as it is stored and sent, in a fraction of the memory of its values.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An object, as the text that it was printed or read as. Two of them are equal where their texts are: those that
/// this program prints have their fields in order and no white space.
#[derive(Debug, Default, Clone)]
pub struct JsonObject(Option<Box<RawValue>>);

/// The text of an object without fields, for which nothing is allocated: most rows have no columns of their own.
const EMPTY: &str = "{}";

impl JsonObject {
    /// Of the text of an object.
    fn of(text: Box<RawValue>) -> JsonObject {
        JsonObject(Some(text).filter(|text| text.get() != EMPTY))
    }

    /// Its JSON.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().map_or(EMPTY, RawValue::get)
    }

    /// Whether it has no field.
    pub fn is_empty(&self) -> bool {
        self.as_str() == EMPTY
    }

    /// Its fields with their values.
    pub fn fields(&self) -> Map<String, Value> {
        // The text is that of an object: `deserialize` and `from` see to it.
        serde_json::from_str(self.as_str()).unwrap_or_default()
    }

    /// The value of one field; the others are passed over.
    pub fn get(&self, name: &str) -> Option<Value> {
        let fields: BTreeMap<FieldName<'_>, &RawValue> = serde_json::from_str(self.as_str()).ok()?;
        serde_json::from_str(fields.get(name)?.get()).ok()
    }
}

/// A name is borrowed from the text, unless something in it is escaped.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct FieldName<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

impl std::borrow::Borrow<str> for FieldName<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<Map<String, Value>> for JsonObject {
    fn from(fields: Map<String, Value>) -> JsonObject {
        // Values of JSON under names of text always print.
        serde_json::value::to_raw_value(&fields).map(JsonObject::of).unwrap_or_default()
    }
}

impl PartialEq for JsonObject {
    fn eq(&self, other: &JsonObject) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JsonObject {}

impl Hash for JsonObject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(text) => text.serialize(serializer),
            None => serializer.serialize_map(Some(0))?.end(),
        }
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonObject, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match text.get().starts_with('{') {
            true => Ok(JsonObject::of(text)),
            false => Err(D::Error::custom("invalid type: this is no JSON object")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value) -> JsonObject {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn it_is_printed_as_it_was_read_and_its_fields_are_those_of_its_text() {
        let text = r#"{"a":1.0,"b\n":{"c":[true,null]},"prompt":"a \"gull\""}"#;
        let read: JsonObject = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!(JsonObject::from(read.fields()), read);
        assert_eq!(read.get("prompt"), Some(json!("a \"gull\"")));
        assert_eq!(read.get("b\n"), Some(json!({"c": [true, null]})));
        assert_eq!(read.get("c"), None);
        assert_eq!(object(&json!({"prompt": "a \"gull\"", "b\n": {"c": [true, null]}, "a": 1.0})), read);
        let empty = JsonObject::default();
        assert_eq!((empty.as_str(), empty.is_empty()), ("{}", true));
        assert_eq!(serde_json::to_string(&empty).unwrap(), "{}");
        for same in [serde_json::from_str("{}").unwrap(), JsonObject::from(Map::new()), object(&json!({}))] {
            assert_eq!(same, empty);
            assert!(same.0.is_none(), "nothing is allocated for it");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[]", "null", "\"{}\"", "1"] {
            let read: Result<JsonObject, _> = serde_json::from_str(text);
            assert!(read.is_err(), "{text}");
        }
        assert!(serde_json::from_value::<JsonObject>(json!([1])).is_err());
    }
}
