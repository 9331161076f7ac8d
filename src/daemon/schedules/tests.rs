//! The loop with a scripted ingest and clock.

use std::sync::Mutex;

use super::*;
use crate::engine::EngineGone;
use crate::store::schedule_progress::read;

/// Notes what comes in, and refuses as often as it is told to.
#[derive(Default)]
struct Script {
    taken: Mutex<Vec<String>>,
    refusals: Mutex<u32>,
    /// So many times a row cannot be validated, and the others are taken in.
    not_validated: Mutex<u32>,
    gone: Mutex<bool>,
    /// After so many runs the service does not answer.
    hangs_after: Mutex<Option<usize>>,
    unfinished: Mutex<Vec<BatchName>>,
    /// Somebody writes the manifest until then.
    written_until: Mutex<Timestamp>,
}

impl RunIngest for &Script {
    async fn take_in(&self, manifest: &Path, options: IngestOptions) -> Result<Receipt, IngestError> {
        if *self.gone.lock().unwrap() {
            return Err(EngineGone.into());
        }
        let taken = self.taken.lock().unwrap().len();
        if self.hangs_after.lock().unwrap().is_some_and(|most| taken >= most) {
            std::future::pending::<()>().await;
        }
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 {
            *refusals -= 1;
            return Err(ManifestError::Changed { path: manifest.to_owned() }.into());
        }
        let batch = options.batch.unwrap();
        self.taken.lock().unwrap().push(batch.to_string());
        let mut left = self.not_validated.lock().unwrap();
        let not_validated = u64::from(*left > 0);
        *left = left.saturating_sub(1);
        Ok(Receipt { batch: Some(batch), new: 1, not_validated, ..Receipt::new(manifest) })
    }

    async fn plan(&self, manifest: &Path, options: IngestOptions) -> Result<Receipt, IngestError> {
        Ok(Receipt { batch: options.batch, new: 1, price: Credits(8), ..Receipt::new(manifest) })
    }

    async fn unfinished(&self) -> Result<Vec<BatchName>, StoreError> {
        Ok(self.unfinished.lock().unwrap().clone())
    }

    fn is_settled(&self, _: &Path, now: Timestamp) -> bool {
        now >= *self.written_until.lock().unwrap()
    }
}

fn at(text: &str) -> Now {
    let wall = chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis();
    // The other clock goes on as this one would, had nobody set it.
    Now { wall: Timestamp(wall), tick: Tick(u64::try_from(wall).unwrap()) }
}

fn configured(name: &str, cron: &str, missed: Missed) -> ConfiguredSchedule {
    ConfiguredSchedule {
        name: name.to_owned(),
        schedule: Schedule::parse(cron, None).unwrap(),
        run_policy: SchedulePolicy { missed, missed_max: 3, overlap: Overlap::Skip },
        manifest: PathBuf::from("m.csv"),
        policy: Policy::default(),
        default_policy: Policy::default(),
    }
}

fn hourly() -> Vec<ConfiguredSchedule> {
    vec![configured("news", "@hourly", Missed::Latest)]
}

struct Stage {
    dir: tempfile::TempDir,
    script: Script,
}

impl Stage {
    fn new() -> Stage {
        Stage { dir: tempfile::tempdir().unwrap(), script: Script::default() }
    }

    fn begin(&self, configured: Vec<ConfiguredSchedule>) -> ScheduleRunner<&Script> {
        ScheduleRunner::begin(&self.script, self.dir.path(), configured)
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.script.taken.lock().unwrap())
    }

    fn kept(&self) -> Timestamp {
        read(self.dir.path()).unwrap()["news"].handled.up_to
    }
}

async fn look(runner: &mut ScheduleRunner<&Script>, now: &str) {
    assert!(runner.look(at(now)).await.is_ok());
}

/// Somebody starts a run by hand.
async fn fire(
    runner: &mut ScheduleRunner<&Script>,
    name: &str,
    how: FireMode,
    now: &str,
) -> Result<Receipt, FireError> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    runner.fire(FireRequest { name: name.to_owned(), how, reply }, at(now).wall).await;
    answer.await.unwrap()
}

#[tokio::test]
async fn a_run_is_taken_in_once_across_restarts() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    look(&mut runner, "2026-11-21T03:00:00Z").await;
    look(&mut runner, "2026-11-21T03:00:05Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z"]);
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T03:00:10Z").await;
    assert!(stage.taken().is_empty());
    // Down from four to half past six: the latest.
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T06:30:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0600Z"]);
    let kept = &read(stage.dir.path()).unwrap()["news"];
    assert_eq!(kept.last_run.as_ref().unwrap().batch.as_str(), "news-2026-11-21T0600Z");
}

#[tokio::test]
async fn what_became_due_while_another_run_was_taken_in_is_not_missed() {
    let stage = Stage::new();
    let daily = || vec![configured("news", "0 3 * * *", Missed::Skip)];
    let mut busy = stage.begin(daily());
    look(&mut busy, "2026-11-21T02:59:50Z").await;
    look(&mut busy, "2026-11-21T03:04:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z"]);
    // One that was down then, or asleep, missed it.
    look(&mut stage.begin(daily()), "2026-11-22T03:04:00Z").await;
    let mut asleep = stage.begin(daily());
    look(&mut asleep, "2026-11-23T02:59:50Z").await;
    let woken = Now { tick: at("2026-11-23T02:59:51Z").tick, ..at("2026-11-23T03:04:00Z") };
    assert!(asleep.look(woken).await.is_ok());
    assert!(stage.taken().is_empty());
}

#[tokio::test]
async fn what_was_taken_in_and_not_noted_is_taken_in_under_the_same_name() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    let before = read(stage.dir.path()).unwrap();
    look(&mut runner, "2026-11-21T03:00:00Z").await;
    schedule_progress::keep(stage.dir.path(), &before).unwrap();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T03:10:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z", "news-2026-11-21T0300Z"]);
}

#[tokio::test]
async fn a_lost_or_damaged_record_fires_nothing() {
    let stage = Stage::new();
    look(&mut stage.begin(hourly()), "2026-11-21T02:30:00Z").await;
    let file = stage.dir.path().join("schedules.json");
    std::fs::remove_file(&file).unwrap();
    look(&mut stage.begin(hourly()), "2026-11-21T08:30:00Z").await;
    std::fs::write(&file, "{").unwrap();
    look(&mut stage.begin(hourly()), "2026-11-21T10:30:00Z").await;
    assert!(stage.taken().is_empty());
    assert_eq!(stage.kept(), at("2026-11-21T10:30:00Z").wall);
}

#[tokio::test]
async fn what_cannot_be_taken_in_is_noted_and_tried_again() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    *stage.script.refusals.lock().unwrap() = 2;
    look(&mut runner, "2026-11-21T03:00:00Z").await;
    look(&mut runner, "2026-11-21T03:00:05Z").await;
    assert_eq!(*stage.script.refusals.lock().unwrap(), 1, "it is given time");
    look(&mut runner, "2026-11-21T03:00:10Z").await;
    assert_eq!(stage.kept(), at("2026-11-21T03:00:00Z").wall);
    let waiting = || read(stage.dir.path()).unwrap()["news"].waiting.clone();
    assert_eq!(waiting(), [at("2026-11-21T03:00:00Z").wall]);
    // Long after it was due, but nobody was down.
    look(&mut runner, "2026-11-21T03:20:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z"]);
    assert_eq!((stage.kept(), waiting().len()), (at("2026-11-21T03:00:00Z").wall, 0));
    // The next takes the place of one that never could be.
    *stage.script.refusals.lock().unwrap() = 1;
    look(&mut runner, "2026-11-21T04:00:00Z").await;
    look(&mut runner, "2026-11-21T05:00:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0500Z"]);
}

#[tokio::test]
async fn what_cannot_be_taken_in_for_long_is_tried_less_and_less_often() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    *stage.script.refusals.lock().unwrap() = 1_000;
    for minute in 0..60 {
        for second in ["00", "10", "20", "30", "40", "50"] {
            look(&mut runner, &format!("2026-11-21T03:{minute:02}:{second}Z")).await;
        }
    }
    let tries = 1_000 - *stage.script.refusals.lock().unwrap();
    assert!((10..=20).contains(&tries), "{tries} tries in an hour");
    // The next one that is due is not kept waiting for as long.
    *stage.script.refusals.lock().unwrap() = 0;
    look(&mut runner, "2026-11-21T04:00:00Z").await;
    look(&mut runner, "2026-11-21T04:00:10Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0400Z"]);
}

#[test]
fn the_same_failure_is_logged_once_an_hour() {
    let (mut last, mut logged) = (None, Vec::new());
    let said = |secs: u64| if secs == 7_000 { "another" } else { "no such file" };
    for secs in (0..8_000).step_by(1_000) {
        let (failed, is_logged) = FailedTry::after(last, said(secs).to_owned(), Tick(secs * 1_000));
        last = Some(failed);
        logged.extend(is_logged.then_some(secs));
    }
    assert_eq!(logged, [0, 4_000, 7_000]);
}

#[tokio::test]
async fn a_manifest_that_is_being_written_is_waited_for() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    *stage.script.written_until.lock().unwrap() = at("2026-11-21T03:00:03Z").wall;
    look(&mut runner, "2026-11-21T03:00:00Z").await;
    look(&mut runner, "2026-11-21T03:00:02Z").await;
    assert!(stage.taken().is_empty());
    look(&mut runner, "2026-11-21T03:00:04Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z"]);
}

#[tokio::test]
async fn an_unfinished_run_of_the_same_schedule_keeps_the_next_out() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    let batches = ["news-of-today-2026-11-21T0300Z", "news-2026", "other-2026-11-21T0300Z"];
    *stage.script.unfinished.lock().unwrap() = batches.map(|name| name.parse().unwrap()).to_vec();
    look(&mut runner, "2026-11-21T03:00:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z"]);
    *stage.script.unfinished.lock().unwrap() = vec!["news-2026-11-21T0300Z".parse().unwrap()];
    look(&mut runner, "2026-11-21T04:00:00Z").await;
    assert!(stage.taken().is_empty());
    assert_eq!(stage.kept(), at("2026-11-21T04:00:00Z").wall);
    let left_out = || read(stage.dir.path()).unwrap()["news"].left_out.clone();
    let in_the_way = "news-2026-11-21T0300Z".parse().unwrap();
    assert_eq!(left_out(), Some(LeftOutRun { at: at("2026-11-21T04:00:00Z").wall, in_the_way }));
    stage.script.unfinished.lock().unwrap().clear();
    look(&mut runner, "2026-11-21T05:00:00Z").await;
    assert_eq!((stage.taken(), left_out()), (vec!["news-2026-11-21T0500Z".to_owned()], None));
}

#[tokio::test]
async fn catching_up_goes_on_after_a_restart_though_its_first_run_has_not_ended() {
    let stage = Stage::new();
    let all = || vec![configured("news", "@hourly", Missed::All)];
    look(&mut stage.begin(all()), "2026-11-21T02:30:00Z").await;
    let before = read(stage.dir.path()).unwrap();
    let runs = ["news-2026-11-21T0300Z", "news-2026-11-21T0400Z", "news-2026-11-21T0500Z"];
    look(&mut stage.begin(all()), "2026-11-21T05:30:00Z").await;
    assert_eq!(stage.taken(), runs);
    // The process ends after the first, before that is noted.
    let restart = async |unfinished: &str, now: &str| {
        schedule_progress::keep(stage.dir.path(), &before).unwrap();
        *stage.script.unfinished.lock().unwrap() = vec![unfinished.parse().unwrap()];
        look(&mut stage.begin(all()), now).await;
        stage.taken()
    };
    assert_eq!(restart(runs[0], "2026-11-21T05:30:10Z").await, runs);
    let later = restart(runs[0], "2026-11-21T06:30:00Z").await;
    assert_eq!(later, [runs[1], runs[2], "news-2026-11-21T0600Z"], "the three latest");
    // A run by hand is in the way, and so is one from before.
    assert!(restart("news-2026-11-21T031507Z", "2026-11-21T05:30:10Z").await.is_empty());
    assert!(restart("news-2026-11-21T0200Z", "2026-11-21T05:30:10Z").await.is_empty());
}

#[tokio::test]
async fn a_schedule_that_went_away_and_came_back_begins_anew() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    runner.replace(Vec::new());
    look(&mut runner, "2026-11-21T05:30:00Z").await;
    assert!(read(stage.dir.path()).unwrap().is_empty());
    runner.replace(hourly());
    look(&mut runner, "2026-11-21T08:30:00Z").await;
    assert!(stage.taken().is_empty());
    look(&mut runner, "2026-11-21T09:00:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0900Z"]);
}

#[tokio::test]
async fn by_hand_a_run_begins_at_once_and_changes_nothing_else() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    let mut fire_as =
        async |name: &str, how: FireMode| fire(&mut runner, name, how, "2026-11-21T02:31:07Z").await;
    let planned = fire_as("news", FireMode::Plan(at("2026-11-21T02:31:00Z").wall)).await.unwrap();
    assert_eq!(planned.price, Credits(8));
    assert!(stage.taken().is_empty(), "a plan starts nothing");
    let mut fire = async |name: &str| fire_as(name, FireMode::Now).await;
    assert_eq!(fire("news").await.unwrap().batch.unwrap().as_str(), "news-2026-11-21T023107Z");
    let FireError::Unknown(refusal) = fire("weather").await.unwrap_err() else { panic!("it is unknown") };
    assert_eq!(refusal.message, "no schedule is called weather; there are news");
    look(&mut runner, "2026-11-21T03:00:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T023107Z", "news-2026-11-21T0300Z"]);
}

#[tokio::test]
async fn a_run_that_is_tried_again_outlasts_a_restart() {
    let stage = Stage::new();
    let daily = || vec![configured("news", "0 3 * * *", Missed::Skip)];
    let mut runner = stage.begin(daily());
    look(&mut runner, "2026-11-21T02:59:50Z").await;
    *stage.script.refusals.lock().unwrap() = 1;
    look(&mut runner, "2026-11-21T03:00:00Z").await;
    assert!(stage.taken().is_empty());
    let mut runner = stage.begin(daily());
    look(&mut runner, "2026-11-21T03:10:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z"], "it was seen in time");
    look(&mut stage.begin(daily()), "2026-11-21T03:20:00Z").await;
    assert!(stage.taken().is_empty());
    // One that waits goes when the next is due, and that one was missed.
    let mut runner = stage.begin(daily());
    look(&mut runner, "2026-11-22T02:59:50Z").await;
    *stage.script.refusals.lock().unwrap() = 1;
    look(&mut runner, "2026-11-22T03:00:00Z").await;
    look(&mut stage.begin(daily()), "2026-11-23T09:00:00Z").await;
    assert!(stage.taken().is_empty());
}

fn both() -> Vec<ConfiguredSchedule> {
    ["news", "other"].map(|name| configured(name, "0 3 * * *", Missed::Skip)).to_vec()
}

/// The daemon ends at the hour at which both are due, while the run after so many others is taken in.
async fn both_are_due(stage: &Stage, taken: usize) {
    let mut runner = stage.begin(both());
    look(&mut runner, "2026-11-21T02:59:50Z").await;
    *stage.script.hangs_after.lock().unwrap() = Some(taken);
    tokio::select! {
        biased;
        _ = runner.look(at("2026-11-21T03:00:00Z")) => panic!("all was taken in"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test]
async fn what_is_due_outlasts_a_daemon_that_ends_while_it_is_taken_in_for_the_first_time() {
    let stage = Stage::new();
    both_are_due(&stage, 0).await;
    *stage.script.hangs_after.lock().unwrap() = None;
    let mut runner = stage.begin(both());
    look(&mut runner, "2026-11-21T03:30:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z", "other-2026-11-21T0300Z"]);
    let mut runner = stage.begin(both());
    look(&mut runner, "2026-11-21T03:31:00Z").await;
    assert!(stage.taken().is_empty());
}

#[tokio::test]
async fn a_run_that_was_taken_in_is_kept_before_the_next_schedule_is_looked_at() {
    let stage = Stage::new();
    both_are_due(&stage, 1).await;
    let kept = read(stage.dir.path()).unwrap();
    assert!(kept["news"].waiting.is_empty() && kept["news"].last_run.is_some(), "{kept:?}");
    assert_eq!(kept["other"].waiting.len(), 1);
}

#[tokio::test]
async fn rows_that_wait_for_a_catalog_are_tried_again_under_the_same_run() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    *stage.script.not_validated.lock().unwrap() = 1;
    let receipt = fire(&mut runner, "news", FireMode::Now, "2026-11-21T02:31:07Z").await.unwrap();
    assert_eq!((receipt.batch.unwrap().as_str(), receipt.not_validated), ("news-2026-11-21T023107Z", 1));
    look(&mut runner, "2026-11-21T02:31:08Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T023107Z"; 2], "one run, whatever it takes");
    look(&mut runner, "2026-11-21T02:32:00Z").await;
    assert!(stage.taken().is_empty());
    let last = read(stage.dir.path()).unwrap()["news"].last_run.clone().unwrap();
    assert_eq!(last.batch.as_str(), "news-2026-11-21T023107Z");
}

#[tokio::test]
async fn runs_by_hand_and_those_of_the_schedule_wait_beside_each_other() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    *stage.script.not_validated.lock().unwrap() = 100;
    look(&mut runner, "2026-11-21T03:00:00Z").await;
    for (at_hand, most) in [("2026-11-21T03:00:05Z", None), ("2026-11-21T03:00:06Z", Some(Credits(3)))] {
        let how = most.map_or(FireMode::Now, |most| FireMode::Planned(at(at_hand).wall, most));
        assert_eq!(fire(&mut runner, "news", how, at_hand).await.unwrap().not_validated, 1);
    }
    look(&mut runner, "2026-11-21T03:00:07Z").await;
    let kept = read(stage.dir.path()).unwrap()["news"].clone();
    assert_eq!(kept.waiting, [at("2026-11-21T03:00:00Z").wall]);
    let by_hand: Vec<_> = kept.by_hand.iter().map(|run| (run.at, run.most)).collect();
    let at_hand = |text: &str| at(text).wall;
    let expected =
        [(at_hand("2026-11-21T03:00:05Z"), None), (at_hand("2026-11-21T03:00:06Z"), Some(Credits(3)))];
    assert_eq!(by_hand, expected);
    // The next process takes all of them in.
    *stage.script.not_validated.lock().unwrap() = 0;
    stage.taken();
    look(&mut stage.begin(hourly()), "2026-11-21T03:10:00Z").await;
    let runs = ["news-2026-11-21T0300Z", "news-2026-11-21T030005Z", "news-2026-11-21T030006Z"];
    assert_eq!(stage.taken(), runs);
    assert!(read(stage.dir.path()).unwrap()["news"].by_hand.is_empty());
}

#[tokio::test]
async fn what_waits_is_dropped_with_its_expression_and_after_a_day() {
    let stage = Stage::new();
    let yearly = || vec![configured("news", "0 3 21 11 *", Missed::Skip)];
    for (later, cron) in [("2026-11-23T03:00:00Z", "0 3 21 11 *"), ("2026-11-21T03:10:00Z", "0 4 21 11 *")] {
        let mut runner = stage.begin(yearly());
        look(&mut runner, "2026-11-21T02:59:50Z").await;
        *stage.script.refusals.lock().unwrap() = 1;
        look(&mut runner, "2026-11-21T03:00:00Z").await;
        look(&mut stage.begin(vec![configured("news", cron, Missed::Skip)]), later).await;
        assert!(stage.taken().is_empty(), "{cron}");
        std::fs::remove_file(stage.dir.path().join("schedules.json")).unwrap();
    }
    // One that is caught up with waits as long as it takes.
    let caught_up = || vec![configured("news", "0 3 21 11 *", Missed::Latest)];
    look(&mut stage.begin(caught_up()), "2026-11-20T03:00:00Z").await;
    *stage.script.refusals.lock().unwrap() = 1;
    look(&mut stage.begin(caught_up()), "2026-11-22T03:00:00Z").await;
    look(&mut stage.begin(caught_up()), "2026-11-24T03:00:00Z").await;
    assert_eq!(stage.taken(), ["news-2026-11-21T0300Z"]);
}

#[tokio::test]
async fn the_loop_sleeps_no_longer_than_it_may() {
    let stage = Stage::new();
    let mut runner = stage.begin(hourly());
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    assert_eq!(runner.wait(at("2026-11-21T02:30:00Z").wall), CHECK_INTERVAL);
    assert_eq!(runner.wait(at("2026-11-21T02:59:58.750Z").wall), Duration::from_millis(1250));
    *stage.script.gone.lock().unwrap() = true;
    assert!(runner.look(at("2026-11-21T03:00:00Z")).await.is_err(), "the engine has ended");
}

#[tokio::test]
async fn what_comes_late_by_less_than_a_minute_runs_as_if_it_had_not() {
    let stage = Stage::new();
    let mut often = configured("news", "*/5 * * * * *", Missed::Latest);
    often.run_policy.overlap = Overlap::Allow;
    let mut runner = stage.begin(vec![often]);
    look(&mut runner, "2026-11-21T02:30:00Z").await;
    look(&mut runner, "2026-11-21T02:30:16Z").await;
    let runs = ["news-2026-11-21T023005Z", "news-2026-11-21T023010Z", "news-2026-11-21T023015Z"];
    assert_eq!(stage.taken(), runs);
}
