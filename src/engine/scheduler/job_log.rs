//! What the log is told of jobs and batches.
//!
//! Every line about a job has `batch`, `job` (its label), `attempt` and, where there is one, `task`. What a
//! person who is paged would want to see is `info`; what may need that person is `warn`; the rest is
//! `debug`.

use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchName, TaskId};
use crate::domain::job::{Job, JobSpec, Order, State};
use crate::domain::lifecycle::IllegalEvent;
use crate::domain::parked_reason::Parked;
use crate::domain::task::{Fault, STORE_FAULT};
use crate::domain::time::Millis;
use crate::store::BatchRecord;

/// Whom a line is about.
#[derive(Clone, Copy)]
pub(super) struct LogContext<'a> {
    batch: &'a BatchName,
    job: &'a str,
    attempt: u32,
    task: Option<&'a str>,
}

impl<'a> LogContext<'a> {
    pub(super) fn new(
        batch: &'a BatchName,
        spec: &'a JobSpec,
        attempt: AttemptNo,
        task: Option<&'a TaskId>,
    ) -> LogContext<'a> {
        let task = task.map(|task| task.as_str());
        LogContext { batch, job: &spec.label, attempt: attempt.0, task }
    }
}

/// One event with everything that says whom it is about.
macro_rules! log_event {
    ($level:ident, $context:expr, $($fields:tt)*) => {{
        let context: LogContext<'_> = $context;
        tracing::$level!(batch = %context.batch, job = context.job, attempt = context.attempt, task = context.task, $($fields)*);
    }};
}

/// Says what an event made of a job.
pub(super) fn moved(batch: &BatchName, spec: &JobSpec, before: &Job, after: &Job) {
    let context = LogContext::new(batch, spec, before.attempt(), after.task().or(before.task()));
    let was_submitting = matches!(before.state(), State::Submitting { .. });
    if was_submitting && after.task().is_some() {
        let (charged, waived) = (after.books().charged.0, after.books().waived.0);
        log_event!(info, context, kind = spec.order.kind.name(), charged, waived, "submitted");
    }
    if after.is_overdue() && !before.is_overdue() {
        log_event!(info, context, "overdue: its deadline has passed; its task is still watched");
    }
    if let Some(doubt) = after.doubt_beside().filter(|_| before.doubt_beside().is_none()) {
        let context = LogContext::new(batch, spec, doubt.no(), doubt.task());
        log_event!(
            warn,
            context,
            "an earlier attempt is in doubt: record the charge with callsheet resolve JOB --attempt N"
        );
    }
    match after.state() {
        State::Queued if after.attempt() != before.attempt() => {
            let reason = after.history().last().map_or("", |line| &line.what);
            log_event!(info, context, reason, "attempt over, retrying with a new key");
        }
        State::Queued if was_submitting => log_event!(debug, context, "not accepted, queued again"),
        State::Queued
            if after.admission_hold() != before.admission_hold()
                && after.history().len() > before.history().len() =>
        {
            let reason = after.history().last().map_or("", |line| &line.what);
            log_event!(info, context, reason, "another price than before");
        }
        State::Submitting { .. } if matches!(before.state(), State::Queued) => {
            log_event!(debug, context, held = after.books().held.0, "admitted");
        }
        State::Submitting { sends, fault: Some(fault), .. } if was_submitting => {
            log_event!(debug, context, sends, %fault, "no answer, resending under the same key");
        }
        State::Fetching { urls, .. } if !matches!(before.state(), State::Fetching { .. }) => {
            log_event!(debug, context, outputs = urls.len(), "the task has succeeded");
        }
        State::Succeeded { files, .. } if !before.has_succeeded() => {
            let bytes: u64 = files.iter().map(|file| file.bytes).sum();
            let (outputs, late, charged) = (files.len(), after.is_overdue(), after.books().charged.0);
            log_event!(info, context, outputs, bytes, charged, late, "finished");
        }
        State::Failed { fault, .. } => {
            log_event!(info, context, code = fault.code.as_str(), reason = fault.message.as_str(), "failed");
        }
        State::InDoubt { fault, .. } => {
            log_event!(
                warn,
                context,
                code = fault.code.as_str(),
                reason = fault.message.as_str(),
                "in doubt: record the charge with callsheet resolve"
            );
        }
        state if state.is_replaced() => {
            log_event!(info, context, "not sent: another version of its row is wanted");
        }
        State::Canceled { fault: Some(fault), .. } => {
            log_event!(
                warn,
                context,
                code = fault.code.as_str(),
                "canceled at the service by another client"
            );
        }
        State::Canceled { .. } => log_event!(info, context, "canceled before it was sent"),
        State::Expired => log_event!(info, context, "expired before it was sent"),
        _ => {}
    }
}

/// An event that has no place: a late answer for an older attempt, for one.
pub(super) fn dropped(context: LogContext<'_>, illegal: &IllegalEvent) {
    log_event!(debug, context, %illegal, "event dropped");
}

/// The service asks to wait with a request of a job (`Retry-After`), which is repeated after `wait`.
pub(super) fn asked_to_wait(context: LogContext<'_>, fault: &Fault, wait: Millis, warns: bool) {
    let seconds = wait.0.div_ceil(1000);
    if warns {
        log_event!(warn, context, %fault, "the service asks to wait; repeating the request in {seconds} s");
    } else {
        log_event!(info, context, %fault, "the service asks to wait; repeating the request in {seconds} s");
    }
}

/// One try at downloading a job's outputs came to nothing; the next one follows after `retry`.
pub(super) fn download_failed(context: LogContext<'_>, fault: &Fault, retry: Millis) {
    let seconds = retry.0.div_ceil(1000);
    log_event!(info, context, %fault, "download failed; retrying in {seconds} s");
}

/// A link was refused that may have expired while it waited for a free download.
pub(super) fn link_expired(context: LogContext<'_>, fault: &Fault) {
    log_event!(debug, context, %fault, "a link is refused that waited for a free download; reading the task for a fresh one");
}

/// The host of a job's outputs has not been available for a while; it is waited for.
pub(super) fn result_host_unavailable(context: LogContext<'_>, fault: &Fault) {
    log_event!(warn, context, %fault, "the result host is not available; the download is tried again for up to a day");
}

/// The inputs of a job could not be looked for, or not be put into the object store; it is tried again.
pub(super) fn inputs_not_found(spec: &JobSpec, fault: &Fault, is_first: bool) {
    let job = spec.label.as_str();
    if is_first && fault.code == STORE_FAULT {
        tracing::warn!(job, %fault, "its inputs are not there yet; trying again");
    } else {
        tracing::info!(job, %fault, "its inputs are not there yet; trying again");
    }
}

/// The inputs of a job could not be had a few times: it waits in the queue, and its slot is free for others.
pub(super) fn inputs_unavailable(spec: &JobSpec, fault: &Fault, is_new: bool) {
    let job = spec.label.as_str();
    if is_new {
        tracing::warn!(job, %fault, "its inputs cannot be had; it waits in the queue and tries again for up to a day");
    } else {
        tracing::info!(job, %fault, "its inputs cannot be had; trying again");
    }
}

/// Rows refer to a batch whose files somebody moved away.
pub(super) fn inputs_moved_away(why: &str) {
    tracing::warn!("rows that refer to it wait: {why}; then: callsheet resume");
}

/// The object store takes files again.
pub(super) fn input_store_answers() {
    tracing::info!("the object store takes files again");
}

/// The last try at downloading a job's outputs came to nothing, or the disk took nothing.
pub(super) fn download_given_up(context: LogContext<'_>, fault: &Fault) {
    log_event!(warn, context, %fault, "download failed");
}

/// The outputs of a job are on disk and not in the object store; it is asked again after `retry`.
pub(super) fn not_stored(context: LogContext<'_>, fault: &Fault, retry: Millis, was_down: bool) {
    let seconds = retry.0.div_ceil(1000);
    if was_down {
        log_event!(info, context, %fault, "outputs not stored; retrying in {seconds} s");
    } else {
        log_event!(warn, context, %fault, "outputs not stored; retrying in {seconds} s");
        queue_parked_by_store();
    }
}

/// Nothing is sent until the object store of outputs takes them.
pub(super) fn queue_parked_by_store() {
    tracing::warn!(reason = Parked::Store.name(), "queue parked: {}", Parked::Store.explain());
}

/// The object store refuses outputs of a job while it takes others; they are on disk, and it is asked again after `retry`.
pub(super) fn object_refused(context: LogContext<'_>, fault: &Fault, retry: Millis, is_first: bool) {
    let seconds = retry.0.div_ceil(1000);
    if is_first {
        log_event!(warn, context, %fault, "outputs not stored; this job alone waits, retrying in {seconds} s");
    } else {
        log_event!(info, context, %fault, "outputs not stored; retrying in {seconds} s");
    }
}

pub(super) fn download_yielded(context: LogContext<'_>, fault: &Fault) {
    log_event!(info, context, %fault, "slow download suspended for another");
}

/// The batch was paused by the program itself.
pub(super) fn paused(batch: &BatchRecord, reason: &str) {
    tracing::warn!(batch = %batch.name, reason, "paused: nothing more is sent until it is resumed");
}

/// Says so, when every job of a batch has ended.
pub(super) fn batch_done(batch: &BatchRecord) {
    if batch.is_done() {
        let (ended, totals) = (batch.ended, batch.totals);
        tracing::info!(
            batch = %batch.name,
            succeeded = ended.succeeded,
            failed = ended.failed,
            canceled = ended.canceled,
            expired = ended.expired,
            in_doubt = ended.in_doubt,
            spent = totals.spent.0,
            refunded = totals.refunded.0,
            "batch done"
        );
    }
}

/// A 401 or 402: nothing more that charges is sent.
pub(super) fn queue_parked(parked: Parked) {
    tracing::warn!(reason = parked.name(), "queue parked: {}", parked.explain());
}

/// A request was answered 401, which may be that answer's alone.
pub(super) fn key_suspected() {
    tracing::info!(
        "a request was answered 401; nothing is sent until the balance was asked for with the same key"
    );
}

/// The catalogs could not be renewed before something is sent.
pub(super) fn catalog_not_renewed(fault: &Fault) {
    tracing::info!(%fault, "failed to refresh the catalogs; using the known ones");
}

/// There are no catalogs to price by.
pub(super) fn no_catalog(fault: &Fault) {
    tracing::warn!(%fault, "no catalog to price by; nothing is sent until there is one");
}

/// A charge above the catalog's price holds for its cell from now on.
pub(super) fn charged_above(order: &Order, price: Credits, charged: Credits) {
    let (kind, model) = (order.kind.name(), order.model.as_deref());
    let (price, charged) = (price.0, charged.0);
    tracing::warn!(
        kind,
        model,
        price,
        charged,
        "charged above the catalog's price; later plans include the difference"
    );
}

/// What shut the queue is over.
pub(super) fn queue_unparked(parked: Parked) {
    tracing::info!(reason = parked.name(), "queue unparked");
}

/// So many outputs wait for result hosts that are not available that no more are bought.
pub(super) fn result_hosts_keep(waiting: usize) {
    let reason = Parked::ResultHost;
    tracing::warn!(reason = reason.name(), waiting, "queue parked: {}", reason.explain());
}

/// The output disk ran low, or has room again.
pub(super) fn disk(is_low: bool) {
    if is_low {
        tracing::warn!(reason = Parked::Disk.name(), "queue parked: {}", Parked::Disk.explain());
    } else {
        tracing::info!(reason = Parked::Disk.name(), "queue unparked");
    }
}

/// Nothing more is bought for a batch whose folder cannot be written to.
pub(super) fn folder_refused(batch: &BatchRecord, why: &str) {
    let reason = Parked::Disk.name();
    tracing::warn!(batch = %batch.name, reason, "batch parked: its output directory cannot be written to: {why}");
}

pub(super) fn folder_takes(batch: &BatchRecord) {
    tracing::info!(batch = %batch.name, reason = Parked::Disk.name(), "its output directory can be written to again");
}

/// Says what keeps a batch from sending.
pub(super) fn batch_parked(batch: &BatchRecord, parked: Parked) {
    if parked == Parked::Credits {
        // Said once, of the whole account.
        return;
    }
    let (reason, totals) = (parked.name(), batch.totals);
    let (spent, held, budget) = (totals.spent.0, totals.held.0, batch.budget().0);
    let what = match parked {
        Parked::NoPrice => "no price",
        Parked::Inputs | Parked::Pilot | Parked::PerhapsSent => "waits",
        _ => "budget reached",
    };
    tracing::info!(batch = %batch.name, reason, spent, held, budget, "{what}: {}", parked.explain_for(&batch.name));
}

/// Says that a batch sends again.
pub(super) fn batch_unparked(batch: &BatchRecord, parked: Parked) {
    tracing::info!(batch = %batch.name, reason = parked.name(), "unparked");
}

/// The service has not answered for a while.
pub(super) fn outage(faults: u32, fault: &Fault) {
    tracing::warn!(faults, %fault, "outage: the service does not answer");
}

/// It answers again.
pub(super) fn outage_over(faults: u32, lasted: Millis) {
    tracing::info!(faults, seconds = lasted.0 / 1000, "outage over: the service answers again");
}
