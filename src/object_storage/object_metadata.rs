//! What is kept as metadata beside an object: the names of its fields, and how buckets are given them and tell them. How a
//! folder keeps them says `folder.rs`.

use std::collections::BTreeMap;

use object_store::{Attribute, AttributeValue, Attributes};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The identity of the job whose output the object is.
pub const JOB: &str = "callsheet-job";
/// The name of its batch.
pub const BATCH: &str = "callsheet-batch";
/// What the job was charged, in credits.
pub const PRICE: &str = "callsheet-price";
/// SHA-256 of the content in lowercase hex.
pub const SHA256: &str = "callsheet-sha256";

/// What is written as `%XX`, beside all that is not ASCII: what no header takes everywhere, and the sign itself.
///
/// Older versions wrote values as they were. Those hold letters, digits, dots, dashes and underscores alone (identities, sums,
/// prices, names of batches), none of them a `%`, so that reading them as they are read now changes nothing.
const WRITTEN_OUT: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// What is said of an object beside its content.
pub type Metadata<'a> = [(&'static str, &'a str)];

/// What a bucket is given with an object: visible ASCII alone, since headers take nothing else everywhere. Names of metadata
/// are identifiers at Azure: without hyphens.
pub(super) fn attributes_of(metadata: &Metadata<'_>, content_type: &str, is_azure: bool) -> Attributes {
    let said = metadata.iter().map(|(name, value)| {
        let name = if is_azure { name.replace('-', "_") } else { (*name).to_owned() };
        let value = utf8_percent_encode(value, WRITTEN_OUT).to_string();
        (Attribute::Metadata(name.into()), AttributeValue::from(value))
    });
    let is_visible = content_type.bytes().all(|byte| byte.is_ascii_graphic());
    let content_type = if is_visible { content_type } else { "application/octet-stream" };
    let content_type = AttributeValue::from(content_type.to_owned());
    said.chain([(Attribute::ContentType, content_type)]).collect()
}

/// The metadata that a bucket tells of an object, by the names that they were given by.
pub(super) fn metadata_in(attributes: &Attributes, is_azure: bool) -> BTreeMap<String, String> {
    let metadata = attributes.iter().filter_map(|(attribute, value)| match attribute {
        Attribute::Metadata(name) if is_azure => Some((name.replace('_', "-"), read(value))),
        Attribute::Metadata(name) => Some((name.to_string(), read(value))),
        _ => None,
    });
    metadata.collect()
}

/// A value of metadata. One that somebody else wrote, and that is no text once it is read, stays as it is.
fn read(value: &str) -> String {
    percent_decode_str(value).decode_utf8().map_or_else(|_| value.to_owned(), |text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_leaves_as_visible_ascii_and_comes_back_the_same() {
        let said = [
            "Frühling",
            "春",
            "Лето_2026",
            "spring-sale.v2",
            "100%",
            "%41",
            "a b",
            " a ",
            "a\tb\u{7f}",
            "🦊",
            "",
        ];
        for is_azure in [true, false] {
            for value in said {
                let attributes = attributes_of(&[(BATCH, value)], "image/png", is_azure);
                for (attribute, sent) in &attributes {
                    assert!(sent.bytes().all(|byte| byte.is_ascii_graphic()), "{attribute:?}: {sent:?}");
                }
                let told = metadata_in(&attributes, is_azure);
                assert_eq!(told.get(BATCH).map(String::as_str), Some(value));
            }
        }
        let odd = attributes_of(&[], "image/bäd", false);
        assert_eq!(odd.get(&Attribute::ContentType).map(AsRef::as_ref), Some("application/octet-stream"));
    }

    #[test]
    fn what_older_versions_and_others_wrote_is_read_as_it_was() {
        for value in ["spring-sale.v2", "9f2c7d", "12", "=?UTF-8?Q?Fr=C3=BChling?=", "50% off", "%FF"] {
            let there: Attributes =
                [(Attribute::Metadata(BATCH.into()), AttributeValue::from(value))].into_iter().collect();
            assert_eq!(metadata_in(&there, false)[BATCH], value);
        }
    }

    #[test]
    fn every_store_tells_the_names_that_it_was_given() {
        for is_azure in [true, false] {
            let attributes = attributes_of(&[(JOB, "one"), (PRICE, "7")], "image/png", is_azure);
            let at_azure = Attribute::Metadata("callsheet_job".into());
            assert_eq!(attributes.get(&at_azure).is_some(), is_azure);
            let told = metadata_in(&attributes, is_azure);
            assert_eq!(
                told.into_iter().collect::<Vec<_>>(),
                [(JOB.to_owned(), "one".to_owned()), (PRICE.to_owned(), "7".to_owned())]
            );
        }
    }
}
