//! What is kept as metadata beside an object: the names of its fields, and how buckets are given them and tell them. How a
//! folder keeps them says `folder.rs`.

use std::collections::BTreeMap;

use object_store::{Attribute, AttributeValue, Attributes};

/// The identity of the job whose output the object is.
pub const JOB: &str = "callsheet-job";
/// The name of its batch.
pub const BATCH: &str = "callsheet-batch";
/// What the job was charged, in credits.
pub const PRICE: &str = "callsheet-price";
/// SHA-256 of the content in lowercase hex.
pub const SHA256: &str = "callsheet-sha256";

/// What is said of an object beside its content.
pub type Metadata<'a> = [(&'static str, &'a str)];

/// What a bucket is given with an object. Names of metadata are identifiers at Azure: without hyphens.
pub(super) fn attributes_of(metadata: &Metadata<'_>, content_type: &str, is_azure: bool) -> Attributes {
    let said = metadata.iter().map(|(name, value)| {
        let name = if is_azure { name.replace('-', "_") } else { (*name).to_owned() };
        (Attribute::Metadata(name.into()), AttributeValue::from((*value).to_owned()))
    });
    let content_type = AttributeValue::from(content_type.to_owned());
    said.chain([(Attribute::ContentType, content_type)]).collect()
}

/// The metadata that a bucket tells of an object, by the names that they were given by.
pub(super) fn metadata_in(attributes: &Attributes, is_azure: bool) -> BTreeMap<String, String> {
    let metadata = attributes.iter().filter_map(|(attribute, value)| match attribute {
        Attribute::Metadata(name) if is_azure => Some((name.replace('_', "-"), value.to_string())),
        Attribute::Metadata(name) => Some((name.to_string(), value.to_string())),
        _ => None,
    });
    metadata.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
