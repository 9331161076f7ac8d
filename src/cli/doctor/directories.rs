//! The state, room on disks, inboxes and the output folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytesize::ByteSize;
use rustix::fs::{Access, access};

use crate::cli::daemon;
use crate::cli::doctor::Check;
use crate::cli::service_target::{self, ServiceTarget};
use crate::config::Config;
use crate::domain::exit_code::Exit;
use crate::domain::shell_word::path_word;
use crate::ingest::inbox::dispose::Folders;
use crate::ingest::inbox::overlap::overlap;
use crate::output::OutputOptions;
use crate::output::publish::OutputDir;
use crate::store::StoreError;
use crate::store::file_owner::{self, Strangers};
use crate::store::read_only::ReadOnlyState;

/// The state's files grow by far less than this in a day; with less room, a commit may fail.
const STATE_ROOM: ByteSize = ByteSize::mib(256);

pub(super) fn all(
    config: &Config,
    state: &Path,
    chosen: Option<&ServiceTarget>,
    // A daemon that runs as another user does the writing.
    has_other_rights: bool,
) -> Vec<Check> {
    let output = chosen
        .map_or_else(|| service_target::output_dir_of_state(config, state), |chosen| chosen.output.clone());
    let mut checks = vec![
        the_state(state, chosen, has_other_rights),
        folder("output", &output).unless_served(has_other_rights),
    ];
    checks.extend(strangers(state));
    checks.push(room("disk", "state", state, STATE_ROOM, "the state's disk"));
    checks.push(room("disk", "output", &output, config.output.min_free, "output.min_free"));
    let inboxes = daemon::inboxes(config);
    let all: Vec<&Folders> = inboxes.iter().map(|inbox| &inbox.place.folders).collect();
    checks.extend(overlap(&all).map(|found| Check::wrong("inbox", Exit::Usage, found, "")));
    for inbox in inboxes {
        let folders = inbox.place.folders;
        checks.push(folder("inbox", &folders.inbox));
        let filed = [&folders.accepted, &folders.rejected].into_iter();
        checks.extend(filed.filter_map(|dir| may_write("inbox", dir).err().map(|wrong| *wrong)));
        checks.extend(across(&folders.inbox, &folders.accepted));
        checks.extend(across(&folders.inbox, &folders.rejected));
    }
    checks
}

fn the_state(dir: &Path, chosen: Option<&ServiceTarget>, has_other_rights: bool) -> Check {
    match look(dir, chosen, has_other_rights) {
        Ok(check) => check,
        Err(error @ StoreError::Io { .. }) => {
            Check::failed("state", error.into()).unless_served(has_other_rights)
        }
        Err(error) => Check::failed("state", error.into()),
    }
}

fn look(dir: &Path, chosen: Option<&ServiceTarget>, has_other_rights: bool) -> Result<Check, StoreError> {
    let peek = ReadOnlyState::at(dir)?;
    let at = dir.display();
    if let Some(chosen) = chosen {
        peek.belongs_to(&chosen.identity)?;
    }
    if let Err(check) = may_write("state", dir) {
        return Ok(check.unless_served(has_other_rights));
    }
    let Some(service) = peek.service() else {
        return Ok(Check::good("state", format!("no state yet; the first run creates {at}")));
    };
    let whose = format!("{at} belongs to {service}");
    let in_use = |pid: String| Check::good("state", format!("{whose}, and is in use by process {pid}"));
    if let Some(pid) = peek.holder()? {
        return Ok(in_use(pid));
    }
    match peek.could_be_opened() {
        Ok(None) => Ok(Check::good(
            "state",
            format!(
                "{whose}, is not in use, and its database can be read; all else is read by: callsheet state verify"
            ),
        )),
        Ok(Some(not_copied)) => Ok(Check::advice(
            "state",
            format!("{whose}, is not in use; its database was not checked: {not_copied}"),
            "set TMPDIR to a directory with more free space",
        )),
        // Somebody opened it meanwhile, and writes to it.
        Err(error @ StoreError::Damaged { .. }) => peek.holder()?.map(in_use).ok_or(error),
        Err(error) => Err(error),
    }
}

/// What is in the state and belongs to another user than its folder: a service that runs as that user cannot use it.
fn strangers(dir: &Path) -> Option<Check> {
    let Strangers { count, first, owner } = file_owner::strangers(dir)?;
    let which = match count {
        1 => format!("{} does", first.display()),
        _ => format!("{count} files in {}, such as {}, do", dir.display(), first.display()),
    };
    let found = format!("{which} not belong to user {owner}, whose state it is");
    let todo = format!("give them to that user: chown -R --reference={0} {0}", path_word(dir));
    Some(Check::wrong("state", Exit::Disk, found, todo))
}

/// A folder that is written to, or will be made.
fn folder(check: &'static str, dir: &Path) -> Check {
    let at = dir.display();
    match may_write(check, dir) {
        Err(found) => *found,
        Ok(()) if dir.exists() => Check::good(check, format!("{at} is writable")),
        Ok(()) => Check::good(check, format!("{at} will be created when needed")),
    }
}

/// Whether this user may write to a folder, or make it.
fn may_write(check: &'static str, dir: &Path) -> Result<(), Box<Check>> {
    let wrong = |exit, found: String, todo: &str| Err(Box::new(Check::wrong(check, exit, found, todo)));
    let at = dir.display();
    let standing = standing(dir);
    if !standing.is_dir() {
        return wrong(Exit::Usage, format!("{} is not a folder", standing.display()), "name another");
    }
    let Err(error) = access(standing, Access::WRITE_OK | Access::EXEC_OK) else { return Ok(()) };
    let verb = if standing == dir { "written to" } else { "made" };
    let who = rustix::process::getuid().as_raw();
    wrong(
        Exit::Disk,
        format!("{at} cannot be {verb} by user {who}: {}", std::io::Error::from(error)),
        "grant the rights (for the unit's directories: join the group callsheet), or choose another directory",
    )
}

/// The nearest folder above, or the path itself, that exists.
fn standing(dir: &Path) -> &Path {
    let above = dir.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    // The last ancestor of a relative path is empty, and stands for the folder one is in.
    above.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn room(check: &'static str, what: &str, dir: &Path, least: ByteSize, key: &str) -> Check {
    let Some(free) = OutputDir::new(standing(dir), OutputOptions::default()).free_bytes() else {
        return Check::advice(
            check,
            format!("{what}: free space is unknown"),
            format!("df {}", path_word(dir)),
        );
    };
    let found = format!("{what}: {} free", ByteSize::b(free));
    match ByteSize::b(free) {
        free if free < least => {
            let found = format!("{found}, less than {least} ({key})");
            Check::wrong(check, Exit::Disk, found, format!("free space on the disk of {}", dir.display()))
        }
        _ => Check::good(check, found),
    }
}

/// Manifests are filed by renaming them, which stays on one file system.
fn across(inbox: &Path, filed: &Path) -> Option<Check> {
    let device = |dir: &Path| fs::metadata(standing(dir)).ok().map(|meta| meta.dev());
    if device(inbox)? == device(filed)? {
        return None;
    }
    let found = format!("{} is on another file system than {}", filed.display(), inbox.display());
    let advice = "use one file system: manifests are moved by renaming";
    Some(Check::wrong("inbox", Exit::Usage, found, advice))
}
