//! A row as it goes into a spool: a [`JobSpec`](crate::domain::job::JobSpec) whose order is JSON already.

use serde::Serialize;

use crate::domain::ids::{Fingerprint, JobId, Seq};
use crate::store::staging::StagedOrder;

/// One job of a row that was accepted.
#[derive(Debug, Clone, Copy)]
pub struct NewRow<'a> {
    /// Its place in the batch.
    pub seq: Seq,
    /// Who it is.
    pub id: JobId,
    /// The row it is a variation of.
    pub fingerprint: Fingerprint,
    /// Which variation of the row, from 1.
    pub variation: u32,
    /// What people and file names call it.
    pub label: &'a str,
    /// Its files carry its identity.
    pub apart: bool,
    /// What is wanted.
    pub order: &'a StagedOrder,
}

/// The fields of a `JobSpec` before its order.
#[derive(Serialize)]
struct Head<'a> {
    seq: Seq,
    id: JobId,
    fingerprint: Fingerprint,
    variation: u32,
    label: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    apart: bool,
}

impl NewRow<'_> {
    /// Adds the row to `text` as its `JobSpec` would be printed.
    pub(super) fn write(&self, text: &mut Vec<u8>) -> serde_json::Result<()> {
        let NewRow { seq, id, fingerprint, variation, label, apart, order } = *self;
        serde_json::to_writer(&mut *text, &Head { seq, id, fingerprint, variation, label, apart })?;
        // The brace at its end.
        text.pop();
        text.extend_from_slice(b",\"order\":");
        text.extend_from_slice(order.json.as_bytes());
        text.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::job::{JobSpec, Order};

    #[test]
    fn a_new_row_is_printed_as_a_job_spec() {
        let json = r#"{"line":2,"kind":"video","model":"m","body":{"prompt":"a \"fox\"\n"},"price":4}"#;
        let order: Order = serde_json::from_str(json).unwrap();
        let staged = StagedOrder::new(&order, Default::default(), false);
        let (id, fingerprint) = (JobId([0xab; 16]), Fingerprint([1; 16]));
        for apart in [false, true] {
            let label = "né \"1\"";
            let (seq, variation) = (Seq(7), 3);
            let mut text = Vec::new();
            NewRow { seq, id, fingerprint, variation, label, apart, order: &staged }
                .write(&mut text)
                .unwrap();
            let label = label.to_owned();
            let spec = JobSpec { seq, id, fingerprint, variation, label, apart, order: order.clone() };
            assert_eq!(String::from_utf8(text).unwrap(), serde_json::to_string(&spec).unwrap());
        }
    }
}
