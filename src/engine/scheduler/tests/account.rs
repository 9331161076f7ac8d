//! What an account that is short of credits lets out, and what is known of its balance.

use super::*;
use crate::domain::out_of_credits::AllowanceUse;

/// Milliseconds to the next UTC midnight of a stage that has just begun.
const TO_MIDNIGHT: Millis = Millis(86_400_000 - 1_000_000);

fn refused() -> PostAnswer {
    PostAnswer::OutOfCredits(fault("insufficient_credits"))
}

fn waived() -> PostAnswer {
    PostAnswer::Task(TaskReading {
        charged: Some(Credits::ZERO),
        waived: Some(Credits(PRICE)),
        ..reading("success")
    })
}

/// A batch of which the rows from `first` on draw a unit each of the allowance called `images`.
fn with_images(rows: u32, first: usize, settings: Settings) -> Stage {
    let mut stage = Stage::with(rows, settings);
    for spec in &mut stage.specs[first..] {
        let terms = Arc::make_mut(spec).order.terms_mut();
        (terms.waivable, terms.allowance) =
            (Credits(PRICE), Some(AllowanceUse { pool: "images".to_owned(), units: 1 }));
    }
    stage
}

fn slots(in_flight: u32) -> Settings {
    Settings { limits: Limits { in_flight, ..settings().limits }, ..settings() }
}

fn balance(credits: u64) -> Vec<Input> {
    vec![Input::Balance(Ok(Credits(credits)))]
}

#[test]
fn one_402_stops_every_further_post_until_the_balance_covers_the_next() {
    let mut stage =
        Stage::with(3, Settings { limits: Limits { in_flight: 2, ..settings().limits }, ..settings() });
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
    assert_eq!(stage.posted(0, PostAnswer::OutOfCredits(fault("insufficient_credits"))), "balance?");
    assert_eq!(stage.posted(1, task("failed")), "", "a free slot sends nothing either");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(9)))]), "", "9 do not cover 10");
    stage.pass(Millis(4_000)).step(vec![]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Credits)));
    for wait in [1, 10, 20, 40, 60, 60] {
        assert_eq!(stage.pass(Millis(wait * 1_000 - 1)).step(vec![]), "");
        assert_eq!(stage.pass(Millis(1)).step(vec![]), "balance?", "{wait} s later");
        assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(9)))]), "");
    }
    let resume = stage.scheduler.execute(Command::Resume(BatchNo(1)), stage.now);
    assert!(resume.is_ok());
    assert_eq!(stage.step(vec![]), "balance?", "at once when somebody asks");
    let sent = stage.step(vec![Input::Balance(Ok(Credits(500)))]);
    assert_eq!(sent, "post 0#1, post 1#2", "the same key for the job that was turned away");
    assert_eq!(stage.ended, Vec::<String>::new(), "no job failed");
}

#[test]
fn what_the_service_refuses_although_the_balance_covers_it_is_not_waited_for_without_end() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, PostAnswer::OutOfCredits(fault("insufficient_credits"))), "balance?");
    let covers = || vec![Input::Balance(Ok(Credits(5_000)))];
    assert_eq!(stage.step(covers()), "post 0#1");
    for wait in [5, 10, 20] {
        assert_eq!(stage.posted(0, PostAnswer::OutOfCredits(fault("insufficient_credits"))), "");
        assert_eq!(stage.scheduler.standstill(), None, "the next answer may be another");
        assert_eq!(stage.pass(Millis(wait * 1_000)).step(vec![]), "balance?");
        assert_eq!(stage.step(covers()), "post 0#1");
    }
    stage.posted(0, PostAnswer::OutOfCredits(fault("insufficient_credits")));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Credits)));
    let told = stage.scheduler.overview();
    assert_eq!((told[0].needs, told[0].balance), (Some(Credits(10)), Some(Credits(5_000))));
    assert!(told[0].is_refused);
    // A daemon goes on asking, and an owner may go on at once.
    assert_eq!(stage.pass(Millis(40_000)).step(vec![]), "balance?");
    assert_eq!(stage.step(covers()), "post 0#1");
    stage.posted(0, task("pending"));
    assert_eq!(stage.scheduler.standstill(), None);
}

#[test]
fn what_an_allowance_may_cover_is_sent_after_a_402() {
    let mut stage = with_images(5, 2, slots(2));
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
    assert_eq!(stage.posted(0, refused()), "post 2#1, balance?", "its pool refused nothing");
    assert_eq!(stage.step(balance(0)), "");
    assert_eq!(stage.posted(1, refused()), "post 3#1");
    // The pool refuses one: it is used up, and nothing more is tried of it today.
    assert_eq!(stage.posted(2, waived()), "fetch 2#1, post 4#1");
    assert_eq!(stage.posted(3, refused()), "");
    assert_eq!(stage.posted(4, refused()), "");
    stage.step(vec![Input::Fetched(Stage::key(2), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.pass(Millis(1_000)).step(vec![]), "balance?", "requests in flight have settled");
    assert_eq!(stage.step(balance(0)), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Credits)));
    assert!(stage.scheduler.watches_the_calendar(), "midnight brings a new allowance");
    let mut asked = stage.pass(Millis(TO_MIDNIGHT.0 - 1_001)).step(vec![]);
    assert_eq!(asked, "balance?");
    assert_eq!(stage.step(balance(0)), "");
    assert_eq!(
        stage.pass(Millis(1)).step(vec![]),
        "post 3#1",
        "one at a time, since there was a refusal before"
    );
    asked = stage.posted(3, waived());
    assert_eq!(asked, "fetch 3#1, post 4#1", "and each success lets out the next");
    assert_eq!(stage.ended, ["job-2 succeeded"]);
}

#[test]
fn what_a_failed_task_gives_back_of_an_allowance_is_used() {
    let mut stage = with_images(3, 0, slots(3));
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1, post 2#1");
    let running = PostAnswer::Task(TaskReading {
        charged: Some(Credits::ZERO),
        waived: Some(Credits(PRICE)),
        ..reading("pending")
    });
    assert_eq!(stage.posted(0, running), "");
    assert_eq!(stage.posted(1, refused()), "balance?");
    assert_eq!(stage.step(balance(0)), "");
    assert_eq!(stage.posted(2, refused()), "");
    stage.pass_until("read 0#1");
    let failed = TaskReading {
        charged: Some(Credits::ZERO),
        waived: Some(Credits(PRICE)),
        fault: Some(fault("invalid_input")),
        ..reading("failed")
    };
    let said = stage.read(0, ReadAnswer::Task(failed));
    assert!(said.contains("post 1#1") && !said.contains("post 2#1"), "{said}");
}

#[test]
fn without_a_plan_no_allowance_is_counted_upon() {
    let mut stage = with_images(3, 1, Settings { has_allowances: false, ..slots(1) });
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.posted(0, refused()), "balance?");
    assert_eq!(stage.step(balance(0)), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Credits)));
}

#[test]
fn a_restart_sends_nothing_that_must_be_paid_before_the_balance_covers_it() {
    let mut stage = Stage::with(20, slots(16));
    stage.step(vec![]);
    for seq in 0..16 {
        stage.posted(seq, refused());
    }
    for _ in 0..7 {
        stage.step(balance(PRICE - 1));
        stage.pass(Millis(3_600_000));
        stage.restart();
        assert_eq!(stage.step(vec![]), "balance?", "at once, and no POST");
        assert_eq!(stage.scheduler.standstill(), None, "the answer decides");
    }
    assert_eq!(stage.step(balance(PRICE * 2)), "post 0#1, post 1#1", "and no more than it covers");
    assert_eq!(stage.posted(0, task("pending")), "");
    assert_eq!(stage.posted(1, task("pending")), "");
    stage.pass(Millis(5_000)).step(vec![]);
    assert!(stage.step(balance(PRICE * 16)).starts_with("post 2#1, post 3#1"));
    assert_eq!(stage.account, AccountBlock::default(), "every slot is covered: there is no want any more");
}

#[test]
fn a_job_that_the_balance_covers_goes_before_a_dearer_one_that_it_does_not() {
    let mut stage = Stage::with(3, slots(1));
    Arc::make_mut(&mut stage.specs[0]).order.terms_mut().price = Some(Credits(50));
    stage.batch.policy.budget = Some(Credits(1_000));
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.posted(0, refused()), "balance?");
    assert_eq!(stage.step(balance(20)), "post 1#1");
    // Although the balance seemed to cover it: it is not sent again at once.
    assert_eq!(stage.posted(1, refused()), "");
    assert_eq!(stage.pass(Millis(4_999)).step(vec![]), "");
    assert_eq!(stage.pass(Millis(1)).step(vec![]), "balance?");
}

/// The service returns the task of a repeated key, whatever is left on the account.
#[test]
fn a_request_whose_answer_was_lost_is_repeated_on_an_empty_account() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    stage.posted(0, lost());
    assert_eq!(stage.posted(1, refused()), "balance?");
    assert_eq!(stage.step(balance(0)), "");
    assert_eq!(stage.scheduler.standstill(), None, "its answer is to come");
    stage.pass_until("post 0#1");
    assert_eq!(stage.scheduler.account.left(), Some(Credits::ZERO), "nothing is counted twice");
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1, balance?");
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    assert_eq!((stage.batch.totals.held, stage.batch.totals.spent), (Credits::ZERO, Credits(PRICE)));
}

#[test]
fn a_request_on_its_way_at_a_kill_is_repeated_on_an_empty_account() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    assert_eq!(stage.posted(1, refused()), "balance?");
    stage.step(balance(0));
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 0#1, balance?");
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
}

#[test]
fn a_request_that_was_answered_402_after_a_lost_answer_waits_for_the_balance() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    stage.posted(0, lost());
    assert_eq!(stage.posted(1, refused()), "balance?");
    assert_eq!(stage.step(balance(PRICE - 1)), "");
    stage.pass_until("post 0#1");
    assert_eq!(stage.posted(0, refused()), "", "no task was made: the repeated key is refused, too");
    stage.pass(Millis(1_000)).step(vec![]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Credits)));
    stage.restart();
    assert_eq!(stage.step(vec![]), "balance?", "nor is it sent once more after a restart");
    assert_eq!(stage.step(balance(PRICE - 1)), "");
    stage.pass_until("balance?");
    assert_eq!(stage.step(balance(PRICE)), "post 0#1", "it covers one");
    assert_eq!(stage.posted(0, PostAnswer::Unauthorised(fault("unauthorized"))), "balance?");
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "", "a refused key keeps it as ever");
}

/// It may have drawn the last of the allowance.
#[test]
fn a_request_whose_answer_was_lost_is_repeated_although_its_allowance_is_used_up() {
    let mut stage = with_images(2, 0, slots(2));
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
    stage.posted(0, lost());
    assert_eq!(stage.posted(1, refused()), "balance?");
    assert_eq!(stage.step(balance(0)), "");
    stage.pass_until("post 0#1");
    assert_eq!(stage.posted(0, waived()), "fetch 0#1, balance?");
}

#[test]
fn a_question_that_is_not_answered_is_waited_for_but_not_for_ever() {
    let mut stage = Stage::with(1, slots(1));
    stage.step(vec![]);
    assert_eq!(stage.posted(0, refused()), "balance?");
    for _ in 0..2 {
        stage.step(vec![Input::Balance(Err(NoBalance::Unanswered))]);
        assert_eq!(stage.scheduler.standstill(), None);
        stage.pass_until("balance?");
    }
    stage.step(vec![Input::Balance(Err(NoBalance::Unanswered))]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Credits)));
}

#[test]
fn a_balance_that_a_refused_key_may_not_read_shuts_the_gate_for_the_key() {
    let limits = Limits { in_flight: 1, min_balance: Some(Credits(500)), ..settings().limits };
    let mut stage = Stage::with(2, Settings { limits, ..settings() });
    assert_eq!(stage.step(vec![]), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Err(NoBalance::Unauthorised))]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Key)));
    assert_eq!(stage.pass(Millis::from_secs(60)).step(vec![]), "balance?");
    stage.step(balance(1_000));
    assert_eq!(stage.scheduler.standstill(), None);
}

/// Others spend of the account, too: what is known of it must be fresh.
#[test]
fn a_least_balance_is_held_against_a_balance_that_is_asked_for_ever_again() {
    let limits = Limits { in_flight: 1, min_balance: Some(Credits(500)), ..settings().limits };
    let mut stage = Stage::with(9, Settings { limits, ..settings() });
    assert_eq!(stage.step(vec![]), "balance?");
    assert_eq!(stage.step(balance(1_000)), "post 0#1");
    stage.pass(Millis(1_000));
    let said = stage.posted(0, task("success"));
    assert_eq!(said, "fetch 0#1, post 1#1", "far from the limit an answer of a second ago will do");
    stage.pass(Millis(1));
    assert_eq!(stage.posted(1, task("success")), "fetch 1#1, balance?");
    let fetched = |seq| Input::Fetched(Stage::key(seq), AttemptNo(1), Ok(files()));
    stage.step(vec![fetched(0), fetched(1)]);
    assert_eq!(stage.scheduler.standstill(), None);
    // Somebody else has spent nearly all that was above the limit.
    assert_eq!(stage.step(balance(519)), "post 2#1");
    assert_eq!(stage.posted(2, task("success")), "fetch 2#1", "9 are left above it");
    assert_eq!(stage.step(vec![fetched(2)]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::MinBalance)));
    stage.pass_until("balance?");
    assert_eq!(stage.step(balance(509)), "");
}

#[test]
fn what_was_in_the_air_when_the_balance_was_told_is_asked_for_again() {
    let limits = Limits { in_flight: 1, min_balance: Some(Credits(0)), ..settings().limits };
    let mut stage = Stage::with(2, Settings { limits, ..settings() });
    stage.step(vec![]);
    assert_eq!(stage.step(balance(PRICE * 2)), "post 0#1");
    stage.pass(Millis(60_000));
    assert_eq!(stage.step(vec![]), "balance?");
    // The POST in flight may have been charged already: it is taken off twice, and that is found out.
    stage.step(balance(PRICE));
    stage.posted(0, task("success"));
    assert_eq!(stage.scheduler.standstill(), None);
    assert_eq!(stage.pass(Millis(1_000)).step(vec![]), "balance?");
    assert_eq!(stage.step(balance(PRICE)), "post 1#1");
}
