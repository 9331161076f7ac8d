//! Batches that were done long ago are not listed any more. They are found by their names for ever. Files that their jobs
//! took as inputs are removed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::domain::time::Millis;
use crate::engine::input_store::InputStore;
use crate::engine::{blocking, input_retention};
use crate::hooks::Hooks;
use crate::store::Store;

/// Most time between two looks.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Least time between two looks.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What is kept how long.
#[derive(Debug, Clone)]
pub(super) struct RetentionTerms {
    /// Finished batches in lists; nothing for ever.
    pub(super) list_finished_for: Option<Millis>,
    /// Uploaded inputs that no job needs.
    pub(super) keep_inputs: Millis,
    /// Where these are.
    pub(super) inputs: Option<InputStore>,
}

/// Moves the time on from which finished batches are listed, for as long as the process lives, and removes inputs that no
/// job needs any more. `terms` may change on the way.
pub(super) async fn run(
    store: Arc<Store>,
    hooks: Hooks,
    clock: Clock,
    mut terms: watch::Receiver<RetentionTerms>,
) {
    loop {
        let RetentionTerms { list_finished_for: span, keep_inputs, inputs } =
            terms.borrow_and_update().clone();
        store.list_finished_since(clock.now().wall.before(span));
        // Where all are listed for ever, all records stay: none is looked at.
        if span.is_some() {
            let (looked, hooks) = (store.clone(), hooks.clone());
            blocking(move || forget_delivered(&looked, &hooks)).await;
        }
        let used_before = clock.now().wall.before(Some(keep_inputs));
        input_retention::remove_unused(store.clone(), inputs, used_before).await;
        tokio::select! {
            () = tokio::time::sleep(check_interval(span)) => {}
            changed = terms.changed() => if changed.is_err() { return },
        }
    }
}

/// A tenth of the span: nothing is listed much longer than it says.
fn check_interval(span: Option<Millis>) -> Duration {
    span.map_or(CHECK_INTERVAL_MAX, |span| {
        (Duration::from_millis(span.0) / 10).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX)
    })
}

/// What hooks were told of a batch is kept so that no end of it is told twice; one that was announced and is not listed
/// any more has no other end before it goes on.
fn forget_delivered(store: &Store, hooks: &Hooks) {
    let delivered = match hooks.delivered() {
        Ok(delivered) => delivered,
        Err(error) => {
            tracing::warn!(%error, "failed to look for hook records of old batches");
            return;
        }
    };
    for batch in delivered {
        if store.is_unlisted(&batch).unwrap_or(false)
            && let Err(error) = hooks.forget(&batch)
        {
            tracing::warn!(%error, %batch, "failed to remove the hook record of a batch that is not listed any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_comes_often_enough_and_not_too_often() {
        assert_eq!(check_interval(None), CHECK_INTERVAL_MAX);
        assert_eq!(check_interval(Some(Millis(10_000))), Duration::from_secs(1));
        assert_eq!(check_interval(Some(Millis(0))), CHECK_INTERVAL_MIN);
        assert_eq!(check_interval(Some(Millis::from_secs(30 * 24 * 3600))), CHECK_INTERVAL_MAX);
    }
}
