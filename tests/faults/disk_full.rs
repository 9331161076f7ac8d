//! Small disks that fill up while the program works: under the outputs, the inbox, and the state of a daemon. Nothing
//! more is bought, nothing is lost, and it goes on by itself when there is room. `state_disk_full.rs` has a run's state.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use callsheet_emulator::Options;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::disk::Disk;
use crate::support::process::{Outcome, Running};
use crate::support::{TestEnv, manifests, until};

const JOBS: usize = 60;
const IN_FLIGHT: usize = 8;
const DOWNLOADS: usize = 2;
/// Jobs that may have been sent and not be on the disk.
const OPEN_MAX: usize = 2 * IN_FLIGHT + DOWNLOADS;

/// Images that take about half a second, a few at once, onto a disk that may be used up.
fn env(more: &str) -> TestEnv {
    at_speed(60.0, more)
}

fn at_speed(speed: f64, more: &str) -> TestEnv {
    let env = TestEnv::with(Options { speed, ..Options::default() });
    env.configure(&format!(
        "[limits]\nin_flight = {IN_FLIGHT}\ndownloads = {DOWNLOADS}\nadaptive = false\n{more}"
    ));
    env.write("batch.csv", manifests::manifest("image", JOBS));
    env
}

fn count(status: &Value, state: &str) -> usize {
    usize::try_from(status[state].as_u64().unwrap_or_default()).unwrap()
}

/// How often something was said.
fn times(outcome: &Outcome, text: &str) -> usize {
    outcome.stderr.matches(text).count()
}

/// Waits until the disk parks the batch and what was in flight has come to its end. Not one creating POST leaves
/// meanwhile, although slots become free. Returns the jobs that were sent.
fn parked_by_the_disk(env: &TestEnv, batch: &str) -> usize {
    until("it to be parked", || env.status(batch)["parked_by"] == "disk");
    let parked = env.status(batch);
    assert_eq!(parked["state"], "parked", "{parked:#}");
    let sent = env.audit().tasks.len() + count(&parked, "submitting");
    until("nothing in flight", || {
        let status = env.status(batch);
        count(&status, "submitting") + count(&status, "running") == 0
    });
    let audit = env.audit();
    assert!(audit.tasks.len() <= sent, "{} after {sent}", audit.tasks.len());
    assert!(audit.tasks.iter().all(|task| task.status == "success"));
    let waiting = env.status(batch);
    assert_eq!((count(&waiting, "failed"), &waiting["parked_by"]), (0, &Value::from("disk")), "{waiting:#}");
    assert!(count(&waiting, "fetching") > 0, "downloads wait: {waiting:#}");
    audit.tasks.len()
}

fn files_on(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, |entries| {
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".png")).count()
    })
}

/// Everything is there and was bought once.
fn is_done(env: &TestEnv) {
    env.audit().each_paid_once(JOBS);
    Outputs::in_dir(env.path("disk/output/batch")).is_complete(&manifests::ids("image", JOBS));
}

const OUTPUT_ON_DISK: &str = "[paths]\noutput = \"disk/output\"\n[output]\nmin_free = \"0B\"";

/// Makes room: a daemon whose outputs lie on the disk gets to the end by itself.
fn goes_on(env: &TestEnv, disk: &Disk, daemon: Running) {
    disk.clear();
    until("the end", || env.status("batch")["state"] == "done");
    until("its results", || env.path("disk/output/batch/report.json").exists());
    daemon.stop();
    is_done(env);
}

#[test]
fn outputs_of_a_daemon_wait_for_a_full_disk_and_go_on_by_themselves() {
    let env = env(OUTPUT_ON_DISK);
    let Some(disk) = Disk::real(env.path("disk"), "24M", 4096) else { return };
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    until("some files", || files_on(&env.path("disk/output/batch")) > 4);
    disk.fill();
    let sent_before = env.audit().tasks.len();
    let sent = parked_by_the_disk(&env, "batch");
    assert!(sent <= sent_before + OPEN_MAX, "{sent} after {sent_before}");
    env.run(["status"]).exited(0);
    assert!(env.run(["status"]).stdout.contains("disk"));
    disk.clear();
    until("the end", || env.status("batch")["state"] == "done");
    until("its results", || env.path("disk/output/batch/report.json").exists());
    let outcome = daemon.stop();
    assert_eq!(times(&outcome, "queue parked"), 1, "{}", outcome.stderr);
    assert!(times(&outcome, "download failed") <= DOWNLOADS, "{}", outcome.stderr);
    is_done(&env);
}

#[test]
fn outputs_wait_while_less_is_free_than_must_be() {
    // The disk is looked at every few seconds.
    let env = at_speed(6.0, "[paths]\noutput = \"disk/output\"\n[output]\nmin_free = \"12MiB\"");
    let Some(disk) = Disk::real(env.path("disk"), "48M", 4096) else { return };
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    until("some files", || files_on(&env.path("disk/output/batch")) > 4);
    disk.fill_but(6 * 1024 * 1024);
    parked_by_the_disk(&env, "batch");
    disk.clear();
    until("the end", || env.status("batch")["state"] == "done");
    until("its results", || env.path("disk/output/batch/report.json").exists());
    let outcome = daemon.stop();
    assert_eq!(times(&outcome, "download failed"), 0, "there was room for them: {}", outcome.stderr);
    is_done(&env);
}

/// There is room enough, and not for one more file.
#[test]
fn a_disk_without_inodes_is_a_full_disk() {
    let env = env(OUTPUT_ON_DISK);
    let Some(disk) = Disk::real(env.path("disk"), "24M", 512) else { return };
    disk.use_up_inodes_but(40);
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    let sent = parked_by_the_disk(&env, "batch");
    assert!(sent < JOBS, "{sent}");
    goes_on(&env, &disk, daemon);
}

#[test]
fn a_batch_that_comes_in_while_the_disk_is_full_is_sent_when_there_is_room() {
    let env = env(OUTPUT_ON_DISK);
    let Some(disk) = Disk::real(env.path("disk"), "24M", 4096) else { return };
    disk.fill();
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    until("it to be parked", || env.status("batch")["parked_by"] == "disk");
    assert_eq!(env.audit().totals.tasks, 0);
    goes_on(&env, &disk, daemon);
}

#[test]
fn a_run_whose_outputs_fill_the_disk_ends_with_its_exit_code_and_resumes() {
    const RUN: [&str; 3] = ["run", "--json", "batch.csv"];
    let env = env(OUTPUT_ON_DISK);
    let Some(disk) = Disk::real(env.path("disk"), "24M", 4096) else { return };
    let running = env.start(RUN);
    until("some files", || files_on(&env.path("disk/output/batch")) > 4);
    disk.fill();
    let sent_before = env.audit().tasks.len();
    let outcome = running.end().exited(6).says("the output disk is full");
    let batch = &outcome.json()["batches"][0];
    assert_eq!((count(batch, "failed"), count(batch, "running")), (0, 0), "{batch:#}");
    let sent = env.audit().tasks.len();
    assert!(sent < JOBS && sent <= sent_before + OPEN_MAX, "{sent} after {sent_before}");

    disk.fill();
    env.run(RUN).exited(6).says("the output disk is full");
    env.run(["download", "batch"]).exited(6).says("the output disk is full");
    assert_eq!(env.audit().tasks.len(), sent, "nothing more is bought");

    disk.clear();
    env.run(RUN).exited(0);
    is_done(&env);
}

/// What a killed run had begun to download takes the room that the next one must keep free. It is removed before that one
/// decides that nothing can go on.
#[test]
fn unfinished_downloads_of_a_killed_run_do_not_count_as_a_full_disk() {
    let env = env("[paths]\noutput = \"disk/output\"\n[output]\nmin_free = \"12MiB\"");
    let Some(_disk) = Disk::in_memory(env.path("disk"), "size=24m") else { return };
    let mut killed = env.command(["run", "batch.csv"]);
    killed.env("CALLSHEET_FAILPOINT", "fetching");
    Running::start(killed).end().was_killed("before the first output was published");
    let left = env.path("disk/output/batch/.00000000000000000000000000000000-1.part");
    fs::write(&left, vec![0; 16 << 20]).unwrap();
    env.run(["run", "batch.csv"]).exited(0);
    assert!(!left.exists());
    is_done(&env);
}

/// Lays a manifest beside the inbox, to be dropped when no byte more can be written.
fn prepare(env: &TestEnv, name: &str, content: &str) {
    env.write(&format!("disk/jobs/inbox/.{name}.tmp"), content);
}

fn drop_in(env: &TestEnv, name: &str) {
    let inbox = env.path("disk/jobs/inbox");
    fs::rename(inbox.join(format!(".{name}.tmp")), inbox.join(name)).unwrap();
}

#[test]
fn manifests_on_a_full_disk_are_taken_in_once_and_filed_when_there_is_room() {
    let env = env("[paths]\njobs = \"disk/jobs\"");
    let Some(disk) = Disk::real(env.path("disk"), "8M", 256) else { return };
    let daemon = env.daemon("debug");
    let names = ["a.csv", "b.csv", "c.csv"];
    until("the inbox", || env.path("disk/jobs/inbox").exists());
    for name in names {
        prepare(&env, name, &manifests::manifest("image", 3));
    }
    prepare(&env, "broken.csv", "id,knd\n1,image\n");
    disk.fill();
    for name in names.into_iter().chain(["broken.csv"]) {
        drop_in(&env, name);
    }
    for name in names.into_iter().chain(["broken.csv"]) {
        let path = format!("disk/jobs/inbox/{name}");
        // A second try that met the same.
        until(&format!("{name} to be tried again"), || {
            let said = daemon.said();
            said.lines().any(|line| line.contains("cannot be moved yet") && line.contains(name))
        });
        assert!(env.path(&path).exists(), "{name} is where it was dropped");
    }
    for batch in ["a", "b", "c"] {
        until("its jobs to be done all the same", || env.status(batch)["state"] == "done");
    }
    disk.clear();
    for (name, folder) in
        [("a.csv", "accepted"), ("b.csv", "accepted"), ("c.csv", "accepted"), ("broken.csv", "rejected")]
    {
        let receipt = env.path(&format!("disk/jobs/{folder}/{name}.receipt.json"));
        until("it to be filed", || {
            receipt.exists() && env.path(&format!("disk/jobs/{folder}/{name}")).exists()
        });
        let receipt: Value = serde_json::from_slice(&fs::read(receipt).unwrap()).unwrap();
        let new = if folder == "accepted" { 3 } else { 0 };
        assert_eq!((&receipt["new"], &receipt["have"]), (&new.into(), &0.into()), "{receipt:#}");
    }
    let outcome = daemon.stop();
    let left: Vec<_> = fs::read_dir(env.path("disk/jobs/inbox")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    for name in names {
        let stays = outcome.stderr.lines().filter(|line| line.contains("are retried") && line.contains(name));
        let taken_in =
            outcome.stderr.lines().filter(|line| line.contains("batch accepted") && line.contains(name));
        assert_eq!((stays.count(), taken_in.count()), (1, 1), "{name}: {}", outcome.stderr);
    }
    env.audit().each_paid_once(9);
}

#[test]
fn a_daemon_whose_state_fills_its_disk_goes_on_by_itself() {
    let env = env("[paths]\nstate = \"disk/state\"");
    let Some(disk) = Disk::real(env.path("disk"), "24M", 4096) else { return };
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    until("a few jobs at the service", || env.audit().tasks.len() > IN_FLIGHT);
    let reserve = env.path("disk/state/reserve");
    assert!(reserve.exists());
    disk.fill();
    until("it to be parked", || {
        // What was left of taking the manifest in may have made room again; what the reserve was is left alone.
        let free_bytes = disk.free_bytes();
        if reserve.exists() {
            disk.write_filler(free_bytes);
        }
        env.status("batch")["parked_by"] == "disk"
    });
    assert!(!reserve.exists(), "it is used up for the last words");
    until("nothing in flight", || {
        let status = env.status("batch");
        ["submitting", "running"].iter().all(|state| count(&status, state) == 0)
    });
    let sent = env.audit().tasks.len();
    assert!(sent < JOBS, "it stopped sending");

    // What is dropped meanwhile waits where it was dropped.
    env.write("jobs/inbox/.late.tmp", manifests::manifest("image", 3));
    fs::rename(env.path("jobs/inbox/.late.tmp"), env.path("jobs/inbox/late.csv")).unwrap();
    daemon.says("the files stay in place and are retried");
    assert!(env.path("jobs/inbox/late.csv").exists());
    assert_eq!(env.audit().tasks.len(), sent);

    disk.clear();
    until("the end", || env.status("batch")["state"] == "done");
    until("the manifest to be filed", || env.path("jobs/accepted/late.csv").exists());
    until("the end", || env.status("late")["state"] == "done");
    until("the results", || {
        ["batch", "late"].iter().all(|batch| env.path(&format!("output/{batch}/report.json")).exists())
    });
    assert!(reserve.exists(), "it is set aside again");
    let outcome = daemon.stop();
    assert_eq!(times(&outcome, "the files stay in place"), 1, "{}", outcome.stderr);
    env.audit().each_paid_once(JOBS + 3);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", JOBS));
    Outputs::of(&env, "late").is_complete(&manifests::ids("image", 3));
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn nothing_is_bought_while_the_output_directory_cannot_be_written_to() {
    let env = env(OUTPUT_ON_DISK);
    let Some(disk) = Disk::real(env.path("disk"), "24M", 4096) else { return };
    fs::create_dir(env.path("disk/output")).unwrap();
    let daemon = env.daemon("info");
    disk.set_read_only(true);
    daemon.says("the output directory is not writable");
    env.run(["submit", "batch.csv"]).exited(0);
    until("it to be parked", || env.status("batch")["parked_by"] == "disk");
    assert_eq!(env.audit().tasks.len(), 0);
    disk.set_read_only(false);
    until("the end", || env.status("batch")["state"] == "done");
    daemon.stop();
    env.audit().each_paid_once(JOBS);
}

/// Rights that no longer allow it, a network file system that failed: nothing that is paid for is given up for that.
#[test]
fn outputs_wait_for_a_batch_folder_that_cannot_be_written_to() {
    let env = env(OUTPUT_ON_DISK);
    let Some(disk) = Disk::real(env.path("disk"), "24M", 4096) else { return };
    env.faults("[[rules]]\non = 'download'\ntimes = 1\neffect = { do = 'delay', ms = 500 }");
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    let folder = disk.dir().join("output/batch");
    until("the folder", || folder.exists());
    immutable("+i", &folder);
    daemon.says("batch parked: its output directory cannot be written to");
    until("it to be parked", || env.status("batch")["parked_by"] == "disk");
    immutable("-i", &folder);
    daemon.says("its output directory can be written to again");
    until("the end", || env.status("batch")["state"] == "done");
    until("its results", || folder.join("report.json").exists());
    daemon.stop();
    env.audit().each_paid_once(JOBS);
    Outputs::in_dir(folder).is_complete(&manifests::ids("image", JOBS));
}

/// A batch's folder that is moved to a larger disk and replaced by a link, and an output folder that is a link to a disk
/// that is not mounted any more.
#[test]
fn outputs_wait_for_a_folder_that_became_a_link_and_for_a_disk_that_is_gone() {
    for is_batch in [true, false] {
        let env = at_speed(20.0, "");
        let (mounted, away) = (env.path("mounted/output"), env.path("away"));
        fs::create_dir_all(&mounted).unwrap();
        symlink(&mounted, env.path("output")).unwrap();
        let moved = if is_batch { mounted.join("batch") } else { mounted.clone() };
        let daemon = env.daemon("info");
        env.run(["submit", "batch.csv"]).exited(0);
        until("the first outputs", || count(&env.status("batch"), "succeeded") >= 4);
        fs::rename(&moved, &away).unwrap();
        if is_batch {
            symlink(&away, &moved).unwrap();
        }
        until("it to be parked", || env.status("batch")["parked_by"] == "disk");
        until("nothing in flight", || {
            let status = env.status("batch");
            ["submitting", "running"].iter().all(|state| count(&status, state) == 0)
        });
        // More is not bought, and nothing is given up.
        let (sent, status) = (env.audit().tasks.len(), || env.status("batch"));
        assert!(sent < JOBS && count(&status(), "failed") == 0, "{sent}: {}", status());
        if is_batch {
            fs::remove_file(&moved).unwrap();
        }
        fs::rename(&away, &moved).unwrap();
        until("the end", || status()["state"] == "done");
        until("its results", || env.path("output/batch/report.json").exists());
        daemon.stop().exited(0);
        env.audit().each_paid_once(JOBS);
        Outputs::of(&env, "batch").is_complete(&manifests::ids("image", JOBS));
    }
}

/// The mount point of a disk stays where the disk goes. What is below it may look as if it were the folder.
#[test]
fn outputs_wait_for_a_disk_that_was_mounted_at_the_folder_itself() {
    for is_store in [false, true] {
        let env = at_speed(20.0, "");
        let Some(disk) = Disk::in_memory(env.path("disk"), "size=48m") else { return };
        let mount_point = env.path("mounted");
        let places = match is_store {
            false => "[paths]\noutput = \"mounted\"\n[output]\nmin_free = \"0B\"".to_owned(),
            true => format!("[output]\nstore = \"file://{}\"\nkeep_local = false", mount_point.display()),
        };
        env.configure(&format!("[limits]\nin_flight = {IN_FLIGHT}\nadaptive = false\n{places}"));
        let folder = mount_point.join("batch");
        fs::create_dir_all(&folder).unwrap();
        let mount = disk.also_at(mount_point.clone());
        let daemon = env.daemon("info");
        env.run(["submit", "batch.csv"]).exited(0);
        until("the first outputs", || count(&env.status("batch"), "succeeded") >= 4);
        drop(mount);
        let cause = if is_store { "store" } else { "disk" };
        until("it to be parked", || env.status("batch")["parked_by"] == cause);
        until("nothing in flight", || {
            let status = env.status("batch");
            ["submitting", "running"].iter().all(|state| count(&status, state) == 0)
        });
        // Settings that are read anew change nothing about that.
        daemon.signal(Signal::HUP);
        daemon.says("configuration reloaded");
        until("it to be parked", || env.status("batch")["parked_by"] == cause);
        let (sent, waiting) = (env.audit().tasks.len(), env.status("batch"));
        assert!(sent < JOBS && count(&waiting, "failed") == 0, "{sent}: {waiting}");
        assert_eq!(files_on(&folder), 0, "nothing is below the mount point");
        let mount = disk.also_at(mount_point);
        until("the end", || env.status("batch")["state"] == "done");
        daemon.stop().exited(0);
        env.audit().each_paid_once(JOBS);
        assert_eq!(files_on(&folder), JOBS);
        drop(mount);
    }
}

/// Nobody, not even root, may make files in a folder, or may again.
fn immutable(change: &str, folder: &std::path::Path) {
    let changed = std::process::Command::new("chattr").arg(change).arg(folder).status();
    assert!(changed.is_ok_and(|status| status.success()), "chattr {change} {}", folder.display());
}

/// Asks a daemon to pause or resume the batch, and waits a moment for its answer: one whose state has no room gives none
/// until it has.
fn wish(env: &TestEnv, verb: &str) {
    let mut daemon = UnixStream::connect(env.path("disk/state/callsheet.sock")).unwrap();
    daemon.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let body = "{\"batch\":\"batch\"}";
    let head = format!("POST /v1/{verb} HTTP/1.1\r\nhost: callsheet\r\ncontent-type: application/json");
    write!(daemon, "{head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).unwrap();
    let _ = daemon.read(&mut [0; 1024]);
}

/// Somebody else takes the room that the reserve was.
#[test]
fn a_daemon_whose_last_room_is_taken_waits_and_goes_on_by_itself() {
    let env = env("[paths]\nstate = \"disk/state\"");
    let Some(disk) = Disk::real(env.path("disk"), "24M", 4096) else { return };
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    until("a few jobs at the service", || env.audit().tasks.len() > IN_FLIGHT);
    disk.fill();
    daemon.says("queue parked");
    disk.fill();
    // What the log still has room for is written: so much is wished that it does not suffice.
    let mut wishes = ["pause", "resume"].into_iter().cycle();
    until("not even last words to be written", || {
        disk.fill();
        wish(&env, wishes.next().unwrap());
        daemon.said().contains("waiting for disk space")
    });
    // The database may be closed until it can be opened safely; what is asked is answered all the same. Which wish was
    // the last is left to chance, and it is in force before it can be written.
    for _ in 0..3 {
        let told = env.status("batch");
        assert!(told["parked_by"] == "disk" || told["parked_by"] == "paused", "{told}");
        // However many wish meanwhile.
        (0..25).for_each(|_| wish(&env, wishes.next().unwrap()));
    }
    let sent = env.audit().tasks.len();
    assert!(sent < JOBS, "it stopped sending");
    disk.clear();
    daemon.says("the state can be written again");
    // A wish whose client went away is carried out all the same, and a pause among them may come after a resume.
    until("the end", || {
        let is_done = env.status("batch")["state"] == "done";
        if !is_done {
            env.run(["resume", "batch"]).exited(0);
        }
        is_done
    });
    until("the results", || env.path("output/batch/report.json").exists());
    daemon.stop();
    env.audit().each_paid_once(JOBS);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", JOBS));
    env.run(["state", "verify"]).exited(0).says("all fits");
}
