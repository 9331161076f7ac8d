//! Batches that were done long ago leave the database and the memory of the daemon.
//!
//! Their outputs stay where they are, and so does all that is known of them: naming one brings it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::domain::time::{Millis, Timestamp};
use crate::engine::EngineGone;
use crate::hooks::Hooks;
use crate::intake::ingest::Ingest;
use crate::store::{BatchRecord, Store};

/// Most time between two looks.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Least time between two looks.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Archives what is old enough, for as long as the engine runs. `age` may change on the way.
pub(super) async fn run(
    store: Arc<Store>,
    ingest: Ingest,
    hooks: Hooks,
    clock: Clock,
    mut age: watch::Receiver<Option<Millis>>,
) {
    loop {
        let after = *age.borrow_and_update();
        if let Some(after) = after
            && archive_old(&store, &ingest, &hooks, clock.now().wall, after).await.is_err()
        {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(check_interval(after)) => {}
            changed = age.changed() => if changed.is_err() { return },
        }
    }
}

/// A tenth of the age: nothing stays much longer than it says.
fn check_interval(after: Option<Millis>) -> Duration {
    after.map_or(CHECK_INTERVAL_MAX, |after| {
        (Duration::from_millis(after.0) / 10).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX)
    })
}

async fn archive_old(
    store: &Store,
    ingest: &Ingest,
    hooks: &Hooks,
    now: Timestamp,
    after: Millis,
) -> Result<(), EngineGone> {
    let batches = match store.batches() {
        Ok(batches) => batches,
        Err(error) => {
            tracing::warn!(%error, "failed to look for old batches");
            return Ok(());
        }
    };
    for batch in batches.iter().filter(|batch| is_old(batch, now, after)) {
        if !ingest.archive(batch.no).await? {
            continue;
        }
        tracing::info!(batch = %batch.name, rows = batch.rows, "archived");
        if let Err(error) = hooks.forget(&batch.name) {
            tracing::warn!(%error, batch = %batch.name, "failed to remove the hook record of an archived batch");
        }
    }
    Ok(())
}

/// Whether a batch is done, its owner knows, and that is long enough ago.
fn is_old(batch: &BatchRecord, now: Timestamp, after: Millis) -> bool {
    let since = batch.announced_at.unwrap_or(batch.created);
    batch.is_done() && batch.announced && since.after(after) <= now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::BatchNo;

    #[test]
    fn only_what_is_done_and_was_announced_grows_old() {
        let mut batch = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(0));
        let day = Millis::from_secs(24 * 3600);
        let is_old = |batch: &BatchRecord, now: i64| is_old(batch, Timestamp(now), day);
        assert!(!is_old(&batch, i64::MAX), "nobody was told");
        (batch.announced, batch.announced_at) = (true, Some(Timestamp(1_000)));
        assert!(!is_old(&batch, 86_400_999));
        assert!(is_old(&batch, 86_401_000));
        batch.announced_at = None;
        assert!(is_old(&batch, 86_400_000), "counted from its beginning where its end is not known");
        batch.rows = 1;
        assert!(!is_old(&batch, i64::MAX), "it is not done");
    }

    #[test]
    fn a_look_comes_often_enough_and_not_too_often() {
        assert_eq!(check_interval(None), CHECK_INTERVAL_MAX);
        assert_eq!(check_interval(Some(Millis(10_000))), Duration::from_secs(1));
        assert_eq!(check_interval(Some(Millis(0))), CHECK_INTERVAL_MIN);
        assert_eq!(check_interval(Some(Millis::from_secs(30 * 24 * 3600))), CHECK_INTERVAL_MAX);
    }
}
