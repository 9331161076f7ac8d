//! The entries of one catalog: in its order, found by id, read without losing good ones to bad ones.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A thing that is found by its id.
pub trait CatalogEntry {
    fn id(&self) -> &str;
    /// What it is called on a screen.
    fn label(&self) -> Option<&str>;
}

/// Entries in the catalog's order, found by id.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogList<T> {
    entries: Vec<T>,
    by_id: BTreeMap<String, usize>,
}

impl<T> Default for CatalogList<T> {
    fn default() -> CatalogList<T> {
        CatalogList { entries: Vec::new(), by_id: BTreeMap::new() }
    }
}

impl<T: CatalogEntry> CatalogList<T> {
    /// The entry with this id.
    pub fn get(&self, id: &str) -> Option<&T> {
        self.by_id.get(id).and_then(|index| self.entries.get(*index))
    }

    /// The entries in the catalog's order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is listed: nothing was read yet, and nothing can be validated by it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads the entries of a catalog's `data` with `read`; what it cannot read is said in `odd`.
    pub(super) fn read(
        name: &str,
        data: &Value,
        odd: &mut Vec<String>,
        read: fn(&Map<String, Value>, &mut Vec<String>) -> Option<T>,
    ) -> CatalogList<T> {
        let mut listing = CatalogList::default();
        let Some(items) = list_in(name, data) else {
            odd.push(format!("the {name} catalog holds no list"));
            return listing;
        };
        for (index, item) in items.iter().enumerate() {
            match item.as_object().and_then(|entry| read(entry, odd)) {
                Some(entry) if listing.get(entry.id()).is_none() => listing.push(entry),
                Some(entry) => odd.push(format!("the {name} catalog lists {} twice", entry.id())),
                None => odd.push(format!("entry {} of the {name} catalog has no id", index + 1)),
            }
        }
        listing
    }

    fn push(&mut self, entry: T) {
        self.by_id.insert(entry.id().to_owned(), self.entries.len());
        self.entries.push(entry);
    }
}

/// The list: `data` itself, or the one list in it that is called `models` or like the catalog, or else whose items are objects.
pub(super) fn list_in<'a>(name: &str, data: &'a Value) -> Option<&'a Vec<Value>> {
    match data {
        Value::Array(items) => Some(items),
        Value::Object(fields) => {
            let names = [format!("{name}s"), "models".to_owned(), name.to_owned()];
            let called = names.iter().find_map(|name| fields.get(name)?.as_array());
            if called.is_some() {
                return called;
            }
            let lists = || fields.values().filter_map(Value::as_array);
            let of_objects = lists().find(|items| items.iter().any(Value::is_object));
            of_objects.or_else(|| lists().next())
        }
        _ => None,
    }
}
