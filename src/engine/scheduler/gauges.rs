//! What a monitoring system is told of the whole.

use std::collections::BTreeMap;

use crate::domain::budget;
use crate::domain::gauge_values::Gauges;
use crate::domain::job_state::JobState;
use crate::domain::ledger::Totals;
use crate::domain::parked_reason::Parked;
use crate::domain::request::Kind;
use crate::domain::time::{Millis, Now};
use crate::engine::Engine;
use crate::engine::scheduler::parts::job_counts::BatchJobCounts;
use crate::engine::scheduler::{ActiveBatch, Scheduler};
use crate::store::KindCounts;

/// Jobs by state and kind, where it is known.
type Jobs = BTreeMap<(JobState, Option<Kind>), u64>;

impl Engine {
    /// Shows monitoring what the state holds before the first step: a scrape before it would read counters of 0.
    pub fn show_gauges(&self) {
        self.metrics.set_gauges(&self.scheduler.gauges(self.clock.now()));
    }
}

impl Scheduler {
    /// Everything at this moment, for a monitoring system.
    ///
    /// Looks at every batch, and at no job.
    pub fn gauges(&self, now: Now) -> Gauges {
        let counts = self.jobs.counts();
        let open = counts.by_state_and_kind().map(|(state, kind, n)| ((state, Some(kind)), u64::from(n)));
        let mut jobs: Jobs = open.collect();
        for active in self.batches.iter() {
            add_closed(&mut jobs, active, counts.of_batch(active.record().no));
        }
        for (kind, ended) in self.finished_jobs.by_kind() {
            add(&mut jobs, kind, KindCounts { rows: ended.all(), ended }, 0);
        }
        let (total, day) = (self.budgets.total(), self.budgets.day(now.wall.utc_day()));
        let may_be_charged = self.may_be_charged();
        let room = |totals: Totals, limit| budget::room(totals.with_may_be_charged(may_be_charged), limit);
        let limits = &self.settings.limits;
        Gauges {
            jobs,
            held: total.held,
            charged: self.budgets.charged(),
            refunded: total.refunded,
            room_total: room(total, limits.total),
            room_day: room(day, limits.per_day),
            room_min_balance: limits
                .min_balance
                .and_then(|least| Some(self.account.balance_left(now.tick).0?.saturating_sub(least))),
            in_flight_limit: self.present_limit(),
            queue_age: self.queue_age(now),
            unreviewed: self.batches.iter().map(|active| u64::from(active.record().unreviewed)).sum(),
            parked: self.parked_batches(),
        }
    }

    /// How long the oldest queue of jobs that were never sent has waited.
    pub(super) fn queue_age(&self, now: Now) -> Millis {
        let never_sent =
            |active: &ActiveBatch| self.jobs.counts().of_batch(active.record().no).never_sent > 0;
        let waiting = self.batches.iter().filter(|active| active.has_rows() || never_sent(active));
        let ages = waiting
            .map(|active| now.wall.since(active.record().waiting_since.unwrap_or(active.record().created)));
        ages.max().unwrap_or_default()
    }

    fn parked_batches(&self) -> BTreeMap<Parked, u64> {
        let mut parked = BTreeMap::new();
        let blocked = self.blocked_batches();
        for active in self.batches.iter().filter(|active| !active.record().has_ended()) {
            let has_queue = active.has_rows() || self.jobs.counts().has_queued(active.record().no);
            let paused = active.record().paused.map(|_| Parked::Paused);
            let kept_by =
                self.kept_by(active, &blocked).filter(|reason| has_queue || keeps_sent_jobs(*reason));
            if let Some(reason) = kept_by.or(paused.filter(|_| has_queue)) {
                *parked.entry(reason).or_default() += 1;
            }
        }
        parked
    }
}

/// Whether it also keeps jobs from going on that were sent: their tasks are not read, or their outputs not downloaded.
fn keeps_sent_jobs(reason: Parked) -> bool {
    matches!(reason, Parked::Key | Parked::Disk | Parked::Store | Parked::Scratch)
}

/// Adds the jobs of a batch that have not begun, and those that have ended.
fn add_closed(jobs: &mut Jobs, active: &ActiveBatch, open: BatchJobCounts) {
    let record = active.record();
    // What was accepted before kinds were counted.
    let (mut rest, mut rest_open) = (KindCounts { rows: record.rows, ended: record.ended }, 0);
    for (kind, open) in open.kinds {
        let Some(of_kind) = record.kinds.get(&kind) else {
            rest_open += open;
            continue;
        };
        add(jobs, Some(kind), *of_kind, open);
        rest = less(rest, *of_kind);
    }
    add(jobs, None, rest, rest_open);
}

fn add(jobs: &mut Jobs, kind: Option<Kind>, of_kind: KindCounts, open: u32) {
    let KindCounts { rows, ended } = of_kind;
    let not_begun = rows.saturating_sub(ended.all() + open);
    for (state, n) in ended.by_state(not_begun).into_iter().filter(|(_, n)| *n > 0) {
        *jobs.entry((state, kind)).or_default() += u64::from(n);
    }
}

fn less(all: KindCounts, some: KindCounts) -> KindCounts {
    KindCounts { rows: all.rows.saturating_sub(some.rows), ended: all.ended.minus(some.ended) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credits::Credits;
    use crate::domain::ids::{AttemptNo, BatchNo, JobKey, Seq, TaskId};
    use crate::domain::job::{Job, State};
    use crate::domain::time::{Tick, Timestamp};
    use crate::engine::scheduler::tests::{settings, spec};
    use crate::engine::scheduler::{BegunJob, NoBalance};
    use crate::store::{BatchRecord, Ended, JobRecord, Pause, Segment};

    const NOW: Now = Now { wall: Timestamp(60_000), tick: Tick(0) };

    /// Two videos and three images, one byte a row; the first image has ended well.
    fn batch() -> BatchRecord {
        let mut batch = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(10_000));
        for kind in [Kind::Video, Kind::Video, Kind::Image, Kind::Image, Kind::Image] {
            batch.count_accepted(kind);
            batch.rows += 1;
        }
        let (task, files) = (TaskId("t".into()), Vec::new());
        batch.count_ended((Seq(0), Kind::Image), &State::Succeeded { task, files: files.into() }, false);
        batch.segments.push(Segment::mixed(0, 3, 5));
        batch.waiting_since = Some(Timestamp(20_000));
        batch
    }

    fn take(scheduler: &mut Scheduler, seq: u32, kind: Kind, state: State) {
        let (key, spec) = (JobKey { batch: BatchNo(1), seq: Seq(seq) }, spec(seq, kind));
        let record = JobRecord { key, id: spec.id, row_at: 0, job: Job::at(AttemptNo::FIRST, state) };
        scheduler.resume_job(BegunJob::new(record, spec), NOW);
    }

    fn shown(overview: &Gauges) -> String {
        let kind = |kind: Option<Kind>| kind.map_or("?", Kind::name);
        let each = overview.jobs.iter().map(|((state, of), n)| format!("{n} {state} {}", kind(*of)));
        each.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn every_job_is_counted_once_wherever_it_lies() {
        let mut scheduler = Scheduler::new(settings(), Totals::default());
        scheduler.add_batch(batch());
        take(&mut scheduler, 0, Kind::Video, State::Running { task: TaskId("t".into()) });
        take(&mut scheduler, 1, Kind::Video, State::Queued);
        let overview = scheduler.gauges(NOW);
        assert_eq!(shown(&overview), "1 queued video, 2 queued image, 1 running video, 1 succeeded image");
        assert_eq!(overview.queue_age, Millis(40_000), "since its queue was last empty");
    }

    #[test]
    fn batches_from_before_kinds_were_counted_are_counted_too() {
        let mut scheduler = Scheduler::new(settings(), Totals::default());
        scheduler.add_batch(BatchRecord { kinds: BTreeMap::new(), ..batch() });
        take(&mut scheduler, 0, Kind::Video, State::Queued);
        assert_eq!(shown(&scheduler.gauges(NOW)), "3 queued ?, 1 queued video, 1 succeeded ?");
    }

    #[test]
    fn another_manifest_leaves_what_has_ended_counted() {
        let mut scheduler = Scheduler::new(settings(), Totals::default());
        scheduler.add_batch(batch());
        let mut more = BatchRecord { ended: Ended::default(), ..batch() };
        more.kinds.values_mut().for_each(|of_kind| of_kind.ended = Ended::default());
        more.count_accepted(Kind::Music);
        more.rows += 1;
        scheduler.add_batch(more);
        assert_eq!(
            shown(&scheduler.gauges(NOW)),
            "2 queued video, 2 queued image, 1 queued music, 1 succeeded image"
        );
    }

    #[test]
    fn what_keeps_jobs_that_were_sent_is_told_with_an_empty_queue() {
        let mut record = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(10_000));
        record.count_accepted(Kind::Video);
        record.rows = 1;
        let mut scheduler = Scheduler::new(settings(), Totals::default());
        scheduler.add_batch(BatchRecord { paused: Some(Pause::Owner), ..record });
        take(&mut scheduler, 0, Kind::Video, State::Running { task: TaskId("t".into()) });
        assert_eq!(scheduler.gauges(NOW).parked, BTreeMap::new(), "a pause keeps nothing that was sent");
        let refused = Err(NoBalance::Unauthorised);
        scheduler.account.balance_answered(refused, (Credits::ZERO, Credits::ZERO), Tick(0));
        assert_eq!(scheduler.gauges(NOW).parked, BTreeMap::from([(Parked::Key, 1)]));
        scheduler.disk.set_low(true);
        assert_eq!(scheduler.gauges(NOW).parked, BTreeMap::from([(Parked::Disk, 1)]));
    }

    #[test]
    fn room_and_reasons_are_those_in_force() {
        let mut settings = settings();
        settings.limits.total = Some(Credits(100));
        settings.limits.per_day = Some(Credits(10));
        let total =
            Totals { held: Credits(5), spent: Credits(40), refunded: Credits(8), ..Totals::default() };
        let mut scheduler = Scheduler::new(settings, total);
        scheduler.set_day(NOW.wall.utc_day(), Totals { spent: Credits(12), ..Totals::default() });
        scheduler.add_batch(BatchRecord { paused: Some(Pause::Owner), ..batch() });
        let overview = scheduler.gauges(NOW);
        assert_eq!(
            (overview.room_total, overview.room_day, overview.room_min_balance),
            (Some(Credits(55)), Some(Credits(0)), None)
        );
        scheduler.set_may_be_charged(BTreeMap::from([(BatchNo(2), Credits(30))]));
        let room = scheduler.gauges(NOW).room_total;
        assert_eq!(room, Some(Credits(25)), "what may have been charged counts against it");
        assert_eq!(
            (overview.charged, overview.refunded, overview.held),
            (Credits(48), Credits(8), Credits(5))
        );
        assert_eq!(overview.parked, BTreeMap::from([(Parked::Paused, 1)]));
    }
}
