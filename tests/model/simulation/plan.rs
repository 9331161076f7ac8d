//! What a seed stands for: batches, terms, limits, and everything that will go wrong, and when.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use callsheet::domain::admission::Limits;
use callsheet::domain::batch_origin::{Origin, SourcePlace};
use callsheet::domain::budget_group::{GroupKey, GroupLimits, KeyLimits, ValueLimits};
use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{BatchNo, Fingerprint, JobId, JobKey, Seq};
use callsheet::domain::job::{JobSpec, Order, OrderTerms};
use callsheet::domain::manifest::row::{Deadline, OnDeadline, OnDrift, Policy};
use callsheet::domain::quote::{Catalog, Rules};
use callsheet::domain::request::Kind;
use callsheet::domain::retry_delay::Backoff;
use callsheet::domain::review::ReviewAction;
use callsheet::domain::time::{Millis, Timestamp};
use callsheet::engine::scheduler::Settings;
use fastrand::Rng;
use serde_json::{Value, json};

use super::references;
use super::service::{Elsewhere, Trouble};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;

/// When the history begins, by the calendar: half an hour before a UTC midnight.
pub const BEGINNING: i64 = 1_800_000_000_000 / 86_400_000 * 86_400_000 - 1_800_000;

/// A manifest that comes in.
#[derive(Debug, Clone)]
pub struct Manifest {
    pub batch: BatchNo,
    /// Where it comes from. Another place may have a file of the same name, which is another batch's.
    pub from: Origin,
    pub rows: Vec<Arc<JobSpec>>,
    pub policy: Policy,
    /// So many rows from the top are done first, with those whose outputs they take.
    pub pilot: Option<u32>,
}

/// What an operator asks for, of whatever there is then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Errand {
    Pause,
    Resume,
    ResumeAll,
    Cancel,
    CancelJob,
    Retry,
    RetryJob,
    FetchAgain,
    Resolve,
    RaiseBudget,
    Reload,
    Announced,
    Continue,
    /// Says something about outputs: approves, rejects, picks one take of a row, or takes that back.
    Decide,
}

/// Where a process dies.
#[derive(Debug, Clone, Copy)]
pub enum Death {
    /// Now, with whatever is in the air.
    AtOnce,
    /// Before its next commit.
    BeforeCommit,
    /// Its next commit is durable, and nobody hears of it.
    Unacknowledged,
    /// After its next commit, when so many effects have begun.
    AmongEffects(usize),
}

/// How a state is begun again that was lost, or taken to another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The database is whole, and rebuilt all the same.
    Rebuilt,
    /// It is lost, and built from what lies beside it.
    Lost,
    /// It is exported, and imported elsewhere.
    CarriedOver,
}

/// What happens at an instant.
#[derive(Debug, Clone)]
pub enum Happening {
    Manifest(Manifest),
    Errand(Errand),
    /// The process dies, and is down for so long.
    Death(Death, u64),
    /// It is told to stop, and is down for so long.
    Stop(u64),
    /// It dies, its state is recovered, and it begins again after so long.
    Recovery(Recovery, u64),
    /// The calendar is changed by so much.
    ClockStep(i64),
    DiskIsLow(bool),
    /// Credits are bought.
    TopUp(u64),
    /// Others do something with the account.
    Elsewhere(Elsewhere),
    /// Somebody decides about the outputs of a job, whatever else is going on.
    Decision(JobKey, ReviewAction),
    /// A manifest comes again, with rows that were edited or that are as they were before. Which ones is drawn from this.
    Edit(u64),
}

impl Happening {
    /// By how much the end of everything may be put off.
    fn delays(&self) -> u64 {
        match self {
            Happening::Death(_, down) | Happening::Stop(down) | Happening::Recovery(_, down) => *down,
            Happening::ClockStep(by) => by.unsigned_abs(),
            _ => 0,
        }
    }
}

/// How often the network fails, in thousandths.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    pub unconnected: u32,
    pub lost: u32,
    pub unheard: u32,
    pub late: u32,
    pub twice: u32,
    pub bad_download: u32,
}

/// Everything a seed says.
#[derive(Debug)]
pub struct Plan {
    pub settings: Settings,
    pub happenings: Vec<(u64, Happening)>,
    pub troubles: Vec<(Trouble, u64, u64)>,
    pub weather: Weather,
    pub clumsiness: u32,
    pub slowness: u64,
    pub is_generous: bool,
    /// Tasks a day that the plan's allowance covers.
    pub daily: u64,
    pub balance: u64,
    /// When everything that goes wrong is over.
    pub horizon: u64,
    /// Within which time after that all must have ended.
    pub patience: u64,
    /// What the service will charge for a job, and whether it refuses it.
    pub truths: BTreeMap<JobId, (u64, bool)>,
}

pub fn of(seed: u64) -> Plan {
    let mut draw = Draw {
        random: Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        truths: BTreeMap::new(),
        daily: 0,
        is_listed: false,
    };
    let mut others = Others { random: Rng::with_seed(seed ^ 0x0EA5_E1DE) };
    draw.daily = others.daily();
    draw.is_listed = others.random.bool();
    let mut losses = Losses { random: Rng::with_seed(seed ^ 0x1057_57A7) };
    let horizon = draw.random.u64(10 * MINUTE..4 * HOUR);
    let settings = draw.settings(seed);
    let mut happenings = draw.manifests(horizon);
    references::take_outputs(seed, &mut happenings, &mut draw.truths);
    references::take_from_elsewhere(seed, draw.is_listed, &mut happenings, &mut draw.truths);
    happenings.extend(draw.disturbances(horizon));
    happenings.extend(others.happenings(horizon, draw.is_listed));
    happenings.extend(losses.happenings(horizon));
    let namesakes = losses.namesakes(&happenings);
    happenings.extend(namesakes);
    happenings.extend(edits(seed, horizon));
    let continued = pilots(seed, horizon, &mut happenings);
    happenings.extend(continued);
    happenings.extend(decisions(seed, horizon));
    happenings.sort_by_key(|(at, _)| *at);
    let is_calm = draw.random.u32(0..4) == 0;
    let mut rate = |most: u32| if is_calm { 0 } else { draw.random.u32(0..most) };
    let weather = Weather {
        unconnected: rate(80),
        lost: rate(80),
        unheard: rate(80),
        late: rate(80),
        twice: rate(80),
        bad_download: rate(400),
    };
    let clumsiness = rate(40);
    let troubles = draw.troubles(horizon);
    let steps: u64 = happenings.iter().map(|(_, what)| what.delays()).sum();
    let longest = settings.deadlines.values().map(|span| span.0).max().unwrap_or_default().max(HOUR);
    // One job after the other, where only one may be in flight.
    let in_turn = draw.truths.len() as u64 * HOUR;
    let patience = steps + 6 * longest + 3 * settings.watch_overdue_for.0 + in_turn + 24 * HOUR;
    Plan {
        happenings,
        troubles,
        weather,
        clumsiness,
        slowness: draw.one_of(&[5 * SECOND, MINUTE, 10 * MINUTE, 2 * HOUR]),
        is_generous: draw.random.bool(),
        daily: draw.daily,
        balance: draw.one_of(&[30, 200, 5_000, 5_000]),
        horizon,
        patience,
        settings,
        truths: draw.truths,
    }
}

/// The dearest row, and one credit more.
const DEAREST: u64 = 25;

/// The body of a row that costs so much in the beginning.
fn body(price: u64) -> serde_json::Map<String, Value> {
    let body = json!({"model": format!("at-{price}"), "prompt": "x"});
    body.as_object().cloned().unwrap()
}

/// The catalogs when prices are at so many hundredths of those of the beginning.
pub fn catalog(percent: u64) -> Catalog {
    let price = |n: u64| {
        let (whole, rest) = (n * percent / 100, n * percent % 100);
        serde_json::from_str::<Value>(&format!("{whole}.{rest:02}")).unwrap()
    };
    let image = (1..DEAREST).map(|n| {
        json!({"id": format!("at-{n}"), "modes": {"text-to-image": {
        "aspect_ratios": [], "qualities": [], "credits_per_generation": price(n)}}})
    });
    let video = (1..DEAREST).map(|n| {
        json!({"id": format!("at-{n}"), "modes": {"text-to-video": {
        "durations": [], "resolutions": [], "aspect_ratios": [], "audio_toggle": false, "defaults": {},
        "credits": {"720p": {"per_generation": price(n)}}}}})
    });
    // As long as an output: so much for each 5 seconds.
    let long = (1..DEAREST).map(|n| {
        let credits: serde_json::Map<String, Value> =
            (1..=3).map(|times| (format!("{}s", 5 * times), price(n * times))).collect();
        json!({"id": format!("long-{n}"), "modes": {"text-to-video": {
        "durations": ["5s", "10s", "15s"], "resolutions": [], "aspect_ratios": [], "audio_toggle": false,
        "defaults": {}, "credits": credits}}})
    });
    Catalog::of(&video.chain(long).collect(), &image.collect(), &json!([]), &Value::Null)
}

/// Whose a job is; some are nobody's.
fn client(price: u64) -> serde_json::Map<String, Value> {
    let named = ["acme", "zen"].get(usize::try_from(price % 3).unwrap());
    named.map(|name| ("client".to_owned(), Value::from(*name))).into_iter().collect()
}

/// Budgets of clients and of inboxes, drawn apart: in most histories there are none.
fn group_limits(random: &mut Rng) -> GroupLimits {
    let mut sometimes = || (random.u32(0..3) == 0).then(|| Credits(random.u64(10..200)));
    let mut values = || {
        let acme = sometimes().map(|limit| ("acme".to_owned(), limit)).into_iter().collect();
        ValueLimits { default: sometimes(), missing: sometimes(), values: acme }
    };
    let client = KeyLimits { total: values(), per_day: values() };
    let inbox = KeyLimits { total: values(), per_day: ValueLimits::default() };
    let keys = [(GroupKey::Meta("client".to_owned()), client), (GroupKey::Inbox, inbox)];
    keys.into_iter().filter(|_| random.u32(0..4) == 0).collect()
}

/// Manifests that come again with edited rows, drawn apart as well.
fn edits(seed: u64, horizon: u64) -> Vec<(u64, Happening)> {
    let mut random = Rng::with_seed(seed ^ 0xED17_ED17);
    let count = [0, 0, 2, 6][random.usize(0..4)];
    let mut one = || {
        let span = if random.bool() { 5 * MINUTE } else { horizon };
        (random.u64(0..span), Happening::Edit(random.u64(..)))
    };
    (0..count).map(|_| one()).collect()
}

/// What a person says about outputs, at any moment, drawn apart.
fn decisions(seed: u64, horizon: u64) -> Vec<(u64, Happening)> {
    let mut random = Rng::with_seed(seed ^ 0xDEC1_DE00);
    let count = [0, 2, 8][random.usize(0..3)];
    (0..count).map(|_| (random.u64(0..horizon), Happening::Errand(Errand::Decide))).collect()
}

/// In a third of the histories manifests have pilots. Their owner continues now and then; in the end they do, in any case.
/// Drawn apart, as edits are.
fn pilots(seed: u64, horizon: u64, happenings: &mut [(u64, Happening)]) -> Vec<(u64, Happening)> {
    let mut random = Rng::with_seed(seed ^ 0x9170_7000);
    if random.u32(0..3) > 0 {
        return Vec::new();
    }
    for (_, what) in happenings {
        if let Happening::Manifest(manifest) = what {
            manifest.pilot = Some(random.u32(1..4)).filter(|_| random.bool());
        }
    }
    let times: Vec<u64> = (0..random.u32(0..4)).map(|_| random.u64(0..horizon)).collect();
    times.into_iter().map(|at| (at, Happening::Errand(Errand::Continue))).collect()
}

struct Draw {
    random: Rng,
    truths: BTreeMap<JobId, (u64, bool)>,
    daily: u64,
    is_listed: bool,
}

/// What others do, drawn apart: so the rest of a seed's history is what it is without them.
struct Others {
    random: Rng,
}

impl Others {
    /// How many tasks a day an allowance covers.
    fn daily(&mut self) -> u64 {
        [0, 0, 2, 6][self.random.usize(0..4)]
    }

    fn happenings(&mut self, horizon: u64, is_listed: bool) -> Vec<(u64, Happening)> {
        let count = [0, 0, 2, 6][self.random.usize(0..4)];
        let mut one = || {
            let span = if self.random.bool() { 5 * MINUTE } else { horizon };
            let what = match self.random.u32(0..if is_listed { 8 } else { 4 }) {
                4.. => Elsewhere::Prices([50, 75, 100, 150, 200, 300][self.random.usize(0..6)]),
                0 => Elsewhere::Spends(self.random.u64(1..100)),
                1 => Elsewhere::Uses(self.random.u64(1..6)),
                _ => Elsewhere::Cancels,
            };
            (self.random.u64(0..span), Happening::Elsewhere(what))
        };
        (0..count).map(|_| one()).collect()
    }
}

/// What becomes of the state, drawn apart as well.
struct Losses {
    random: Rng,
}

/// Every batch is begun from this inbox.
const OWN: &str = "own";

fn inbox(name: &str) -> Origin {
    Origin { place: SourcePlace::Inbox(name.to_owned()), stem: Some("jobs".to_owned()) }
}

impl Losses {
    /// Files of the same name in another inbox: rows that nobody wants in these batches, and a budget for all of them.
    fn namesakes(&mut self, happenings: &[(u64, Happening)]) -> Vec<(u64, Happening)> {
        let manifests = happenings.iter().filter_map(|(at, what)| match what {
            Happening::Manifest(manifest) => Some((*at, manifest)),
            _ => None,
        });
        let mut namesake = |(at, own): (u64, &Manifest)| {
            let policy = Policy { budget: Some(Credits(1_000_000)), ..Policy::default() };
            let manifest = Manifest { from: inbox("other"), policy, ..own.clone() };
            (at + self.random.u64(1..10 * MINUTE), Happening::Manifest(manifest))
        };
        let all: Vec<(u64, &Manifest)> = manifests.collect();
        all.into_iter().step_by(3).map(&mut namesake).collect()
    }

    fn happenings(&mut self, horizon: u64) -> Vec<(u64, Happening)> {
        let count = [0, 0, 1, 3][self.random.usize(0..4)];
        let mut one = || {
            let span = if self.random.bool() { 5 * MINUTE } else { horizon };
            let how = [Recovery::Rebuilt, Recovery::Lost, Recovery::CarriedOver][self.random.usize(0..3)];
            let (at, down) = (self.random.u64(0..span), self.random.u64(SECOND..10 * MINUTE));
            // Its operator looks at it, and lets it go on.
            let resumed = (at + down + SECOND, Happening::Errand(Errand::ResumeAll));
            [(at, Happening::Recovery(how, down)), resumed]
        };
        (0..count).flat_map(|_| one()).collect()
    }
}

impl Draw {
    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(0..of.len())]
    }

    /// Something in one of `n` cases.
    fn sometimes<T>(&mut self, n: u32, draw: impl FnOnce(&mut Draw) -> T) -> Option<T> {
        (self.random.u32(0..n) == 0).then(|| draw(self))
    }

    fn settings(&mut self, seed: u64) -> Settings {
        let credits = |draw: &mut Draw| Credits(draw.random.u64(10..200));
        let limits = Limits {
            in_flight: self.one_of(&[1, 2, 4, 16]),
            in_flight_per_kind: self.sometimes(4, |_| BTreeMap::from([(Kind::Video, 1)])).unwrap_or_default(),
            in_flight_per_model: BTreeMap::new(),
            total: self.sometimes(4, credits),
            per_day: self.sometimes(4, credits),
            min_balance: self.sometimes(5, |draw| Credits(draw.random.u64(1..60))),
        };
        let deadlines =
            Kind::ALL.into_iter().map(|kind| (kind, Millis(self.random.u64(MINUTE..30 * MINUTE))));
        Settings {
            limits,
            deadlines: deadlines.collect(),
            submits_per_second: NonZeroU32::new([0, 0, 0, 1, 20][Rng::with_seed(seed ^ 0x7261).usize(0..5)]),
            requests_at_once: [3, 1_000][Rng::with_seed(seed ^ 0x51a7).usize(0..2)],
            adaptive: self.random.bool(),
            rejections: self.one_of(&[2, 5]),
            downloads: self.one_of(&[1, 4]),
            scratch_max: None,
            poll_min: Millis(5_000),
            poll_max: Millis(10_000),
            overdue_poll: Millis(self.one_of(&[MINUTE, 5 * MINUTE])),
            watch_overdue_for: Millis(self.one_of(&[10 * MINUTE, HOUR, 3 * HOUR])),
            attempts: self.random.u32(1..4),
            backoff: Backoff { base: Millis(2_000), max: Millis(300_000) },
            balance_interval: Millis(MINUTE),
            has_allowances: true,
            group_limits: group_limits(&mut Rng::with_seed(seed ^ 0x6709)),
            rules: self.is_listed.then(|| Arc::new(Rules::builtin())),
            seed,
        }
    }

    fn policy(&mut self, horizon: u64) -> Policy {
        Policy {
            budget: self.sometimes(2, |draw| Credits(draw.random.u64(10..300))),
            on_deadline: Some(self.one_of(&[OnDeadline::Watch, OnDeadline::Resubmit])),
            expires: self.sometimes(6, |draw| Deadline::After(Millis(draw.random.u64(MINUTE..horizon)))),
            attempts: self.sometimes(2, |draw| draw.random.u32(1..5)),
            on_drift: self.sometimes(4, |_| OnDrift::Pause),
            ..Policy::default()
        }
    }

    fn manifests(&mut self, horizon: u64) -> Vec<(u64, Happening)> {
        let mut all = Vec::new();
        for no in 1..=self.random.u32(1..4) {
            let policy = self.policy(horizon);
            let mut first = 0;
            let mut at = if no == 1 { 0 } else { self.random.u64(0..horizon / 2) };
            for _ in 0..self.one_of(&[1, 1, 2, 3]) {
                let count = self.one_of(&[1, 3, 8, 20]);
                let rows = (first..first + count).map(|seq| self.row(BatchNo(no), seq, horizon)).collect();
                first += count;
                let manifest = Manifest {
                    batch: BatchNo(no),
                    from: inbox(OWN),
                    rows,
                    policy: policy.clone(),
                    pilot: None,
                };
                all.push((at, Happening::Manifest(manifest)));
                at += self.random.u64(1..horizon / 2);
            }
        }
        all
    }

    fn row(&mut self, batch: BatchNo, seq: u32, horizon: u64) -> Arc<JobSpec> {
        let drawn = self.one_of(&Kind::ALL);
        let hold = self.random.u64(1..DEAREST);
        let is_priced = self.random.u32(0..6) > 0;
        let kind = match drawn {
            _ if !self.is_listed => drawn,
            _ if !is_priced => Kind::ShortsStudio,
            Kind::Video | Kind::Music | Kind::Speech => Kind::Video,
            _ => Kind::Image,
        };
        let body = if self.is_listed && is_priced { body(hold) } else { serde_json::Map::new() };
        let cost = if is_priced { hold } else { self.random.u64(0..=hold) };
        let is_refused = self.random.u32(0..25) == 0;
        let terms = OrderTerms {
            price: is_priced.then_some(Credits(hold)),
            waivable: if self.daily > 0 && kind == Kind::Image { Credits(hold) } else { Credits::ZERO },
            max_credits: (!is_priced).then_some(Credits(hold)),
            priority: self.sometimes(5, |draw| draw.random.i8(-1..3)).unwrap_or_default(),
            deadline: self.sometimes(4, |draw| draw.deadline(horizon)),
            ..OrderTerms::of(kind)
        };
        let order = Order {
            line: u64::from(seq) + 2,
            body: body.into(),
            inputs: Default::default(),
            files: Default::default(),
            written: None,
            meta: client(hold).into(),
            terms: terms.into(),
        };
        let id = JobId((u128::from(batch.0) << 32 | u128::from(seq)).to_be_bytes());
        self.truths.insert(id, (cost, is_refused));
        let label = format!("job-{seq}");
        Arc::new(JobSpec {
            seq: Seq(seq),
            id,
            fingerprint: Fingerprint(id.0),
            variation: 1,
            label,
            apart: false,
            order,
        })
    }

    fn deadline(&mut self, horizon: u64) -> Deadline {
        let span = self.random.u64(30 * SECOND..horizon);
        if self.random.bool() {
            Deadline::After(Millis(span / 4))
        } else {
            Deadline::At(Timestamp(BEGINNING).after(Millis(span)))
        }
    }

    fn disturbances(&mut self, horizon: u64) -> Vec<(u64, Happening)> {
        let mut all = Vec::new();
        for _ in 0..self.one_of(&[0, 2, 5, 12]) {
            // Half of it falls into the first minutes, where most moves.
            let span = if self.random.bool() { 3 * MINUTE } else { horizon };
            let at = self.random.u64(0..span);
            let what = match self.random.u32(0..20) {
                0..6 => {
                    let (death, down) = (self.death(), self.downtime());
                    Happening::Death(death, down)
                }
                6 => Happening::Stop(self.downtime()),
                7..9 => Happening::ClockStep(self.step()),
                9 => {
                    let until = (at + self.random.u64(SECOND..HOUR)).min(horizon);
                    all.push((until, Happening::DiskIsLow(false)));
                    Happening::DiskIsLow(true)
                }
                10 => Happening::TopUp(self.random.u64(1..500)),
                _ => Happening::Errand(self.errand()),
            };
            all.push((at, what));
        }
        all
    }

    fn errand(&mut self) -> Errand {
        self.one_of(&[
            Errand::Pause,
            Errand::Resume,
            Errand::Cancel,
            Errand::CancelJob,
            Errand::CancelJob,
            Errand::Retry,
            Errand::RetryJob,
            Errand::FetchAgain,
            Errand::Resolve,
            Errand::RaiseBudget,
            Errand::Reload,
            Errand::Announced,
        ])
    }

    fn death(&mut self) -> Death {
        let after = self.random.usize(0..5);
        self.one_of(&[Death::AtOnce, Death::BeforeCommit, Death::Unacknowledged, Death::AmongEffects(after)])
    }

    fn downtime(&mut self) -> u64 {
        let most = self.one_of(&[3 * SECOND, 3 * SECOND, 10 * MINUTE, 3 * HOUR, 48 * HOUR]);
        self.random.u64(SECOND..most)
    }

    fn step(&mut self) -> i64 {
        let most = self.one_of(&[MINUTE, HOUR, 30 * HOUR]).cast_signed();
        self.random.i64(-most..most)
    }

    fn troubles(&mut self, horizon: u64) -> Vec<(Trouble, u64, u64)> {
        let count = self.one_of(&[0, 1, 3]);
        let mut trouble = || {
            let what = self.one_of(&[Trouble::Key, Trouble::Away, Trouble::Crowded, Trouble::Forgetful]);
            let from = self.random.u64(0..horizon);
            (what, from, (from + self.random.u64(SECOND..HOUR)).min(horizon))
        };
        (0..count).map(|_| trouble()).collect()
    }
}
