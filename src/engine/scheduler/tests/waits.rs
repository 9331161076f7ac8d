//! How long is waited after a fault, and what counts as an attempt.

use std::num::NonZeroU32;

use super::*;
use crate::domain::manifest::row::Deadline;

/// Lets time pass until the next step says something, and tells how long that took.
fn wait_for_more(stage: &mut Stage) -> (Millis, String) {
    let before = stage.now.tick;
    loop {
        let said = stage.pass(Millis(50)).step(vec![]);
        if !said.is_empty() {
            return (stage.now.tick.since(before), said);
        }
        assert!(stage.now.tick.since(before) < Millis::from_secs(3_600), "nothing more comes");
    }
}

fn backoffs(seed: u64) -> Vec<Millis> {
    let mut stage = Stage::with(1, Settings { seed, ..settings() });
    stage.step(vec![]);
    let mut waits = Vec::new();
    for _ in 0..5 {
        stage.posted(0, lost());
        waits.push(wait_for_more(&mut stage).0);
    }
    waits
}

#[test]
fn the_jitter_comes_from_the_seed_alone() {
    assert_eq!(backoffs(1), backoffs(1));
    assert_ne!(backoffs(1), backoffs(2));
}

#[test]
fn retry_after_is_kept_by_posts_and_by_readings() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    let wait = Some(Millis::from_secs(90));
    let away = PostAnswer::Again { fault: fault("internal_error"), wait, may_have_run: false };
    assert_eq!(stage.posted(0, away), "");
    let (waited, said) = wait_for_more(&mut stage);
    assert_eq!((waited, said.as_str()), (Millis::from_secs(90), "post 0#1"));
    stage.posted(0, task("pending"));
    wait_for_more(&mut stage);
    stage.read(0, ReadAnswer::Again { fault: fault("http_503"), wait });
    let (waited, said) = wait_for_more(&mut stage);
    assert_eq!((waited, said.as_str()), (Millis::from_secs(90), "read 0#1"));
}

#[test]
fn until_when_a_job_waits_and_who_asked_for_it_can_be_asked() {
    let mut stage = Stage::of(1);
    let planned = |stage: &Stage| stage.scheduler.planned_step(Stage::key(0), stage.now);
    let in_seconds = |stage: &Stage, seconds, reason| {
        Some(PlannedStep { at: stage.now.wall.after(Millis::from_secs(seconds)), reason })
    };
    assert_eq!(planned(&stage), None);
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(planned(&stage), None, "it is being sent");
    let asked = |seconds| Some(Millis::from_secs(seconds));
    let away = |wait| PostAnswer::Again { fault: fault("internal_error"), wait, may_have_run: false };
    stage.posted(0, away(asked(86_400)));
    assert_eq!(planned(&stage), in_seconds(&stage, 3_600, WaitReason::ServiceAsked), "an hour at most");
    stage.pass(Millis::from_secs(3_000));
    assert_eq!(planned(&stage), in_seconds(&stage, 600, WaitReason::ServiceAsked));
    assert_eq!(stage.pass(Millis::from_secs(600)).step(vec![]), "post 0#1");
    stage.posted(0, away(None));
    assert_eq!(planned(&stage).map(|planned| planned.reason), Some(WaitReason::Fault));
    assert_eq!(wait_for_more(&mut stage).1, "post 0#1");
    stage.posted(0, task("pending"));
    assert_eq!(planned(&stage).map(|planned| planned.reason), Some(WaitReason::Usual));
    assert_eq!(wait_for_more(&mut stage).1, "read 0#1");
    stage.read(0, ReadAnswer::Again { fault: fault("http_503"), wait: asked(90) });
    assert_eq!(planned(&stage), in_seconds(&stage, 90, WaitReason::ServiceAsked));
    assert_eq!(wait_for_more(&mut stage).1, "read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    assert_eq!(planned(&stage), None, "its outputs are downloaded");
    let away = FetchFault::Unavailable { fault: fault("download"), wait: asked(99_999_999) };
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Err(away))]);
    assert_eq!(planned(&stage), in_seconds(&stage, 300, WaitReason::ResultHostAsked), "five minutes at most");
    assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "read 0#1");
}

#[test]
fn attempts_are_keys_and_however_many_resends_make_one() {
    let mut stage = Stage::of(1);
    stage.batch.policy.attempts = Some(2);
    stage.scheduler.add_batch(stage.batch.clone());
    let mut posts = vec![stage.step(vec![])];
    for _ in 0..2 {
        for _ in 0..4 {
            stage.posted(0, lost());
            posts.push(wait_for_more(&mut stage).1);
        }
        let busy = TaskReading { fault: Some(fault("busy")), ..reading("failed") };
        stage.posted(0, PostAnswer::Task(busy));
        if stage.ended.is_empty() {
            posts.push(wait_for_more(&mut stage).1);
        }
    }
    assert_eq!(posts, [["post 0#1"; 5], ["post 0#2"; 5]].concat());
    assert_eq!(stage.ended, ["job-0 failed"]);
}

#[test]
fn an_outage_is_told_of_once_it_lasts_and_until_something_is_answered() {
    let mut stage = Stage::of(4);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    let began = stage.now.wall;
    for seq in 1..4 {
        stage.posted(seq, lost());
    }
    assert_eq!(stage.scheduler.outage(), None, "three at once may be a moment's trouble");
    let (_, said) = wait_for_more(&mut stage);
    stage.pass(Millis(2_000));
    let seq = said.chars().nth(5).and_then(|digit| digit.to_digit(10)).unwrap();
    stage.posted(seq, lost());
    let outage = stage.scheduler.outage().unwrap();
    assert_eq!((outage.since, outage.fault), (began, fault("timeout")));
    assert!(outage.next_try.is_some());
    stage.pass(Millis(10_000)).step(vec![]);
    assert!(stage.scheduler.outage().is_some());
    stage.read(0, ReadAnswer::Task(reading("processing")));
    assert_eq!(stage.scheduler.outage(), None);
}

#[test]
fn a_wait_that_is_over_wakes_nobody_while_the_disk_is_low() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    let crowded =
        PostAnswer::Again { fault: fault("http_429"), wait: Some(Millis(1_000)), may_have_run: false };
    stage.posted(0, crowded);
    stage.posted(1, task("pending"));
    stage.pass(Millis(30_000));
    stage.step(vec![Input::DiskIsLow(true)]);
    let step = stage.scheduler.step(vec![], stage.now).unwrap();
    assert!(step.wake.is_none_or(|wake| wake > stage.now.tick), "{:?}", step.wake);
}

#[test]
fn an_attempt_that_waited_while_its_batch_was_canceled_is_not_sent() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("failed"));
    stage.scheduler.batches.get_mut(&BatchNo(1)).unwrap().cancel(0);
    assert_eq!(stage.pass(Millis(300_000)).step(vec![]), "");
    assert_eq!(stage.ended, ["job-0 canceled"]);
}

#[test]
fn a_job_that_could_only_be_late_leaves_its_slot_to_the_next_at_once() {
    let limits = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::with(2, Settings { limits, ..settings() });
    let late = Arc::make_mut(&mut stage.specs[0]);
    late.order.terms_mut().deadline = Some(Deadline::At(Timestamp(1)));
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.ended, ["job-0 expired"]);
    let step = stage.scheduler.step(vec![], stage.now).unwrap();
    assert_eq!(step.effects.len(), 1, "{:?}", step.effects);
}

#[test]
fn nothing_wakes_a_loop_that_stops() {
    let keep = Limits { min_balance: Some(Credits(0)), ..settings().limits };
    let mut stage = Stage::with(1, Settings { limits: keep, ..settings() });
    assert_eq!(stage.step(vec![]), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(100)))]), "post 0#1");
    stage.step(vec![Input::Stop]);
    // The balance would be asked for again by now, and is not: its time must not be waited for either.
    stage.pass(Millis::from_secs(61));
    let step = stage.scheduler.step(vec![], stage.now).unwrap();
    assert!(step.effects.is_empty() && step.wake.is_none(), "{step:?}");
}

#[test]
fn a_slow_download_waits_behind_all_others_and_is_never_given_up_for_it() {
    let mut stage = Stage::with(3, Settings { downloads: 1, ..settings() });
    stage.step(vec![]);
    let slow = || Input::Fetched(Stage::key(0), AttemptNo(1), Err(FetchFault::Slow(fault("slow"))));
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    assert_eq!(stage.posted(1, task("success")), "");
    assert!(stage.scheduler.download_waits());
    assert_eq!(stage.step(vec![slow()]), "fetch 1#1");
    // Its wait is over, and a new one comes in after it.
    stage.pass(Millis::from_secs(5)).step(vec![]);
    assert_eq!(stage.posted(2, task("success")), "");
    let done = |seq| Input::Fetched(Stage::key(seq), AttemptNo(1), Ok(files()));
    assert_eq!(stage.step(vec![done(1)]), "fetch 2#1");
    assert_eq!(stage.step(vec![done(2)]), "fetch 0#1");
    assert!(!stage.scheduler.download_waits());
    for _ in 0..20 {
        assert_eq!(stage.step(vec![slow()]), "");
        assert_eq!(stage.scheduler.standstill(), None);
        assert_eq!(wait_for_more(&mut stage).1, "fetch 0#1");
    }
    assert_eq!(stage.step(vec![done(0)]), "");
    assert_eq!(stage.ended, ["job-1 succeeded", "job-2 succeeded", "job-0 succeeded"]);
}

#[test]
fn a_download_whose_outputs_wait_to_be_published_makes_room_for_the_next_and_for_more_work() {
    let limits = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::with(6, Settings { limits, downloads: 1, ..settings() });
    stage.step(vec![]);
    let received = |seq| Input::Received(Stage::key(seq), AttemptNo(1));
    let done = |seq| Input::Fetched(Stage::key(seq), AttemptNo(1), Ok(files()));
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1, post 1#1");
    assert_eq!(stage.posted(1, task("success")), "post 2#1");
    assert_eq!(stage.posted(2, task("success")), "", "three are as many as may be open");
    assert_eq!(stage.step(vec![received(0)]), "fetch 1#1, post 3#1");
    assert_eq!(stage.step(vec![done(0)]), "", "its slot is not free twice");
    assert_eq!(stage.step(vec![received(1), done(1)]), "fetch 2#1");
}

/// What is bought could not be fetched either: other batches wait, too, and are told why.
#[test]
fn outputs_that_wait_for_a_result_host_keep_more_from_being_bought_and_are_named_as_the_reason() {
    let limits = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::with(5, Settings { limits, downloads: 1, ..settings() });
    let fetched = |seq, outcome| vec![Input::Fetched(Stage::key(seq), AttemptNo(1), outcome)];
    let away = |seq| fetched(seq, Err(FetchFault::Unavailable { fault: fault("download"), wait: None }));
    let parked = |stage: &Stage| {
        let told = stage.scheduler.overview();
        (told[0].parked, told[0].unfetched)
    };
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1, post 1#1");
    assert_eq!(stage.step(away(0)), "");
    assert_eq!(parked(&stage), (None, 0), "there is room for more");
    assert_eq!(stage.posted(1, task("success")), "fetch 1#1, post 2#1");
    stage.step(away(1));
    assert_eq!(stage.posted(2, task("success")), "fetch 2#1", "nothing more is bought");
    assert_eq!(parked(&stage), (Some(Parked::ResultHost), 2));
    stage.step(away(2));
    assert_eq!(parked(&stage), (Some(Parked::ResultHost), 3));
    assert_eq!(stage.scheduler.standstill(), None, "it passes by itself");
    stage.pass(Millis::from_secs(300)).step(vec![]);
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    assert_eq!(stage.step(fetched(0, Ok(files()))), "post 3#1");
    assert_eq!(parked(&stage), (None, 0));
}

#[test]
fn a_link_that_expired_while_it_waited_is_no_failed_download_and_its_job_goes_first_with_a_fresh_one() {
    let mut stage = Stage::with(4, Settings { downloads: 1, ..settings() });
    stage.step(vec![]);
    let fetched = |seq, outcome| vec![Input::Fetched(Stage::key(seq), AttemptNo(1), outcome)];
    let refused = || fetched(1, Err(FetchFault::LinkRefused(fault("download"))));
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    (1..4).for_each(|seq| assert_eq!(stage.posted(seq, task("success")), ""));
    stage.pass(Millis::from_secs(60));
    assert_eq!(stage.step(fetched(0, Ok(files()))), "fetch 1#1");
    assert_eq!(stage.step(refused()), "read 1#1, fetch 2#1", "its task is read at once");
    assert_eq!(stage.read(1, ReadAnswer::Task(reading("success"))), "");
    assert_eq!(stage.step(fetched(2, Ok(files()))), "fetch 1#1", "before the last, which waits for longer");
    // A fresh link that is refused counts, so that this has an end.
    assert_eq!(stage.step(refused()), "fetch 3#1");
    stage.step(fetched(3, Ok(files())));
    let mut fresh = 1;
    while stage.ended.len() < 4 {
        stage.pass(Millis::from_secs(300)).step(vec![]);
        assert_eq!(stage.read(1, ReadAnswer::Task(reading("success"))), "fetch 1#1");
        stage.step(refused());
        fresh += 1;
        assert!(fresh < 100, "it never ends");
    }
    assert_eq!((stage.ended.last().map(String::as_str), fresh), (Some("job-1 failed"), 8));
}

/// What a task failed for that says something about the account.
fn failed_for(code: &str) -> ReadAnswer {
    ReadAnswer::Task(TaskReading { fault: Some(fault(code)), ..reading("failed") })
}

#[test]
fn a_task_that_failed_for_want_of_credits_shuts_the_gate_until_the_balance_covers_the_next() {
    let limits = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::with(2, Settings { limits, ..settings() });
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.pass(Millis::from_secs(10)).step(vec![]);
    assert_eq!(stage.read(0, failed_for("insufficient_credits")), "balance?", "and no other POST");
    assert_eq!(stage.scheduler.standstill(), None, "the answer decides");
    assert_eq!(stage.pass(Millis::from_secs(30)).step(vec![]), "", "not even its own next attempt");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(PRICE - 1)))]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Credits)));
    assert_eq!(stage.pass(Millis::from_secs(60)).step(vec![]), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(PRICE)))]), "post 0#2");
    // Where the balance covers it at once, nothing waits for long; attempts are as many as ever.
    stage.posted(0, task("pending"));
    stage.pass(Millis::from_secs(10)).step(vec![]);
    assert_eq!(stage.read(0, failed_for("insufficient_credits")), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(1_000)))]), "post 1#1", "while it waits its time");
    assert!(stage.ended.is_empty());
}

#[test]
fn a_task_that_failed_for_want_of_a_key_shuts_the_gate_until_the_key_works() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.posted(1, task("pending"));
    stage.pass(Millis::from_secs(10)).step(vec![]);
    assert_eq!(stage.read(0, failed_for("auth_required")), "balance?");
    assert_eq!(stage.read(1, failed_for("auth_required")), "", "asked once");
    assert_eq!(stage.pass(Millis::from_secs(30)).step(vec![]), "");
    assert_eq!(stage.step(vec![Input::Balance(Err(NoBalance::Unanswered))]), "");
    assert_eq!(stage.pass(Millis::from_secs(60)).step(vec![]), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(0)))]), "post 0#2, post 1#2");
}

#[test]
fn a_401_alone_does_not_end_a_run_before_the_balance_is_refused_too() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    assert_eq!(stage.posted(1, PostAnswer::Unauthorised(fault("unauthorized"))), "balance?", "at once");
    assert_eq!(stage.scheduler.standstill(), None, "the answer decides");
    assert_eq!(stage.step(vec![Input::Balance(Err(NoBalance::Unanswered))]), "");
    assert_eq!(stage.scheduler.standstill(), None, "and is waited for");
    assert_eq!(stage.pass(Millis::from_secs(5)).step(vec![]), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(100)))]), "post 1#1", "the same request");
    // It comes again and again, and the balance is told each time: this key may not make the call.
    for wait in [5, 10, 20] {
        assert_eq!(stage.posted(1, PostAnswer::Unauthorised(fault("unauthorized"))), "");
        assert_eq!(stage.scheduler.standstill(), None);
        let did = stage.pass(Millis::from_secs(wait)).step(vec![]);
        assert!(did.contains("balance?"), "{did}");
        let did = stage.step(vec![Input::Balance(Ok(Credits(100)))]);
        assert!(did.contains("post 1#1"), "{did}");
        if did.contains("read 0#1") {
            stage.read(0, ReadAnswer::Task(reading("processing")));
        }
    }
    stage.posted(1, PostAnswer::Unauthorised(fault("unauthorized")));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Key)));
}

#[test]
fn a_key_that_is_refused_for_the_balance_too_ends_a_run_at_once() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, PostAnswer::Unauthorised(fault("unauthorized"))), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Err(NoBalance::Unauthorised))]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Key)));
}

/// Lets the next job begin, and tells how long its task is left alone before it is read.
fn first_read(stage: &mut Stage, seq: u32) -> Millis {
    stage.posted(seq, task("pending"));
    let (waited, said) = wait_for_more(stage);
    assert_eq!(said, format!("read {seq}#1"));
    waited
}

#[test]
fn an_outage_or_a_refused_key_puts_off_no_reading_of_a_later_task() {
    let limits = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::with(12, Settings { limits, ..settings() });
    stage.step(vec![]);
    for seq in 0..10 {
        assert!(first_read(&mut stage, seq) <= Millis::from_secs(10), "task {seq} is read on time");
        let began = stage.now.tick;
        // Whatever keeps the answers away: afterwards the task has long ended.
        while stage.now.tick.since(began) < Millis::from_secs(40) {
            let answer = if seq % 2 == 0 {
                ReadAnswer::Again { fault: fault("http_503"), wait: None }
            } else {
                ReadAnswer::Unauthorised(fault("unauthorized"))
            };
            let said = match stage.read(seq, answer) {
                said if said.is_empty() => wait_for_more(&mut stage).1,
                said => said,
            };
            if said == "balance?" {
                stage.step(vec![Input::Balance(Ok(Credits(1_000)))]);
                wait_for_more(&mut stage);
            }
        }
        stage.read(seq, ReadAnswer::Task(reading("success")));
        let said = stage.step(vec![Input::Fetched(Stage::key(seq), AttemptNo(1), Ok(files()))]);
        assert!(!said.contains("read"), "{said}");
    }
    assert!(first_read(&mut stage, 10) <= Millis::from_secs(10));
}

#[test]
fn a_task_whose_key_was_refused_is_read_as_soon_as_the_key_works() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    wait_for_more(&mut stage);
    assert_eq!(stage.read(0, ReadAnswer::Unauthorised(fault("unauthorized"))), "balance?");
    stage.step(vec![Input::Balance(Err(NoBalance::Unauthorised))]);
    let (_, said) = wait_for_more(&mut stage);
    assert_eq!(said, "balance?");
    stage.step(vec![Input::Balance(Ok(Credits(0)))]);
    let (waited, said) = wait_for_more(&mut stage);
    assert_eq!(said, "read 0#1");
    assert!(waited <= Millis(1_000), "{waited:?}");
}

#[test]
fn jobs_wait_for_their_turn_in_the_queue_where_a_pause_reaches_them() {
    let mut stage = Stage::with(5, Settings { submits_per_second: NonZeroU32::new(1), ..settings() });
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(10), "nothing is held for the others");
    assert_eq!(stage.scheduler.standstill(), None);
    assert_eq!(wait_for_more(&mut stage), (Millis(900), "post 1#1".into()));
    // A request that is sent again takes a turn, too, before those that were not sent yet.
    stage.posted(0, PostAnswer::Again { fault: fault("timeout"), wait: None, may_have_run: true });
    assert_eq!(wait_for_more(&mut stage), (Millis(1_000), "post 2#1".into()));
    let (_, next) = wait_for_more(&mut stage);
    assert_eq!(next, "post 0#1");
    stage.scheduler.execute(Command::Pause(BatchNo(1)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.pass(Millis::from_secs(3)).step(vec![]), "", "paused before its turn");
    assert_eq!(stage.batch.totals.held, Credits(30));
}

/// However often: the file is paid for, and the store takes what others have.
#[test]
fn outputs_that_the_store_alone_refuses_keep_nobody_else_waiting_and_open_what_was_parked() {
    let limits = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::with(3, Settings { limits, ..settings() });
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1, post 1#1");
    let fetched = |fault: FetchFault| Input::Fetched(Stage::key(0), AttemptNo(1), Err(fault));
    assert_eq!(stage.step(vec![fetched(FetchFault::StoreRefuses(fault("store")))]), "");
    assert_eq!(stage.posted(1, task("success")), "fetch 1#1", "nothing is bought");
    for round in 0..20 {
        let did = stage.pass(Millis::from_secs(300)).step(vec![]);
        assert!(did.contains("fetch 0#1"), "{round}: {did}");
        let did = stage.step(vec![fetched(FetchFault::ObjectRefused(fault("store")))]);
        assert_eq!(did.contains("post 2#1"), round == 0, "{round}: {did}");
    }
    stage.pass(Millis::from_secs(300)).step(vec![]);
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
}

#[test]
fn nothing_is_sent_before_the_object_store_of_outputs_has_answered() {
    let mut stage = Stage::of(1);
    let check = stage.scheduler.await_output_store(true);
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.scheduler.standstill(), None, "the answer is to come");
    assert_eq!(parked_by(&stage), Some(Parked::Store));
    for _ in 0..4 {
        assert_eq!(stage.step(vec![Input::OutputStoreAnswers(check, false)]), "");
        assert_eq!(stage.scheduler.standstill(), None, "it is asked again");
        assert_eq!(parked_by(&stage), Some(Parked::Store));
    }
    stage.step(vec![Input::OutputStoreAnswers(check, false)]);
    let parked = Some(Standstill::Parked(Parked::Store));
    assert_eq!(stage.scheduler.standstill(), parked, "a run does not wait for ever");
    assert_eq!(stage.step(vec![Input::OutputStoreAnswers(check, true)]), "post 0#1");
    assert_eq!(parked_by(&stage), None);
}

fn parked_by(stage: &Stage) -> Option<Parked> {
    stage.scheduler.overview()[0].parked
}

#[test]
fn answers_of_a_store_that_a_reload_replaced_or_removed_are_not_heard() {
    let mut stage = Stage::of(2);
    let former = stage.scheduler.await_output_store(true);
    let check = stage.scheduler.await_output_store(true);
    assert_eq!(stage.step(vec![Input::OutputStoreAnswers(former, true)]), "", "the new one has not answered");
    stage.step(vec![Input::OutputStoreAnswers(check, false)]);
    stage.scheduler.await_output_store(false);
    let late = [former, check].map(|no| Input::OutputStoreAnswers(no, false));
    assert_eq!(stage.step(late.into()), "post 0#1, post 1#1", "nobody would ask it again");
}

#[test]
fn a_batch_without_budget_does_not_wait_for_the_object_store() {
    for answers in [&[][..], &[false]] {
        let limits = Limits { total: Some(Credits(PRICE - 1)), ..settings().limits };
        let mut stage = Stage::with(1, Settings { limits, ..settings() });
        let check = stage.scheduler.await_output_store(true);
        stage.step(vec![]);
        stage.step(answers.iter().map(|answers| Input::OutputStoreAnswers(check, *answers)).collect());
        let standstill = stage.scheduler.standstill();
        assert_eq!(standstill, Some(Standstill::Parked(Parked::TotalBudget)), "{answers:?}");
        assert_eq!(parked_by(&stage), Some(Parked::TotalBudget));
    }
}

#[test]
fn what_was_let_out_before_waits_for_the_object_store_where_it_was_surely_not_sent() {
    let turned_away = PostAnswer::Again { fault: fault("http_503"), wait: None, may_have_run: false };
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    stage.posted(0, turned_away);
    stage.posted(1, lost());
    let check = stage.scheduler.await_output_store(true);
    let held = stage.batch.totals.held;
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "post 1#1", "its task may be there");
    assert_eq!(stage.batch.totals.held, held, "it stays let out");
    stage.step(vec![Input::OutputStoreAnswers(check, true)]);
    assert_eq!(stage.pass(Millis(1_000)).step(vec![]), "post 0#1");
}

#[test]
fn a_result_host_that_fails_again_after_a_store_refused_is_waited_for_anew() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    let fetched = |fault: FetchFault| Input::Fetched(Stage::key(0), AttemptNo(1), Err(fault));
    let away = || fetched(FetchFault::Unavailable { fault: fault("download"), wait: None });
    stage.step(vec![away()]);
    stage.pass(Millis(60_000)).step(vec![]);
    stage.read(0, ReadAnswer::Task(reading("success")));
    stage.step(vec![fetched(FetchFault::StoreRefuses(fault("store")))]);
    stage.pass(Millis(100 * 3_600_000)).step(vec![]);
    stage.step(vec![away()]);
    assert_eq!(stage.ended, [""; 0], "it is paid for");
}
