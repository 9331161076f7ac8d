//! What the database knows of a batch, beside its jobs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::domain::batch_origin::Origin;
use crate::domain::batch_terms::BatchTerms;
use crate::domain::credit_hold::ABOVE_MAX;
use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::ids::{BatchName, BatchNo, Seq};
use crate::domain::job::{Books, Job, Order, State};
use crate::domain::ledger::Totals;
use crate::domain::manifest::row::Policy;
use crate::domain::pilot::Pilot;
use crate::domain::queue_class::QueueClass;
use crate::domain::request::Kind;
use crate::domain::time::Timestamp;
use crate::store::ended_counts::{Ended, KindCounts};

/// A part of a spool whose rows are still to begin, with its cursor. Rows of equal priority and class that
/// came in one manifest make one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Higher goes first.
    pub priority: i8,
    /// What its rows have in common: segments of one priority and class are one queue.
    #[serde(default, skip_serializing_if = "QueueClass::is_mixed")]
    pub class: QueueClass,
    /// Byte of the first row that has not begun.
    pub cursor: u64,
    /// Byte after the last row.
    pub end: u64,
    /// Its rows go before all others while their batch has a pilot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pilot: bool,
}

impl Segment {
    /// Rows from byte `cursor` to byte `end` that need not have anything in common.
    pub fn mixed(priority: i8, cursor: u64, end: u64) -> Segment {
        Segment { priority, class: QueueClass::MIXED, cursor, end, pilot: false }
    }

    /// Whether every row of it has begun.
    pub fn is_through(&self) -> bool {
        self.cursor >= self.end
    }
}

/// A batch, without its jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// Its number.
    pub no: BatchNo,
    /// Its name.
    pub name: BatchName,
    /// When its first manifest was accepted.
    pub created: Timestamp,
    /// Jobs accepted so far.
    pub rows: u32,
    /// Committed length of the `rows` file, in bytes.
    pub spool_bytes: u64,
    /// What has not begun yet.
    pub segments: Vec<Segment>,
    /// Sum of the prices of all accepted jobs.
    pub planned: Credits,
    /// The part of it that nobody will spend: see [`BatchRecord::unspent_of`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub replaced: Credits,
    /// What was canceled, has expired or was refused for its price is part of that, too. False for a batch that was begun
    /// before that was counted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counts_dropped: bool,
    /// The terms in force: those of the last manifest over those before it.
    pub policy: Policy,
    /// Its budget is that of the configuration, and nobody has set another. False for a batch that was begun before that
    /// was noted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_default_budget: bool,
    /// What its manifests, inbox and schedule said about the terms the last time, whatever commands said beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Policy>,
    /// What its inbox or schedule says of that, also where its manifest says something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_by_defaults: Option<Policy>,
    /// Where its first manifest came from; nothing of a batch that was begun before that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The layout of the configuration when it began; nothing of a batch that was begun before that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_layout: Option<String>,
    /// Credits.
    pub totals: Totals,
    /// Jobs that have ended.
    pub ended: Ended,
    /// Its owner canceled it: no job of it gets another attempt, until more is asked of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub canceled: bool,
    /// Rows before this byte that have not begun were canceled with it, or expired while it had a pilot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub canceled_below: u64,
    /// Jobs that were canceled one by one before their turn: their rows are passed over.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<Seq>,
    /// Jobs with a lower number that have not begun may have been sent by a state that is gone: this one was rebuilt or
    /// imported when it had so many.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rebuilt_rows: u32,
    /// How many bytes its rows had then; 0 where a version of the program noted it that did not note this.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rebuilt_bytes: u64,
    /// How many of these jobs have ended; fewer where a version of the program noted it that did not count them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rebuilt_ended: u32,
    /// What these may have been charged and nothing tells, in credits: it counts against the budgets of the batch, of the
    /// state, of the day and of groups until they are asked for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub may_be_charged: Credits,
    /// The part of it that jobs may have been charged that have ended as far as is known, and may have been queued again
    /// and sent since, in credits: it counts until these are queued again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub may_be_charged_ended: Credits,
    /// The most jobs of it that had been sent and had not ended at one time, rounded up. Nothing where it is not known: a
    /// state that is gone may have sent others, or it was begun before that was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at_once: Option<u32>,
    /// Whether its hooks got the event for its end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub announced: bool,
    /// When they got the last one; nothing if they never did, or before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced_at: Option<Timestamp>,
    /// When its last job ended; nothing while some have not, and of batches that ended before that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// Jobs whose outputs wait for a person's decision; versions of edited rows that are not wanted are none of them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unreviewed: u32,
    /// Decisions of persons so far: tells one picture of its review from a later one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub decided: u32,
    /// Whether its hooks got the event that only decisions are left.
    #[serde(default, skip_serializing_if = "is_default")]
    pub review_announced: bool,
    /// How often a job of it that had ended was taken up again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reopened: u32,
    /// Why nothing of it is sent, when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Only the rows of its pilot are sent, until a person continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Pilot>,
    /// Rows before this byte were accepted before its pilot, and those of them that were never sent wait for its end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pilot_from: u64,
    /// Whether its hooks got the event for the end of its pilot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pilot_announced: bool,
    /// Whether its hooks got the event that all remaining jobs wait for rows that need a person.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inputs_announced: bool,
    /// Prompts that were rejected one after the other.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rejections: u32,
    /// Jobs one after the other that are paid for and whose outputs could not be downloaded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed_downloads: u32,
    /// Jobs by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<Kind, KindCounts>,
    /// Rows of the last manifest that were refused; its receipt says why.
    #[serde(default, skip_serializing_if = "is_default")]
    pub refused_rows: u32,
    /// When rows came in that found none waiting before them: what has not begun waits since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// Other batches that manifests of it name rows of; nothing of a batch that was begun before that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refers_to: Option<BTreeSet<BatchName>>,
    /// Committed length of the `versions` file, in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub versions_bytes: u64,
    /// Byte of that file from which versions that a manifest went back to are still to be taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions_pending: Option<u64>,
}

/// What a batch waits for that its hooks are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedByHooks {
    /// Decisions of a person: all else has ended.
    Review,
    /// That a person continues after its pilot.
    Pilot,
    /// Rows that a person has to see to.
    Inputs,
}

/// Why a batch is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// Its owner said so.
    Owner,
    /// Too many prompts in a row were rejected, or their endpoint was not found: the next would probably be, too.
    Rejections,
    /// Too many outputs in a row were paid for and could not be downloaded: the next could probably not, either.
    Downloads,
    /// A charge differed from its plan, and its policy says to stop then.
    Drift,
    /// The state was rebuilt or imported: keys may have been used, or not, that it does not know of.
    Rebuilt,
}

impl Pause {
    /// Why the program paused it, as a part of a sentence; nothing where its owner did.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Pause::Owner => None,
            Pause::Rejections => Some("too many requests in a row were rejected (pause_after_rejections)"),
            Pause::Downloads => Some("too many paid outputs in a row could not be downloaded"),
            Pause::Drift => Some(
                "a job was charged otherwise than planned, or run with another model or options; the log names it",
            ),
            Pause::Rebuilt => Some("the state was rebuilt or imported"),
        }
    }
}

/// The least that is noted of how many of its jobs were sent at once.
const SENT_AT_ONCE_FIRST: u32 = 16;

impl BatchRecord {
    /// A batch that nothing was accepted into.
    pub fn new(no: BatchNo, name: BatchName, created: Timestamp) -> BatchRecord {
        BatchRecord {
            no,
            name,
            created,
            rows: 0,
            spool_bytes: 0,
            segments: Vec::new(),
            planned: Credits::ZERO,
            replaced: Credits::ZERO,
            counts_dropped: true,
            policy: Policy::default(),
            has_default_budget: false,
            said: None,
            said_by_defaults: None,
            origin: None,
            first_layout: None,
            totals: Totals::default(),
            ended: Ended::default(),
            canceled: false,
            canceled_below: 0,
            skipped: BTreeSet::new(),
            rebuilt_rows: 0,
            rebuilt_bytes: 0,
            rebuilt_ended: 0,
            may_be_charged: Credits::ZERO,
            may_be_charged_ended: Credits::ZERO,
            sent_at_once: Some(SENT_AT_ONCE_FIRST),
            announced: false,
            announced_at: None,
            finished: None,
            unreviewed: 0,
            decided: 0,
            review_announced: false,
            paused: None,
            pilot: None,
            pilot_from: 0,
            pilot_announced: false,
            inputs_announced: false,
            reopened: 0,
            rejections: 0,
            failed_downloads: 0,
            kinds: BTreeMap::new(),
            refused_rows: 0,
            waiting_since: None,
            refers_to: None,
            versions_bytes: 0,
            versions_pending: None,
        }
    }

    /// Its terms as they stand.
    pub fn standing(&self) -> BatchTerms {
        BatchTerms {
            policy: self.policy.clone(),
            has_default_budget: self.has_default_budget,
            said: self.said.clone(),
            said_by_defaults: self.said_by_defaults.clone(),
        }
    }

    /// The layout of its outputs: that of its policy, or else the one that it began with.
    pub fn layout(&self) -> Option<&str> {
        self.policy.layout.as_deref().or(self.first_layout.as_deref())
    }

    /// Whether a job that has ended like this leaves something of the plan that nobody will spend: it was canceled, replaced
    /// by another version of its row, expired or refused for its price before it was sent.
    pub fn may_leave_unspent(&self, state: &State) -> bool {
        match state {
            State::Canceled { task: None, .. } | State::Expired => self.counts_dropped || state.is_replaced(),
            State::Failed { task: None, fault } => self.counts_dropped && fault.code == ABOVE_MAX,
            _ => false,
        }
    }

    /// What a job that has ended leaves of the plan that nobody will spend, in credits.
    pub fn unspent_of(&self, job: &Job, order: &Order) -> Credits {
        if !self.may_leave_unspent(job.state()) {
            return Credits::ZERO;
        }
        let Books { held, charged, .. } = job.all_books();
        order.hold().unwrap_or_default().saturating_sub(charged).saturating_sub(held)
    }

    /// What its plans come to, in credits, without the jobs that were dropped free of charge.
    pub fn planned_credits(&self) -> Credits {
        self.planned.saturating_sub(self.replaced)
    }

    /// The most the batch may spend: its own budget, or what its plan showed (money rule 6).
    pub fn budget(&self) -> Credits {
        self.policy.budget.unwrap_or_else(|| self.planned_credits())
    }

    /// What counts against its budget: held, charged, and what a state that is gone may have been charged.
    pub fn committed(&self) -> Credits {
        self.totals.committed() + self.may_be_charged
    }

    /// Whether the job whose row begins at byte `at` has left the queue: its turn has come, or it was taken out of turn.
    /// Such a job is open or has ended; no other is.
    pub fn has_begun(&self, at: u64, seq: Seq) -> bool {
        let segment = self.segments.get(self.segments.partition_point(|segment| segment.end <= at));
        segment.is_some_and(|segment| at < segment.cursor) || self.skipped.contains(&seq)
    }

    /// Whether a job that has not begun may have been sent by a state that is gone.
    pub fn may_have_been_sent(&self, seq: Seq) -> bool {
        seq.0 < self.rebuilt_rows
    }

    /// The state was rebuilt or imported: what has not begun may have been sent.
    pub fn mark_rebuilt(&mut self) {
        (self.rebuilt_rows, self.rebuilt_bytes) = (self.rows, self.spool_bytes);
        (self.rebuilt_ended, self.sent_at_once) = (self.ended.all(), None);
    }

    /// Rows before this byte that have not begun may have been sent by a state that is gone. Where only their number is known
    /// it may be any.
    fn perhaps_sent_below(&self) -> u64 {
        match (self.rebuilt_rows, self.rebuilt_bytes) {
            (0, _) => 0,
            (_, 0) => u64::MAX,
            (_, bytes) => bytes,
        }
    }

    /// Whether rows have not begun that may have been sent by a state that is gone.
    pub fn has_rows_perhaps_sent(&self) -> bool {
        let below = self.perhaps_sent_below();
        self.segments.iter().any(|segment| !segment.is_through() && segment.cursor < below)
    }

    /// How many jobs have not begun, where `open` jobs have begun and not ended.
    pub fn not_begun(&self, open: u32) -> u32 {
        self.rows.saturating_sub(open).saturating_sub(self.ended.all())
    }

    /// How many of these may have been sent by a state that is gone, where that knew `open_before` of those that are open: at
    /// most so many where it is not known which jobs have ended.
    pub fn not_begun_perhaps_sent(&self, open: u32, open_before: u32) -> u32 {
        if !self.has_rows_perhaps_sent() {
            return 0;
        }
        let left = self.rebuilt_rows.saturating_sub(open_before).saturating_sub(self.rebuilt_ended);
        left.min(self.not_begun(open))
    }

    /// A job goes on. What it may have been charged counts from when a state that is gone may have sent it to when it is asked
    /// for, or resolved; what ended jobs may have been charged stays. True: it counts now and did not before, or the other way
    /// round.
    pub fn note_perhaps_sent(&mut self, before: &Job, now: &Job, order: &Order) -> bool {
        let hold = order.hold().unwrap_or_default();
        match (before.may_have_been_sent(), now.may_have_been_sent()) {
            (false, true) => self.may_be_charged = self.may_be_charged + hold,
            (true, false) => {
                let rest = self.may_be_charged.saturating_sub(hold.saturating_sub(before.books().held));
                self.may_be_charged = rest.max(self.may_be_charged_ended);
            }
            _ => return false,
        }
        true
    }

    /// So many jobs of it have been sent and have not ended. No number below the first one is noted, so that small batches cost
    /// no further write. Rounded up to a power of two: its backup is written anew with
    /// each change of the number, before the first request leaves that it counts. Of a batch without a number one begins with
    /// the first such job: none may be known since none was read.
    pub fn note_sent_at_once(&mut self, jobs: u32) {
        let is_more = match self.sent_at_once {
            Some(most) => jobs > most,
            None => jobs > 0 && self.rebuilt_rows == 0,
        };
        if is_more {
            let rounded = jobs.checked_next_power_of_two().unwrap_or(u32::MAX);
            self.sent_at_once = Some(rounded.max(SENT_AT_ONCE_FIRST));
        }
    }

    /// A job that had ended is taken up again, as it stood then: what it may have been charged counts until it is asked for.
    pub fn note_reopened(&mut self, ended: &Job, order: &Order) {
        self.reopened = self.reopened.saturating_add(1);
        if ended.may_have_been_sent() {
            let hold = order.hold().unwrap_or_default();
            self.may_be_charged_ended = self.may_be_charged_ended.saturating_sub(hold);
        }
    }

    /// When what is not sent yet expires.
    pub fn expires(&self) -> Option<Timestamp> {
        Some(self.policy.expires?.instant(self.created))
    }

    /// Whether what was never sent of it is not to be sent any more.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires().is_some_and(|at| at <= now)
    }

    /// Whether the rows of a segment may leave the queue: all, or those of the pilot and those that are dropped. What is left
    /// of an earlier pilot waits.
    pub fn may_send(&self, segment: &Segment) -> bool {
        let is_dropped = segment.end <= self.canceled_below && segment.cursor >= self.perhaps_sent_below();
        self.pilot.is_none() || is_dropped || (segment.pilot && segment.end > self.pilot_from)
    }

    /// Its pilot, while some of it has not ended.
    pub fn open_pilot(&self) -> Option<Pilot> {
        self.pilot.filter(|_| !self.has_ended())
    }

    /// Whether some rows have not begun that may be sent.
    pub fn has_rows_to_send(&self) -> bool {
        self.segments.iter().any(|segment| !segment.is_through() && self.may_send(segment))
    }

    /// Whether all rows of its pilot have begun, and others wait for a person to continue.
    pub fn waits_after_pilot(&self) -> bool {
        let has_rows = || self.segments.iter().any(|segment| !segment.is_through());
        self.pilot.is_some_and(|pilot| pilot.rest_jobs > 0 || has_rows()) && !self.has_rows_to_send()
    }

    /// Whether a job in the queue waits for the end of the pilot: it was never sent, and its row, at byte `row_at`, came
    /// before the pilot or is none of it. One of the rest that was canceled, and is wanted again, is such a job.
    pub fn waits_for_pilot(&self, row_at: u64, job: &Job) -> bool {
        let was_sent = job.first_sent().is_some() || !matches!(job.state(), State::Queued);
        self.pilot.is_some() && !was_sent && !self.is_of_pilot(row_at)
    }

    fn is_of_pilot(&self, row_at: u64) -> bool {
        let segment = self.segments.get(self.segments.partition_point(|segment| segment.end <= row_at));
        row_at >= self.pilot_from && segment.is_some_and(|segment| segment.pilot)
    }

    /// Where the rows of its pilot lie, while it has one: the byte of the first one and the byte after the last one of each
    /// part.
    pub fn pilot_rows(&self) -> Vec<(u64, u64)> {
        let (mut parts, mut from): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
        for segment in self.segments.iter().filter(|_| self.pilot.is_some()) {
            let is_of_pilot = segment.pilot && segment.end > self.pilot_from;
            match parts.last_mut().filter(|(_, end)| *end == from) {
                Some((_, end)) if is_of_pilot => *end = segment.end,
                _ if is_of_pilot => parts.push((from.max(self.pilot_from), segment.end)),
                _ => {}
            }
            from = segment.end;
        }
        parts
    }

    /// Joins neighbouring segments of which every row has begun, so that their number follows what waits.
    pub fn join_segments(&mut self) {
        self.segments.dedup_by(|later, earlier| {
            let join = later.is_through() && earlier.is_through() && later.pilot == earlier.pilot;
            if join {
                (earlier.cursor, earlier.end) = (later.cursor, later.end);
            }
            join
        });
    }

    /// Takes what has become of its pilot since a manifest was read from the record as it was then: `present` is that of the
    /// scheduler.
    pub fn take_pilot(&mut self, present: &BatchRecord) {
        // One that has ended while the manifest was read does not come back; another begins where that one's rows end.
        let is_old = present.pilot.is_none() && self.pilot_from == present.pilot_from;
        self.pilot = self.pilot.filter(|_| !is_old || present.rows == 0);
        // Where versions changed, others than before may wait.
        let is_edited = self.versions_bytes > present.versions_bytes;
        if let (Some(pilot), Some(before), false) = (&mut self.pilot, present.pilot, is_edited) {
            // What was dropped meanwhile does not wait.
            let credits = self.planned.saturating_sub(present.planned);
            *pilot = pilot.at_most(before, self.rows.saturating_sub(present.rows), credits);
        }
    }

    /// Takes the places reached from an earlier record of the batch. Where that has joined segments, or this one,
    /// every row of them has begun.
    pub fn take_cursors(&mut self, before: &BatchRecord) {
        for segment in &mut self.segments {
            let same = before.segments.binary_search_by_key(&segment.end, |known| known.end);
            match same.ok().and_then(|index| before.segments.get(index)) {
                Some(known) => segment.cursor = segment.cursor.max(known.cursor),
                None if segment.end <= before.spool_bytes => segment.cursor = segment.end,
                None => {}
            }
        }
    }

    /// Whether every accepted job has ended, and nothing that a manifest went back to is still to be taken up.
    pub fn has_ended(&self) -> bool {
        self.ended.all() >= self.rows && self.versions_pending.is_none()
    }

    /// Whether nothing of it is left, decisions of a person included.
    pub fn is_done(&self) -> bool {
        self.has_ended() && self.unreviewed == 0
    }

    /// Whether nothing of it is left but decisions of a person.
    pub fn waits_for_review(&self) -> bool {
        self.has_ended() && self.unreviewed > 0
    }

    /// Counts a job that awaits a decision now and did not before, or the other way round.
    pub fn count_review(&mut self, before: bool, now: bool) {
        match (before, now) {
            (false, true) => {
                self.unreviewed += 1;
                // Of its next end its owner is to be told.
                self.announced = false;
            }
            (true, false) => self.unreviewed = self.unreviewed.saturating_sub(1),
            _ => {}
        }
        self.review_announced &= self.unreviewed > 0;
    }

    /// Hooks have announced what it waited for when they were called; what it waits for since then is still to be announced.
    /// `waits_for_inputs`: all that is left of it waits for rows that need a person.
    pub fn mark_wait_announced(&mut self, told: AwaitedByHooks, waits_for_inputs: bool) {
        let is_told = |awaited, before| told == awaited || before;
        self.review_announced =
            self.waits_for_review() && is_told(AwaitedByHooks::Review, self.review_announced);
        self.pilot_announced =
            self.waits_after_pilot() && is_told(AwaitedByHooks::Pilot, self.pilot_announced);
        self.inputs_announced = waits_for_inputs && is_told(AwaitedByHooks::Inputs, self.inputs_announced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_batch_waits_for_since_its_hooks_were_called_is_still_to_be_announced() {
        let mut batch = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(0));
        batch.unreviewed = 1;
        assert!(batch.waits_for_review());
        batch.mark_wait_announced(AwaitedByHooks::Pilot, false);
        assert!(!batch.review_announced && !batch.pilot_announced, "somebody has continued meanwhile");
        batch.mark_wait_announced(AwaitedByHooks::Review, false);
        assert!(batch.review_announced);
        batch.mark_wait_announced(AwaitedByHooks::Inputs, true);
        assert!(batch.review_announced && batch.inputs_announced);
    }
}
