//! Hooks with a real receiver, real commands and real restarts.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::net::SocketAddr;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchNo;
use crate::domain::retry_delay::Backoff;
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::store::BatchRecord;

/// Longest wait for anything: a test that waits for it has failed.
const TIMEOUT: Duration = Duration::from_secs(30);
const SECRET_BYTES: [u8; 32] = [7; 32];

/// One POST as it came in.
#[derive(Debug, Clone)]
struct Received {
    headers: HeaderMap,
    body: String,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// Instead of a status: no answer at all.
const SILENCE: u16 = 0;

/// A receiver that answers with one status after the other, and then with 204.
#[derive(Clone, Default)]
struct Receiver {
    statuses: Arc<Mutex<VecDeque<u16>>>,
    received: Arc<Mutex<Vec<Received>>>,
}

async fn receive(
    State(receiver): State<Receiver>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, HeaderMap) {
    receiver.received.lock().unwrap().push(Received { headers, body });
    let status = receiver.statuses.lock().unwrap().pop_front().unwrap_or(204);
    if status == SILENCE {
        std::future::pending::<()>().await;
    }
    let mut headers = HeaderMap::new();
    headers.insert("location", "/elsewhere".parse().unwrap());
    (StatusCode::from_u16(status).unwrap(), headers)
}

impl Receiver {
    async fn start(statuses: &[u16]) -> (Receiver, SocketAddr) {
        let receiver = Receiver::default();
        receiver.statuses.lock().unwrap().extend(statuses);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = axum::Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (receiver, address)
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    async fn wait_for(&self, count: usize) -> Vec<Received> {
        eventually(|| self.received.lock().unwrap().len() >= count).await;
        self.received()
    }
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.expect("it never came to that");
}

/// A state folder and what is configured.
struct House {
    dir: TempDir,
    config: HooksConfig,
    timeouts: HookTimeouts,
}

fn house() -> House {
    let quick = Backoff { base: Millis(20), max: Millis(40) };
    let retries = RetrySchedule { backoff: quick, ..RetrySchedule::default() };
    let timeouts = HookTimeouts { retries, stop: Duration::from_millis(50), ..HookTimeouts::default() };
    House { dir: tempfile::tempdir().unwrap(), config: HooksConfig::default(), timeouts }
}

impl House {
    fn posting_to(mut self, address: SocketAddr) -> House {
        self.config.webhook = Some(format!("http://{address}/hook").parse().unwrap());
        self
    }

    fn running(mut self, script: &str) -> House {
        self.config.batch_done = ["sh", "-c", script, "hook"].map(str::to_owned).to_vec();
        self
    }

    fn hooks(&self) -> Hooks {
        let secret = SecretString::from(format!("whsec_{}", STANDARD.encode(SECRET_BYTES)));
        Hooks::new(&self.config, Some(&secret), self.dir.path(), self.timeouts, Clock::start()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn files(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
        files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

/// A process that delivers, until it is stopped.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn start(hooks: &Hooks) -> Running {
    let (stop, stopped) = oneshot::channel();
    let hooks = hooks.clone();
    let task = tokio::spawn(async move {
        hooks
            .run(async {
                let _ = stopped.await;
            })
            .await;
    });
    Running { stop, task }
}

impl Running {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(TIMEOUT, self.task).await.unwrap().unwrap();
    }
}

fn batch(name: &str, succeeded: u32) -> BatchRecord {
    let mut batch = BatchRecord::new(BatchNo(1), name.parse().unwrap(), Timestamp(1_000));
    (batch.rows, batch.planned) = (succeeded + 1, Credits(30));
    (batch.ended.succeeded, batch.ended.failed) = (succeeded, 1);
    (batch.totals.spent, batch.totals.refunded) = (Credits(20), Credits(10));
    batch
}

fn done(name: &str, succeeded: u32) -> BatchDone {
    BatchDone::of(
        &batch(name, succeeded),
        &BTreeMap::new(),
        Path::new("/srv/output/spring"),
        Timestamp(5_000),
    )
}

#[test]
fn a_message_that_waits_for_its_next_try_comes_before_those_that_came_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut outbox = Outbox::open(dir.path()).unwrap();
    let at = |seconds: u32| Now { wall: Timestamp(0), tick: Tick(u64::from(seconds) * 1_000) };
    outbox.push(&done("first", 1), at(0)).unwrap();
    outbox.postpone(1, Channel::Webhook, at(5).tick);
    outbox.push(&done("second", 1), at(10)).unwrap();
    let next = |outbox: &Outbox| outbox.next(Channel::Webhook).unwrap().number;
    assert_eq!(next(&outbox), 1);
    outbox.postpone(1, Channel::Webhook, at(15).tick);
    assert_eq!(next(&outbox), 2);
}

#[test]
fn an_end_that_comes_to_the_same_after_jobs_were_taken_up_again_is_another_event() {
    let end_of = |record: &BatchRecord| {
        BatchDone::of(record, &BTreeMap::new(), Path::new("/srv/output/spring"), Timestamp(5_000)).id
    };
    let once = batch("spring", 2);
    let again = BatchRecord { reopened: 1, ..once.clone() };
    assert_ne!(end_of(&once), end_of(&again));
    assert_eq!(end_of(&again), end_of(&again.clone()), "a repetition is recognised");
}

/// HMAC-SHA256 from its definition (RFC 2104), not from the library that signs.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad =
        |byte: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).copied().unwrap_or_default() ^ byte).collect() };
    let inner = Sha256::digest([pad(0x36), message.to_vec()].concat());
    Sha256::digest([pad(0x5C), inner.to_vec()].concat()).to_vec()
}

fn check_signature(received: &Received) {
    let (id, seconds) = (received.header("webhook-id"), received.header("webhook-timestamp"));
    let age = Clock::start().now().wall.0 / 1000 - seconds.parse::<i64>().unwrap();
    assert!((0..60).contains(&age), "the timestamp is that of the sending: {age} s");
    let signed = format!("{id}.{seconds}.{}", received.body);
    let expected = format!("v1,{}", STANDARD.encode(hmac(&SECRET_BYTES, signed.as_bytes())));
    assert_eq!(received.header("webhook-signature"), expected);
}

#[tokio::test]
async fn a_batch_is_told_to_the_command_and_to_the_webhook() {
    let (receiver, address) = Receiver::start(&[]).await;
    let house = house().posting_to(address);
    let script = format!("cat > {}", house.path("told.json").display());
    let house = house.running(&script);
    let hooks = house.hooks();
    let running = start(&hooks);
    let event = done("spring", 2);
    hooks.batch_done(&event).unwrap();

    let received = receiver.wait_for(1).await.remove(0);
    check_signature(&received);
    assert_eq!(received.header("content-type"), "application/json");
    assert_eq!(received.header("webhook-id"), event.id);
    assert!(!received.headers.contains_key("authorization"));
    let message: Value = serde_json::from_str(&received.body).unwrap();
    assert_eq!(
        message,
        serde_json::json!({
            "type": "batch.done",
            "timestamp": "1970-01-01T00:00:05.000Z",
            "id": event.id,
            "data": {
                "batch": "spring",
                "jobs": 3,
                "states": {"succeeded": 2, "failed": 1, "canceled": 0, "expired": 0, "in_doubt": 0},
                "verdicts": {"done": 2, "failed": 1, "in_doubt": 0},
                "waiting_for_review": 0,
                "refused_rows": 0,
                "planned_credits": 30,
                "charged_credits": 20,
                "waived_credits": 0,
                "refunded_credits": 10,
                "output": "/srv/output/spring",
                "results": "/srv/output/spring/results.jsonl",
            },
        })
    );
    eventually(|| house.files("hooks").is_empty()).await;
    assert_eq!(fs::read_to_string(house.path("told.json")).unwrap(), received.body);
    running.stop().await;
}

#[tokio::test]
async fn each_end_of_a_batch_is_told_once() {
    let (receiver, address) = Receiver::start(&[]).await;
    let house = house().posting_to(address);
    let hooks = house.hooks();
    assert!(!hooks.has_delivered_or_pending(&done("spring", 2)).unwrap());
    hooks.batch_done(&done("spring", 2)).unwrap();
    assert!(hooks.has_delivered_or_pending(&done("spring", 2)).unwrap());
    hooks.batch_done(&done("spring", 2)).unwrap();
    let running = start(&hooks);
    receiver.wait_for(1).await;
    eventually(|| house.files("hooks").is_empty()).await;
    hooks.batch_done(&done("spring", 2)).unwrap();
    // After a restart, too; more jobs, and another batch, are another matter.
    running.stop().await;
    let hooks = house.hooks();
    assert!(hooks.has_delivered_or_pending(&done("spring", 2)).unwrap());
    hooks.batch_done(&done("spring", 2)).unwrap();
    hooks.batch_done(&done("spring", 3)).unwrap();
    hooks.batch_done(&done("autumn", 2)).unwrap();
    let running = start(&hooks);
    let ids: Vec<String> =
        receiver.wait_for(3).await.iter().map(|one| one.header("webhook-id").to_owned()).collect();
    assert_eq!(ids, [done("spring", 2).id, done("spring", 3).id, done("autumn", 2).id]);
    running.stop().await;
    assert_eq!(receiver.received().len(), 3);
}

#[tokio::test]
async fn a_receiver_that_fails_is_told_the_same_again() {
    let (receiver, address) = Receiver::start(&[500, 307, 429]).await;
    let house = house().posting_to(address);
    let hooks = house.hooks();
    hooks.batch_done(&done("spring", 2)).unwrap();
    assert_eq!(house.files("hooks"), ["000001.json"]);
    let running = start(&hooks);
    let received = receiver.wait_for(4).await;
    eventually(|| house.files("hooks").is_empty()).await;
    for one in &received {
        check_signature(one);
        assert_eq!(one.header("webhook-id"), received[0].header("webhook-id"));
        assert_eq!(one.body, received[0].body);
    }
    running.stop().await;
    assert_eq!(receiver.received().len(), 4, "no redirect was followed, and nothing sent after its delivery");
}

#[tokio::test]
async fn what_was_not_delivered_is_delivered_after_a_restart() {
    // A port without a listener.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let house = house().posting_to(closed);
    let counter = house.path("runs");
    let house = house.running(&format!("echo run >> {}", counter.display()));
    let runs = || fs::read_to_string(&counter).unwrap_or_default().lines().count();
    let hooks = house.hooks();
    let running = start(&hooks);
    hooks.batch_done(&done("spring", 2)).unwrap();
    // The command has run; the record of it is durable.
    let noted =
        || fs::read_to_string(house.path("hooks/000001.json")).unwrap().contains(r#""command":"delivered""#);
    eventually(|| runs() == 1 && noted()).await;
    running.stop().await;
    drop(hooks);

    let (receiver, address) = Receiver::start(&[]).await;
    let house = house.posting_to(address);
    let hooks = house.hooks();
    let running = start(&hooks);
    let received = receiver.wait_for(1).await;
    check_signature(&received[0]);
    assert_eq!(received[0].header("webhook-id"), done("spring", 2).id);
    eventually(|| house.files("hooks").is_empty()).await;
    running.stop().await;
    assert_eq!(runs(), 1, "a command that has run does not run again");
}

#[tokio::test]
async fn a_command_that_fails_is_run_again() {
    let house = house();
    let counter = house.path("runs");
    let script = format!("echo run >> {0}; test $(wc -l < {0}) -ge 3", counter.display());
    let house = house.running(&script);
    let hooks = house.hooks();
    hooks.batch_done(&done("spring", 2)).unwrap();
    let running = start(&hooks);
    eventually(|| house.files("hooks").is_empty()).await;
    running.stop().await;
    assert_eq!(fs::read_to_string(counter).unwrap().lines().count(), 3);
}

#[tokio::test]
async fn a_command_that_hangs_is_stopped_with_all_that_it_started_and_holds_up_no_webhook() {
    let (receiver, address) = Receiver::start(&[]).await;
    let mut house = house().posting_to(address);
    house.timeouts.command = Duration::from_secs(1);
    house.timeouts.retries.give_up = Millis(0);
    let pids = house.path("pids");
    let script = format!("sleep 1000 & echo $! $$ > {0}.new; mv {0}.new {0}; sleep 1000", pids.display());
    let house = house.running(&script);
    let hooks = house.hooks();
    let running = start(&hooks);
    hooks.batch_done(&done("spring", 2)).unwrap();
    receiver.wait_for(1).await;
    assert!(house.files("hooks/failed").is_empty(), "the webhook did not wait for the command");
    eventually(|| house.files("hooks/failed") == ["000001.json"]).await;
    let pids = fs::read_to_string(pids).unwrap();
    let is_gone = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z ")
    };
    assert_eq!(pids.split_whitespace().count(), 2);
    eventually(|| pids.split_whitespace().all(is_gone)).await;
    running.stop().await;
    let failed = fs::read_to_string(house.path("hooks/failed/000001.json")).unwrap();
    assert!(failed.contains("sh ran longer than 1 s and was stopped"), "{failed}");
}

#[tokio::test]
async fn arguments_go_through_no_shell() {
    let mut house = house();
    let (odd, written) = (house.path("a b; touch $HOME 'x' \"y\" *"), house.path("written"));
    fs::write(&odd, "found by its odd name").unwrap();
    let command = ["cp", "--", odd.to_str().unwrap(), written.to_str().unwrap()];
    house.config.batch_done = command.map(str::to_owned).to_vec();
    let hooks = house.hooks();
    hooks.batch_done(&done("spring", 2)).unwrap();
    let running = start(&hooks);
    eventually(|| house.files("hooks").is_empty()).await;
    running.stop().await;
    assert_eq!(fs::read_to_string(written).unwrap(), "found by its odd name");
}

#[tokio::test]
async fn what_is_never_taken_is_set_aside_and_not_told_again() {
    // 410: the receiver says that it is no use.
    let (receiver, address) = Receiver::start(&[410]).await;
    let mut house = house().posting_to(address);
    let hooks = house.hooks();
    let running = start(&hooks);
    hooks.batch_done(&done("spring", 2)).unwrap();
    eventually(|| house.files("hooks/failed") == ["000001.json"]).await;
    // Too old.
    receiver.statuses.lock().unwrap().extend([500, 500]);
    running.stop().await;
    (house.timeouts.retries.give_up, house.timeouts.retries.tries_min) = (Millis(0), 2);
    let hooks = house.hooks();
    hooks.batch_done(&done("autumn", 2)).unwrap();
    let running = start(&hooks);
    eventually(|| house.files("hooks/failed").len() == 2).await;
    running.stop().await;
    assert!(house.files("hooks").is_empty());

    let hooks = house.hooks();
    assert!(hooks.has_delivered_or_pending(&done("spring", 2)).unwrap());
    assert!(hooks.has_delivered_or_pending(&done("autumn", 2)).unwrap());
    assert_eq!(receiver.received().len(), 3);
}

#[tokio::test]
async fn a_receiver_that_never_answers_is_given_up_on_and_holds_up_no_stop() {
    let (receiver, address) = Receiver::start(&[SILENCE, SILENCE]).await;
    let mut house = house().posting_to(address);
    // Delivered again when the exchange has lasted too long.
    house.timeouts.webhook = Duration::from_millis(100);
    let hooks = house.hooks();
    hooks.batch_done(&done("spring", 2)).unwrap();
    let running = start(&hooks);
    receiver.wait_for(3).await;
    eventually(|| house.files("hooks").is_empty()).await;
    running.stop().await;

    // Cut off by a stop, and delivered by the next process.
    house.timeouts.webhook = TIMEOUT * 10;
    receiver.statuses.lock().unwrap().push_back(SILENCE);
    let hooks = house.hooks();
    hooks.batch_done(&done("autumn", 2)).unwrap();
    let running = start(&hooks);
    receiver.wait_for(4).await;
    running.stop().await;
    assert_eq!(house.files("hooks").len(), 1);
    let running = start(&house.hooks());
    let received = receiver.wait_for(5).await;
    assert_eq!(received[3].header("webhook-id"), received[4].header("webhook-id"));
    running.stop().await;
}

#[tokio::test]
async fn a_damaged_message_holds_up_nothing() {
    let (receiver, address) = Receiver::start(&[]).await;
    let house = house().posting_to(address);
    house.hooks().batch_done(&done("spring", 2)).unwrap();
    fs::write(house.path("hooks/000002.json"), "{\"format\": 1, \"id\": ").unwrap();
    let hooks = house.hooks();
    assert_eq!(house.files("hooks/failed"), ["000002.json"]);
    hooks.batch_done(&done("autumn", 2)).unwrap();
    assert!(house.path("hooks/000003.json").exists());
    let running = start(&hooks);
    receiver.wait_for(2).await;
    running.stop().await;
}

#[tokio::test]
async fn without_hooks_ends_are_noted_and_nobody_is_told_later() {
    let house = house();
    let hooks = house.hooks();
    assert!(!hooks.is_any());
    hooks.batch_done(&done("spring", 2)).unwrap();
    assert!(house.files("hooks").is_empty());
    let (_, address) = Receiver::start(&[]).await;
    assert!(house.posting_to(address).hooks().has_delivered_or_pending(&done("spring", 2)).unwrap());
}

#[test]
fn a_webhook_without_a_secret_is_refused() {
    let house = house().posting_to("127.0.0.1:9".parse().unwrap());
    let new = |secret: Option<&str>| {
        let secret = secret.map(SecretString::from);
        Hooks::new(&house.config, secret.as_ref(), house.dir.path(), house.timeouts, Clock::start())
            .unwrap_err()
            .to_string()
    };
    assert!(new(None).starts_with("hooks.webhook has no signing secret; set hooks.webhook_secret_file"));
    assert!(new(Some("hunter2")).contains("is not whsec_ and the base64 of"));
}

#[test]
fn another_end_has_another_id_and_the_same_end_the_same() {
    let id = |batch: &BatchRecord| BatchDone::of(batch, &BTreeMap::new(), Path::new("x"), Timestamp(0)).id;
    let first = batch("spring", 2);
    assert_eq!(id(&first), BatchDone::of(&first, &BTreeMap::new(), Path::new("y"), Timestamp(9)).id);
    let mut retried = first.clone();
    (retried.ended.succeeded, retried.ended.failed) = (3, 0);
    let mut charged = first.clone();
    charged.totals.spent = Credits(21);
    let anew = BatchRecord { created: Timestamp(2_000), ..first.clone() };
    for other in [&retried, &charged, &anew] {
        assert_ne!(id(&first), id(other));
    }
}

/// The keys of an object and of the objects in it.
fn keys(value: &Value) -> Vec<String> {
    let fields = value.as_object().into_iter().flatten();
    fields.flat_map(|(name, value)| [vec![name.clone()], keys(value)].concat()).collect()
}

#[test]
fn the_readme_shows_the_message_as_it_is() {
    let readme = include_str!("../../README.md");
    let (_, message) = readme.split_once("```json\n{\n  \"type\": \"batch.done\"").unwrap();
    let (message, _) = message.split_once("```").unwrap();
    let shown: Value = serde_json::from_str(&format!("{{\"type\": \"batch.done\"{message}")).unwrap();
    let sent: Value = serde_json::from_str(done("spring", 2).body()).unwrap();
    assert_eq!(keys(&shown), keys(&sent));
    assert_eq!(shown["data"], sent["data"]);
}
