//! The operator: manifests, and commands at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use callsheet::domain::admission::Limits;
use callsheet::domain::budget_group::GroupLimits;
use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{AttemptNo, BatchNo, Fingerprint, JobId, JobKey, Seq};
use callsheet::domain::job::{JobSpec, State};
use callsheet::domain::job_reference::JobInput;
use callsheet::domain::manifest::row::Deadline;
use callsheet::domain::review::{self, Decision, ReviewAction, Take};
use callsheet::domain::row_versions::VersionChange;
use callsheet::domain::time::Timestamp;
use callsheet::engine::scheduler::{Command, FoundJob, Settings};
use callsheet::store::BatchRecord;
use fastrand::Rng;

use super::oracle::{self, Verdict};
use super::plan::{Errand, Happening, Manifest};
use super::service::Task;
use super::world::{Event, World};

/// The first rows of a manifest, and those of it that they take outputs of.
fn pilot_rows(rows: &[Arc<JobSpec>], first: u32) -> BTreeSet<Seq> {
    let mut open: Vec<&Arc<JobSpec>> = rows.iter().take(first as usize).collect();
    let mut chosen = BTreeSet::new();
    while let Some(row) = open.pop() {
        if chosen.insert(row.seq) {
            let needed: BTreeSet<JobId> = row.order.inputs.iter().flat_map(JobInput::jobs).collect();
            open.extend(rows.iter().filter(|row| needed.contains(&row.id)));
        }
    }
    chosen
}

/// More than anything here costs.
const PLENTY: Credits = Credits(1_000_000);

impl World {
    /// A manifest comes in. Where no program runs, it waits for one.
    pub(super) fn take_manifest(&mut self, manifest: Manifest) -> Verdict {
        if self.process.as_ref().is_none_or(|process| process.memory.is_stopping) {
            self.at(self.t + 1_000, Event::Happens(Happening::Manifest(manifest)));
            return Ok(());
        }
        // It is refused until the rows are there that it names, and handed in again.
        if self.t < self.horizon && !manifest.rows.iter().all(|row| oracle::knows_parents(row, &self.disk)) {
            self.at(self.t + 60_000, Event::Happens(Happening::Manifest(manifest)));
            return Ok(());
        }
        let Manifest { batch: no, from, mut rows, policy, pilot } = manifest;
        if !rows.iter().all(|row| oracle::knows_parents(row, &self.disk)) {
            self.log.say(self.t, "program", format_args!("refuses rows of batch {} that name others", no.0));
            return Ok(());
        }
        let owner = self.disk.batches.get(&no).and_then(|batch| batch.origin.clone());
        if owner.is_some_and(|owner| !owner.covers(&from)) {
            self.log.say(self.t, "program", format_args!("refuses a batch {} from {from}", no.0));
            return Ok(());
        }
        let name = format!("batch-{}", no.0).parse().unwrap();
        let new = BatchRecord::new(no, name, self.wall());
        let before = self.disk.batches.get(&no).map_or(0, |batch| batch.rows);
        for (seq, row) in (before..).zip(&mut rows) {
            Arc::make_mut(row).seq = Seq(seq);
        }
        // What one commit lost is cut off the spool, so the next reading finds these rows new again.
        let first = pilot.map(|rows_first| pilot_rows(&rows, rows_first));
        let mut record = self.disk.spool(&new, &rows, first.as_ref(), self.wall());
        let budget = record.policy.budget.max(policy.budget);
        record.origin = record.origin.or(Some(from.clone()));
        record.policy = policy.clone();
        record.policy.budget = if budget == Some(PLENTY) { budget } else { policy.budget.and(budget) };
        self.log.say(self.t, "operator", format_args!("batch {}: {} more rows", no.0, rows.len()));
        self.execute(Command::AddBatch(Box::new(record)))?;
        self.step()?;
        if self.disk.batches.get(&no).map_or(0, |batch| batch.rows) == before {
            // The process died first: the file is still in the inbox.
            let again = Manifest { batch: no, from, rows, policy, pilot };
            self.at(self.t + 1_000, Event::Happens(Happening::Manifest(again)));
        }
        Ok(())
    }

    /// A manifest of a batch comes in again: some of its rows were edited, or are as they were before.
    pub(super) fn take_edited_manifest(&mut self, seed: u64) -> Verdict {
        if self.process.as_ref().is_none_or(|process| process.memory.is_stopping) {
            self.at(self.t + 1_000, Event::Happens(Happening::Edit(seed)));
            return Ok(());
        }
        if self.disk.batches.is_empty() {
            return Ok(());
        }
        let mut random = Rng::with_seed(seed);
        let numbers: Vec<BatchNo> = self.disk.batches.keys().copied().collect();
        let no = numbers[random.usize(0..numbers.len())];
        let before = self.disk.batches[&no].clone();
        let mut versions: BTreeMap<String, Vec<FoundJob>> = BTreeMap::new();
        let jobs = self.disk.jobs(no);
        // A row that others take outputs of is edited with these, which come in as other rows.
        let children =
            numbers.iter().flat_map(|no| self.disk.jobs(*no).into_iter().map(|found| (*no, found)));
        let parents: BTreeSet<JobKey> =
            children.flat_map(|(no, found)| oracle::parents(&found.0, no, &self.disk)).collect();
        let named: BTreeSet<String> = jobs
            .iter()
            .filter(|found| parents.contains(&found.1.key))
            .map(|found| found.0.label.clone())
            .collect();
        for found in jobs.into_iter().filter(|found| !named.contains(&found.0.label)) {
            versions.entry(found.0.label.clone()).or_default().push(found);
        }
        if versions.is_empty() {
            return Ok(());
        }
        let wanted = self.disk.row_versions(&before);
        let (mut rows, mut changes) = (Vec::new(), Vec::new());
        for _ in 0..random.u32(1..4) {
            let (label, of_row) = versions.iter().nth(random.usize(0..versions.len())).unwrap();
            let instead_of =
                of_row.iter().find(|found| !wanted.is_superseded(found.0.seq)).unwrap().0.clone();
            let older: Vec<&FoundJob> = of_row.iter().filter(|found| found.0.seq != instead_of.seq).collect();
            if !older.is_empty() && random.bool() {
                let (spec, record) = older[random.usize(0..older.len())];
                let row_at = Some(record.row_at);
                changes.push(VersionChange { wanted: spec.seq, instead_of: instead_of.seq, row_at });
            } else {
                let spec = self.edited_row(&instead_of, before.rows, rows.len(), &mut random);
                changes.push(VersionChange { wanted: spec.seq, instead_of: instead_of.seq, row_at: None });
                rows.push(spec);
            }
            let label = label.clone();
            versions.remove(&label);
            if versions.is_empty() {
                break;
            }
        }
        let mut record =
            if rows.is_empty() { before.clone() } else { self.disk.spool(&before, &rows, None, self.wall()) };
        self.disk.add_versions(&mut record, &changes);
        self.log.say(self.t, "operator", format_args!("edits rows of batch {}: {changes:?}", no.0));
        let versions_bytes = record.versions_bytes;
        self.execute(Command::AddBatch(Box::new(record)))?;
        self.step()?;
        if self.disk.batches[&no].versions_bytes < versions_bytes {
            // The process died first: the file is still in the inbox.
            self.at(self.t + 1_000, Event::Happens(Happening::Edit(seed)));
        }
        Ok(())
    }

    /// Another version of a row, with the next number that is free.
    fn edited_row(&mut self, of: &JobSpec, rows: u32, added: usize, random: &mut Rng) -> Arc<JobSpec> {
        self.edited += 1;
        let id = JobId((1 << 96 | u128::from(self.edited)).to_be_bytes());
        let (cost, _) = self.truths[&of.id];
        self.truths.insert(id, (cost, random.u32(0..25) == 0));
        let seq = Seq(rows + u32::try_from(added).unwrap());
        Arc::new(JobSpec { seq, id, fingerprint: Fingerprint(id.0), ..of.clone() })
    }

    pub(super) fn errand(&mut self, errand: Errand) -> Verdict {
        if self.process.is_none() || self.disk.batches.is_empty() {
            return Ok(());
        }
        let batches: Vec<BatchNo> = self.disk.batches.keys().copied().collect();
        let no = batches[self.random.usize(0..batches.len())];
        let jobs = self.disk.jobs(no);
        let one = jobs[self.random.usize(0..jobs.len())].clone();
        self.log.say(self.t, "operator", format_args!("{errand:?}, batch {} or job {}", no.0, one.0.seq.0));
        match errand {
            Errand::Pause => self.execute(Command::Pause(no)),
            Errand::Resume => self.execute(Command::Resume(no)),
            Errand::ResumeAll => batches.into_iter().try_for_each(|no| self.execute(Command::Resume(no))),
            Errand::Continue => self.execute(Command::Continue(no)),
            Errand::Announced => {
                self.execute(Command::MarkAnnounced(Box::new(self.disk.batches[&no].clone())))
            }
            Errand::Cancel => self.cancel(no, &jobs),
            Errand::CancelJob => {
                let (key, state) = (one.1.key, one.1.job.state().clone());
                self.execute(Command::CancelJob(Box::new(one)))?;
                if state == State::Queued {
                    self.marks.push((key, self.was_dropped(key)));
                }
                Ok(())
            }
            Errand::Retry => self.retry(jobs),
            Errand::RetryJob => self.retry(vec![one]),
            Errand::FetchAgain => {
                let ended = jobs.into_iter().filter(|found| found.1.job.state().is_final());
                self.execute(Command::FetchAgain(ended.collect()))
            }
            Errand::Decide => {
                let decidable: Vec<FoundJob> =
                    jobs.iter().filter(|found| self.is_done(found)).cloned().collect();
                let action = ReviewAction::ALL[self.random.usize(0..4)];
                let Some(on) = decidable.get(self.random.usize(0..decidable.len().max(1))) else {
                    return Ok(());
                };
                self.decide(on, action)
            }
            Errand::Resolve => self.resolve_what_is_known(),
            Errand::RaiseBudget => self.raise_budget(no, None),
            Errand::Reload => {
                let settings = self.other_settings();
                self.reload(settings)
            }
        }
    }

    fn cancel(&mut self, no: BatchNo, jobs: &[FoundJob]) -> Verdict {
        self.execute(Command::Cancel(no))?;
        for (_, record) in jobs.iter().filter(|found| *found.1.job.state() == State::Queued) {
            self.marks.push((record.key, self.was_dropped(record.key)));
        }
        Ok(())
    }

    /// Whether a job that was queued on disk is not under way by now. One that may have been sent by a state that is gone
    /// is not dropped, whether it has begun or not.
    fn was_dropped(&self, key: JobKey) -> bool {
        let Some(process) = &self.process else { return false };
        let may_have_been_sent =
            process.scheduler.batch(key.batch).is_some_and(|batch| batch.may_have_been_sent(key.seq));
        let is_waiting = may_have_been_sent
            && !self.disk.open.contains_key(&key)
            && !self.disk.outcomes.contains_key(&key);
        !is_waiting && !process.scheduler.open_jobs().any(|open| open.key == key)
    }

    fn retry(&mut self, found: Vec<FoundJob>) -> Verdict {
        let is_retried = |found: &FoundJob| {
            matches!(found.1.job.state(), State::Failed { .. } | State::Canceled { .. } | State::Expired)
                && !self.disk.is_superseded(found.1.key)
        };
        let found: Vec<FoundJob> = found.into_iter().filter(is_retried).collect();
        for (_, record) in &found {
            *self.oracle.retries.entry(record.key).or_default() += 1;
            self.oracle.dropped.remove(&record.key);
            self.marks.push((record.key, false));
        }
        self.execute(Command::Retry(found))
    }

    /// The same manifest again, with a higher budget.
    fn raise_budget(&mut self, no: BatchNo, to: Option<Credits>) -> Verdict {
        let mut record = self.disk.batches[&no].clone();
        let more = Credits(self.random.u64(1..200));
        record.policy.budget = to.or(Some(record.budget() + more));
        // Nothing of it is new: `ingest` takes the batch as it is in the state.
        self.execute(Command::AddBatch(Box::new(record)))
    }

    fn other_settings(&mut self) -> Settings {
        let mut settings = self.settings.clone();
        settings.limits.in_flight = self.random.u32(1..20);
        settings.downloads = self.random.usize(1..5);
        let more = Credits(self.random.u64(1..200));
        settings.limits.total = settings.limits.total.map(|total| total + more);
        settings.limits.per_day = settings.limits.per_day.map(|day| day + more);
        for limits in settings.group_limits.values_mut().flat_map(|key| [&mut key.total, &mut key.per_day]) {
            let own = limits.values.values_mut();
            own.chain(&mut limits.default)
                .chain(&mut limits.missing)
                .for_each(|limit| *limit = *limit + more);
        }
        settings.watch_overdue_for = self.span(settings.watch_overdue_for.0);
        settings
    }

    fn reload(&mut self, settings: Settings) -> Verdict {
        self.settings = settings.clone();
        self.execute(Command::Reload(Box::new(settings)))
    }

    /// Doubts are ended by what a person finds in the service's books, once nothing there can change by itself. A task
    /// that somebody cancels afterwards gives its charge back: then what was recorded is corrected.
    fn resolve_what_is_known(&mut self) -> Verdict {
        for (found, attempt, charged) in self.findings() {
            self.log.say(
                self.t,
                "operator",
                format_args!("finds that job {} cost {charged}", found.1.key.seq.0),
            );
            self.execute(Command::Resolve(Box::new(found), Some(attempt), charged))?;
        }
        Ok(())
    }

    /// The attempts whose charge is a person's to record, with what they cost by the service's books; one of each job.
    pub(super) fn findings(&self) -> Vec<(FoundJob, AttemptNo, Credits)> {
        let is_open = |key: &JobKey| self.disk.open.contains_key(key) || self.in_air.contains_key(key);
        let mut findings = Vec::new();
        for record in self.disk.outcomes.values().filter(|record| !is_open(&record.key)) {
            let (key, job) = (record.key, &record.job);
            let tasks = || self.service.tasks_of(key);
            let is_known = |task: &&Task| job.attempts().iter().any(|of| of.no().0 == task.attempt);
            let cost = |no: AttemptNo| -> u64 {
                // What a lost database knew of other attempts is found with the present one.
                let is_its = |task: &&Task| task.attempt == no.0 || no == job.attempt() && !is_known(task);
                tasks().filter(is_its).map(Task::net).sum()
            };
            let finding = job.attempts().iter().find(|of| of.is_resolvable(Credits(cost(of.no()))));
            if let Some(attempt) = finding.map(|of| of.no()).filter(|_| tasks().all(Task::is_settled)) {
                let found = self.disk.jobs(key.batch).into_iter().find(|found| found.1.key == key);
                findings.extend(found.map(|found| (found, attempt, Credits(cost(attempt)))));
            }
        }
        findings
    }

    /// What may have been sent of a batch that has expired, or that was given up since its jobs wait for others in vain, and
    /// what its own deadline has passed for, is neither dropped nor sent: a person looks it up.
    fn resolve_what_has_expired(&mut self) -> Verdict {
        let now = self.wall();
        let is_given_up =
            |batch: &BatchRecord| self.input_visits.get(&batch.no).is_some_and(|visits| *visits > 3);
        let has_expired =
            |batch: &BatchRecord| is_given_up(batch) || batch.expires().is_some_and(|at| at <= now);
        let batches: Vec<(BatchRecord, bool)> =
            self.disk.batches.values().map(|batch| (batch.clone(), has_expired(batch))).collect();
        for (batch, has_expired) in batches {
            for found in self.disk.jobs(batch.no) {
                let is_late = matches!(found.0.order.deadline, Some(Deadline::At(at)) if at <= now);
                if !has_expired && !is_late {
                    continue;
                }
                let (key, job) = (found.1.key, &found.1.job);
                let may_have_been_sent = job.may_have_been_sent() || batch.may_have_been_sent(key.seq);
                let is_left = matches!(job.state(), State::Queued) && job.first_sent().is_none();
                let is_settled = self.service.tasks_of(key).all(Task::is_settled);
                if is_left && may_have_been_sent && is_settled && !self.in_air.contains_key(&key) {
                    let charged = Credits(self.service.tasks_of(key).map(Task::net).sum());
                    self.log.say(
                        self.t,
                        "operator",
                        format_args!("finds that job {} cost {charged}", key.seq.0),
                    );
                    self.execute(Command::Resolve(Box::new(found), None, charged))?;
                }
            }
        }
        Ok(())
    }

    /// Whether a job has outputs that can be decided about.
    fn is_done(&self, (_, record): &FoundJob) -> bool {
        record.job.has_succeeded() && !self.disk.open.contains_key(&record.key)
    }

    /// A person says something about the outputs of a job, if it has some.
    pub(super) fn decide_about(&mut self, job: JobKey, action: ReviewAction) -> Verdict {
        if self.process.is_none() {
            return Ok(());
        }
        let found = self.disk.jobs(job.batch).into_iter().find(|found| found.1.key == job);
        found.filter(|found| self.is_done(found)).map_or(Ok(()), |found| self.decide(&found, action))
    }

    /// A person says something about the outputs of a job, as `engine::review` makes it of a request.
    fn decide(&mut self, (on, record): &FoundJob, action: ReviewAction) -> Verdict {
        let of_row = |found: &FoundJob| found.0.fingerprint == on.fingerprint && found.1.job.has_succeeded();
        let jobs: Vec<FoundJob> = self.disk.jobs(record.key.batch).into_iter().filter(of_row).collect();
        let take = |(spec, record): &FoundJob| Take {
            job: spec.seq,
            variation: spec.variation,
            verdict: record.job.decision().map(|decision| decision.verdict),
        };
        let takes: Vec<Take> = jobs.iter().map(take).collect();
        let changes = review::verdicts(action, on.seq, &takes);
        self.log.say(self.t, "operator", format_args!("{action:?} of job {}: {changes:?}", on.seq.0));
        let decided = changes.into_iter().map(|(seq, verdict)| {
            let found = jobs.iter().find(|found| found.0.seq == seq).unwrap().clone();
            let sha256 = found.1.job.outputs().iter().map(|file| file.sha256.clone()).collect();
            let (by, at) = ("operator".to_owned(), Timestamp(0));
            (found, Decision { verdict, by, at, note: None, sha256 })
        });
        let decided: Vec<_> = decided.collect();
        if decided.is_empty() { Ok(()) } else { self.execute(Command::Decide(decided)) }
    }

    /// Outputs that wait for a decision are approved, and of several takes that others wait for one is picked.
    fn see_to_decisions(&mut self) -> Verdict {
        let batches: Vec<BatchNo> = self.disk.batches.keys().copied().collect();
        for no in batches {
            let jobs = self.disk.jobs(no);
            let waiting = jobs.iter().filter(|found| *found.1.job.state() == State::Queued);
            let inputs: Vec<JobInput> = waiting.flat_map(|found| found.0.order.inputs.clone()).collect();
            let unchosen = inputs.iter().filter(|input| !oracle::has_parent(input, no, &self.disk));
            let takes = unchosen.filter_map(|input| {
                let ids: BTreeSet<JobId> = input.jobs().collect();
                let of_batch = self.disk.jobs(input.batch_of(no)).into_iter();
                let take =
                    of_batch.into_iter().find(|found| ids.contains(&found.0.id) && self.is_done(found))?;
                let action = if input.is_choice() { ReviewAction::Pick } else { ReviewAction::Approve };
                Some((take.1.key, action))
            });
            let undecided = jobs.iter().filter(|found| found.1.job.awaits_review() && self.is_done(found));
            let undecided = undecided.map(|found| (found.1.key, ReviewAction::Approve));
            let actions: BTreeMap<JobKey, ReviewAction> = undecided.chain(takes).collect();
            for (key, action) in actions {
                // As it stands after what was decided before.
                let found = self.disk.jobs(key.batch).into_iter().find(|found| found.1.key == key);
                found.into_iter().try_for_each(|found| self.decide(&found, action))?;
                self.step()?;
            }
        }
        Ok(())
    }

    /// Jobs wait for others that were not done: these are retried, and what the service refused of them is put right.
    /// What waits even then is canceled.
    fn see_to_inputs(&mut self) -> Verdict {
        let batches: Vec<BatchNo> = self.disk.batches.keys().copied().collect();
        for no in batches {
            let jobs = self.disk.jobs(no);
            let waiting = jobs.iter().filter(|found| *found.1.job.state() == State::Queued);
            let needed: BTreeSet<JobKey> =
                waiting.flat_map(|found| oracle::parents(&found.0, no, &self.disk)).collect();
            let is_undone = |found: &FoundJob| {
                let (key, job) = (found.1.key, &found.1.job);
                needed.contains(&key)
                    && !self.disk.open.contains_key(&key)
                    && job.is_over()
                    && !matches!(job.state(), State::Succeeded { .. })
            };
            let named: BTreeSet<BatchNo> = needed.iter().map(|key| key.batch).collect();
            let undone: Vec<FoundJob> =
                named.iter().flat_map(|no| self.disk.jobs(*no)).filter(is_undone).collect();
            if undone.is_empty() {
                continue;
            }
            let visits = self.input_visits.entry(no).or_default();
            *visits += 1;
            if *visits > 3 {
                self.log.say(self.t, "operator", format_args!("gives batch {} up", no.0));
                self.cancel(no, &jobs)?;
                continue;
            }
            for (spec, _) in &undone {
                self.truths.get_mut(&spec.id).unwrap().1 = false;
            }
            self.log.say(self.t, "operator", format_args!("retries what others wait for in batch {}", no.0));
            for of in named {
                let undone = undone.iter().filter(|found| found.1.key.batch == of).cloned().collect();
                self.retry(undone)?;
            }
        }
        Ok(())
    }

    /// Lifts whatever an operator can lift.
    pub(super) fn look_after(&mut self) -> Verdict {
        let Some(process) = &self.process else { return Ok(()) };
        let has_plenty = |batch: &BatchRecord| batch.policy.budget == Some(PLENTY);
        let is_told = self.lifted == Some(self.number) && self.disk.batches.values().all(has_plenty);
        let paused = process.scheduler.batches().filter(|batch| batch.paused.is_some());
        let paused: Vec<BatchNo> = paused.map(|batch| batch.no).collect();
        let pilots = process.scheduler.batches().filter(|batch| batch.pilot.is_some());
        let pilots: Vec<BatchNo> = pilots.map(|batch| batch.no).collect();
        let all: Vec<BatchNo> = self.disk.batches.keys().copied().collect();
        if !is_told {
            self.lifted = Some(self.number);
            self.log.say(self.t, "operator", format_args!("lifts every budget"));
            let limits = Limits { total: None, per_day: None, ..self.settings.limits.clone() };
            let group_limits = GroupLimits::new();
            self.reload(Settings { limits, group_limits, ..self.settings.clone() })?;
            all.into_iter().try_for_each(|no| self.raise_budget(no, Some(PLENTY)))?;
        }
        paused.into_iter().try_for_each(|no| self.execute(Command::Resume(no)))?;
        pilots.into_iter().try_for_each(|no| self.execute(Command::Continue(no)))?;
        self.see_to_decisions()?;
        self.see_to_inputs()?;
        self.resolve_what_has_expired()?;
        self.resolve_what_is_known()
    }
}
