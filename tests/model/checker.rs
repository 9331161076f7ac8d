//! The lifecycle and the ledger against an adversary, every history of it: answers are lost, delayed
//! and come twice, the client dies at any step, tasks end any way, funds run out.
//!
//! The client is the product's own pure code; the service and the wire are modelled here. Each state
//! that can be reached is visited once: some 150,000 for two jobs, 90,000 where POSTs may arrive after their own
//! resend, 6,000 for a job that is resubmitted when it is overdue.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{AttemptNo, TaskId};
use callsheet::domain::job::{Job, OutputFile, State};
use callsheet::domain::ledger::Totals;
use callsheet::domain::lifecycle::{self, AttemptRules, Event, Want, resumed, wants};
use callsheet::domain::task::{Fault, PostAnswer, TaskReading, TaskStatus};
use callsheet::domain::time::Timestamp;
use callsheet::domain::utc_day::UtcDay;
use stateright::{Checker, Model, Property};

use crate::life::Life;
use crate::takes_every_case;

/// Every job's price, in credits.
const PRICE: u64 = 10;

/// What is explored.
#[derive(Clone)]
struct Market {
    jobs: usize,
    attempts: u32,
    /// The budget, in jobs.
    budget: u64,
    /// What the account can pay for, in jobs.
    funds: u64,
    keyed: bool,
    /// Whether an overdue job is given another attempt.
    resubmit: bool,
    /// How many POSTs may be delayed at once: each arrives at any time later, or never.
    delays: usize,
    /// Whether an answer may arrive more than once.
    repeats: bool,
    /// Whether something on the way may refuse a POST.
    refusals: bool,
    /// Whether the operator cancels and retries, and the state is rebuilt.
    operator: bool,
    rule: Rule,
}

/// The product's rules, or one of them broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Kept,
    /// A lost answer is taken for a failure: the next POST has a new key.
    FreshKeyAfterSilence,
    /// A restart takes a POST that was on its way for one that was never sent.
    ForgetsWhatWasOnItsWay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum End {
    Running,
    Success,
    Busy,
    Rejected,
}

impl End {
    fn is_charged(self) -> bool {
        matches!(self, End::Running | End::Success)
    }
}

/// Something on its way to the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Answer {
    Task(End),
    OutOfCredits,
    Unauthorised,
    Unavailable,
    Page,
    Reading(End),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// What the client has on disk.
    jobs: Vec<Life>,
    held: u64,
    spent: u64,
    /// Tasks of the service: by job, attempt, and for an endpoint without keys the how-manieth POST.
    tasks: BTreeMap<(usize, u32, u32), End>,
    wire: BTreeSet<(usize, u32, Answer)>,
    /// POSTs that nobody waits for any more, and that the service has not seen yet.
    delayed: BTreeSet<(usize, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Act {
    Admit(usize),
    /// The POST reaches the service, which does its work; the answer is on its way.
    Post(usize),
    /// The POST reaches the service, and nothing of it is ever heard.
    PostUnheard(usize),
    /// The POST reaches nothing.
    PostLost(usize),
    /// The POST is delayed on its way: the client gives up waiting, and it may arrive after its own resend.
    PostDelayed(usize),
    /// A delayed POST reaches the service; nobody hears the answer.
    Arrive(usize, u32),
    /// The key does not work: the service does nothing for the POST, and says so.
    PostUnauthorised(usize),
    /// The safety check is away: the service does nothing for the POST, and says so.
    PostTurnedAway(usize),
    /// Nothing was made of it so far, and its price is another one before it is sent again.
    Requeue(usize),
    /// Something on the way refuses the POST for good, whatever became of the one before it.
    PostRefusedOnTheWay(usize),
    Read(usize),
    /// A task that its job was resubmitted over is read.
    ReadLate(usize, u32),
    /// It is watched no longer.
    WatchExpired(usize, u32),
    /// An answer arrives; it may arrive again later.
    Deliver(usize, u32, Answer, bool),
    EndTask((usize, u32, u32), End),
    Fetch(usize),
    Overdue(usize),
    /// The client dies and starts again; what was on its way to it is gone.
    Crash,
    /// The operator drops a job.
    Cancel(usize),
    /// The operator wants it again.
    Retry(usize),
    /// The client dies, and its state is rebuilt: what was on its way is queued again, and so may be what was not.
    Rebuild,
}

impl Market {
    fn terms(&self) -> AttemptRules {
        AttemptRules { attempts: self.attempts, keyed: self.keyed }
    }

    /// Applies an event to a job and books what moved. One that has no place is dropped, as the
    /// product does.
    fn apply(&self, world: &mut World, job: usize, attempt: u32, event: Event) {
        let before = &world.jobs[job];
        let Ok(transition) = lifecycle::apply(before, AttemptNo(attempt), event, self.terms(), Timestamp(0))
        else {
            return;
        };
        let mut totals =
            Totals { held: Credits(world.held), spent: Credits(world.spent), ..Totals::default() };
        // What an allowance covers and what came back plays no part here.
        (totals.waived, totals.refunded) = (Credits(1_000), Credits::ZERO);
        transition.movements.into_iter().for_each(|movement| totals.apply(movement).unwrap());
        (world.held, world.spent) = (totals.held.0, totals.spent.0);
        world.jobs[job] = Life::of(lifecycle::without_history(transition.job));
    }

    /// The service's side of a POST: the task of this key, a new one, or none.
    fn serve(&self, world: &mut World, job: usize, attempt: u32) -> Answer {
        let posts = world.tasks.keys().filter(|(j, a, _)| (*j, *a) == (job, attempt)).count();
        let nth = if self.keyed { 0 } else { u32::try_from(posts).unwrap() };
        if let Some(end) = world.tasks.get(&(job, attempt, nth)) {
            return Answer::Task(*end);
        }
        let charged = world.tasks.values().filter(|end| end.is_charged()).count() as u64;
        if charged >= self.funds {
            return Answer::OutOfCredits;
        }
        world.tasks.insert((job, attempt, nth), End::Running);
        Answer::Task(End::Running)
    }

    /// The client gave up waiting for an answer.
    fn silence(&self, world: &mut World, job: usize, may_have_run: bool) {
        let attempt = world.jobs[job].attempt();
        if self.rule == Rule::FreshKeyAfterSilence {
            let failed = Event::Posted(PostAnswer::Task(reading(job, attempt.0, End::Busy)));
            let terms = AttemptRules { attempts: u32::MAX, ..self.terms() };
            let broken = lifecycle::apply(&world.jobs[job], attempt, failed, terms, Timestamp(0)).unwrap();
            world.held -= PRICE;
            world.jobs[job] = Life::of(lifecycle::without_history(broken.job));
            return;
        }
        let fault = Fault::new("timeout", "");
        let again = PostAnswer::Again { fault, wait: None, may_have_run };
        self.apply(world, job, attempt.0, Event::Posted(again));
    }

    fn deliver(&self, world: &mut World, job: usize, attempt: u32, answer: &Answer) {
        let event = match answer {
            Answer::Task(end) => Event::Posted(PostAnswer::Task(reading(job, attempt, *end))),
            Answer::OutOfCredits => {
                Event::Posted(PostAnswer::OutOfCredits(Fault::new("insufficient_credits", "")))
            }
            Answer::Unauthorised => Event::Posted(PostAnswer::Unauthorised(Fault::new("unauthorized", ""))),
            Answer::Unavailable => {
                let fault = Fault::new("internal_error", "");
                Event::Posted(PostAnswer::Again { fault, wait: None, may_have_run: false })
            }
            Answer::Page => Event::Posted(PostAnswer::Refused(Fault::new("http_413", ""))),
            Answer::Reading(end) => Event::Read(reading(job, attempt, *end)),
        };
        self.apply(world, job, attempt, event);
    }
}

fn reading(job: usize, attempt: u32, end: End) -> TaskReading {
    let (status, code) = match end {
        End::Running => ("processing", None),
        End::Success => ("success", None),
        End::Busy => ("failed", Some("busy")),
        End::Rejected => ("failed", Some("content_rejected")),
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

impl Model for Market {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let jobs = vec![Life::of(Job::queued()); self.jobs];
        vec![World {
            jobs,
            held: 0,
            spent: 0,
            tasks: BTreeMap::new(),
            wire: BTreeSet::new(),
            delayed: BTreeSet::new(),
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        for (job, life) in world.jobs.iter().enumerate() {
            let waits = world.wire.iter().any(|(j, attempt, _)| (*j, *attempt) == (job, life.attempt().0));
            match wants(life.state()) {
                Want::Admission
                    if world.held + world.spent + PRICE - life.books().held.0 <= self.budget * PRICE =>
                {
                    acts.push(Act::Admit(job));
                }
                // One exchange at a time, as the engine has it.
                Want::Post if !waits => acts.extend([
                    Act::Post(job),
                    Act::PostUnheard(job),
                    Act::PostLost(job),
                    Act::PostTurnedAway(job),
                    Act::PostUnauthorised(job),
                    Act::Requeue(job),
                ]),
                Want::Read if !waits => acts.push(Act::Read(job)),
                Want::Fetch => acts.push(Act::Fetch(job)),
                _ => {}
            }
            if self.refusals && wants(life.state()) == Want::Post && !waits {
                acts.push(Act::PostRefusedOnTheWay(job));
            }
            let may_be_delayed = world.delayed.len() < self.delays && wants(life.state()) == Want::Post;
            if may_be_delayed && !waits {
                acts.push(Act::PostDelayed(job));
            }
            for other in life.watched_attempts() {
                let attempt = other.no().0;
                acts.push(Act::WatchExpired(job, attempt));
                if !world.wire.iter().any(|(j, a, _)| (*j, *a) == (job, attempt)) {
                    acts.push(Act::ReadLate(job, attempt));
                }
            }
            if matches!(life.state(), State::Running { .. }) && !life.is_overdue() {
                acts.push(Act::Overdue(job));
            }
        }
        for (job, attempt, answer) in &world.wire {
            acts.push(Act::Deliver(*job, *attempt, answer.clone(), false));
            if self.repeats {
                acts.push(Act::Deliver(*job, *attempt, answer.clone(), true));
            }
        }
        acts.extend(world.delayed.iter().map(|(job, attempt)| Act::Arrive(*job, *attempt)));
        for (key, _) in world.tasks.iter().filter(|(_, end)| **end == End::Running) {
            acts.extend([End::Success, End::Busy, End::Rejected].map(|end| Act::EndTask(*key, end)));
        }
        acts.push(Act::Crash);
        if self.operator {
            acts.push(Act::Rebuild);
            acts.extend((0..self.jobs).flat_map(|job| [Act::Cancel(job), Act::Retry(job)]));
        }
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        match act {
            Act::Admit(job) => {
                let attempt = world.jobs[job].attempt().0;
                self.apply(&mut next, job, attempt, Event::Admit { hold: Credits(PRICE), day: UtcDay(0) });
            }
            Act::Post(job) => {
                let attempt = world.jobs[job].attempt().0;
                let answer = self.serve(&mut next, job, attempt);
                next.wire.insert((job, attempt, answer));
            }
            Act::PostUnheard(job) => {
                self.serve(&mut next, job, world.jobs[job].attempt().0);
                self.silence(&mut next, job, true);
            }
            Act::PostLost(job) => self.silence(&mut next, job, false),
            Act::PostDelayed(job) => {
                next.delayed.insert((job, world.jobs[job].attempt().0));
                self.silence(&mut next, job, true);
            }
            Act::Arrive(job, attempt) => {
                next.delayed.remove(&(job, attempt));
                self.serve(&mut next, job, attempt);
            }
            Act::PostUnauthorised(job) => {
                next.wire.insert((job, world.jobs[job].attempt().0, Answer::Unauthorised));
            }
            Act::PostTurnedAway(job) => {
                next.wire.insert((job, world.jobs[job].attempt().0, Answer::Unavailable));
            }
            Act::Requeue(job) => {
                self.apply(&mut next, job, world.jobs[job].attempt().0, Event::Requeue);
            }
            Act::PostRefusedOnTheWay(job) => {
                next.wire.insert((job, world.jobs[job].attempt().0, Answer::Page));
            }
            Act::Read(job) => {
                let attempt = world.jobs[job].attempt().0;
                let task = world.tasks.iter().find(|((j, a, _), _)| (*j, *a) == (job, attempt));
                next.wire.insert((job, attempt, Answer::Reading(*task?.1)));
            }
            Act::ReadLate(job, attempt) => {
                let task = world.tasks.iter().find(|((j, a, _), _)| (*j, *a) == (job, attempt));
                next.wire.insert((job, attempt, Answer::Reading(*task?.1)));
            }
            Act::WatchExpired(job, attempt) => {
                self.apply(&mut next, job, attempt, Event::WatchExpired(Fault::new("deadline", "")));
            }
            Act::Deliver(job, attempt, answer, again) => {
                if !again {
                    next.wire.remove(&(job, attempt, answer.clone()));
                }
                self.deliver(&mut next, job, attempt, &answer);
            }
            Act::EndTask(key, end) => {
                next.tasks.insert(key, end);
            }
            Act::Fetch(job) => {
                let attempt = world.jobs[job].attempt().0;
                let file = OutputFile {
                    path: String::new(),
                    bytes: 1,
                    sha256: String::new(),
                    content_type: String::new(),
                    edited: None,
                    object: None,
                };
                self.apply(&mut next, job, attempt, Event::Fetched(vec![file]));
            }
            Act::Overdue(job) => {
                let attempt = world.jobs[job].attempt().0;
                let event = if self.resubmit { Event::Resubmit } else { Event::Overdue };
                self.apply(&mut next, job, attempt, event);
            }
            Act::Cancel(job) => {
                self.apply(&mut next, job, world.jobs[job].attempt().0, Event::Cancel);
            }
            Act::Retry(job) => {
                let life = &world.jobs[job];
                // Attempts without end would be no more histories of another sort.
                if life.attempt().0 > self.attempts && life.state().is_ended_by_record() {
                    return None;
                }
                self.apply(&mut next, job, life.attempt().0, Event::Retry);
            }
            Act::Rebuild => {
                next.wire.clear();
                for job in &mut next.jobs {
                    let requeued = lifecycle::requeued((**job).clone(), self.keyed, Timestamp(0));
                    *job = Life::of(lifecycle::without_history(requeued));
                }
            }
            Act::Crash => {
                next.wire.clear();
                for job in 0..self.jobs {
                    // Without a key, a request that was on its way is not sent again (money rule 11).
                    if self.rule != Rule::ForgetsWhatWasOnItsWay {
                        next.jobs[job] = Life::of(resumed((*world.jobs[job]).clone(), false));
                    }
                    if !self.keyed && matches!(world.jobs[job].state(), State::Submitting { .. }) {
                        self.silence(&mut next, job, true);
                    }
                }
            }
        }
        (next != *world).then_some(next)
    }

    /// A broken rule may make attempts without end.
    fn within_boundary(&self, world: &World) -> bool {
        world.jobs.iter().all(|job| job.attempt().0 <= self.attempts + 1)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("no attempt is charged twice", |_, world| {
                let charged =
                    |at: &(usize, u32, u32)| world.tasks.get(at).is_some_and(|end| end.is_charged());
                world.tasks.keys().all(|(job, attempt, nth)| {
                    *nth == 0 || !charged(&(*job, *attempt, *nth)) || !charged(&(*job, *attempt, 0))
                })
            }),
            Property::<Self>::always(
                "no job is charged twice at once that nobody resubmits",
                |market, world| market.resubmit || (0..market.jobs).all(|job| world.charged_tasks(job) <= 1),
            ),
            Property::<Self>::always("held and spent stay within the budget", |market, world| {
                world.held + world.spent <= market.budget * PRICE
            }),
            Property::<Self>::always("every charge is covered by a hold or in the books", |_, world| {
                world.jobs.iter().enumerate().all(|(n, job)| {
                    let books = job.all_books();
                    books.held + books.charged >= Credits(PRICE * world.charged_tasks(n))
                })
            }),
            Property::<Self>::always("what is over and not in doubt is booked to the credit", |_, world| {
                world.jobs.iter().enumerate().all(|(n, job)| {
                    !job.is_over()
                        || job.is_in_doubt()
                        || job.all_books().charged.0 == PRICE * world.charged_tasks(n)
                })
            }),
            Property::<Self>::always("no hold outlives its job", |_, world| {
                world
                    .jobs
                    .iter()
                    .all(|job| !job.is_over() || job.is_in_doubt() || job.all_books().held.is_zero())
            }),
            Property::<Self>::always("the books of the jobs add up to the ledger", |_, world| {
                let held: Credits = world.jobs.iter().map(|job| job.all_books().held).sum();
                let charged: Credits = world.jobs.iter().map(|job| job.all_books().charged).sum();
                (held.0, charged.0) == (world.held, world.spent)
            }),
            Property::<Self>::always("a job that has not ended wants something", |_, world| {
                let watches = |job: &Job| job.watched_attempts().next().is_some();
                world
                    .jobs
                    .iter()
                    .all(|job| job.is_over() || wants(job.state()) != Want::Nothing || watches(job))
            }),
            Property::<Self>::always("what succeeded was charged, and its task succeeded", |_, world| {
                world.jobs.iter().enumerate().all(|(n, job)| {
                    let made = world.tasks.iter().any(|((j, ..), end)| *j == n && *end == End::Success);
                    !matches!(job.state(), State::Succeeded { .. })
                        || made && job.books().charged == Credits(PRICE)
                })
            }),
            Property::<Self>::sometimes("all jobs can succeed", |market, world| {
                let made =
                    world.jobs.iter().filter(|life| matches!(life.state(), State::Succeeded { .. })).count()
                        as u64;
                made == (market.jobs as u64).min(market.budget).min(market.funds)
            }),
            Property::<Self>::sometimes(
                "where it was asked for, both attempts can be paid for",
                |market, world| {
                    let twice = |job: &Life| job.is_over() && job.all_books().charged == Credits(2 * PRICE);
                    !market.resubmit || market.budget < 2 || world.jobs.iter().any(twice)
                },
            ),
            Property::<Self>::sometimes("and the first one can be the one that is kept", |market, world| {
                let first = |job: &Life| {
                    matches!(job.state(), State::Succeeded { .. }) && job.attempt() < job.newest_attempt()
                };
                !market.resubmit || market.budget < 2 || world.jobs.iter().any(first)
            }),
        ]
    }
}

impl World {
    /// Tasks of a job that are charged at this moment.
    fn charged_tasks(&self, job: usize) -> u64 {
        self.tasks.iter().filter(|((j, ..), end)| *j == job && end.is_charged()).count() as u64
    }
}

const MARKET: Market = Market {
    jobs: 2,
    attempts: 2,
    budget: 2,
    funds: 2,
    keyed: true,
    resubmit: false,
    delays: 0,
    repeats: true,
    refusals: false,
    operator: false,
    rule: Rule::Kept,
};

/// The market of two jobs: answers are repeated where every case is asked for.
fn large_market() -> Market {
    Market { repeats: takes_every_case(), ..MARKET }
}

impl Market {
    /// Whether a property of this name must hold always.
    fn is_rule(&self, name: &str) -> bool {
        let always =
            |property: &Property<Self>| matches!(property.expectation, stateright::Expectation::Always);
        self.properties().iter().any(|property| property.name == name && always(property))
    }
}

/// Explores all of it and returns the number of states.
fn explore(market: Market) -> usize {
    let checker = market.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

/// The properties that a broken rule violates.
fn violations(market: Market) -> Vec<&'static str> {
    let checker = market.checker().threads(2).spawn_bfs().join();
    let mut names: Vec<&str> =
        checker.discoveries().into_keys().filter(|name| checker.model().is_rule(name)).collect();
    names.sort_unstable();
    names
}

#[test]
fn no_history_of_two_jobs_charges_twice_or_forgets_a_charge() {
    let states = explore(large_market());
    println!("{states} states");
    let least = if takes_every_case() { 10_000 } else { 1_000 };
    assert!(states > least, "only {states} states");
}

#[test]
fn nor_with_a_budget_or_funds_for_one_of_them() {
    assert!(explore(Market { budget: 1, ..large_market() }) > 300);
    assert!(explore(Market { funds: 1, ..large_market() }) > 300);
}

#[test]
fn nor_with_posts_that_arrive_after_their_own_resend() {
    let late = Market { repeats: false, delays: 1, ..MARKET };
    let attempts = if takes_every_case() { 2 } else { 1 };
    let states =
        explore(Market { attempts, funds: 1, ..late }) + explore(Market { delays: 2, jobs: 1, ..late });
    println!("{states} states with delayed POSTs");
    assert!(states > 300, "only {states} states");
}

#[test]
fn nor_where_something_on_the_way_refuses_what_the_service_took() {
    let refusing = Market { refusals: true, ..MARKET };
    let states =
        explore(Market { jobs: 1, delays: 1, ..refusing }) + explore(Market { repeats: false, ..refusing });
    println!("{states} states with refusals on the way");
    assert!(states > 300, "only {states} states");
}

#[test]
fn nor_where_an_owner_cancels_and_retries_and_the_state_is_rebuilt() {
    let operated = Market { jobs: 1, operator: true, repeats: false, ..MARKET };
    let states = explore(Market { delays: 1, ..operated }) + explore(Market { refusals: true, ..operated });
    println!("{states} states with an operator and rebuilds");
    assert!(states > 300, "only {states} states");
}

#[test]
fn nor_without_idempotency_keys() {
    assert!(explore(Market { keyed: false, attempts: 1, ..MARKET }) > 300);
    assert!(explore(Market { keyed: false, attempts: 1, jobs: 1, delays: 1, ..MARKET }) > 20);
}

#[test]
fn nor_where_overdue_jobs_are_resubmitted() {
    let one = Market { jobs: 1, budget: 3, funds: 3, resubmit: true, repeats: false, ..MARKET };
    let states = explore(Market { delays: 1, ..one });
    println!("{states} states of one job with two attempts");
    assert!(states > 300, "only {states} states");
    if takes_every_case() {
        assert!(explore(Market { attempts: 3, ..one }) > 300);
    }
    assert!(explore(Market { budget: 1, ..one }) > 50, "where no second attempt can be paid for");
}

#[test]
fn a_fresh_key_after_silence_is_found_out() {
    let broken = Market { rule: Rule::FreshKeyAfterSilence, jobs: 1, ..MARKET };
    assert!(violations(broken).contains(&"no job is charged twice at once that nobody resubmits"));
}

#[test]
fn a_restart_that_forgets_what_was_on_its_way_is_found_out() {
    let broken = Market { rule: Rule::ForgetsWhatWasOnItsWay, jobs: 1, ..MARKET };
    assert!(violations(broken).contains(&"every charge is covered by a hold or in the books"));
}
