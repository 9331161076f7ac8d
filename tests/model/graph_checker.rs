//! A still and a clip that takes its output, against an adversary, every history of them: answers are lost and delayed,
//! tasks end any way, result links change from reading to reading, a person rejects, cancels and retries, and the client
//! dies at any step, with or without what it had decided last.
//!
//! The lifecycle and the choice of who gives an input are the product's own code. What is in memory and what is durable
//! are kept apart here: decisions are made by the former, and no request leaves before the two agree. Three rules broken on
//! purpose are found out.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{AttemptNo, Fingerprint, Seq, TaskId};
use callsheet::domain::job::{Job, Order, OutputFile, State};
use callsheet::domain::job_reference::{EndedTake, FoundInput, InputField, JobInput, parent};
use callsheet::domain::job_state::JobState;
use callsheet::domain::ledger::Totals;
use callsheet::domain::lifecycle::{self, AttemptRules, Event, Want, resumed, wants};
use callsheet::domain::review::{Decision, Verdict};
use callsheet::domain::task::{Fault, PostAnswer, TaskReading, TaskStatus};
use callsheet::domain::time::Timestamp;
use callsheet::domain::utc_day::UtcDay;
use serde_json::json;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::life::Life;

/// Each job's price, in credits.
const PRICE: u64 = 10;
const STILL: usize = 0;
const CLIP: usize = 1;
/// The links that the service may give for an output: another one at each reading, perhaps.
const LINKS: [&str; 2] = ["link-a", "link-b"];

/// The properties that broken rules violate.
const EARLY: &str = "a child is never sent before its parent's outcome is durable";
const UNAPPROVED: &str = "nothing is sent of an output that nobody approved";
const TWICE: &str = "neither parent nor child is bought twice";
const OTHERWISE: &str = "what may have been sent is sent again as it was";

/// What is explored.
#[derive(Clone, Copy)]
struct Story {
    /// The budget, in jobs.
    budget: u64,
    /// The still asks for a decision.
    review: bool,
    /// Whether POSTs may be delayed: each arrives at any time later, or never.
    delays: bool,
    /// Whether a person cancels and retries, and the state is rebuilt.
    operator: bool,
    rule: Rule,
}

/// The product's rules, or one of them broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Kept,
    /// Requests leave before what they follow from is durable.
    EffectsFirst,
    /// A task that succeeded is taken for an outcome, before its output is on the disk.
    TaskIsOutcome,
    /// Each time that a request is sent its inputs are looked up anew.
    LooksUpEachTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum End {
    Running,
    Success,
    Busy,
}

impl End {
    fn is_charged(self) -> bool {
        self != End::Busy
    }
}

/// A creating POST as it leaves: its key, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Sent {
    job: usize,
    attempt: u32,
    inputs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Answer {
    Task(End),
    Reading(End),
    Inputs(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// What the client has decided.
    memory: [Life; 2],
    /// What of it is durable.
    disk: [Life; 2],
    held: u64,
    spent: u64,
    durable: (u64, u64),
    /// Tasks of the service, and what the first POST of their key had in it.
    tasks: BTreeMap<(usize, u32), (End, Vec<String>)>,
    wire: BTreeSet<(usize, u32, Answer)>,
    delayed: BTreeSet<Sent>,
    /// Promises that were broken.
    broken: BTreeSet<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Act {
    /// What was decided becomes durable, for both at once.
    Commit,
    Admit(usize),
    /// The still's result link is read and tried.
    LookUp(&'static str),
    Post(usize),
    /// It reaches the service, and nothing of it is ever heard.
    PostUnheard(usize),
    PostLost(usize),
    PostDelayed(usize),
    Arrive(Sent),
    Read(usize),
    Deliver(usize, u32, Answer),
    EndTask((usize, u32), End),
    Fetch(usize),
    /// The client dies with what it had decided last, and starts again.
    Crash,
    Decide(Verdict),
    Cancel(usize),
    Retry(usize),
    /// The client dies, and its state is rebuilt.
    Rebuild,
}

static INPUT: LazyLock<JobInput> = LazyLock::new(|| JobInput {
    field: InputField::ImageUrls,
    place: 0,
    batch: None,
    row: "still".to_owned(),
    fingerprint: Fingerprint([7; 16]),
    takes: 1,
    variation: None,
    output: 1,
});

static REVIEWED: LazyLock<Order> = LazyLock::new(|| {
    serde_json::from_value(json!({"line": 1, "kind": "image", "body": {}, "review": true})).unwrap()
});

const RULES: AttemptRules = AttemptRules { attempts: 2, keyed: true };

impl Story {
    /// Whether the clip has what it needs, by what is known of the still.
    fn is_fed(&self, still: &Life) -> bool {
        let state = match still.state() {
            State::Fetching { .. } if self.rule == Rule::TaskIsOutcome => Some(JobState::Succeeded),
            state => Some(state.job_state()).filter(|_| still.is_over()),
        };
        let ended = state.map(|state| EndedTake {
            seq: Seq(0),
            state,
            wants_review: still.wants_review(),
            verdict: still.decision().map(|decision| decision.verdict),
        });
        parent(&INPUT, &[ended], &[]).is_ok()
    }

    /// Applies an event to a job in memory and books what moved. One that has no place is dropped, as the product does.
    fn apply(&self, world: &mut World, job: usize, attempt: u32, event: Event) {
        let before = &world.memory[job];
        let Ok(transition) = lifecycle::apply(before, AttemptNo(attempt), event, RULES, Timestamp(0)) else {
            return;
        };
        let mut totals =
            Totals { held: Credits(world.held), spent: Credits(world.spent), ..Totals::default() };
        totals.refunded = Credits::ZERO;
        transition.movements.into_iter().for_each(|movement| totals.apply(movement).unwrap());
        (world.held, world.spent) = (totals.held.0, totals.spent.0);
        let mut after = transition.job;
        if self.review && job == STILL {
            after.note_review(&REVIEWED);
        }
        world.memory[job] = Life::of(lifecycle::without_history(after));
    }

    /// The service's side of a POST: the task of this key, or a new one.
    fn serve(world: &mut World, sent: &Sent) -> End {
        let key = (sent.job, sent.attempt);
        let known = world.tasks.entry(key).or_insert_with(|| (End::Running, sent.inputs.clone()));
        let (end, inputs) = known.clone();
        if inputs != sent.inputs {
            world.broken.insert(OTHERWISE);
        }
        end
    }

    /// A POST leaves: what must hold then is looked at.
    fn send(&self, world: &mut World, job: usize) -> Sent {
        let sender = &world.memory[job];
        let inputs = sender.present().inputs().to_vec();
        let sent = Sent { job, attempt: sender.attempt().0, inputs };
        if job == CLIP && !world.disk[STILL].has_succeeded() {
            world.broken.insert(EARLY);
        }
        sent
    }

    fn silence(&self, world: &mut World, job: usize, may_have_run: bool) {
        let attempt = world.memory[job].attempt().0;
        let again = PostAnswer::Again { fault: Fault::new("timeout", ""), wait: None, may_have_run };
        self.apply(world, job, attempt, Event::Posted(again));
    }

    fn deliver(&self, world: &mut World, job: usize, attempt: u32, answer: &Answer) {
        let event = match answer {
            Answer::Task(end) => Event::Posted(PostAnswer::Task(reading(job, attempt, *end))),
            Answer::Reading(end) => Event::Read(reading(job, attempt, *end)),
            // Decided otherwise meanwhile: it waits again, unless it may have been sent.
            Answer::Inputs(_) if !self.is_fed(&world.memory[STILL]) && !was_sent(&world.memory[job]) => {
                Event::InputsLost(Fault::new("inputs", ""))
            }
            Answer::Inputs(link) => {
                Event::InputsFound(vec![FoundInput { address: (*link).to_owned(), take: None, length: None }])
            }
        };
        self.apply(world, job, attempt, event);
    }

    /// Whether requests may leave.
    fn may_send(&self, world: &World) -> bool {
        self.rule == Rule::EffectsFirst || world.is_durable()
    }

    fn lacks_inputs(&self, world: &World) -> bool {
        world.memory[CLIP].present().inputs().is_empty() || self.rule == Rule::LooksUpEachTime
    }
}

/// Whether something of it may have reached the service.
fn was_sent(job: &Job) -> bool {
    matches!(job.state(), State::Submitting { may_have_run: true, .. }) || job.may_have_been_sent()
}

fn reading(job: usize, attempt: u32, end: End) -> TaskReading {
    let (status, code) = match end {
        End::Running => ("processing", None),
        End::Success => ("success", None),
        End::Busy => ("failed", Some("busy")),
    };
    TaskReading {
        id: TaskId(format!("{job}.{attempt}").into()),
        status: TaskStatus::from_wire(status),
        model: None,
        charged: Some(Credits(PRICE)),
        waived: Some(Credits::ZERO),
        urls: if end == End::Success { vec!["u".into()] } else { vec![] },
        options: None,
        fault: code.map(|code| Fault::new(code, "")),
        record: None,
    }
}

fn output() -> OutputFile {
    OutputFile {
        path: String::new(),
        bytes: 1,
        sha256: "f".to_owned(),
        content_type: String::new(),
        edited: None,
        object: None,
    }
}

impl World {
    fn is_durable(&self) -> bool {
        self.memory == self.disk && self.durable == (self.held, self.spent)
    }

    fn charged_tasks(&self, job: usize) -> u64 {
        self.tasks.iter().filter(|((of, _), (end, _))| *of == job && end.is_charged()).count() as u64
    }

    /// A new process begins with what is durable.
    fn begin_again(&mut self, made: impl Fn(usize, Job) -> Job) {
        self.wire.clear();
        (self.held, self.spent) = self.durable;
        for job in [STILL, CLIP] {
            let life = Life::of(lifecycle::without_history(made(job, (*self.disk[job]).clone())));
            (self.memory[job], self.disk[job]) = (life.clone(), life);
        }
    }
}

impl Model for Story {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let lives = || [Life::of(Job::queued()), Life::of(Job::queued())];
        vec![World {
            memory: lives(),
            disk: lives(),
            held: 0,
            spent: 0,
            durable: (0, 0),
            tasks: BTreeMap::new(),
            wire: BTreeSet::new(),
            delayed: BTreeSet::new(),
            broken: BTreeSet::new(),
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        if !world.is_durable() {
            acts.push(Act::Commit);
        }
        for (job, life) in world.memory.iter().enumerate() {
            let waits = world.wire.iter().any(|(of, attempt, _)| (*of, *attempt) == (job, life.attempt().0));
            let is_fed = job == STILL || self.is_fed(&world.memory[STILL]);
            let (want, may_send) = (wants(life.state()), self.may_send(world) && !waits);
            match want {
                Want::Admission => {
                    let is_affordable =
                        world.held + world.spent + PRICE - life.books().held.0 <= self.budget * PRICE;
                    if is_fed && is_affordable {
                        acts.push(Act::Admit(job));
                    }
                }
                Want::Post if job == CLIP && may_send && self.lacks_inputs(world) && is_fed => {
                    acts.extend(LINKS.map(Act::LookUp));
                }
                _ => {}
            }
            let has_inputs = job == STILL || !life.present().inputs().is_empty();
            if want == Want::Post && may_send && has_inputs {
                acts.extend([Act::Post(job), Act::PostUnheard(job), Act::PostLost(job)]);
                if self.delays && world.delayed.is_empty() {
                    acts.push(Act::PostDelayed(job));
                }
            }
            if want == Want::Read && may_send {
                acts.push(Act::Read(job));
            }
            if want == Want::Fetch && self.may_send(world) {
                acts.push(Act::Fetch(job));
            }
            if self.operator && want == Want::Admission {
                acts.push(Act::Cancel(job));
            }
            if self.operator && life.is_over() && !life.has_succeeded() {
                acts.push(Act::Retry(job));
            }
        }
        acts.extend(
            world.wire.iter().map(|(job, attempt, answer)| Act::Deliver(*job, *attempt, answer.clone())),
        );
        acts.extend(world.delayed.iter().cloned().map(Act::Arrive));
        for (key, _) in world.tasks.iter().filter(|(_, (end, _))| *end == End::Running) {
            acts.extend([End::Success, End::Busy].map(|end| Act::EndTask(*key, end)));
        }
        if self.review && world.memory[STILL].has_succeeded() {
            acts.extend([Verdict::Approved, Verdict::Rejected].map(Act::Decide));
        }
        acts.push(Act::Crash);
        if self.operator {
            acts.push(Act::Rebuild);
        }
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        let attempt_of = |job: usize| world.memory[job].attempt().0;
        match act {
            Act::Commit => {
                next.disk = world.memory.clone();
                next.durable = (world.held, world.spent);
            }
            Act::Admit(job) => {
                let event = Event::Admit { hold: Credits(PRICE), day: UtcDay(0) };
                self.apply(&mut next, job, attempt_of(job), event);
            }
            Act::LookUp(link) => {
                if self.rule == Rule::LooksUpEachTime {
                    // What was found before is not looked at.
                    self.deliver(&mut next, CLIP, attempt_of(CLIP), &Answer::Inputs(link));
                } else {
                    next.wire.insert((CLIP, attempt_of(CLIP), Answer::Inputs(link)));
                }
                let still = &world.disk[STILL];
                let is_approved = still.decision().is_some_and(|found| found.verdict == Verdict::Approved);
                if self.review && !is_approved && !was_sent(&world.memory[CLIP]) {
                    next.broken.insert(UNAPPROVED);
                }
            }
            Act::Post(job) => {
                let sent = self.send(&mut next, job);
                let end = Story::serve(&mut next, &sent);
                next.wire.insert((job, sent.attempt, Answer::Task(end)));
            }
            Act::PostUnheard(job) => {
                let sent = self.send(&mut next, job);
                Story::serve(&mut next, &sent);
                self.silence(&mut next, job, true);
            }
            Act::PostLost(job) => {
                self.send(&mut next, job);
                self.silence(&mut next, job, false);
            }
            Act::PostDelayed(job) => {
                let sent = self.send(&mut next, job);
                next.delayed.insert(sent);
                self.silence(&mut next, job, true);
            }
            Act::Arrive(sent) => {
                next.delayed.remove(&sent);
                Story::serve(&mut next, &sent);
            }
            Act::Read(job) => {
                let (end, _) = world.tasks.get(&(job, attempt_of(job)))?;
                next.wire.insert((job, attempt_of(job), Answer::Reading(*end)));
            }
            Act::Deliver(job, attempt, answer) => {
                next.wire.remove(&(job, attempt, answer.clone()));
                self.deliver(&mut next, job, attempt, &answer);
            }
            Act::EndTask(key, end) => next.tasks.get_mut(&key)?.0 = end,
            Act::Fetch(job) => self.apply(&mut next, job, attempt_of(job), Event::Fetched(vec![output()])),
            Act::Decide(verdict) => {
                let mut still = (*world.memory[STILL]).clone();
                // Changes of mind without end would be no more histories of another sort.
                if still.decisions().len() > 1 || still.decision().is_some_and(|last| last.verdict == verdict)
                {
                    return None;
                }
                let (by, sha256) = ("operator".to_owned(), vec![output().sha256]);
                still.decide(Decision { verdict, by, at: Timestamp(0), note: None, sha256 });
                next.memory[STILL] = Life::of(still);
            }
            Act::Cancel(job) => self.apply(&mut next, job, attempt_of(job), Event::Cancel),
            Act::Retry(job) => {
                // Attempts without end would be no more histories of another sort either.
                if attempt_of(job) >= RULES.attempts && world.memory[job].state().is_ended_by_record() {
                    return None;
                }
                self.apply(&mut next, job, attempt_of(job), Event::Retry);
            }
            Act::Crash => next.begin_again(|job, life| resumed(life, job == CLIP)),
            Act::Rebuild => next.begin_again(|_, life| lifecycle::requeued(life, true, Timestamp(0))),
        }
        (next != *world).then_some(next)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.memory.iter().all(|job| job.attempt().0 <= RULES.attempts)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(EARLY, |_, world| !world.broken.contains(EARLY)),
            Property::<Self>::always(UNAPPROVED, |_, world| !world.broken.contains(UNAPPROVED)),
            Property::<Self>::always(OTHERWISE, |_, world| !world.broken.contains(OTHERWISE)),
            Property::<Self>::always(TWICE, |_, world| {
                [STILL, CLIP].iter().all(|job| world.charged_tasks(*job) <= 1)
            }),
            Property::<Self>::always("held and spent stay within the budget", |story, world| {
                world.held + world.spent <= story.budget * PRICE
                    && world.durable.0 + world.durable.1 <= story.budget * PRICE
            }),
            Property::<Self>::always(
                "every charge is covered by a durable hold, or in the durable books",
                |_, world| {
                    [STILL, CLIP].iter().all(|job| {
                        let books = world.disk[*job].all_books();
                        books.held + books.charged >= Credits(PRICE * world.charged_tasks(*job))
                    })
                },
            ),
            Property::<Self>::always("what is over is booked to the credit", |_, world| {
                [STILL, CLIP].iter().all(|job| {
                    let life = &world.disk[*job];
                    !life.is_over() || life.all_books().charged.0 == PRICE * world.charged_tasks(*job)
                })
            }),
            Property::<Self>::always("no hold outlives its job", |_, world| {
                world.disk.iter().all(|job| !job.is_over() || job.all_books().held.is_zero())
            }),
            Property::<Self>::sometimes("both can be made", |story, world| {
                let made = world.disk.iter().filter(|life| life.has_succeeded()).count() as u64;
                made == story.budget.min(2)
            }),
            Property::<Self>::sometimes(
                "the clip can be made of the second attempt at the still",
                |story, world| {
                    let [still, clip] = &world.disk;
                    story.budget < 2 || clip.has_succeeded() && still.attempt() == AttemptNo(2)
                },
            ),
            Property::<Self>::sometimes("a clip can wait for a still that failed", |_, world| {
                let [still, clip] = &world.disk;
                still.is_over() && !still.has_succeeded() && *clip.state() == State::Queued
            }),
        ]
    }
}

const STORY: Story = Story { budget: 2, review: false, delays: false, operator: false, rule: Rule::Kept };

/// Explores all of it and returns the number of states.
fn explore(story: Story) -> usize {
    let checker = story.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

/// The promises that a broken rule breaks.
fn broken_by(rule: Rule) -> Vec<&'static str> {
    let broken = Story { rule, ..STORY }.checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = broken.threads(2).spawn_bfs().join();
    let mut names: Vec<&str> = checker.discoveries().into_keys().collect();
    names.retain(|name| [EARLY, UNAPPROVED, TWICE, OTHERWISE].contains(name));
    names.sort_unstable();
    names
}

#[test]
fn no_history_sends_a_child_before_its_parent_or_buys_either_twice() {
    let states = explore(STORY);
    println!("{states} states of a still and a clip");
    assert!(states > 500, "only {states} states");
}

#[test]
fn nor_with_a_budget_for_one_of_them() {
    let states = explore(Story { budget: 1, ..STORY });
    assert!(states > 100, "only {states} states");
}

#[test]
fn nor_with_posts_that_arrive_after_their_own_resend() {
    let states = explore(Story { delays: true, ..STORY });
    println!("{states} states with delayed POSTs");
    assert!(states > 1_000, "only {states} states");
}

#[test]
fn nor_where_the_still_is_approved_and_rejected() {
    let states = explore(Story { review: true, ..STORY });
    println!("{states} states with decisions");
    assert!(states > 1_000, "only {states} states");
}

#[test]
fn nor_where_a_person_cancels_and_retries_and_the_state_is_rebuilt() {
    let states = explore(Story { operator: true, ..STORY });
    println!("{states} states with an operator and rebuilds");
    assert!(states > 1_000, "only {states} states");
}

#[test]
fn requests_before_their_commit_are_found_out() {
    assert_eq!(broken_by(Rule::EffectsFirst), [EARLY]);
}

#[test]
fn a_task_that_is_taken_for_an_outcome_is_found_out() {
    assert_eq!(broken_by(Rule::TaskIsOutcome), [EARLY]);
}

#[test]
fn inputs_that_are_looked_up_each_time_are_found_out() {
    assert_eq!(broken_by(Rule::LooksUpEachTime), [OTHERWISE]);
}
