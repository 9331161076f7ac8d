//! An environment for the whole program: a folder of its own, a cleared environment, a configuration with short
//! waits, and the service, played by the emulator in the test's own process, so that it outlives every
//! client that is killed.
//!
//! `process` runs the client, `terminal` on a terminal, `disk` gives it a small disk. `accounting` reads what the service saw, `collect_outputs`
//! what lies on disk. `manifests` has some; `fault_matrix` holds a row of every kind against one fault. `case_share`
//! says which of many cases a test takes. `own_address` gives addresses. `proxy`,
//! `scripted_proxy` and `tls` stand between the client and the service. `s3` and `gcs` are object stores.
#![allow(unreachable_pub, reason = "its modules are parts of this file")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on should stop and say why"
)]

pub mod accounting;
pub mod api_key;
pub mod case_share;
pub mod collect_outputs;
pub mod disk;
pub mod fault_matrix;
pub mod gcs;
pub mod manifests;
pub mod own_address;
pub mod process;
pub mod proxy;
pub mod s3;
pub mod scripted_proxy;
pub mod strace;
pub mod terminal;
pub mod tls;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use callsheet::domain::time::Timestamp;
use callsheet_emulator::{self as emulator, Emulator, FaultPlan, Options};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::accounting::Audit;
use self::api_key::{KEY, files_with_key};
use self::process::{Outcome, Running};

/// A client that goes straight to where it is told.
pub fn http_client() -> reqwest::ClientBuilder {
    callsheet::api::install_tls_provider();
    reqwest::Client::builder().no_proxy()
}

/// Longest wait for anything: a test that waits for it has failed.
pub const TIMEOUT: Duration = Duration::from_secs(180);
/// A daemon that does not answer for so long is asked by a process.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at something that is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(3);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(300);
/// The pause after a look is so many times as long as the look took.
const POLL_PAUSE_FACTOR: u32 = 16;

/// See the module's documentation.
pub struct TestEnv {
    // Dropped in this order: the service before the runtime that it runs on.
    emulator: Emulator,
    runtime: Runtime,
    dir: TempDir,
    /// What the test itself wrote, and may have written a key into.
    written: Mutex<Vec<PathBuf>>,
}

/// Whatever the test was about, the key is in nothing that the client left.
impl Drop for TestEnv {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if std::env::var_os("CALLSHEET_KEEP").is_some() {
                self.dir.disable_cleanup(true);
                eprintln!("what the test left behind is kept in {}", self.dir.path().display());
            }
            return;
        }
        let written = self.written.lock().unwrap();
        let found = files_with_key(self.dir.path());
        let found: Vec<_> = found.iter().filter(|path| !written.contains(path)).collect();
        assert!(found.is_empty(), "the API key is in {found:?}");
    }
}

impl TestEnv {
    /// A service that works fast and an account that can pay for everything.
    pub fn new() -> TestEnv {
        TestEnv::with(Options::default())
    }

    /// A service whose tasks take about a 25th of a second, with options of its own.
    pub fn with(options: Options) -> TestEnv {
        let speed = if options.speed > 1.0 { options.speed } else { 1_000.0 };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let api_key = KEY.to_owned();
        let emulator = runtime.block_on(emulator::start(Options { speed, api_key, ..options })).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let env = TestEnv { emulator, runtime, dir, written: Mutex::default() };
        env.configure("");
        env
    }

    /// A service with `credits` on the account.
    pub fn with_credits(credits: u64) -> TestEnv {
        TestEnv::with(Options { credits, ..Options::default() })
    }

    /// A service where things go wrong as `plan` (TOML) says.
    pub fn with_faults(plan: &str) -> TestEnv {
        let env = TestEnv::new();
        env.faults(plan);
        env
    }

    /// Writes the configuration: short waits, then `more`, which may open further sections.
    pub fn configure(&self, more: &str) {
        self.configure_service("", more);
    }

    /// The same, with more keys of `[service]`.
    pub fn configure_service(&self, keys: &str, more: &str) {
        self.configure_for(&self.emulator.base_url(), keys, more);
    }

    /// The same, for a client that finds the service elsewhere.
    pub fn configure_for(&self, service: &str, keys: &str, more: &str) {
        let text = format!(
            "[service]\nbase_url = \"{service}\"\n{keys}\n\
             [poll]\nmin = \"20ms\"\nmax = \"40ms\"\n\
             [retry]\nbase = \"10ms\"\nmax = \"100ms\"\n\
             {more}\n"
        );
        self.write("callsheet.toml", &text);
    }

    /// Where the service is.
    pub fn base_url(&self) -> String {
        self.emulator.base_url()
    }

    /// A path inside its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file, and the folders above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        self.written.lock().unwrap().push(path.clone());
        path
    }

    /// The client, ready to start: nothing of the caller's environment, its folder, the right key, and one authority in place
    /// of the hundreds that this machine trusts, which each process would read.
    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
        command.args(arguments).current_dir(&self.dir).env_clear();
        command.env("CALLSHEET_API_KEY", KEY).env("SSL_CERT_FILE", tls::AUTHORITY);
        command
    }

    /// Runs the client to its end.
    pub fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Outcome {
        self.start(arguments).end()
    }

    /// The same, as on a terminal: in a pipe, the client's streams drop whatever a terminal would obey.
    pub fn run_raw<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Outcome {
        let mut command = self.command(arguments);
        command.env("CLICOLOR_FORCE", "1");
        Running::start(command).end()
    }

    /// Starts the client.
    pub fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        Running::start(self.command(arguments))
    }

    /// A daemon, once it listens.
    #[track_caller]
    pub fn daemon(&self, level: &str) -> Running {
        let running = self.start(["daemon", "--log-level", level]);
        running.says("ready");
        running
    }

    /// How a batch stands, as `callsheet status --json` shows it.
    #[track_caller]
    pub fn status(&self, batch: &str) -> Value {
        self.ask_for_status(Some(batch))["batches"][0].clone()
    }

    /// The same, of all batches.
    #[track_caller]
    pub fn statuses(&self) -> Vec<Value> {
        self.ask_for_status(None)["batches"].as_array().unwrap().clone()
    }

    /// A daemon that listens in the usual place is asked itself: that takes a hundredth of the time of a process.
    #[track_caller]
    fn ask_for_status(&self, batch: Option<&str>) -> Value {
        self.status_by_socket(batch).unwrap_or_else(|| {
            let arguments = ["status", "--json"].into_iter().chain(batch);
            self.run(arguments).exited(0).json()
        })
    }

    fn status_by_socket(&self, batch: Option<&str>) -> Option<Value> {
        let mut socket = UnixStream::connect(self.path("state/callsheet.sock")).ok()?;
        socket.set_read_timeout(Some(SOCKET_TIMEOUT)).ok()?;
        socket.set_write_timeout(Some(SOCKET_TIMEOUT)).ok()?;
        let query = batch.map_or_else(String::new, |batch| format!("?batch={batch}"));
        let request =
            format!("GET /v1/status{query} HTTP/1.1\r\nhost: callsheet\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200 ").then(|| serde_json::from_str(body).ok())?
    }

    /// What the service saw so far.
    pub fn audit(&self) -> Audit {
        Audit::read(&self.emulator)
    }

    /// Changes what goes wrong from now on; nothing does with an empty plan.
    pub fn faults(&self, plan: &str) {
        self.emulator.set_faults(FaultPlan::named(plan).unwrap_or_else(|| FaultPlan::parse(plan).unwrap()));
    }

    /// Lets the service's time pass.
    pub fn advance(&self, by: Duration) {
        self.emulator.advance(by);
    }

    /// Sets credits, plan or the key's validity, as `POST /emulator/account` takes them.
    pub fn account(&self, change: &Value) {
        self.control("account", change);
    }

    /// Asks the service for what lies outside its document, as `POST /emulator/WHAT` takes it.
    pub fn control(&self, what: &str, body: &Value) {
        let url = format!("{}/emulator/{what}", self.emulator.base_url());
        let http = http_client().build().unwrap();
        let answer = self.runtime.block_on(http.post(url).json(body).send()).unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }

    /// Replaces parts of the catalogs that the service serves and charges by, or multiplies all prices.
    pub fn prices(&self, change: &Value) {
        self.control("catalog", change);
    }

    /// All catalogs, as the service serves them and charges by them.
    pub fn served(&self) -> Value {
        let url = format!("{}/emulator/catalog", self.emulator.base_url());
        let http = http_client().build().unwrap();
        self.runtime.block_on(async { http.get(url).send().await.unwrap().json().await.unwrap() })
    }

    /// Sets the credits on the account.
    pub fn credits(&self, credits: u64) {
        self.account(&json!({ "credits": credits }));
    }

    /// Text of the client with its folder, addresses and duration named `DIR`, `SERVICE` and `TIME`, without
    /// the spaces that fill up the lines of a table.
    pub fn plain(&self, text: &str) -> String {
        let text = text
            .replace(&self.dir.path().display().to_string(), "DIR")
            .replace(&self.emulator.base_url(), "SERVICE");
        let line = |line: &str| match line.starts_with("elapsed: ") {
            true => "elapsed: TIME".to_owned(),
            false => line.trim_end().to_owned(),
        };
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// An emulator's own state, read by one that has taken its place.
pub fn audit_of_state(dir: &Path) -> Audit {
    let runtime = Runtime::new().unwrap();
    let options = Options { state_dir: Some(dir.to_owned()), ..Options::default() };
    let emulator = runtime.block_on(emulator::start(options)).unwrap();
    Audit::read(&emulator)
}

/// The instant that lies so long ahead.
pub fn ahead(by: Duration) -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + by;
    Timestamp(i64::try_from(since_1970.as_millis()).unwrap())
}

/// Looks again and again until there is something to see. A look that takes long, such as one that starts a process, leaves
/// the processor to others for many times as long.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        let looked = Instant::now();
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < TIMEOUT, "waited for {what}, in vain");
        std::thread::sleep((POLL_PAUSE_FACTOR * looked.elapsed()).clamp(POLL_INTERVAL, POLL_INTERVAL_MAX));
    }
}

/// Looks again and again until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}
