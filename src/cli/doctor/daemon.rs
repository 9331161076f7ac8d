//! The running daemon and its unit.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::doctor::Check;
use crate::cli::service_target::ServiceTarget;
use crate::client::{Client, ClientError};
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::parked_reason::Parked;
use crate::server::listener::PATH_MAX_BYTES;
use crate::server::protocol::{Health, HealthRequest, ProcessKind, StatusRequest};

/// How long a daemon may take to say that it is there.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Where a unit may lie, in the order in which systemd looks.
const UNITS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

/// The process that listens on a socket.
pub(super) struct Daemon {
    socket: PathBuf,
    /// Nothing: no answer in time.
    answer: Option<Result<Health, ClientError>>,
    /// Why it sends nothing of which batches, where only a person can help.
    parked: BTreeMap<Parked, Vec<BatchName>>,
}

/// Reasons that only a person lifts: each with what to do.
const NEEDS_A_PERSON: [(Parked, &str); 4] = [
    (
        Parked::Key,
        "set a valid key where the daemon reads it (CALLSHEET_API_KEY, service.api_key_file, or /etc/callsheet/api-key of \
         the unit), then: systemctl restart callsheet; a reload does not read the unit's key again",
    ),
    (Parked::Credits, "add credits"),
    (Parked::Disk, "free space on the disks of outputs and state, or grant the rights; see the log"),
    (Parked::Store, "fix output.store or inputs.store, or their credentials; see the log"),
];

impl Daemon {
    /// Asks whether one is there.
    pub(super) async fn at(socket: PathBuf) -> Daemon {
        let answer = tokio::time::timeout(TIMEOUT, health(&socket)).await.ok();
        let parked = match &answer {
            Some(Ok(_)) => tokio::time::timeout(TIMEOUT, parked(&socket)).await.unwrap_or_default(),
            _ => BTreeMap::new(),
        };
        Daemon { socket, answer, parked }
    }

    pub(super) fn answers(&self) -> bool {
        matches!(self.answer, Some(Ok(_)))
    }

    /// Whether it runs as another user than this one: then it has rights of its own.
    pub(super) fn is_of_another_user(&self) -> bool {
        let owner = fs::metadata(&self.socket).map(|meta| meta.uid());
        owner.is_ok_and(|owner| owner != rustix::process::geteuid().as_raw())
    }

    pub(super) fn checks(&self, chosen: Option<&ServiceTarget>) -> Vec<Check> {
        let health = self.answer.as_ref().and_then(|answer| answer.as_ref().ok());
        let mut checks = vec![self.about_socket(chosen), unit(health)];
        checks.extend(NEEDS_A_PERSON.iter().filter_map(|(reason, todo)| {
            let batches = self.parked.get(reason)?;
            let (first, n) = (batches.first()?, batches.len());
            let which = if n == 1 {
                format!("batch {first} is")
            } else {
                format!("{n} batches, such as {first}, are")
            };
            let (why, _) = reason.explain().split_once("; ")?;
            Some(Check::wrong("batches", reason.exit(), format!("{which} parked: {why}"), *todo))
        }));
        checks
    }

    fn about_socket(&self, chosen: Option<&ServiceTarget>) -> Check {
        let at = self.socket.display();
        match &self.answer {
            Some(Ok(health)) => described(health, chosen),
            _ if self.socket.as_os_str().len() > PATH_MAX_BYTES => {
                let bytes = self.socket.as_os_str().len();
                let found = format!("{at} has {bytes} bytes; a socket path has at most {PATH_MAX_BYTES}");
                Check::wrong(
                    "socket",
                    Exit::Usage,
                    found,
                    "choose a shorter path with --socket or paths.socket",
                )
            }
            _ if lies_in_the_way(&self.socket) => {
                let found = format!("{at} is not a socket");
                let advice = "move the file away, or choose another path with --socket or paths.socket";
                Check::wrong("socket", Exit::Usage, found, advice)
            }
            Some(Err(ClientError::NoDaemon { .. })) => {
                Check::good("socket", format!("no daemon is running ({at})"))
            }
            Some(Err(error)) => {
                let advice = "add the user to the daemon's group: adduser NAME callsheet";
                Check::wrong("socket", Exit::Usage, error.to_string(), advice)
            }
            None => {
                let found = format!("the daemon at {at} does not answer");
                let advice = "systemctl restart callsheet; jobs in flight are resumed";
                Check::wrong("socket", Exit::Usage, found, advice)
            }
        }
    }
}

/// Whether there is something that a daemon would neither listen on nor remove.
fn lies_in_the_way(socket: &Path) -> bool {
    fs::symlink_metadata(socket).is_ok_and(|meta| !meta.file_type().is_socket())
}

async fn health(socket: &Path) -> Result<Health, ClientError> {
    Client::connect(socket).await?.call(&HealthRequest {}).await
}

/// The batches that are parked by each reason. None where it does not say.
async fn parked(socket: &Path) -> BTreeMap<Parked, Vec<BatchName>> {
    let status = async { Client::connect(socket).await?.call(&StatusRequest::default()).await };
    let batches = status.await.map(|status| status.batches).unwrap_or_default();
    let mut parked: BTreeMap<Parked, Vec<BatchName>> = BTreeMap::new();
    for batch in batches {
        if let Some(reason) = batch.parked_by {
            parked.entry(reason).or_default().push(batch.name);
        }
    }
    parked
}

fn described(health: &Health, chosen: Option<&ServiceTarget>) -> Check {
    let Health { version, pid, service, .. } = health;
    let found = match health.process {
        ProcessKind::Daemon => format!("daemon {version} runs as process {pid} and uses {service}"),
        ProcessKind::Run => format!("a run of version {version} is process {pid} and uses {service}"),
    };
    if health.version != env!("CARGO_PKG_VERSION") {
        let advice =
            format!("this program is version {}: systemctl restart callsheet", env!("CARGO_PKG_VERSION"));
        return Check::advice("socket", found, advice);
    }
    match chosen.filter(|chosen| chosen.identity != health.service) {
        Some(chosen) => Check::advice(
            "socket",
            found,
            format!("this configuration names {}: check --config and --socket", chosen.identity),
        ),
        None => Check::good("socket", found),
    }
}

fn unit(health: Option<&Health>) -> Check {
    if !Path::new("/run/systemd/system").is_dir() {
        return Check::good("unit", "this machine does not use systemd");
    }
    let installed = UNITS.iter().map(|dir| PathBuf::from(dir).join("callsheet.service"));
    let installed = installed.into_iter().find(|path| path.exists());
    let running = health.and_then(|health| unit_of(health.pid));
    match (installed, health, running) {
        (_, Some(_), Some(unit)) => Check::good("unit", format!("the daemon runs as {unit}")),
        (_, Some(_), None) => Check::good("unit", "the daemon runs without a unit"),
        (Some(path), None, _) => Check::advice(
            "unit",
            format!("{} is installed, but no daemon is running", path.display()),
            "systemctl enable --now callsheet; if it fails: journalctl -u callsheet",
        ),
        (None, None, _) => Check::good("unit", "no unit is installed"),
    }
}

/// The unit that a process belongs to, as its control group names it.
fn unit_of(pid: u32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let names = groups.lines().filter_map(|line| line.rsplit('/').next());
    names.into_iter().find(|name| name.ends_with(".service") && !name.starts_with("user@")).map(str::to_owned)
}
