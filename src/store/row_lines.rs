//! Rows of a manifest as lines that follow each other, wherever these come to lie: several threads can make them.

use std::path::Path;

use crate::store::StoreError;
use crate::store::job_index::{JobIndexWriter, JobName};
use crate::store::new_row::NewRow;
use crate::store::spool::{Appender, RowEncoder};

/// Lines of rows, of which none refers to one before them.
#[derive(Debug, Default)]
pub struct RowLines {
    encoder: RowEncoder,
    line: Vec<u8>,
    bytes: Vec<u8>,
    /// What the job of each line is called, and the byte of these lines where it begins.
    names: Vec<(JobName, u64)>,
}

impl RowLines {
    /// Adds a row that comes after so many others of its manifest.
    ///
    /// # Errors
    /// When it cannot be printed, which is a defect.
    pub fn push(&mut self, row: &NewRow<'_>, rows_before: u64) -> Result<(), StoreError> {
        let RowLines { encoder, line, bytes, names } = self;
        let at = bytes.len() as u64;
        encoder.encode(row, at, rows_before, line).map_err(StoreError::io(Path::new("rows")))?;
        bytes.extend_from_slice(line);
        names.push((JobName::of(row.label, row.id), at));
        Ok(())
    }

    /// Appends them to the rows of a batch, and to the index of their names where there is one.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn append_to(
        &self,
        rows: &mut Appender,
        index: Option<&mut JobIndexWriter>,
    ) -> Result<(), StoreError> {
        let at = rows.bytes();
        rows.push_encoded(&self.bytes)?;
        let Some(index) = index else { return Ok(()) };
        self.names.iter().try_for_each(|(name, place)| index.add(*name, at + place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{Fingerprint, JobId, Seq};
    use crate::domain::job::{JobSpec, Order};
    use crate::store::spool::Lines;
    use crate::store::staging::StagedOrder;

    #[test]
    fn lines_of_many_pieces_read_back_as_rows_that_follow_each_other() {
        let json = r#"{"line":2,"kind":"video","model":"m","body":{"prompt":"a fox"},"price":4}"#;
        let order: Order = serde_json::from_str(json).unwrap();
        let staged = StagedOrder::new(&order, Default::default(), true);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        let mut rows = Appender::open(&path, 0).unwrap();
        let mut index = JobIndexWriter::begin(dir.path(), 0).unwrap();
        for piece in 0..4 {
            let mut lines = RowLines::default();
            for seq in piece * 500..(piece + 1) * 500 {
                let (id, fingerprint) = (JobId([7; 16]), Fingerprint([1; 16]));
                let label = format!("row-{seq}");
                let row = NewRow {
                    seq: Seq(seq),
                    id,
                    fingerprint,
                    variation: 1,
                    label: &label,
                    apart: false,
                    order: &staged,
                };
                lines.push(&row, u64::from(seq)).unwrap();
            }
            lines.append_to(&mut rows, index.as_mut()).unwrap();
        }
        let end = rows.sync().unwrap();
        index.unwrap().finish(end).unwrap();
        let mut read = Lines::open(&path, 0, end).unwrap();
        let mut seen = 0..2_000;
        while let Some((_, spec)) = read.next_line::<JobSpec>().unwrap() {
            let seq = seen.next().unwrap();
            assert_eq!((spec.seq, spec.label, &spec.order), (Seq(seq), format!("row-{seq}"), &order));
        }
        assert_eq!(seen, 2_000..2_000, "all of them were read");
    }
}
