//! The record of a job that has begun: in the database until it ends, in its batch's outcomes from then on.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::domain::ids::{BatchNo, JobId, JobKey, Seq};
use crate::domain::job::Job;

/// A job that has begun. Ended jobs have the same shape, in their batch's `outcomes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRecord {
    /// Where it lives.
    #[serde(flatten)]
    pub key: JobKey,
    /// Who it is.
    pub id: JobId,
    /// Byte of its row in the batch's spool.
    pub row_at: u64,
    /// Where it stands.
    #[serde(flatten)]
    pub job: Job,
}

/// The part of an outcome that tells whose it is, where no more of it is needed.
#[derive(Debug, Deserialize)]
pub struct OutcomeOutline {
    /// Its place in the batch.
    pub seq: Seq,
}

/// Its job's fields are handed to the job as they come. `#[serde(flatten)]` would collect all of them first.
impl<'de> Deserialize<'de> for JobRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JobRecord, D::Error> {
        deserializer.deserialize_map(RecordVisitor)
    }
}

struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = JobRecord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the record of a job")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JobRecord, A::Error> {
        let mut own = OwnFields::default();
        let job = Job::deserialize(MapAccessDeserializer::new(JobFields { map, own: &mut own }))?;
        let missing = |name| A::Error::missing_field(name);
        Ok(JobRecord {
            key: JobKey {
                batch: own.batch.ok_or_else(|| missing("batch"))?,
                seq: own.seq.ok_or_else(|| missing("seq"))?,
            },
            id: own.id.ok_or_else(|| missing("id"))?,
            row_at: own.row_at.ok_or_else(|| missing("row_at"))?,
            job,
        })
    }
}

/// What a record has beside its job.
#[derive(Default)]
struct OwnFields {
    batch: Option<BatchNo>,
    seq: Option<Seq>,
    id: Option<JobId>,
    row_at: Option<u64>,
}

#[derive(Clone, Copy)]
enum OwnField {
    Batch,
    Seq,
    Id,
    RowAt,
}

/// The fields of a record but for its own, which are taken out on the way.
struct JobFields<'a, A> {
    map: A,
    own: &'a mut OwnFields,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for JobFields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let mut seed = seed;
        loop {
            let (field, unused) = match self.map.next_key_seed(FieldName(seed))? {
                None => return Ok(None),
                Some(Field::OfJob(name)) => return Ok(Some(name)),
                Some(Field::Own(field, unused)) => (field, unused),
            };
            match field {
                OwnField::Batch => self.own.batch = Some(self.map.next_value()?),
                OwnField::Seq => self.own.seq = Some(self.map.next_value()?),
                OwnField::Id => self.own.id = Some(self.map.next_value()?),
                OwnField::RowAt => self.own.row_at = Some(self.map.next_value()?),
            }
            seed = unused;
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Reads a field's name: one of a record's own, or what the job makes of it.
struct FieldName<K>(K);

enum Field<K, V> {
    /// One of the record, and what would have read the name of another.
    Own(OwnField, K),
    OfJob(V),
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for FieldName<K> {
    type Value = Field<K, K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for FieldName<K> {
    type Value = Field<K, K::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let own = match name {
            "batch" => OwnField::Batch,
            "seq" => OwnField::Seq,
            "id" => OwnField::Id,
            "row_at" => OwnField::RowAt,
            _ => return self.0.deserialize(StrDeserializer::new(name)).map(Field::OfJob),
        };
        Ok(Field::Own(own, self.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_record_is_read_in_whatever_order_and_nothing_of_it_may_be_missing() {
        let record = JobRecord {
            key: JobKey { batch: BatchNo(3), seq: Seq(4) },
            id: JobId([7; 16]),
            row_at: 5,
            job: Job::queued(),
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<JobRecord>(&text).unwrap(), record);
        let Value::Object(fields) = serde_json::to_value(&record).unwrap() else { unreachable!() };
        // Its own come last, and one that a later version may have.
        let (own, job): (Vec<_>, Vec<_>) =
            fields.iter().partition(|(name, _)| ["batch", "seq", "id", "row_at"].contains(&name.as_str()));
        assert_eq!(own.len(), 4);
        let lines = job.iter().chain(&own).map(|(name, value)| format!("{name:?}:{value}"));
        let other = format!("{{\"later\":[{{\"id\":1}}],{}}}", lines.collect::<Vec<_>>().join(","));
        assert_eq!(serde_json::from_str::<JobRecord>(&other).unwrap(), record);
        assert_eq!(serde_json::from_value::<JobRecord>(json!(fields)).unwrap(), record);
        for (name, _) in own {
            let mut fewer = fields.clone();
            fewer.remove(name);
            let refused = serde_json::from_value::<JobRecord>(Value::Object(fewer)).unwrap_err();
            assert_eq!(refused.to_string(), format!("missing field `{name}`"));
        }
        assert!(serde_json::from_str::<JobRecord>("[]").is_err());
    }
}
