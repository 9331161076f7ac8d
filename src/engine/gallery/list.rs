//! The list of batches beside their folders.

use std::io;

use crate::engine::EngineError;
use crate::engine::gallery::pages::{refuse_others_page, replace_if_changed};
use crate::output::publish::OutputDir;
use crate::pages::batch_list::{LISTED_MAX, ListedBatch, batch_list};
use crate::pages::{ASSETS, INDEX, LIST_FOLDER};
use crate::store::{BatchRecord, FinishedBatch, Store};

/// Writes the list of the batches that are not done, and of those that finished last.
pub(super) fn write(store: &Store, output_dir: &OutputDir) -> Result<(), EngineError> {
    // Finished ones last: one that ends meanwhile is in both.
    let mut batches = store.batches()?;
    let finished = store.newest_finished(LISTED_MAX)?;
    batches.extend(finished.iter().map(FinishedBatch::summary));
    batches.sort_by_key(|batch| batch.no);
    // The later of two is the finished one.
    batches.reverse();
    batches.dedup_by_key(|batch| batch.no);
    batches.truncate(LISTED_MAX);
    let finished = batches.iter().filter(|batch| batch.finished.is_some()).count() as u64;
    let not_listed = store.finished_count().saturating_sub(finished);
    let listed: Vec<ListedBatch> = batches.iter().map(|batch| listed(batch, output_dir)).collect();
    let save = || -> io::Result<()> {
        refuse_others_page(output_dir.root())?;
        let folder = output_dir.make_folder_beside_batches(LIST_FOLDER)?;
        for (name, content) in ASSETS {
            replace_if_changed(&folder.join(name), content)?;
        }
        replace_if_changed(&output_dir.root().join(INDEX), &batch_list(&listed, not_listed))
    };
    save().map_err(|source| EngineError::Output { path: output_dir.root().to_owned(), source })
}

fn listed(batch: &BatchRecord, output_dir: &OutputDir) -> ListedBatch {
    ListedBatch {
        name: batch.name.clone(),
        finished: batch.finished,
        jobs: batch.rows,
        succeeded: batch.ended.succeeded,
        failed: batch.ended.failed,
        in_doubt: batch.ended.in_doubt,
        ended: batch.ended.all(),
        charged: batch.totals.spent.0,
        has_page: output_dir.batch_dir(&batch.name).join(INDEX).is_file(),
    }
}
