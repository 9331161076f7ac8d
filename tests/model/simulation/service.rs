//! The service, written from its document: keys, charges, refunds, and the answers as they stand on the wire.
//!
//! It keeps books of its own. What the client makes of an answer is the client's own code.

use std::collections::{BTreeMap, BTreeSet};

use callsheet::api::RawResponse;
use callsheet::domain::ids::{BatchNo, JobKey};
use serde_json::json;

use super::plan::BEGINNING;

const DAY: u64 = 24 * super::plan::HOUR;

/// What a creating POST carries, and what only the world knows of it.
#[derive(Debug, Clone)]
pub struct Request {
    pub job: JobKey,
    pub attempt: u32,
    /// The `Idempotency-Key`; Shorts Studio has none.
    pub key: Option<String>,
    pub cost: u64,
    /// Its content is refused, always.
    pub is_refused: bool,
    /// It is rendered inside the call.
    pub is_sync: bool,
    /// A plan allowance may cover it.
    pub is_coverable: bool,
    /// The catalog has its price, which changes with the catalog.
    pub is_listed: bool,
}

/// What others do with the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// Another client spends so much.
    Spends(u64),
    /// Another client uses so much of the day's allowance.
    Uses(u64),
    /// Somebody cancels a task in the web application.
    Cancels,
    /// The service sets its prices to so many hundredths of what they were in the beginning.
    Prices(u64),
}

/// How a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Success,
    Failed(&'static str),
    Canceled,
    /// Never.
    Stuck,
}

/// A task in the service's own books.
#[derive(Debug)]
pub struct Task {
    pub job: JobKey,
    pub attempt: u32,
    pub charged: u64,
    pub waived: u64,
    end: End,
    pub is_over: bool,
    /// The day whose allowance covered it.
    covered_on: Option<u64>,
}

impl Task {
    /// What it costs at this moment.
    pub fn net(&self) -> u64 {
        let is_refunded = self.is_over && self.end != End::Success;
        if is_refunded { 0 } else { self.charged }
    }

    /// Whether what it costs can still change.
    pub fn is_settled(&self) -> bool {
        self.is_over || self.end == End::Stuck
    }

    /// Whether it was canceled at the service.
    pub fn was_canceled(&self) -> bool {
        self.is_over && self.end == End::Canceled
    }

    pub fn has_succeeded(&self) -> bool {
        self.is_over && self.end == End::Success
    }

    fn status(&self) -> &'static str {
        match self.end {
            _ if !self.is_over => "processing",
            End::Success => "success",
            End::Failed(_) => "failed",
            End::Canceled => "canceled",
            End::Stuck => "processing",
        }
    }
}

/// What is wrong with the service for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// 401 to everything.
    Key,
    /// 5xx, from the service or something before it, sometimes after the work was done.
    Away,
    /// 429.
    Crowded,
    /// 404 to every reading of a task.
    Forgetful,
}

#[derive(Debug)]
pub struct Service {
    pub balance: u64,
    pub tasks: Vec<Task>,
    keys: BTreeMap<String, usize>,
    running: BTreeSet<(u64, usize)>,
    pub troubles: Vec<(Trouble, u64, u64)>,
    /// How many of a thousand answers go wrong without any trouble.
    pub clumsiness: u32,
    /// How long tasks take at most, in milliseconds.
    pub slowness: u64,
    /// Whether some cost nothing, for no reason that a client could know.
    pub is_generous: bool,
    /// Tasks a day that the plan's allowance covers.
    pub daily: u64,
    /// What is used of it, by day.
    used: BTreeMap<u64, u64>,
    /// The prices in force, in hundredths of those of the beginning.
    pub price_percent: u64,
    /// When others spent how much.
    spent_elsewhere: Vec<(u64, u64)>,
    random: fastrand::Rng,
}

impl Service {
    pub fn new(seed: u64, balance: u64) -> Service {
        Service {
            balance,
            tasks: Vec::new(),
            keys: BTreeMap::new(),
            running: BTreeSet::new(),
            troubles: Vec::new(),
            clumsiness: 0,
            slowness: 60_000,
            is_generous: false,
            daily: 0,
            used: BTreeMap::new(),
            price_percent: 100,
            spent_elsewhere: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Ends what has run for long enough, and refunds what did not succeed.
    pub fn pass(&mut self, now: u64) {
        while let Some(&(at, index)) = self.running.first().filter(|(at, _)| *at <= now) {
            self.running.remove(&(at, index));
            self.end(index);
        }
    }

    fn end(&mut self, index: usize) {
        let before = self.tasks[index].net();
        self.tasks[index].is_over = true;
        self.balance += before - self.tasks[index].net();
        let covered_on = self.tasks[index].covered_on.filter(|_| !self.tasks[index].has_succeeded());
        if let Some(used) = covered_on.and_then(|day| self.used.get_mut(&day)) {
            *used -= 1;
        }
    }

    fn has(&self, trouble: Trouble, now: u64) -> bool {
        self.troubles.iter().any(|(what, from, until)| *what == trouble && (*from..*until).contains(&now))
    }

    fn slips(&mut self) -> bool {
        self.random.u32(0..1000) < self.clumsiness
    }

    /// A creating POST arrives.
    pub fn post(&mut self, request: &Request, now: u64) -> RawResponse {
        if self.has(Trouble::Key, now) {
            return error(401, "unauthorized", None);
        }
        if self.has(Trouble::Crowded, now) || self.slips() {
            let wait = self.random.bool().then(|| self.random.u64(0..60).to_string());
            return RawResponse { retry_after: wait, ..error(429, "rate_limited", None) };
        }
        if self.has(Trouble::Away, now) || self.slips() {
            return match self.random.u32(0..4) {
                0 => error(503, "internal_error", None),
                1 => page(502),
                2 => {
                    self.take(request, now);
                    page(504)
                }
                _ => {
                    self.take(request, now);
                    error(500, "internal_error", None)
                }
            };
        }
        self.take(request, now)
    }

    fn take(&mut self, request: &Request, now: u64) -> RawResponse {
        if let Some(known) = request.key.as_ref().and_then(|key| self.keys.get(key)) {
            return self.show(*known);
        }
        if request.is_refused {
            return error(400, "content_rejected", None);
        }
        let cost = if request.is_listed { listed(request.cost, self.price_percent) } else { request.cost };
        let day = (BEGINNING.unsigned_abs() + now) / DAY;
        let is_covered = request.is_coverable
            && self.used.get(&day).is_none_or(|used| *used < self.daily)
            && self.daily > 0;
        if self.balance < cost && !is_covered {
            return error(402, "insufficient_credits", None);
        }
        let is_waived = self.is_generous && self.random.u32(0..10) == 0 || is_covered;
        let (charged, waived) = if is_waived { (0, cost) } else { (cost, 0) };
        self.balance -= charged;
        let covered_on = is_covered.then_some(day);
        if is_covered {
            *self.used.entry(day).or_default() += 1;
        }
        let end = match self.random.u32(0..100) {
            0..75 => End::Success,
            75..86 => End::Failed("busy"),
            86..91 => End::Failed("generic"),
            91..94 => End::Failed("invalid_input"),
            94..98 => End::Canceled,
            _ => End::Stuck,
        };
        let index = self.tasks.len();
        let Request { job, attempt, .. } = *request;
        self.tasks.push(Task { job, attempt, charged, waived, end, is_over: false, covered_on });
        if let Some(key) = &request.key {
            self.keys.insert(key.clone(), index);
        }
        let at_submission = self.random.u32(0..12) == 0;
        match end {
            End::Failed(_) if at_submission => self.end(index),
            End::Stuck => {}
            _ if request.is_sync => self.end(index),
            _ => drop(self.running.insert((now + self.random.u64(500..self.slowness), index))),
        }
        match end {
            End::Failed(_) if at_submission && self.random.bool() => {
                error(400, "invalid_request", Some(index))
            }
            End::Failed(_) if at_submission => error(500, "internal_error", Some(index)),
            // The outcome is unknown to it: the task says.
            _ if self.random.u32(0..50) == 0 => error(500, "internal_error", Some(index)),
            _ => self.show(index),
        }
    }

    /// Others do something with the account; what it came to.
    pub fn elsewhere(&mut self, what: Elsewhere, now: u64) -> String {
        match what {
            Elsewhere::Spends(credits) => {
                let credits = credits.min(self.balance);
                self.balance -= credits;
                self.spent_elsewhere.push((now, credits));
                format!("spends {credits} credits elsewhere")
            }
            Elsewhere::Uses(units) => {
                let day = (BEGINNING.unsigned_abs() + now) / DAY;
                let used = self.used.entry(day).or_default();
                *used = (*used + units).min(self.daily.max(*used));
                format!("has used {used} of the day's allowance of {}", self.daily)
            }
            Elsewhere::Prices(percent) => {
                self.price_percent = percent;
                format!("sets the prices to {percent} %")
            }
            Elsewhere::Cancels => {
                let open: Vec<usize> =
                    (0..self.tasks.len()).filter(|index| !self.tasks[*index].is_over).collect();
                if open.is_empty() {
                    return "finds no task to cancel".to_owned();
                }
                let index = open[self.random.usize(0..open.len())];
                self.running.retain(|(_, other)| *other != index);
                self.tasks[index].end = End::Canceled;
                self.end(index);
                format!("cancels task-{index} in the web application")
            }
        }
    }

    /// What others spent from a moment on.
    pub fn spent_elsewhere_since(&self, since: u64) -> u64 {
        self.spent_elsewhere.iter().filter(|(at, _)| *at >= since).map(|(_, credits)| credits).sum()
    }

    /// A task is read.
    pub fn read(&mut self, id: &str, now: u64) -> RawResponse {
        if self.has(Trouble::Key, now) {
            return error(401, "unauthorized", None);
        }
        if self.has(Trouble::Away, now) || self.slips() {
            return page(502);
        }
        if self.has(Trouble::Crowded, now) {
            return error(429, "rate_limited", None);
        }
        let known = id.strip_prefix("task-").and_then(|n| n.parse().ok()).filter(|n| *n < self.tasks.len());
        match known {
            Some(index) if !self.has(Trouble::Forgetful, now) => self.show(index),
            _ => error(404, "not_found", None),
        }
    }

    /// The balance is asked for.
    pub fn credits(&mut self, now: u64) -> Option<u64> {
        let is_silent = self.has(Trouble::Key, now) || self.has(Trouble::Away, now) || self.slips();
        (!is_silent).then_some(self.balance)
    }

    fn show(&self, index: usize) -> RawResponse {
        let task = &self.tasks[index];
        let status = task.status();
        let urls: Vec<String> =
            if status == "success" { vec![format!("https://r/{index}")] } else { Vec::new() };
        let info = match task.end {
            End::Failed(code) if task.is_over => Some(json!({"errorCode": code, "error": code}).to_string()),
            _ => None,
        };
        let data = json!({
            "id": format!("task-{index}"), "status": status, "costCredits": task.charged,
            "waivedCredits": task.waived, "taskUrls": urls, "taskInfo": info,
        });
        answer(200, &json!({"code": 0, "message": "ok", "data": data}))
    }

    pub fn tasks_of(&self, job: JobKey) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(move |task| task.job == job)
    }

    /// What a batch's tasks cost at this moment.
    pub fn net_of(&self, batch: BatchNo) -> u64 {
        self.tasks.iter().filter(|task| task.job.batch == batch).map(Task::net).sum()
    }
}

/// A price of the beginning at so many hundredths.
pub fn listed(price: u64, percent: u64) -> u64 {
    (price * percent).div_ceil(100)
}

fn answer(status: u16, body: &serde_json::Value) -> RawResponse {
    RawResponse { status, retry_after: None, date: None, redirect: None, body: body.to_string().into_bytes() }
}

fn error(status: u16, kind: &str, task: Option<usize>) -> RawResponse {
    let mut error = json!({"type": kind, "hint": "", "docs": "https://docs"});
    if let Some(index) = task {
        error["task_id"] = format!("task-{index}").into();
    }
    answer(status, &json!({"code": -1, "message": kind, "error": error}))
}

/// Something before the service answers in its place.
fn page(status: u16) -> RawResponse {
    RawResponse { status, retry_after: None, date: None, redirect: None, body: b"<html>".to_vec() }
}
