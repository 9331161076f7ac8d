//! What a monitoring system is told of the whole.

use std::collections::BTreeMap;

use crate::domain::admission::Parked;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchNo;
use crate::domain::job::State;
use crate::domain::ledger::Totals;
use crate::domain::request::Kind;
use crate::domain::time::{Millis, Now};
use crate::engine::conductor::{Conductor, Desk, OpenJob};
use crate::metrics::Overview;
use crate::store::{Ended, OfKind};

/// Jobs by the name of their state and by kind.
type Jobs = BTreeMap<(&'static str, Option<Kind>), u64>;

impl Conductor {
    /// Everything at this moment, for [`Metrics::set_overview`](crate::metrics::Metrics::set_overview).
    ///
    /// Looks at every batch and every open job: for once a second, not for every turn.
    pub fn gauges(&self, now: Now) -> Overview {
        let open = self.open_by_batch();
        let mut jobs = Jobs::new();
        for job in self.jobs.values() {
            *jobs.entry((job.record.job.state.name(), Some(job.spec.order.kind))).or_default() += 1;
        }
        for (no, desk) in &self.desks {
            add_closed(&mut jobs, desk, open.get(no).copied().unwrap_or_default());
        }
        let day = self.days.get(&now.wall.utc_day()).copied().unwrap_or_default();
        let limits = &self.settings.limits;
        let room = |limit: Option<Credits>, totals: Totals| {
            limit.map(|limit| limit.saturating_sub(totals.committed()))
        };
        Overview {
            jobs,
            held: self.total.held,
            charged: self.total.spent + self.total.refunded,
            refunded: self.total.refunded,
            room_total: room(limits.total, self.total),
            room_day: room(limits.per_day, day),
            room_keep: limits.keep.and_then(|keep| Some(self.balance?.saturating_sub(keep))),
            in_flight_limit: self.present_limit(),
            queue_age: self.queue_age(now, &open),
            parked: self.parked_batches(&open),
        }
    }

    fn open_by_batch(&self) -> BTreeMap<BatchNo, Open> {
        let mut open: BTreeMap<BatchNo, Open> = BTreeMap::new();
        for job in self.jobs.values() {
            open.entry(job.record.key.batch).or_default().add(job);
        }
        open
    }

    /// How long the oldest queue of jobs that were never sent has waited.
    fn queue_age(&self, now: Now, open: &BTreeMap<BatchNo, Open>) -> Millis {
        let waiting = self.desks.iter().filter(|(no, desk)| {
            desk.segment().is_some() || open.get(no).is_some_and(|open| open.never_sent > 0)
        });
        let ages =
            waiting.map(|(_, desk)| now.wall.since(desk.record.waiting_since.unwrap_or(desk.record.created)));
        ages.max().unwrap_or_default()
    }

    fn parked_batches(&self, open: &BTreeMap<BatchNo, Open>) -> BTreeMap<Parked, u64> {
        let mut parked = BTreeMap::new();
        let gate = self.gate.map(|gate| gate.parked);
        for (no, desk) in &self.desks {
            let has_queue = desk.segment().is_some() || open.get(no).is_some_and(|open| open.queued > 0);
            let paused = desk.record.paused.map(|_| Parked::Paused);
            if has_queue && let Some(reason) = gate.or(desk.parked).or(paused) {
                *parked.entry(reason).or_default() += 1;
            }
        }
        parked
    }
}

/// The open jobs of a batch in numbers.
#[derive(Debug, Default, Clone, Copy)]
struct Open {
    by_kind: [u32; Kind::ALL.len()],
    queued: u32,
    never_sent: u32,
}

impl Open {
    fn add(&mut self, job: &OpenJob) {
        self.by_kind[place(job.spec.order.kind)] += 1;
        if matches!(job.record.job.state, State::Queued) {
            self.queued += 1;
            self.never_sent += u32::from(job.record.job.first_sent.is_none());
        }
    }
}

fn place(kind: Kind) -> usize {
    Kind::ALL.iter().position(|other| *other == kind).unwrap_or_default()
}

/// Adds the jobs of a batch that have not begun, and those that have ended.
fn add_closed(jobs: &mut Jobs, desk: &Desk, open: Open) {
    let record = &desk.record;
    // What was accepted before kinds were counted.
    let (mut rest, mut rest_open) = (OfKind { rows: record.rows, ended: record.ended }, 0);
    for kind in Kind::ALL {
        let open = open.by_kind[place(kind)];
        let Some(of_kind) = record.kinds.get(&kind) else {
            rest_open += open;
            continue;
        };
        add(jobs, Some(kind), *of_kind, open);
        rest = less(rest, *of_kind);
    }
    add(jobs, None, rest, rest_open);
}

fn add(jobs: &mut Jobs, kind: Option<Kind>, of_kind: OfKind, open: u32) {
    let OfKind { rows, ended } = of_kind;
    let not_begun = rows.saturating_sub(ended.all() + open);
    let numbers = [
        ("queued", not_begun),
        ("succeeded", ended.succeeded),
        ("failed", ended.failed),
        ("canceled", ended.canceled),
        ("expired", ended.expired),
        ("in_doubt", ended.in_doubt),
    ];
    for (state, n) in numbers.into_iter().filter(|(_, n)| *n > 0) {
        *jobs.entry((state, kind)).or_default() += u64::from(n);
    }
}

fn less(all: OfKind, some: OfKind) -> OfKind {
    let ended = Ended {
        succeeded: all.ended.succeeded.saturating_sub(some.ended.succeeded),
        failed: all.ended.failed.saturating_sub(some.ended.failed),
        canceled: all.ended.canceled.saturating_sub(some.ended.canceled),
        expired: all.ended.expired.saturating_sub(some.ended.expired),
        in_doubt: all.ended.in_doubt.saturating_sub(some.ended.in_doubt),
    };
    OfKind { rows: all.rows.saturating_sub(some.rows), ended }
}
