//! What a seed decides: manifests, faults, settings, and the moments at which the client is killed.

use std::fmt;
use std::time::Duration;

use crate::kills::call_interceptor::CallOutcome;

/// When a client is killed, by how far it got.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    /// So long after its start: while it reads its configuration and opens its state.
    Start(Duration),
    /// At its n-th call to the service, or so long after that call was answered.
    Call { nth: u32, place: CallOutcome, after: Duration },
    /// So long after the n-th change of a file in its state and its outputs.
    Change { nth: u32, after: Duration },
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Start(after) => write!(f, "{after:?} after its start"),
            Moment::Call { nth, place: CallOutcome::Passed, after } => {
                write!(f, "{after:?} after the answer to call {nth}")
            }
            Moment::Call { nth, place, .. } => write!(f, "at call {nth}, {place:?}"),
            Moment::Change { nth, after } => write!(f, "{after:?} after change {nth} of a file"),
        }
    }
}

impl Moment {
    /// Anywhere in the first `calls` calls.
    fn draw(random: &mut fastrand::Rng, calls: u32) -> Moment {
        let micros = |random: &mut fastrand::Rng, most| Duration::from_micros(random.u64(0..most));
        match random.u32(0..100) {
            0..55 => {
                let place = CallOutcome::ALL[random.usize(0..CallOutcome::ALL.len())];
                let after = if place == CallOutcome::Passed { micros(random, 6_000) } else { Duration::ZERO };
                Moment::Call { nth: random.u32(1..=calls), place, after }
            }
            // A call comes to some four changes.
            55..85 => Moment::Change { nth: random.u32(1..=calls * 4), after: micros(random, 2_000) },
            _ => Moment::Start(micros(random, 80_000)),
        }
    }
}

/// How the client is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientMode {
    /// `callsheet run`, again and again with the same manifests.
    Run,
    /// `callsheet daemon`; the manifests are dropped once.
    Daemon,
}

/// One service, one state, some manifests, and many ends.
pub struct Round {
    pub mode: ClientMode,
    /// Manifests, and of each how many jobs of every kind, or how many storyboards.
    pub manifests: Vec<usize>,
    /// Rows take outputs of other rows: stills, clips of these and longer clips of those.
    pub are_storyboards: bool,
    pub in_flight: u32,
    pub downloads: u32,
    pub faults: String,
    pub moments: Vec<Moment>,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Round { mode, manifests, are_storyboards, in_flight, downloads, faults, moments } = self;
        let what = if *are_storyboards { "storyboards" } else { "of each kind" };
        writeln!(f, "{mode:?}, {manifests:?} {what}, {in_flight} in flight, {downloads} downloads")?;
        writeln!(f, "{faults}")?;
        moments.iter().try_for_each(|moment| writeln!(f, "planned: {moment}"))
    }
}

impl Round {
    /// A round of at most so many kills.
    pub fn draw(seed: u64, mode: ClientMode, kills: usize) -> Round {
        let mut random = fastrand::Rng::with_seed(seed);
        let manifests: Vec<usize> = (0..random.usize(1..=3)).map(|_| random.usize(1..=3)).collect();
        let calls = 3 + random.u32(0..24);
        let are_storyboards = random.u32(0..4) == 0;
        Round {
            mode,
            manifests,
            are_storyboards,
            in_flight: [1, 3, 16][random.usize(0..3)],
            downloads: random.u32(1..=4),
            faults: faults(&mut random, are_storyboards),
            moments: (0..kills).map(|_| Moment::draw(&mut random, calls)).collect(),
        }
    }
}

/// Faults that a job survives, each by chance and by the seed: per key, so that the order of calls decides
/// nothing.
fn faults(random: &mut fastrand::Rng, are_storyboards: bool) -> String {
    /// These end a job for good where they come twice: the rows that take its outputs would wait for a person.
    const ENDINGS: [&str; 3] = ["fail-at-submission", "ending = 'failed'", "task-fails"];
    const RULES: [&str; 15] = [
        "on = 'create'\neffect = { do = 'drop', when = 'before' }",
        "on = 'create'\neffect = { do = 'drop', when = 'after' }",
        "on = 'create'\neffect = { do = 'answer', status = 504, body = 'html', when = 'after' }",
        "on = 'create'\neffect = { do = 'answer', status = 500, body = 'broken-json', when = 'after' }",
        "on = 'create'\neffect = { do = 'answer', status = 503, body = 'empty' }",
        "on = 'poll'\neffect = { do = 'drop', when = 'mid-body' }",
        "on = 'poll'\neffect = { do = 'answer', status = 502, body = 'html' }",
        "effect = { do = 'fail-at-submission' }",
        "effect = { do = 'unknown-outcome' }",
        "effect = { do = 'unknown-outcome', ending = 'failed' }",
        "effect = { do = 'task-fails', code = 'provider_unavailable' }",
        "effect = { do = 'urls-expire', ms = 500 }",
        "on = 'download'\neffect = { do = 'truncated-download', keep_percent = 60 }",
        "on = 'download'\neffect = { do = 'html-download' }",
        "on = 'download'\neffect = { do = 'slow-download', bytes_per_second = 200000 }",
    ];
    let mut plan = format!("seed = {}\n", random.u32(..));
    for rule in RULES {
        if are_storyboards && ENDINGS.iter().any(|ending| rule.contains(ending)) {
            continue;
        }
        // Some rounds are calmer than others.
        let chance = f64::from(random.u32(0..=12)) / 100.0;
        let rule = format!("[[rules]]\nper = 'task'\ntimes = 2\nprobability = {chance}\n{rule}\n");
        plan.push_str(&rule);
    }
    plan
}
