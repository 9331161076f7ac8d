//! The open jobs of a batch as they are stored, to be read one by one: their bytes take half the memory of their
//! records, in one piece that goes back to the system.

use std::path::PathBuf;

use crate::domain::ids::{BatchNo, JobKey, Seq};
use crate::store::{JobRecord, Store, StoreError, codec, db_keys};

/// See the module's documentation.
#[derive(Debug)]
pub struct OpenRecords {
    /// The state directory, for errors.
    dir: PathBuf,
    batch: BatchNo,
    bytes: Vec<u8>,
    /// Where each ends in `bytes`, in order of the manifest.
    ends: Vec<(Seq, usize)>,
}

impl Store {
    /// The open jobs of a batch at this moment, whatever else is open.
    ///
    /// # Errors
    /// What the database says.
    pub fn open_records_of(&self, batch: BatchNo) -> Result<OpenRecords, StoreError> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        let keep = |key: &[u8], record: &[u8]| {
            if let Some(seq) = db_keys::seq_of_job(key) {
                bytes.extend_from_slice(record);
                ends.push((seq, bytes.len()));
            }
        };
        let database = self.database()?;
        database.entries_as(&db_keys::jobs_of(batch), keep).collect::<Result<(), _>>()?;
        bytes.shrink_to_fit();
        Ok(OpenRecords { dir: self.dir.clone(), batch, bytes, ends })
    }
}

impl OpenRecords {
    /// All of them, in order of the manifest.
    pub fn iter(&self) -> impl Iterator<Item = Result<JobRecord, StoreError>> {
        self.ends.iter().filter_map(|(seq, _)| self.get(*seq).transpose())
    }

    /// The open job of that place; nothing where it is not open.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its record is not what was written.
    pub fn get(&self, seq: Seq) -> Result<Option<JobRecord>, StoreError> {
        let Ok(place) = self.ends.binary_search_by_key(&seq, |(seq, _)| *seq) else { return Ok(None) };
        let begin = place.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        let end = self.ends.get(place).map_or(begin, |(_, end)| *end);
        let record = self.bytes.get(begin..end).unwrap_or_default();
        codec::decode(record).map(Some).map_err(|damage| {
            let key = db_keys::job(JobKey { batch: self.batch, seq });
            StoreError::Damaged {
                dir: self.dir.clone(),
                what: format!("the record {}", db_keys::describe(&key)),
                detail: damage.to_string(),
            }
        })
    }
}
