//! What must be true whatever happens, checked against the disk and against the service's own books.

use std::collections::{BTreeMap, BTreeSet};

use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{AttemptNo, BatchNo, JobId, JobKey};
use callsheet::domain::job::{Books, JobSpec, State};
use callsheet::domain::job_reference::JobInput;
use callsheet::domain::manifest::row::{Deadline, OnDeadline};
use callsheet::domain::review;
use callsheet::domain::task::Fault;
use callsheet::domain::time::Now;
use callsheet::engine::scheduler::{Scheduler, Settings};
use callsheet::store::{BatchRecord, Ended, JobRecord};

use super::disk::Disk;
use super::references::{length_of, sent_for, times_sent};
use super::service::{Request, Service, listed};
use super::transcript::job as named;

/// How old the catalogs may be that a job is let out by: renewed each five minutes.
const CATALOG_AGE: u64 = 301_000;

/// How old a balance may be when credits are set aside by it: asked for each minute, and a while on its way.
const BALANCE_AGE: u64 = 100_000;

/// The first thing that was not as it must be.
pub type Verdict = Result<(), String>;

/// What is remembered beside the books.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Attempts that an operator asked for.
    pub retries: BTreeMap<JobKey, u32>,
    /// Jobs that their operator dropped before they were sent.
    pub dropped: BTreeSet<JobKey>,
    /// The most attempts that the terms ever allowed.
    pub attempts: u32,
    /// Batches whose database was lost: what they cost is known again once their jobs were asked for again.
    pub lost: BTreeSet<BatchNo>,
    /// What was set aside for each attempt, and when.
    pub set_aside: BTreeMap<(JobKey, u32), (u64, u64)>,
    /// The addresses that each attempt of a job was sent with that takes outputs of others.
    pub addresses: BTreeMap<(JobKey, u32), Vec<String>>,
    /// Jobs of which a POST has left.
    pub sent: BTreeSet<JobKey>,
    /// Requests that took an output of another batch.
    pub across: u32,
    /// Requests that were as long as an output.
    pub by_length: u32,
}

/// What one process was told, and what it did.
#[derive(Debug, Default)]
pub struct Memory {
    /// 401, and no answer for the balance since.
    pub key_refused: bool,
    /// 402, and the balance as it was answered since.
    pub short: Option<Option<u64>>,
    /// The most that was held for what a 402 refused.
    pub need: u64,
    pub is_stopping: bool,
    /// POSTs that were on their way when the process began.
    pub resumed: BTreeSet<JobKey>,
    /// When each task was last read, or shown by its POST.
    pub read_at: BTreeMap<(JobKey, u32), u64>,
    /// Tasks that were seen to have ended, and whether they succeeded.
    pub ended: BTreeMap<(JobKey, u32), bool>,
    /// The prices that were heard of last, in hundredths, and when.
    pub prices: Option<(u64, u64)>,
}

fn check(is_so: bool, why: impl FnOnce() -> String) -> Verdict {
    if is_so { Ok(()) } else { Err(why()) }
}

impl Oracle {
    /// A POST arrived, and made a task if there are more than before.
    pub fn arrived(&self, request: &Request, tasks_before: usize, disk: &Disk, service: &Service) -> Verdict {
        let who = named(request.job, request.attempt);
        if service.tasks.len() > tasks_before {
            let same = service.tasks_of(request.job).filter(|task| task.attempt == request.attempt).count();
            check(same <= 1, || format!("{who} was bought twice: one attempt, {same} tasks"))?;
            let paid = service.tasks_of(request.job).filter(|task| task.net() > 0).count();
            let policy = disk.batches.get(&request.job.batch).and_then(|batch| batch.policy.on_deadline);
            let may_pay_twice = policy == Some(OnDeadline::Resubmit);
            check(paid <= 1 || may_pay_twice, || {
                format!("{who} was bought while {} of its tasks were paid for already", paid - 1)
            })?;
            let most = self.attempts + self.retries.get(&request.job).copied().unwrap_or_default();
            // Whoever cancels at the service has decided: another attempt is a person's to ask for.
            let canceled = service
                .tasks_of(request.job)
                .filter(|task| task.attempt < request.attempt && task.was_canceled());
            let (canceled, retries) =
                (canceled.count(), self.retries.get(&request.job).copied().unwrap_or_default());
            check(may_pay_twice || canceled <= retries as usize, || {
                format!(
                    "{who} was bought after its task was canceled at the service, {retries} retries were asked for"
                )
            })?;
            check(request.attempt <= most, || format!("{who} was bought, {most} attempts were asked for"))?;
        }
        let batch = disk.batches.get(&request.job.batch);
        let (ours, theirs) =
            (batch.map(|batch| batch.totals.committed().0), service.net_of(request.job.batch));
        let above = self.above(service, |job| job.batch == request.job.batch);
        let is_lost = self.lost.contains(&request.job.batch);
        check(is_lost || ours.map(|ours| ours + above) >= Some(theirs), || {
            format!("batch {} costs {theirs}, and {ours:?} is known of", request.job.batch.0)
        })
    }

    /// Something became durable.
    pub fn committed(&self, disk: &Disk, service: &Service, settings: &Settings) -> Verdict {
        let (mut held, mut spent) = (Credits::ZERO, Credits::ZERO);
        for batch in disk.batches.values() {
            let no = batch.no;
            let sums = disk.summed(|record| record.key.batch == no);
            check(sums == (batch.totals.held, batch.totals.spent), || {
                format!("batch {} says {:?}, its jobs say held and spent {sums:?}", no.0, batch.totals)
            })?;
            for (spec, record) in disk.jobs(no) {
                let (begun, known) = (batch.has_begun(record.row_at, spec.seq), disk.knows(record.key));
                check(begun == known, || {
                    format!("{} has begun: {begun}, is open or has ended: {known}", named(record.key, 1))
                })?;
            }
            (held, spent) = (held + batch.totals.held, spent + batch.totals.spent);
            let above =
                self.above(service, |job| job.batch == no) + self.doubted(disk, |job| job.batch == no);
            let known = self.known_above(disk, |job| job.batch == no);
            within("the batch's budget", batch.totals.committed(), Some(batch.budget()), above.max(known))?;
            let theirs = service.net_of(no);
            check(self.lost.contains(&no) || batch.totals.committed().0 + above >= theirs, || {
                format!("batch {} costs {theirs}, and {:?} is known of", no.0, batch.totals)
            })?;
        }
        check((held, spent) == (disk.total.held, disk.total.spent), || {
            format!("the total says {:?}, the batches held {held} and spent {spent}", disk.total)
        })?;
        let above = self.above(service, |_| true) + self.doubted(disk, |_| true);
        let above = above.max(self.known_above(disk, |_| true));
        within("the total budget", disk.total.committed(), settings.limits.total, above)?;
        for totals in disk.days.values() {
            within("a day's budget", totals.committed(), settings.limits.per_day, above)?;
        }
        self.groups_committed(disk, settings, above)
    }

    /// Groups hold and have spent what the jobs of their rows say, and no more than they may.
    fn groups_committed(&self, disk: &Disk, settings: &Settings, above: u64) -> Verdict {
        // A rebuilt state has them again with the first commit that changes its totals.
        let Some(stored) = &disk.groups else { return Ok(()) };
        let limits = &settings.group_limits;
        let counted = disk.counted(limits);
        for batch in disk.batches.values() {
            for (spec, _) in disk.jobs(batch.no) {
                for limit in stored.limits_of(limits, &spec.order.meta, batch.origin.as_ref()) {
                    let (found, sum) = (stored.get(&limit.group), counted.get(&limit.group));
                    check(
                        (found.total.held, found.total.spent) == (sum.total.held, sum.total.spent),
                        || format!("{:?} says {found:?}, its jobs {sum:?}", limit.group),
                    )?;
                    within("the budget of a group", found.total.committed(), limit.total, above)?;
                    if let Some((_, day)) = found.day {
                        within("the day's budget of a group", day.committed(), limit.per_day, above)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What is held for jobs without a key of which a lost database could not say that they had not been sent.
    fn doubted(&self, disk: &Disk, of: impl Fn(&JobKey) -> bool) -> u64 {
        let records = disk.begun().filter(|record| of(&record.key) && self.lost.contains(&record.key.batch));
        let in_doubt = records.filter(|record| matches!(record.job.state(), State::InDoubt { .. }));
        in_doubt.map(|record| record.job.books().held.0).sum()
    }

    /// What stands charged above what had been set aside for it.
    pub fn above(&self, service: &Service, of: impl Fn(&JobKey) -> bool) -> u64 {
        let tasks = service.tasks.iter().filter(|task| of(&task.job));
        tasks
            .map(|task| {
                let held =
                    self.set_aside.get(&(task.job, task.attempt)).map_or(task.net(), |(_, held)| *held);
                task.net().saturating_sub(held)
            })
            .sum()
    }

    /// What the program has noted as charged above what had been set aside for it. The service may have given it back
    /// already: that is heard of when the task is read.
    fn known_above(&self, disk: &Disk, of: impl Fn(&JobKey) -> bool) -> u64 {
        let records = disk.begun().filter(|record| of(&record.key));
        let attempts =
            records.flat_map(|record| record.job.attempts().iter().map(|attempt| (record.key, attempt)));
        attempts
            .map(|(key, attempt)| {
                let charged = attempt.books().charged.0;
                let held = self.set_aside.get(&(key, attempt.no().0)).map_or(charged, |(_, held)| *held);
                charged.saturating_sub(held)
            })
            .sum()
    }

    /// A creating POST is about to leave.
    pub fn posts(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        (spec, inputs): (&JobSpec, &[String]),
        (disk, scheduler, memory, now, at): (&Disk, &Scheduler, &Memory, Now, u64),
        (settings, disk_is_low): (&Settings, bool),
    ) -> Verdict {
        let who = named(key, attempt.0);
        let was_sent = !self.sent.insert(key);
        let record = disk.open.get(&key).filter(|record| record.job.attempt() == attempt);
        let state = record.map(|record| record.job.state());
        let Some(State::Submitting { may_have_run, fault, .. }) = state else {
            return Err(format!("{who} is sent, and what is durable of it is {state:?}"));
        };
        check(!memory.is_stopping, || format!("{who} is sent after a stop"))?;
        check(!memory.key_refused, || format!("{who} is sent under a refused key"))?;
        let held = record.map_or(0, |record| record.job.books().held.0);
        let is_covered = memory.short.is_none_or(|balance| balance.is_some_and(|balance| balance >= held));
        let is_covered = is_covered || spec.order.allowance().is_some();
        // Its key returns its task free of charge, or it is answered 402 itself.
        let may_have_run = *may_have_run || memory.resumed.contains(&key);
        let asks_for_task = may_have_run && !fault.as_ref().is_some_and(Fault::is_want_of_credits);
        check(is_covered || asks_for_task, || {
            format!("{who} is sent after a 402, and neither the balance nor an allowance covers it")
        })?;
        // What surely made no task is let out anew each time.
        let made_none = !may_have_run;
        let by_length = times_sent(&spec.order, inputs).zip(spec.order.cheapest);
        let price = by_length.map(|(times, least)| Credits(least.0 * times)).or(spec.order.price);
        if let Some(price) = price.filter(|_| made_none && settings.rules.is_some()) {
            let Some((percent, heard)) = memory.prices else {
                return Err(format!("{who} is sent, and no prices are known"));
            };
            let held = record.map(|record| record.job.books().held.0).unwrap_or_default();
            let price = listed(price.0, percent);
            check(held >= price, || format!("{who} is held at {held}, and costs {price}"))?;
            check(at - heard <= CATALOG_AGE, || {
                format!("{who} is sent by prices of {} s ago", (at - heard) / 1000)
            })?;
        }
        if !made_none {
            return check(spec.order.kind.is_keyed(), || format!("{who} has no key and is sent again"));
        }
        let Some(batch) = scheduler.batch(key.batch) else { return Err(format!("{who} has no batch")) };
        check(batch.paused.is_none(), || format!("{who} is sent while its batch is paused"))?;
        check(!batch.canceled, || format!("{who} is sent after its batch was canceled"))?;
        check(!self.dropped.contains(&key), || format!("{who} is sent after it was canceled"))?;
        let may_have_been_sent = record.is_some_and(|record| record.job.may_have_been_sent());
        check(may_have_been_sent || !disk.is_superseded(key), || {
            format!("{who} is sent, and another version of its row is wanted")
        })?;
        check(may_have_been_sent || was_sent || !disk.waits_for_pilot(key), || {
            format!("{who} is sent, and waits until its owner continues after a pilot")
        })?;
        let day = record.and_then(|record| record.job.day());
        check(day == Some(now.wall.utc_day()), || format!("{who} is sent and counts for {day:?}"))?;
        check(!disk_is_low, || format!("{who} is sent while the disk is low"))?;
        // What was taken in time, and found by a person to have cost nothing, is sent under its key when it is retried.
        let history = record.map(|record| record.job.history()).unwrap_or_default();
        let was_resolved = history.iter().any(|line| line.what.starts_with("no longer in doubt"));
        let is_first = attempt == AttemptNo::FIRST && !was_resolved;
        check(!is_first || !has_expired(batch, now), || format!("{who} is sent after its batch expired"))?;
        let slots = disk.open.values().filter(|record| record.job.holds_slot()).count();
        check(slots <= settings.limits.in_flight as usize, || {
            format!("{who} is sent, and {slots} are in flight of {}", settings.limits.in_flight)
        })
    }

    /// A creating POST of a job that takes outputs of others is about to leave: these are done, durably, and an attempt
    /// that is sent again is the same request.
    pub fn takes(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        spec: &JobSpec,
        addresses: &[String],
        (disk, memory): (&Disk, &Memory),
    ) -> Verdict {
        let who = named(key, attempt.0);
        check(addresses.len() == spec.order.inputs.len(), || {
            format!("{who} is sent with {addresses:?} for {} inputs", spec.order.inputs.len())
        })?;
        let record = disk.open.get(&key).filter(|record| record.job.attempt() == attempt);
        let may_have_run = record.is_none_or(|record| {
            matches!(record.job.state(), State::Submitting { may_have_run: true, .. })
                || record.job.may_have_been_sent()
        });
        let made_none = !may_have_run && !memory.resumed.contains(&key);
        for (input, address) in spec.order.inputs.iter().zip(addresses) {
            self.across += u32::from(input.batch.is_some());
            self.by_length += u32::from(input.field.is_length());
            let is_sent = |take: &&JobRecord| match input.field.is_length() {
                true => sent_for(length_of(take.key)).is_some_and(|(sent, _)| sent == *address),
                false => address_of(take.key, address),
            };
            let takes = takes_of(input, key.batch, disk);
            // Several takes may be as long.
            let chosen = takes.iter().copied().find(|take| is_sent(take) && may_give(input, take, disk));
            let sent = chosen.or_else(|| takes.iter().copied().find(is_sent));
            let Some(sent) = sent else { return Err(format!("{who} is sent with {address} for {input:?}")) };
            let state = sent.job.state();
            check(matches!(state, State::Succeeded { .. }), || {
                format!("{who} is sent, and what is durable of job {} is {state:?}", sent.key.seq.0)
            })?;
            // What may have made a task is sent as it was, whatever was decided since.
            check(!made_none || may_give(input, sent, disk), || {
                format!("{who} is sent with an output of job {}, which was decided against", sent.key.seq.0)
            })?;
        }
        // What the service surely has nothing of may have been queued again, and its inputs looked for anew.
        if made_none {
            self.addresses.remove(&(key, attempt.0));
        }
        let before = self.addresses.entry((key, attempt.0)).or_insert_with(|| addresses.to_vec());
        // A lost database knew of addresses that nothing else tells of.
        check(before == addresses || self.lost.contains(&key.batch), || {
            format!("{who} was sent with {before:?}, and is sent with {addresses:?}")
        })
    }

    /// A task is about to be read.
    pub fn reads(
        &self,
        key: JobKey,
        attempt: AttemptNo,
        disk: &Disk,
        memory: &Memory,
        at: u64,
        least: u64,
    ) -> Verdict {
        let who = named(key, attempt.0);
        check(!memory.is_stopping, || format!("{who} is read after a stop"))?;
        check(!memory.key_refused, || format!("{who} is read under a refused key"))?;
        let job = disk.open.get(&key).map(|record| &record.job);
        let wants_links =
            job.is_some_and(|job| job.attempt() == attempt && matches!(job.state(), State::Fetching { .. }));
        match memory.ended.get(&(key, attempt.0)) {
            Some(true) if wants_links => return Ok(()),
            Some(_) => return Err(format!("{who} is read after it was seen to have ended")),
            None => {}
        }
        let last = memory.read_at.get(&(key, attempt.0)).filter(|_| !wants_links);
        check(last.is_none_or(|last| at - last >= least), || {
            format!("{who} is read {} ms after it was seen last", at - last.copied().unwrap_or_default())
        })
    }

    /// All has ended: both books agree.
    pub fn at_rest(&self, disk: &Disk, service: &Service) -> Verdict {
        for batch in disk.batches.values() {
            let mut ended = Ended::default();
            for (spec, record) in disk.jobs(batch.no) {
                for input in &spec.order.inputs {
                    // What was downloaded again later may have failed.
                    let is_done = |take: &&JobRecord| {
                        service.tasks_of(take.key).any(super::service::Task::has_succeeded)
                    };
                    let is_done = takes_of(input, batch.no, disk).iter().any(is_done);
                    check(is_done || service.tasks_of(record.key).next().is_none(), || {
                        let who = named(record.key, 1);
                        format!(
                            "{who} was bought, and {} that it takes an output of never succeeded",
                            input.row
                        )
                    })?;
                }
                ended.count(record.job.state(), disk.is_superseded(record.key));
                self.agrees(&record, disk, service)?;
                let is_replaced = record.job.state().is_replaced();
                check(!is_replaced || disk.is_superseded(record.key), || {
                    format!("{} is wanted, and was dropped for another version", named(record.key, 1))
                })?;
            }
            check(ended == batch.ended && batch.is_done(), || {
                format!(
                    "batch {} says {:?} of {}, its jobs say {ended:?}",
                    batch.no.0, batch.ended, batch.rows
                )
            })?;
            check(batch.totals.held.is_zero(), || {
                format!("batch {} still holds {}", batch.no.0, batch.totals.held)
            })?;
        }
        Ok(())
    }

    /// The books of a job, ours and the service's.
    fn agrees(&self, record: &JobRecord, disk: &Disk, service: &Service) -> Verdict {
        let job = &record.job;
        let who = named(record.key, job.attempt().0);
        let Books { held, charged, .. } = job.all_books();
        let theirs: u64 = service.tasks_of(record.key).map(|task| task.net()).sum();
        check(held.is_zero(), || format!("{who} still holds {held}"))?;
        // A lost database knew of attempts that nothing else tells of: of those begun beside another that was overdue, of
        // those that were asked for after an outcome, and of those after one that failed, where the job is overdue by now.
        let policy = disk.batches.get(&record.key.batch).and_then(|batch| batch.policy.on_deadline);
        let is_forgotten = self.lost.contains(&record.key.batch)
            && (policy == Some(OnDeadline::Resubmit)
                || self.retries.contains_key(&record.key)
                || job.is_overdue());
        let is_known = charged.0 == theirs || is_forgotten && charged.0 < theirs;
        check(is_known, || {
            format!("{who}, {}: it costs {theirs}, the books say {charged}", job.state().name())
        })?;
        let succeeded = |task: &super::service::Task| task.attempt == job.attempt().0 && task.has_succeeded();
        check(
            !matches!(job.state(), State::Succeeded { .. }) || service.tasks_of(record.key).any(succeeded),
            || format!("{who} is said to have succeeded, and has not"),
        )?;
        Ok(())
    }
}

/// What must stay on the account does, whatever the client believes, but for what others spent after the last balance
/// that it could go by when it set the credits aside, and for what was charged above that.
pub fn keeps(
    service: &Service,
    settings: &Settings,
    before: u64,
    (set_aside_at, above): (u64, u64),
) -> Verdict {
    let keep = settings.limits.min_balance.map_or(0, |keep| keep.0);
    let others = service.spent_elsewhere_since(set_aside_at.saturating_sub(BALANCE_AGE));
    check(service.balance + others + above >= keep || service.balance >= before, || {
        format!("{} credits are left on the account, {keep} must stay", service.balance)
    })
}

/// A budget holds at the prices in force when credits were set aside: `above` is what was charged beyond, since prices
/// rose while the POST was on its way.
fn within(what: &str, committed: Credits, budget: Option<Credits>, above: u64) -> Verdict {
    check(budget.is_none_or(|budget| committed.0 <= budget.0 + above), || {
        format!("{what} is passed: {committed} of {}, {above} above holds", budget.unwrap_or_default())
    })
}

fn has_expired(batch: &BatchRecord, now: Now) -> bool {
    batch.policy.expires.is_some_and(|expires| match expires {
        Deadline::At(at) => at <= now.wall,
        Deadline::After(span) => batch.created.after(span) <= now.wall,
    })
}

/// What is durable of the jobs that an input of a job of `own` may be an output of: those that have ended, and those that have
/// succeeded while another of their tasks is watched.
fn takes_of<'a>(input: &JobInput, own: BatchNo, disk: &'a Disk) -> Vec<&'a JobRecord> {
    let (ids, batch): (BTreeSet<JobId>, BatchNo) = (input.jobs().collect(), input.batch_of(own));
    let ended = disk.outcomes.values().filter(|record| !disk.open.contains_key(&record.key));
    let done = disk.open.values().filter(|record| record.job.has_succeeded());
    let of_batch = ended.chain(done).filter(|record| record.key.batch == batch);
    of_batch.filter(|record| ids.contains(&record.id)).collect()
}

/// How the simulated service calls a result link of a job.
pub fn address(of: JobKey, at: u64) -> String {
    format!("https://r.example/{}/{}?at={at}", of.batch.0, of.seq.0)
}

fn address_of(key: JobKey, address: &str) -> bool {
    address.starts_with(&format!("https://r.example/{}/{}?", key.batch.0, key.seq.0))
}

/// Whether an output of a take may be sent: nothing was decided against it, and of several it is the chosen one.
fn may_give(input: &JobInput, take: &JobRecord, disk: &Disk) -> bool {
    use review::Verdict::{Approved, NotPicked, Picked, Rejected};
    let verdict = |record: &JobRecord| record.job.decision().map(|decision| decision.verdict);
    let all = takes_of(input, take.key.batch, disk);
    let with = |wanted| all.iter().filter(|record| verdict(record) == Some(wanted)).count();
    match verdict(take) {
        // A take that is named is meant whatever is picked.
        Some(NotPicked) if input.variation.is_some() => true,
        Some(Rejected | NotPicked) => false,
        Some(Picked) => true,
        Some(Approved) => !input.is_choice() || with(Approved) == 1 && with(Picked) == 0,
        _ => !input.is_choice() && !take.job.wants_review(),
    }
}

/// Whether an input can be sent.
pub fn has_parent(input: &JobInput, batch: BatchNo, disk: &Disk) -> bool {
    let takes = takes_of(input, batch, disk);
    takes.into_iter().any(|take| take.job.has_succeeded() && may_give(input, take, disk))
}

/// The jobs that a job of `own` takes outputs of.
pub fn parents(spec: &JobSpec, own: BatchNo, disk: &Disk) -> Vec<JobKey> {
    let of_input = |input: &JobInput| {
        let ids: BTreeSet<JobId> = input.jobs().collect();
        let jobs = disk.jobs(input.batch_of(own)).into_iter();
        jobs.filter(move |(spec, _)| ids.contains(&spec.id)).map(|(_, record)| record.key)
    };
    spec.order.inputs.iter().flat_map(of_input).collect()
}

/// Whether every row that a job takes an output of is known.
pub fn knows_parents(spec: &JobSpec, disk: &Disk) -> bool {
    spec.order.inputs.iter().all(|input| {
        input.batch.as_ref().is_none_or(|other| {
            let ids: BTreeSet<JobId> = input.jobs().collect();
            disk.batches.contains_key(&other.no)
                && disk.jobs(other.no).iter().any(|(spec, _)| ids.contains(&spec.id))
        })
    })
}

/// The open jobs of a batch in one line, for a history that does not come to rest.
pub fn what_is_open(disk: &Disk, no: BatchNo) -> String {
    let open = disk.open.values().filter(|record| record.key.batch == no);
    let open = open
        .map(|record| format!("{} {}", named(record.key, record.job.attempt().0), record.job.state().name()));
    open.collect::<Vec<_>>().join(", ")
}
