//! The world: clocks, network, operator, and the loop of the engine, one event after the other.
//!
//! Time passes only here. Whatever is drawn is drawn from the seed, so that a history is the same each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use callsheet::api::shorts_studio;
use callsheet::api::{RawResponse, response};
use callsheet::domain::credits::Credits;
use callsheet::domain::idempotency_key::IdempotencyKey;
use callsheet::domain::ids::{AttemptNo, BatchNo, JobId, JobKey, TaskId};
use callsheet::domain::job::{JobSpec, OutputFile, PublishedOutputs, State};
use callsheet::domain::job_reference::FoundInput;
use callsheet::domain::quote::Catalog;
use callsheet::domain::request::Kind;
use callsheet::domain::review::ReviewAction;
use callsheet::domain::task::{Fault, PostAnswer, ReadAnswer, TaskReading, TaskStatus};
use callsheet::domain::time::{Millis, Now, Tick, Timestamp};
use callsheet::engine::scheduler::{
    Command, Effect, EndedVersion, FetchFault, FetchOrder, Input, InputFault, NoBalance, Scheduler, Settings,
    Standstill, ended_take,
};
use callsheet::store::{Change, JobRecord};
use fastrand::Rng;

use super::disk::Disk;
use super::oracle::{self, Memory, Oracle, Verdict};
use super::plan::{self, BEGINNING, Death, Happening, Plan, Recovery, Weather};
use super::references::{length_of, times_sent};
use super::service::{Request, Service};
use super::transcript::{Transcript, job as named};

/// How long the client waits for an answer.
const TIMEOUT: u64 = 60_000;
/// How long a stop waits for what is in the air.
const STOP_GRACE: u64 = 30_000;
/// Between two looks at the calendar. The real loop looks each second; what is right then is right later, too.
const CALENDAR: u64 = 20_000;
/// Between two visits of an operator who lifts what can be lifted, once nothing goes wrong any more.
const VISITS: u64 = 600_000;

/// The rules, or one of them broken on purpose, outside the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    Kept,
    /// A POST that was not answered is sent again under another key.
    FreshKeyAfterSilence,
    /// Silence is taken for proof that nothing was done: a 401 then gives the hold back.
    SilenceMeansNothing,
    /// Effects begin before the commit that announces them.
    EffectsFirst,
}

pub(super) enum Event {
    Happens(Happening),
    /// A creating POST reaches the service; its answer is heard then, by that process.
    Post(Request, Box<JobSpecOf>, Option<(u64, u32)>),
    /// A reading of a task does.
    Read(JobKey, AttemptNo, TaskId, Box<JobSpecOf>, (u64, u32)),
    Balance(u64, u32),
    /// The catalogs are asked for.
    Catalog(u64, u32),
    /// They arrive, with prices of so many hundredths.
    Prices(u32, u64, Arc<Catalog>),
    /// A process of this number hears something.
    Hear(u32, Input),
    Start,
    /// The operator looks after everything.
    Visit,
}

/// Whether the simulated service renders such a job inside the creating call.
fn renders_in_call(kind: Kind) -> bool {
    matches!(kind, Kind::Music | Kind::Speech | Kind::SoundEffect)
}

type JobSpecOf = std::sync::Arc<JobSpec>;

/// A running engine.
pub(super) struct Process {
    pub(super) scheduler: Scheduler,
    began: u64,
    inputs: Vec<Input>,
    wake: Option<u64>,
    pub(super) memory: Memory,
    /// Effects that have not been heard of yet.
    pending: u32,
    leaves_at: Option<u64>,
    looked: u64,
    down: u64,
}

/// See the module's documentation.
pub struct World {
    pub(super) rule: Rule,
    pub(super) random: Rng,
    pub(super) t: u64,
    offset: i64,
    queue: BTreeMap<(u64, u32), Event>,
    serial: u32,
    pub(super) service: Service,
    pub(super) disk: Disk,
    pub(super) process: Option<Process>,
    /// Which process it is, counted from 1.
    pub(super) number: u32,
    /// The process that was told of no limits any more.
    pub(super) lifted: Option<u32>,
    /// How often the operator saw to jobs of a batch that wait for others.
    pub(super) input_visits: BTreeMap<BatchNo, u32>,
    armed: Option<(Death, u64)>,
    disk_is_low: bool,
    pub(super) oracle: Oracle,
    pub(super) settings: Settings,
    weather: Weather,
    pub(super) truths: BTreeMap<JobId, (u64, bool)>,
    /// Versions of rows that were made by editing them.
    pub(super) edited: u32,
    pub(super) horizon: u64,
    end: u64,
    pub(super) is_over: bool,
    pub(super) in_air: BTreeMap<JobKey, u32>,
    /// Jobs to be counted as canceled, or not any more, once that is durable.
    pub(super) marks: Vec<(JobKey, bool)>,
    /// Turns since time passed last.
    stalls: u32,
    silences: BTreeMap<(JobKey, u32), u32>,
    /// What will lie in the output folder once a download is through.
    fetching: BTreeMap<(JobKey, u32), PublishedOutputs>,
    /// The catalogs by their prices.
    catalogs: BTreeMap<u64, Arc<Catalog>>,
    /// In some histories people decide about outputs in the moment in which others take them.
    second_thoughts: Option<Rng>,
    pub log: Transcript,
}

impl World {
    pub fn new(seed: u64, rule: Rule, is_told: bool) -> World {
        let Plan { settings, happenings, troubles, weather, horizon, patience, truths, .. } = plan::of(seed);
        let plan = plan::of(seed);
        let mut service = Service::new(seed, plan.balance);
        (service.troubles, service.clumsiness) = (troubles, plan.clumsiness);
        (service.slowness, service.is_generous, service.daily) =
            (plan.slowness, plan.is_generous, plan.daily);
        let policies = happenings.iter().filter_map(|(_, what)| match what {
            Happening::Manifest(manifest) => manifest.policy.attempts,
            _ => None,
        });
        let attempts = policies.max().unwrap_or_default().max(settings.attempts);
        let mut world = World {
            rule,
            random: Rng::with_seed(seed ^ 0x5DEE_CE66),
            t: 0,
            offset: 0,
            queue: BTreeMap::new(),
            serial: 0,
            service,
            disk: Disk::default(),
            process: None,
            number: 0,
            lifted: None,
            input_visits: BTreeMap::new(),
            armed: None,
            disk_is_low: false,
            oracle: Oracle { attempts, ..Oracle::default() },
            settings,
            weather,
            truths,
            edited: 0,
            horizon,
            end: horizon + patience,
            is_over: false,
            in_air: BTreeMap::new(),
            marks: Vec::new(),
            stalls: 0,
            silences: BTreeMap::new(),
            fetching: BTreeMap::new(),
            catalogs: BTreeMap::new(),
            second_thoughts: Some(Rng::with_seed(seed ^ 0x2ED_7408)).filter(|_| seed.is_multiple_of(2)),
            log: Transcript::new(is_told),
        };
        world.at(0, Event::Start);
        happenings.into_iter().for_each(|(at, what)| world.at(at, Event::Happens(what)));
        world.at(horizon, Event::Visit);
        world
    }

    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.queue.insert((at.max(self.t), self.serial), event);
    }

    pub(super) fn wall(&self) -> Timestamp {
        Timestamp(BEGINNING + self.t.cast_signed() + self.offset)
    }

    pub(super) fn now(&self) -> Now {
        let began = self.process.as_ref().map_or(self.t, |process| process.began);
        Now { wall: self.wall(), tick: Tick(self.t - began) }
    }

    /// The whole history.
    pub fn run(&mut self) -> Verdict {
        while !self.is_over {
            if self.t > self.end {
                let open: Vec<String> =
                    self.disk.batches.keys().map(|no| oracle::what_is_open(&self.disk, *no)).collect();
                let standstill = self.process.as_ref().map(|process| process.scheduler.standstill());
                return Err(format!("it does not come to rest ({standstill:?}): {open:?}"));
            }
            self.advance()?;
        }
        self.oracle.at_rest(&self.disk, &self.service)
    }

    fn advance(&mut self) -> Verdict {
        let event = self.queue.first_key_value().map(|((at, _), _)| *at);
        let wake = self.process.as_ref().and_then(|process| {
            let calendar = process.scheduler.watches_the_calendar().then_some(process.looked + CALENDAR);
            [process.wake, calendar, process.leaves_at].into_iter().flatten().min()
        });
        let Some(next) = [event, wake].into_iter().flatten().min() else {
            return Err("nothing will ever happen again".to_owned());
        };
        self.stalls = if next > self.t { 0 } else { self.stalls + 1 };
        if self.stalls > 1_000 {
            return Err("the loop spins: a thousand turns in a moment".to_owned());
        }
        self.t = self.t.max(next);
        self.service.pass(self.t);
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= self.t) {
            let event = entry.remove();
            self.happens(event)?;
        }
        self.step()
    }

    fn happens(&mut self, event: Event) -> Verdict {
        match event {
            Event::Happens(what) => self.disturb(what)?,
            Event::Start => self.start(),
            Event::Visit => self.visit()?,
            Event::Post(request, spec, reply) => return self.arrive(&request, &spec, reply),
            Event::Read(key, attempt, task, spec, (at, number)) => {
                let raw = self.service.read(&task.0, self.t);
                let answer = read_answer(&spec, &task, &raw);
                self.at(at, Event::Hear(number, Input::Read(key, attempt, answer)));
            }
            Event::Balance(at, number) => {
                let answer = self.service.credits(self.t).map(Credits);
                let answer = answer.ok_or(NoBalance::Unanswered);
                self.at(at, Event::Hear(number, Input::Balance(answer)));
            }
            Event::Catalog(at, number) => {
                let percent = self.service.price_percent;
                let catalog =
                    self.catalogs.entry(percent).or_insert_with(|| Arc::new(plan::catalog(percent)));
                let catalog = catalog.clone();
                self.at(at, Event::Prices(number, percent, catalog));
            }
            Event::Prices(number, percent, catalog) if number == self.number => {
                let at = self.t;
                if let Some(process) = &mut self.process {
                    process.memory.prices = Some((percent, at));
                }
                self.log.say(at, "service", format_args!("catalogs <- prices at {percent} %"));
                self.hear(Input::Catalog(Ok(catalog)));
            }
            Event::Prices(..) => {}
            Event::Hear(number, input) if number == self.number => self.hear(input),
            Event::Hear(..) => {}
        }
        Ok(())
    }

    fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        self.number += 1;
        let now = Now { wall: self.wall(), tick: Tick(0) };
        let scheduler = self.disk.take_up(self.settings.clone(), now);
        let submitting = |record: &&JobRecord| matches!(record.job.state(), State::Submitting { .. });
        let resumed: BTreeSet<JobKey> =
            self.disk.open.values().filter(submitting).map(|record| record.key).collect();
        let block = self.disk.account.out_of_credits;
        let (short, need) = (block.map(|_| None), block.map_or(0, |block| block.need.0));
        let inputs = if self.disk_is_low { vec![Input::DiskIsLow(true)] } else { Vec::new() };
        self.log.say(self.t, "program", format_args!("begins, {} jobs are open", self.disk.open.len()));
        self.process = Some(Process {
            scheduler,
            began: self.t,
            inputs,
            wake: Some(self.t),
            memory: Memory { resumed, short, need, ..Memory::default() },
            pending: 0,
            leaves_at: None,
            looked: self.t,
            down: 0,
        });
    }

    pub(super) fn die(&mut self, down: u64, how: &str) {
        if self.process.take().is_some() {
            self.number += 1;
            self.marks.clear();
            self.log.say(self.t, "program", format_args!("dies ({how}), down for {} s", down / 1000));
            self.at(self.t + down, Event::Start);
        }
    }

    fn disturb(&mut self, what: Happening) -> Verdict {
        match what {
            Happening::Manifest(manifest) => self.take_manifest(manifest)?,
            Happening::Edit(seed) => self.take_edited_manifest(seed)?,
            Happening::Errand(errand) => self.errand(errand)?,
            Happening::Decision(job, action) => self.decide_about(job, action)?,
            Happening::Death(Death::AtOnce, down) => self.die(down, "at once"),
            Happening::Death(death, down) => self.armed = Some((death, down)),
            Happening::Stop(down) => self.stop(down),
            Happening::Recovery(how, down) => self.recover(how, down),
            Happening::ClockStep(by) => {
                self.offset += by;
                self.log.say(
                    self.t,
                    "calendar",
                    format_args!("is set by {} s, to {}", by / 1000, self.wall()),
                );
            }
            Happening::DiskIsLow(is_low) => self.set_disk(is_low),
            Happening::Elsewhere(what) => {
                let came_of_it = self.service.elsewhere(what, self.t);
                self.log.say(self.t, "somebody", format_args!("{came_of_it}"));
            }
            Happening::TopUp(credits) => {
                self.service.balance += credits;
                self.log.say(self.t, "operator", format_args!("buys {credits} credits"));
            }
        }
        Ok(())
    }

    /// The process dies, and begins again with what can be recovered of its state.
    fn recover(&mut self, how: Recovery, down: u64) {
        if self.process.is_none() {
            return;
        }
        self.die(down, "its state is recovered");
        let now = self.wall();
        self.log.say(self.t, "operator", format_args!("recovers the state: {how:?}"));
        match how {
            Recovery::Rebuilt => self.disk.rebuild(true, now),
            Recovery::CarriedOver => self.disk.carry_over(now),
            Recovery::Lost => {
                self.disk.rebuild(false, now);
                self.oracle.lost.extend(self.disk.batches.keys().copied());
                // Who was dropped and had not begun is known by the database alone.
                self.oracle.dropped.retain(|key| self.disk.outcomes.contains_key(key));
            }
        }
    }

    fn set_disk(&mut self, is_low: bool) {
        if self.disk_is_low != is_low {
            self.disk_is_low = is_low;
            self.log.say(self.t, "disk", format_args!("{}", if is_low { "is low" } else { "has room" }));
            if let Some(process) = &mut self.process {
                process.inputs.push(Input::DiskIsLow(is_low));
            }
        }
    }

    fn stop(&mut self, down: u64) {
        let at = self.t;
        let Some(process) = self.process.as_mut().filter(|process| process.leaves_at.is_none()) else {
            return;
        };
        process.inputs.push(Input::Stop);
        (process.leaves_at, process.down) = (Some(at + STOP_GRACE), down);
        process.memory.is_stopping = true;
        self.log.say(at, "operator", format_args!("stops the program"));
    }

    /// Everything that goes wrong is over: what an operator can lift is lifted, again and again.
    fn visit(&mut self) -> Verdict {
        if self.t == self.horizon {
            self.armed = None;
            self.weather =
                Weather { unconnected: 0, lost: 0, unheard: 0, late: 0, twice: 0, bad_download: 0 };
            self.service.clumsiness = 0;
        }
        self.set_disk(false);
        self.service.balance += 100_000;
        self.look_after()?;
        self.at(self.t + VISITS, Event::Visit);
        Ok(())
    }

    /// The process takes note of what came in.
    fn hear(&mut self, input: Input) {
        let at = self.t;
        let mut input = input;
        if let Input::Versions(applied) = &mut input {
            // As the engine does it: what has ended since it was read is left out.
            let outcomes = &self.disk.outcomes;
            applied.queued.retain(|(_, record)| outcomes.get(&record.key).is_none_or(|of| of == record));
        }
        let Some(process) = &mut self.process else { return };
        process.pending = process.pending.saturating_sub(u32::from(!matches!(input, Input::DiskIsLow(_))));
        let memory = &mut process.memory;
        match &input {
            Input::Posted(key, attempt, answer) => {
                self.log.say(at, named(*key, attempt.0), format_args!("POST <- {answer:?}"));
                memory.resumed.remove(key);
                match answer {
                    PostAnswer::Task(reading) => note_reading(memory, *key, *attempt, reading, at),
                    PostAnswer::Unauthorised(_) => memory.key_refused = true,
                    PostAnswer::OutOfCredits(_) => {
                        memory.short = memory.short.or(Some(None));
                        let held = self.disk.open.get(key).map_or(0, |record| record.job.books().held.0);
                        memory.need = memory.need.max(held);
                    }
                    _ => {}
                }
            }
            Input::Read(key, attempt, answer) => {
                self.log.say(at, named(*key, attempt.0), format_args!("task <- {answer:?}"));
                match answer {
                    ReadAnswer::Task(reading) => note_reading(memory, *key, *attempt, reading, at),
                    ReadAnswer::Unauthorised(_) => memory.key_refused = true,
                    _ => {}
                }
            }
            Input::Fetched(key, attempt, outcome) => {
                if let (Some(published), Ok(_)) = (self.fetching.remove(&(*key, attempt.0)), outcome) {
                    self.disk.published.insert(*key, published);
                }
                let outcome = outcome.as_ref().map(Vec::len);
                self.log.say(at, named(*key, attempt.0), format_args!("download <- {outcome:?}"));
            }
            Input::Balance(balance) => {
                self.log.say(at, "service", format_args!("balance <- {balance:?}"));
                if let Ok(balance) = balance {
                    memory.short = memory.short.map(|_| Some(balance.0));
                    // What every slot may need is there again: nothing is short any more.
                    if balance.0 >= memory.need * u64::from(self.settings.limits.in_flight) {
                        (memory.short, memory.need) = (None, 0);
                    }
                    memory.key_refused = false;
                }
            }
            _ => {}
        }
        process.inputs.push(input);
    }

    /// One step of the engine: decide, commit, begin. A process may die in between.
    pub(super) fn step(&mut self) -> Verdict {
        let now = self.now();
        let Some(process) = &mut self.process else { return Ok(()) };
        self.disk.set_day(&mut process.scheduler, now.wall.utc_day());
        process.looked = self.t;
        let inputs = std::mem::take(&mut process.inputs);
        let step = process.scheduler.step(inputs, now).map_err(|error| error.to_string())?;
        process.wake = step.wake.map(|tick| process.began + tick.0);
        let death = if step.changes.is_empty() { None } else { self.armed.take() };
        let (changes, mut effects) = (step.changes, step.effects);
        if self.rule == Rule::EffectsFirst {
            for effect in std::mem::take(&mut effects) {
                self.begin(effect);
            }
        }
        if let Some((Death::BeforeCommit, down)) = death {
            self.die(down, "before a commit");
            return Ok(());
        }
        self.commit(&changes)?;
        if let Some((Death::Unacknowledged, down)) = death {
            self.die(down, "after a commit that nobody heard of");
            return Ok(());
        }
        for (index, effect) in effects.into_iter().enumerate() {
            if let Some((Death::AmongEffects(after), down)) = death
                && index >= after
            {
                self.die(down, "among its effects");
                return Ok(());
            }
            self.verdict_of(&effect)?;
            self.begin(effect);
        }
        if let Some((_, down)) = death {
            self.die(down, "after its effects");
        }
        self.rest()
    }

    fn commit(&mut self, changes: &[Change]) -> Verdict {
        if changes.is_empty() {
            return Ok(());
        }
        self.disk.commit(changes);
        for change in changes {
            if let Change::Open(record) | Change::End(record) = change {
                if matches!(record.job.state(), State::Queued) {
                    // What surely made no task may find its inputs elsewhere.
                    self.oracle.addresses.remove(&(record.key, record.job.attempt().0));
                }
                self.log.say(
                    self.t,
                    named(record.key, record.job.attempt().0),
                    format_args!("{} {:?}", record.job.state().name(), record.job.all_books()),
                );
                if let Some(process) = &mut self.process
                    && !matches!(record.job.state(), State::Submitting { .. })
                {
                    process.memory.resumed.remove(&record.key);
                }
            }
            if let Change::Open(record) = change
                && matches!(record.job.state(), State::Submitting { .. })
            {
                let of = (record.key, record.job.attempt().0);
                let held = record.job.books().held.0;
                if self.oracle.set_aside.get(&of).is_none_or(|(_, known)| *known != held) {
                    self.oracle.set_aside.insert(of, (self.t, held));
                }
            }
            if let Change::Batch(batch) = change {
                let who = format!("batch {}", batch.no.0);
                self.log.say(self.t, who, format_args!("{:?} paused {:?}", batch.totals, batch.paused));
            }
        }
        for (key, is_dropped) in self.marks.drain(..) {
            if is_dropped {
                self.oracle.dropped.insert(key);
            } else {
                self.oracle.dropped.remove(&key);
            }
        }
        self.oracle.committed(&self.disk, &self.service, &self.settings)
    }

    fn verdict_of(&mut self, effect: &Effect) -> Verdict {
        let Some(process) = &self.process else { return Ok(()) };
        let memory = &process.memory;
        match effect {
            Effect::Post { key, attempt, spec, inputs } => {
                self.oracle.takes(*key, *attempt, spec, inputs, (&self.disk, memory))?;
                let seen = (&self.disk, &process.scheduler, memory, self.now(), self.t);
                let settings = (&self.settings, self.disk_is_low);
                self.oracle.posts(*key, *attempt, (spec, inputs), seen, settings)
            }
            Effect::Read { key, attempt, .. } => {
                let least = self.settings.poll_min.0;
                self.oracle.reads(*key, *attempt, &self.disk, memory, self.t, least)
            }
            Effect::Fetch(order) if self.disk_is_low => {
                Err(format!("{} is downloaded to a disk that is low", named(order.key, order.attempt.0)))
            }
            _ => Ok(()),
        }
    }

    /// Whether anything is left to do, and a reason if nothing moves.
    fn rest(&mut self) -> Verdict {
        let Some(process) = &self.process else { return Ok(()) };
        let standstill = process.scheduler.standstill();
        let is_asleep =
            process.wake.is_none() && process.pending == 0 && !process.scheduler.watches_the_calendar();
        if is_asleep && standstill.is_none() {
            return Err("nothing moves, and no reason is given".to_owned());
        }
        if process.leaves_at.is_some_and(|at| standstill.is_some() || at <= self.t) {
            let down = process.down;
            self.die(down, "it was stopped");
            return Ok(());
        }
        let doubts = || self.disk.outcomes.values().any(|job| job.job.is_in_doubt());
        self.is_over = self.t >= self.horizon
            && standstill == Some(Standstill::Done)
            && self.in_air.is_empty()
            && !doubts()
            && self.findings().is_empty();
        Ok(())
    }

    fn begin(&mut self, effect: Effect) {
        let (at, number) = (self.t, self.number);
        if let Some(process) = &mut self.process {
            process.pending += 1;
        }
        match effect {
            Effect::Post { key, attempt, spec, inputs } => self.post(key, attempt, spec, &inputs),
            Effect::FindInputs { key, attempt, spec, parents, .. } => {
                let is_lost = self.fails(self.weather.lost);
                let (there, back) = self.way();
                if let Some(random) = self.second_thoughts.as_mut().filter(|_| at < self.horizon)
                    && let [parent, ..] = parents[..]
                    && random.u32(0..6) == 0
                {
                    let action = ReviewAction::ALL[random.usize(0..4)];
                    let decided_at = at + random.u64(1..=there + back);
                    self.at(decided_at, Event::Happens(Happening::Decision(parent, action)));
                }
                let found = if is_lost {
                    Err(InputFault::Passing(Fault::new("timeout", "no answer in time")))
                } else {
                    let found = spec.order.inputs.iter().zip(parents).map(|(input, parent)| FoundInput {
                        address: oracle::address(parent, at),
                        take: self.disk.outcomes.get(&parent).and_then(|record| input.choice(record.id)),
                        length: input.field.is_length().then(|| length_of(parent)),
                    });
                    Ok(found.collect())
                };
                self.at(at + there + back, Event::Hear(number, Input::InputsFound(key, attempt, found)));
            }
            Effect::LoadEnded { batch } => {
                let ended = self.disk.outcomes.values().filter(|record| record.key.batch == batch);
                let jobs = ended.map(|record| (record.id, ended_take(record))).collect();
                self.at(at + 1, Event::Hear(number, Input::Ended { batch, jobs }));
            }
            Effect::Read { key, attempt, task, spec, .. } => {
                self.log.say(at, named(key, attempt.0), format_args!("reads {task}"));
                if let Some(process) = &mut self.process {
                    process.memory.read_at.insert((key, attempt.0), at);
                }
                let (there, back) = self.way();
                if self.fails(self.weather.lost) {
                    let fault = Fault::new("timeout", "no answer in time");
                    let answer = ReadAnswer::Again { fault, wait: None };
                    self.at(at + TIMEOUT, Event::Hear(number, Input::Read(key, attempt, answer)));
                } else {
                    self.at(
                        at + there,
                        Event::Read(key, attempt, task, Box::new(spec), (at + there + back, number)),
                    );
                }
            }
            Effect::Fetch(order) => self.fetch(&order),
            Effect::LoadRows { batch, from, end, most } => {
                let rows = self.disk.rows(batch, from, end, most);
                self.at(at + 1, Event::Hear(number, Input::Rows { batch, from, rows }));
            }
            Effect::RenewCatalog => {
                let (there, back) = self.way();
                self.at(at + there, Event::Catalog(at + there + back, number));
            }
            Effect::GoBack { batch, from } => {
                let applied = self.disk.going_back(batch, from);
                let labels = applied.queued.iter().map(|found| &found.0.label);
                self.log.say(
                    at,
                    "program",
                    format_args!("goes back to {:?} of batch {}", labels.collect::<Vec<_>>(), batch.0),
                );
                for (_, record) in &applied.queued {
                    *self.oracle.retries.entry(record.key).or_default() += 1;
                }
                let read = at + self.random.u64(1..30_000);
                self.at(read, Event::Hear(number, Input::Versions(applied)));
            }
            Effect::KeepSurcharges(_) => self.at(at + 1, Event::Hear(number, Input::SurchargesKept)),
            Effect::AskBalance => {
                self.log.say(at, "program", format_args!("asks for the balance"));
                let (there, back) = self.way();
                let back = if self.fails(self.weather.late) { self.random.u64(back..30_000) } else { back };
                self.at(at + there, Event::Balance(at + there + back, number));
            }
        }
    }

    fn fails(&mut self, thousandths: u32) -> bool {
        self.random.u32(0..1000) < thousandths
    }

    fn way(&mut self) -> (u64, u64) {
        (self.random.u64(1..400), self.random.u64(1..400))
    }

    /// A creating POST leaves. What becomes of it on its way is drawn now.
    fn post(&mut self, key: JobKey, attempt: AttemptNo, spec: JobSpecOf, inputs: &[String]) {
        let (at, number) = (self.t, self.number);
        let (cost, is_refused) = self.truths[&spec.id];
        let times = times_sent(&spec.order, inputs);
        let cost = cost * times.unwrap_or(1);
        let kind = spec.order.kind;
        let header = kind.is_keyed().then(|| IdempotencyKey::derive(spec.id, attempt).as_str().to_owned());
        let silences = self.silences.get(&(key, attempt.0)).copied().unwrap_or_default();
        let header = header.map(|header| match self.rule {
            Rule::FreshKeyAfterSilence => format!("{header}-{silences}"),
            _ => header,
        });
        let request = Request {
            job: key,
            attempt: attempt.0,
            key: header,
            cost,
            is_refused,
            is_sync: renders_in_call(kind),
            is_coverable: !spec.order.waivable.is_zero(),
            is_listed: self.settings.rules.is_some() && (spec.order.price.is_some() || times.is_some()),
        };
        let who = named(key, attempt.0);
        if self.fails(self.weather.unconnected) {
            self.log.say(at, who, format_args!("POST {kind}, no connection"));
            let fault = Fault::new("connection", "no connection");
            let answer = PostAnswer::Again { fault, wait: None, may_have_run: false };
            self.at(at + 50, Event::Hear(number, Input::Posted(key, attempt, answer)));
            return;
        }
        let (there, back) = self.way();
        let back = if renders_in_call(kind) { self.random.u64(back..20_000) } else { back };
        let spec = Box::new(spec);
        if self.fails(self.weather.lost) {
            self.log.say(at, who, format_args!("POST {kind}, lost on its way"));
            self.silence(key, attempt);
        } else if self.fails(self.weather.unheard) {
            self.log.say(at, who, format_args!("POST {kind}, its answer is lost"));
            self.flies(at + there, request, spec, None);
            self.silence(key, attempt);
        } else if self.fails(self.weather.late) {
            let there = self.random.u64(1_000..20 * TIMEOUT);
            self.log.say(at, who, format_args!("POST {kind}, held up for {there} ms"));
            self.flies(at + there, request, spec, None);
            self.silence(key, attempt);
        } else {
            self.log.say(at, who, format_args!("POST {kind}, {cost} credits"));
            self.flies(at + there, request, spec, Some((at + there + back, number)));
        }
    }

    fn flies(&mut self, at: u64, request: Request, spec: Box<JobSpecOf>, reply: Option<(u64, u32)>) {
        *self.in_air.entry(request.job).or_default() += 1;
        self.at(at, Event::Post(request, spec, reply));
    }

    /// The client gives up waiting for an answer.
    fn silence(&mut self, key: JobKey, attempt: AttemptNo) {
        *self.silences.entry((key, attempt.0)).or_default() += 1;
        let may_have_run = self.rule != Rule::SilenceMeansNothing;
        let fault = Fault::new("timeout", "no answer in time");
        let answer = PostAnswer::Again { fault, wait: None, may_have_run };
        self.at(self.t + TIMEOUT, Event::Hear(self.number, Input::Posted(key, attempt, answer)));
    }

    fn arrive(&mut self, request: &Request, spec: &JobSpecOf, reply: Option<(u64, u32)>) -> Verdict {
        let key = request.job;
        if let Some(flying) = self.in_air.get_mut(&key) {
            *flying -= 1;
        }
        self.in_air.retain(|_, flying| *flying > 0);
        let (tasks, balance) = (self.service.tasks.len(), self.service.balance);
        let raw = self.service.post(request, self.t);
        let said = String::from_utf8_lossy(&raw.body).into_owned();
        self.log.say(
            self.t,
            "service",
            format_args!("{} -> {} {said}", named(key, request.attempt), raw.status),
        );
        if let Some((at, number)) = reply {
            // Whoever repeats requests on the way does so while none was refused: a refusal is passed on, and ends it.
            let may_be_repeated = raw.status == 200 || raw.status >= 500;
            if may_be_repeated && spec.order.kind.is_keyed() && self.fails(self.weather.twice) {
                let again = self.random.u64(1..10 * TIMEOUT);
                self.flies(self.t + again, request.clone(), Box::new(spec.clone()), None);
            }
            let answer = if spec.order.kind.is_keyed() {
                response::classify_post(&raw, spec.order.kind)
            } else {
                shorts_studio::classify_post(&raw)
            };
            self.at(at, Event::Hear(number, Input::Posted(key, AttemptNo(request.attempt), answer)));
        }
        self.oracle.arrived(request, tasks, &self.disk, &self.service)?;
        let set_aside = self.oracle.set_aside.get(&(key, request.attempt));
        let above = self.oracle.above(&self.service, |_| true);
        oracle::keeps(&self.service, &self.settings, balance, (set_aside.map_or(0, |(at, _)| *at), above))
    }

    fn fetch(&mut self, order: &FetchOrder) {
        let at = self.t + self.random.u64(20..5_000);
        let outcome = if self.fails(self.weather.bad_download) {
            let fault = Fault::new("download", "it broke");
            Err(match self.random.u32(0..8) {
                0 => FetchFault::Lasting(fault),
                1..4 => FetchFault::Stale(fault),
                _ => FetchFault::Passing(fault),
            })
        } else {
            let (path, content_type) = (order.spec.label.clone(), "video/mp4".to_owned());
            let sha256 = format!("{}-{}", order.spec.label, order.attempt.0);
            Ok(vec![OutputFile { path, bytes: 1, sha256, content_type, edited: None, object: None }])
        };
        if let (Ok(files), Some(task)) = (&outcome, order.job.task_of(order.attempt)) {
            let published = PublishedOutputs {
                task: task.clone(),
                attempt: order.attempt,
                charged: order.job.books().charged,
                waived: order.job.books().waived,
                model: None,
                files: files.clone(),
            };
            self.fetching.insert((order.key, order.attempt.0), published);
        }
        self.at(at, Event::Hear(self.number, Input::Fetched(order.key, order.attempt, outcome)));
    }

    /// The operator asks the running program for something; it is durable with the next step.
    pub(super) fn execute(&mut self, command: Command) -> Verdict {
        let now = self.now();
        let Some(process) = &mut self.process else { return Ok(()) };
        for day in command.days() {
            self.disk.set_day(&mut process.scheduler, day);
        }
        // As the engine does it: a batch that is done is on the disk alone.
        let batch = command.batch().filter(|no| process.scheduler.batch(*no).is_none());
        if let Some(done) = batch.and_then(|no| self.disk.batches.get(&no)).filter(|batch| batch.is_done()) {
            let versions = self.disk.row_versions(done);
            process.scheduler.add_finished_batch(done.clone());
            process.scheduler.set_versions(done.no, versions);
        }
        let versions = match &command {
            Command::AddBatch(batch) => Some((batch.no, self.disk.row_versions(batch))),
            _ => None,
        };
        let outcome = process.scheduler.execute(command, now).map_err(|error| error.to_string())?;
        if let Some((no, versions)) = versions {
            let jobs = self.disk.jobs(no).into_iter();
            let ended = jobs.filter(|(_, record)| record.job.is_over()).map(|(spec, record)| EndedVersion {
                seq: spec.seq,
                kind: spec.order.kind,
                state: record.job.state().clone(),
                awaits_review: record.job.awaits_review(),
            });
            process.scheduler.change_versions(no, versions, &ended.collect::<Vec<_>>());
        }
        process.wake = Some(self.t);
        self.log.say(self.t, "program", format_args!("{outcome:?}"));
        Ok(())
    }

    pub(super) fn span(&mut self, most: u64) -> Millis {
        Millis(self.random.u64(1..most))
    }
}

fn read_answer(spec: &JobSpec, task: &TaskId, raw: &RawResponse) -> ReadAnswer {
    if spec.order.kind.is_keyed() {
        response::classify_read(raw)
    } else {
        shorts_studio::classify_read(raw, task)
    }
}

fn note_reading(memory: &mut Memory, key: JobKey, attempt: AttemptNo, reading: &TaskReading, at: u64) {
    memory.read_at.insert((key, attempt.0), at);
    match reading.status {
        TaskStatus::Success => drop(memory.ended.insert((key, attempt.0), true)),
        TaskStatus::Failed | TaskStatus::Canceled => drop(memory.ended.insert((key, attempt.0), false)),
        _ => {}
    }
}
