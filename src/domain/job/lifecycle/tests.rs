//! Lives as transcripts, and what holds for every life.

mod doubts;
mod downloads;
mod keys;

use proptest::prelude::*;

use super::*;
use crate::domain::job::{HISTORY_MAX_LINES, OutputFile};
use crate::domain::ledger::Totals;
use crate::domain::time::Millis;

const TERMS: AttemptRules = AttemptRules { attempts: 3, keyed: true };
const KEYLESS: AttemptRules = AttemptRules { attempts: 3, keyed: false };
const DAY: UtcDay = UtcDay(20_000);

fn admit(hold: u64) -> Event {
    Event::Admit { hold: Credits(hold), day: DAY }
}

fn reading(status: &str, charged: u64) -> TaskReading {
    TaskReading {
        id: TaskId("t1".into()),
        status: TaskStatus::from_wire(status),
        model: Some("house-c1/text-to-video".into()),
        options: None,
        charged: Some(Credits(charged)),
        waived: Some(Credits::ZERO),
        urls: if status == "success" { vec!["http://x/1.mp4".into()] } else { vec![] },
        fault: None,
        record: None,
    }
}

fn failed(code: &str) -> TaskReading {
    TaskReading { fault: Some(Fault::new(code, "said so")), ..reading("failed", 10) }
}

fn task(status: &str, charged: u64) -> Event {
    Event::Posted(PostAnswer::Task(reading(status, charged)))
}

fn read(status: &str, charged: u64) -> Event {
    Event::Read(reading(status, charged))
}

fn again(may_have_run: bool) -> Event {
    let fault = Fault::new("timeout", "no answer within 60s");
    Event::Posted(PostAnswer::Again { fault, wait: None, may_have_run })
}

fn fault() -> Fault {
    Fault::new("insufficient_credits", "insufficient credits")
}

fn file() -> OutputFile {
    let content_type = "video/mp4".to_owned();
    OutputFile {
        path: "a.mp4".into(),
        bytes: 1,
        sha256: "00".into(),
        content_type,
        edited: None,
        object: None,
    }
}

/// Runs the events one after the other, each addressed to the present attempt, and writes a
/// line for each: `state#attempt held/charged`.
fn transcript(terms: AttemptRules, events: Vec<Event>) -> String {
    let mut job = Job::queued();
    let mut lines = Vec::new();
    for event in events {
        let name = event.name();
        lines.push(match apply(&job, job.attempt(), event, terms, Timestamp(0)) {
            Ok(transition) => {
                job = transition.job;
                let Books { held, charged, .. } = job.books();
                format!("{name}: {}#{} {}/{}", job.state().name(), job.attempt().0, held.0, charged.0)
            }
            Err(illegal) => format!("{name}: {illegal}"),
        });
    }
    lines.join("\n")
}

fn check(terms: AttemptRules, events: Vec<Event>, expected: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(transcript(terms, events), expected.join("\n"));
}

#[test]
fn a_video_is_made() {
    check(
        TERMS,
        vec![
            admit(10),
            task("pending", 10),
            read("processing", 10),
            read("success", 10),
            Event::Fetched(vec![file()]),
        ],
        "admit: submitting#1 10/0
         posted: running#1 0/10
         read: running#1 0/10
         read: fetching#1 0/10
         fetched: succeeded#1 0/10",
    );
}

#[test]
fn speech_is_finished_within_the_call() {
    check(
        TERMS,
        vec![admit(1), task("success", 1), Event::Fetched(vec![file()])],
        "admit: submitting#1 1/0
         posted: fetching#1 0/1
         fetched: succeeded#1 0/1",
    );
}

#[test]
fn an_unknown_outcome_keeps_the_hold_and_the_key() {
    check(
        TERMS,
        vec![admit(10), again(true), again(false), task("processing", 10)],
        "admit: submitting#1 10/0
         posted: submitting#1 10/0
         posted: submitting#1 10/0
         posted: running#1 0/10",
    );
}

#[test]
fn a_failed_task_is_refunded_and_tried_under_a_new_key() {
    let busy = || Event::Read(failed("busy"));
    check(
        TERMS,
        vec![
            admit(10),
            task("pending", 10),
            busy(),
            admit(10),
            task("pending", 10),
            busy(),
            admit(10),
            task("pending", 10),
            busy(),
        ],
        "admit: submitting#1 10/0
         posted: running#1 0/10
         read: queued#2 0/0
         admit: submitting#2 10/0
         posted: running#2 0/10
         read: queued#3 0/0
         admit: submitting#3 10/0
         posted: running#3 0/10
         read: failed#3 0/0",
    );
}

#[test]
fn rejected_content_is_never_sent_again() {
    let refused = PostAnswer::Refused(Fault::new("content_rejected", "safety"));
    check(
        TERMS,
        vec![admit(10), Event::Posted(refused), admit(10)],
        "admit: submitting#1 10/0
         posted: failed#1 0/0
         admit: \"admit\" cannot happen to a job that is failed",
    );
    check(
        TERMS,
        vec![admit(10), task("pending", 10), Event::Read(failed("content_rejected"))],
        "admit: submitting#1 10/0
         posted: running#1 0/10
         read: failed#1 0/0",
    );
}

#[test]
fn an_error_that_names_a_task_is_decided_by_that_task() {
    let named = || Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()));
    check(
        TERMS,
        vec![admit(10), named(), Event::Read(failed("provider_unavailable")), admit(10)],
        "admit: submitting#1 10/0
         posted: running#1 10/0
         read: queued#2 0/0
         admit: submitting#2 10/0",
    );
    check(
        TERMS,
        vec![admit(10), named(), read("processing", 10), read("success", 10)],
        "admit: submitting#1 10/0
         posted: running#1 10/0
         read: running#1 0/10
         read: fetching#1 0/10",
    );
}

#[test]
fn rejected_content_is_never_sent_again_whatever_the_record_says() {
    for code in ["content_rejected", "invalid_request"] {
        let named = Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), Fault::new(code, "no")));
        check(
            TERMS,
            vec![admit(10), named.clone(), Event::Read(failed("generic"))],
            "admit: submitting#1 10/0
             posted: running#1 10/0
             read: failed#1 0/0",
        );
        check(
            TERMS,
            vec![admit(10), named, read("processing", 10), Event::Resubmit, read("success", 10)],
            "admit: submitting#1 10/0
             posted: running#1 10/0
             read: running#1 0/10
             resubmit: running#1 0/10
             read: fetching#1 0/10",
        );
    }
}

#[test]
fn after_a_lost_answer_nothing_on_the_way_can_say_that_no_task_was_made() {
    let refused = |code: &str| Event::Posted(PostAnswer::Refused(Fault::new(code, "")));
    for on_the_way in ["http_413", "not_found", "cannot_send", "code_-1"] {
        check(
            TERMS,
            vec![admit(10), again(true), refused(on_the_way), refused(on_the_way), task("pending", 10)],
            "admit: submitting#1 10/0
             posted: submitting#1 10/0
             posted: submitting#1 10/0
             posted: submitting#1 10/0
             posted: running#1 0/10",
        );
        check(TERMS, vec![admit(10), refused(on_the_way)], "admit: submitting#1 10/0\nposted: failed#1 0/0");
    }
    check(
        TERMS,
        vec![admit(10), again(true), refused("invalid_request")],
        "admit: submitting#1 10/0
         posted: submitting#1 10/0
         posted: failed#1 0/0",
    );
}

#[test]
fn low_funds_and_a_bad_key_fail_no_job() {
    for answer in [PostAnswer::OutOfCredits(fault()), PostAnswer::Unauthorised(fault())] {
        check(
            TERMS,
            vec![admit(10), Event::Posted(answer.clone()), admit(10), again(true), Event::Posted(answer)],
            "admit: submitting#1 10/0
             posted: queued#1 0/0
             admit: submitting#1 10/0
             posted: submitting#1 10/0
             posted: submitting#1 10/0",
        );
    }
}

#[test]
fn a_deadline_counts_from_the_post_that_is_taken() {
    let transition =
        |job: &Job, event, at| apply(job, job.attempt(), event, TERMS, Timestamp(at)).unwrap().job;
    let turned_away = transition(&Job::queued(), admit(10), 1_000);
    let turned_away = transition(&turned_away, Event::Posted(PostAnswer::OutOfCredits(fault())), 2_000);
    assert_eq!(turned_away.first_sent, None, "nothing of it was taken");
    assert_eq!(transition(&turned_away, admit(10), 9_000).first_sent, Some(Timestamp(9_000)));
}

#[test]
fn shorts_studio_is_sent_once() {
    check(
        KEYLESS,
        vec![admit(10), again(true), Event::Retry],
        "admit: submitting#1 10/0
         posted: in_doubt#1 10/0
         retry: \"retry\" cannot happen to a job that is in_doubt",
    );
    check(KEYLESS, vec![admit(10), again(false)], "admit: submitting#1 10/0\nposted: queued#1 0/0");
}

#[test]
fn a_late_success_is_collected_and_an_overdue_job_gets_no_new_attempt() {
    check(
        TERMS,
        vec![admit(10), task("pending", 10), Event::Overdue, read("success", 10), Event::Fetched(vec![])],
        "admit: submitting#1 10/0
         posted: running#1 0/10
         overdue: running#1 0/10
         read: fetching#1 0/10
         fetched: succeeded#1 0/10",
    );
    check(
        TERMS,
        vec![admit(10), task("pending", 10), Event::Overdue, Event::Read(failed("busy"))],
        "admit: submitting#1 10/0
         posted: running#1 0/10
         overdue: running#1 0/10
         read: failed#1 0/0",
    );
}

#[test]
fn what_was_paid_for_is_downloaded_again_not_bought_again() {
    check(
        TERMS,
        vec![admit(10), task("success", 10), Event::FetchAbandoned(fault()), Event::Retry],
        "admit: submitting#1 10/0
         posted: fetching#1 0/10
         fetch abandoned: failed#1 0/10
         retry: \"retry\" cannot happen to a job that is failed",
    );
}

#[test]
fn outputs_can_be_downloaded_again_and_again() {
    check(
        TERMS,
        vec![
            admit(10),
            task("success", 10),
            Event::FetchAbandoned(fault()),
            Event::FetchAgain,
            read("success", 10),
            Event::Fetched(vec![file()]),
            Event::FetchAgain,
        ],
        "admit: submitting#1 10/0
         posted: fetching#1 0/10
         fetch abandoned: failed#1 0/10
         fetch again: fetching#1 0/10
         read: fetching#1 0/10
         fetched: succeeded#1 0/10
         fetch again: fetching#1 0/10",
    );
    check(
        TERMS,
        vec![admit(10), task("pending", 10), Event::Read(failed("invalid_input")), Event::FetchAgain],
        "admit: submitting#1 10/0
         posted: running#1 0/10
         read: failed#1 0/0
         fetch again: \"fetch again\" cannot happen to a job that is failed",
    );
}

#[test]
fn a_late_answer_for_an_older_attempt_is_refused() {
    let mut job = Job::queued();
    for event in [admit(10), task("pending", 10), Event::Read(failed("busy"))] {
        job = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap().job;
    }
    let late = apply(&job, AttemptNo(1), read("success", 10), TERMS, Timestamp(0)).unwrap_err();
    assert_eq!(late.to_string(), "\"read\" is for attempt 1, the job is at attempt 2");
}

#[test]
fn history_is_bounded() {
    let mut job = Job::queued();
    for charged in 0..200 {
        let event = if charged == 0 {
            admit(10)
        } else if charged == 1 {
            task("pending", 1)
        } else {
            read("pending", charged)
        };
        job = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap().job;
    }
    assert_eq!(job.history().len(), HISTORY_MAX_LINES);
}

#[test]
fn what_was_charged_and_given_back_unseen_is_in_the_books_all_the_same() {
    let mut job = Job::queued();
    let mut moved = Vec::new();
    let named = Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()));
    for event in [admit(10), named, Event::Read(failed("busy"))] {
        let transition = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap();
        (job, moved) = (transition.job, [moved, transition.movements].concat());
    }
    let (spent, waived) = (Credits(10), Credits::ZERO);
    let settle = Movement::Settle { held: Credits(10), spent, waived };
    assert_eq!(moved, [Movement::Hold(Credits(10)), settle, Movement::Refund { spent, waived }]);
}

/// Runs events, each addressed to an attempt, and tells of the job and of what it was resubmitted over:
/// `state#attempt held/charged`, then `task#attempt charged watch`.
fn beside(terms: AttemptRules, events: Vec<(u32, Event)>) -> String {
    let mut job = Job::queued();
    for (attempt, event) in events {
        job = apply(&job, AttemptNo(attempt), event, terms, Timestamp(0)).unwrap().job;
    }
    let Books { held, charged, .. } = job.books();
    let mut told = vec![format!("{}#{} {}/{}", job.state().name(), job.attempt().0, held.0, charged.0)];
    told.extend(job.resubmitted_attempts().map(|other| {
        let became = match other.state() {
            State::Running { .. } => "Open",
            State::Fetching { .. } => "Succeeded",
            State::InDoubt { .. } => "InDoubt",
            _ => "Over",
        };
        let task = other.task().map_or("none", |task| task.as_str());
        format!("{task}#{} {} {became}", other.no().0, other.books().charged.0)
    }));
    assert_eq!(job.is_over(), job.state().is_final() && !told.iter().any(|line| line.ends_with("Open")));
    told.join(", ")
}

/// A job whose second attempt follows its overdue first one.
fn resubmitted(then: Vec<(u32, Event)>) -> String {
    let mut events = vec![(1, admit(10)), (1, task("pending", 10)), (1, Event::Resubmit)];
    events.extend(then);
    beside(TERMS, events)
}

fn second(status: &str) -> TaskReading {
    TaskReading { id: TaskId("t2".into()), ..reading(status, 10) }
}

fn second_task(status: &str) -> Event {
    Event::Posted(PostAnswer::Task(second(status)))
}

#[test]
fn both_attempts_may_succeed_and_both_are_paid_for() {
    assert_eq!(resubmitted(vec![]), "queued#2 0/0, t1#1 10 Open");
    let made = || vec![(2, admit(10)), (2, second_task("success")), (2, Event::Fetched(vec![file()]))];
    assert_eq!(resubmitted(made()), "succeeded#2 0/10, t1#1 10 Open", "it is not over yet");
    let then = |event| made().into_iter().chain([(1, event)]).collect();
    assert_eq!(resubmitted(then(read("success", 10))), "succeeded#2 0/10, t1#1 10 Succeeded");
    assert_eq!(resubmitted(then(Event::Read(failed("busy")))), "succeeded#2 0/10, t1#1 0 Over");
    assert_eq!(resubmitted(then(Event::WatchExpired(fault()))), "succeeded#2 0/10, t1#1 10 InDoubt");
}

#[test]
fn the_first_to_succeed_is_kept_whatever_the_other_is_at() {
    let first = || (1, read("success", 10));
    assert_eq!(resubmitted(vec![first()]), "fetching#1 0/10", "the second was never sent");
    let sent = vec![(2, admit(10)), first()];
    assert_eq!(resubmitted(sent.clone()), "submitting#2 10/0, t1#1 10 Succeeded", "its answer first");
    let then = |more: Vec<(u32, Event)>| resubmitted(sent.iter().cloned().chain(more).collect());
    assert_eq!(then(vec![(2, second_task("pending"))]), "fetching#1 0/10, t2#2 10 Open");
    assert_eq!(then(vec![(2, Event::Posted(PostAnswer::Refused(fault())))]), "fetching#1 0/10");
    assert_eq!(then(vec![(2, second_task("success"))]), "fetching#2 0/10, t1#1 10 Succeeded");
    let given_up = vec![(2, second_task("success")), (2, Event::FetchAbandoned(fault()))];
    assert_eq!(then(given_up), "fetching#1 0/10, t2#2 10 Over", "paid for is paid for");
    let named = (2, Event::Posted(PostAnswer::TaskNamed(TaskId("t2".into()), fault())));
    assert_eq!(then(vec![named.clone()]), "running#2 10/0, t1#1 10 Succeeded", "its charge is not known");
    assert_eq!(then(vec![named, (2, Event::Read(second("pending")))]), "fetching#1 0/10, t2#2 10 Open");
    let running = vec![(2, admit(10)), (2, second_task("pending")), first()];
    assert_eq!(resubmitted(running), "fetching#1 0/10, t2#2 10 Open");
}

#[test]
fn what_may_have_been_sent_is_asked_for_before_another_attempt_is_kept() {
    let step = |job: &Job, no, event| apply(job, AttemptNo(no), event, TERMS, Timestamp(0)).unwrap().job;
    let mut job = Job::queued();
    for (no, event) in [(1, admit(10)), (1, task("pending", 10)), (1, Event::Resubmit), (2, admit(10))] {
        job = step(&job, no, event);
    }
    // Its state is rebuilt while the second request is on its way, and the first task succeeds.
    let job = step(&requeued(job, true, Timestamp(0)), 1, read("success", 10));
    assert_eq!((job.state().name(), job.attempt().0), ("queued", 2));
    assert_eq!(job.all_books(), Books { held: Credits(10), charged: Credits(10), ..Books::default() });
    let job = step(&step(&job, 2, admit(10)), 2, second_task("pending"));
    assert_eq!((job.state().name(), job.attempt().0), ("fetching", 1), "its charge is known");
    assert_eq!(job.all_books().charged, Credits(20));
    assert_eq!(job.watched_attempts().map(Attempt::no).collect::<Vec<_>>(), [AttemptNo(2)]);
}

#[test]
fn every_attempt_keeps_its_own_task_and_fault() {
    let named = Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()));
    let mut job = Job::queued();
    for (no, event) in [
        (1, admit(10)),
        (1, named),
        (1, Event::Read(failed("busy"))),
        (2, admit(10)),
        (2, second_task("pending")),
    ] {
        job = apply(&job, AttemptNo(no), event, TERMS, Timestamp(0)).unwrap().job;
    }
    let [first, present] = job.attempts() else { panic!("{job:?}") };
    assert_eq!(first.state().name(), "failed");
    assert_eq!(job.task_of(AttemptNo(1)), Some(&TaskId("t1".into())));
    assert_eq!(present.task(), Some(&TaskId("t2".into())));
    assert_eq!((job.is_late(), job.resubmitted_attempts().count()), (false, 0), "it was never overdue");
}

#[test]
fn attempts_are_bounded_and_those_that_are_paid_for_are_kept() {
    let rules = AttemptRules { attempts: u32::MAX, keyed: true };
    let mut job = Job::queued();
    for round in 1..100 {
        let id = TaskId(format!("t{round}").into());
        let pending = TaskReading { id: id.clone(), ..reading("pending", 10) };
        let end =
            if round == 1 { Event::Resubmit } else { Event::Read(TaskReading { id, ..failed("busy") }) };
        for event in [admit(10), Event::Posted(PostAnswer::Task(pending)), end] {
            job = apply(&job, job.attempt(), event, rules, Timestamp(0)).unwrap().job;
        }
    }
    assert_eq!((job.attempts().len(), job.attempt()), (crate::domain::job::ATTEMPTS_MAX, AttemptNo(100)));
    assert_eq!(job.watched_attempts().map(Attempt::no).collect::<Vec<_>>(), [AttemptNo::FIRST]);
    assert_eq!(job.all_books().charged, Credits(10));
}

#[test]
fn a_key_is_used_up_once_and_attempts_are_counted_together() {
    let busy = || TaskReading { id: TaskId("t2".into()), ..failed("busy") };
    let again = vec![(2, admit(10)), (2, second_task("pending")), (2, Event::Read(busy()))];
    assert_eq!(resubmitted(again.clone()), "queued#3 0/0, t1#1 10 Open");
    let last = [(3, admit(10)), (3, task("pending", 10)), (3, Event::Resubmit)];
    let none_left = resubmitted(again.into_iter().chain(last).collect());
    assert_eq!(none_left, "running#3 0/10, t1#1 10 Open", "no attempt is left: it is watched");
    let swapped = vec![
        (2, admit(10)),
        (2, second_task("pending")),
        (1, read("success", 10)),
        (1, Event::Fetched(vec![file()])),
        (2, Event::Read(busy())),
    ];
    assert_eq!(resubmitted(swapped), "succeeded#1 0/10, t2#2 0 Over");
}

#[test]
fn without_a_key_or_a_known_charge_a_job_is_merely_overdue() {
    let events = || vec![(1, admit(10)), (1, task("pending", 10)), (1, Event::Resubmit)];
    assert_eq!(beside(KEYLESS, events()), "running#1 0/10");
    let named = Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()));
    assert_eq!(beside(TERMS, vec![(1, admit(10)), (1, named), (1, Event::Resubmit)]), "running#1 10/0");
    assert_eq!(beside(TERMS, vec![(1, admit(10)), (1, Event::Resubmit)]), "submitting#1 10/0");
}

#[test]
fn a_retried_job_is_late_for_nothing() {
    let mut job = Job::queued();
    for event in [admit(10), task("pending", 10), Event::Overdue, Event::Read(failed("busy")), Event::Retry] {
        job = apply(&job, job.attempt(), event, TERMS, Timestamp(1_000)).unwrap().job;
    }
    let job = apply(&job, job.attempt(), admit(10), TERMS, Timestamp(90_000)).unwrap().job;
    assert!(job.holds_slot());
    assert_eq!(job.deadline_from(), Some(Timestamp(90_000)));
}

#[test]
fn what_was_on_its_way_when_the_program_ended_keeps_its_hold() {
    let sent = apply(&Job::queued(), AttemptNo(1), admit(10), TERMS, Timestamp(0)).unwrap().job;
    let refused = Event::Posted(PostAnswer::Unauthorised(fault()));
    let found = apply(&resumed(sent, false), AttemptNo(1), refused, TERMS, Timestamp(0)).unwrap().job;
    assert_eq!((found.state().name(), found.books().held), ("submitting", Credits(10)));
}

#[test]
fn what_was_held_counts_as_spent_until_an_answer_says_what_was_charged() {
    let silent = |status| TaskReading { charged: None, waived: None, ..reading(status, 0) };
    check(
        KEYLESS,
        vec![
            admit(40),
            Event::Posted(PostAnswer::Task(silent("pending"))),
            read("processing", 25),
            Event::Read(silent("success")),
        ],
        "admit: submitting#1 40/0
         posted: running#1 0/40
         read: running#1 0/25
         read: fetching#1 0/25",
    );
}

#[test]
fn what_an_allowance_covered_follows_the_tasks_record() {
    let covered = |waived: u64| TaskReading { waived: Some(Credits(waived)), ..reading("pending", 10) };
    let mut job = Job::queued();
    let mut totals = Totals::default();
    for event in [
        admit(10),
        Event::Posted(PostAnswer::Task(covered(0))),
        Event::Read(covered(6)),
        Event::Read(covered(2)),
    ] {
        let transition = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap();
        job = transition.job;
        transition.movements.into_iter().for_each(|movement| totals.apply(movement).unwrap());
    }
    assert_eq!(
        (job.books().waived, totals.waived, totals.spent, totals.refunded),
        (Credits(2), Credits(2), Credits(10), Credits(0))
    );
}

fn any_event() -> impl Strategy<Value = Event> {
    let status = prop_oneof![
        Just("pending"),
        Just("processing"),
        Just("success"),
        Just("failed"),
        Just("canceled"),
        Just("new-word")
    ];
    let any_reading = (status, 0u64..30).prop_map(|(status, charged)| reading(status, charged));
    prop_oneof![
        4 => (0u64..20).prop_map(admit),
        2 => any_reading.clone().prop_map(|r| Event::Posted(PostAnswer::Task(r))),
        1 => Just(Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()))),
        1 => Just(Event::Posted(PostAnswer::Refused(fault()))),
        1 => Just(Event::Posted(PostAnswer::OutOfCredits(fault()))),
        1 => any::<bool>().prop_map(again),
        6 => any_reading.prop_map(Event::Read),
        1 => Just(Event::TaskMissing(fault())),
        1 => Just(Event::InputsUnfit(fault())),
        1 => Just(Event::NotNeeded),
        1 => Just(Event::Overdue),
        2 => Just(Event::Resubmit),
        1 => Just(Event::WatchExpired(fault())),
        2 => Just(Event::Fetched(vec![file()])),
        1 => Just(Event::FetchAbandoned(fault())),
        1 => Just(Event::Renamed(vec![file()])),
        1 => Just(Event::Stored(vec![file()])),
        1 => Just(Event::Cancel),
        1 => Just(Event::Replace),
        1 => Just(Event::Expire),
        1 => Just(Event::Retry),
        1 => Just(Event::FetchAgain),
        1 => (0u64..30).prop_map(|charged| Event::Resolve(Credits(charged))),
    ]
}

/// What the movements that a job remembers come to.
fn remembered(job: &Job) -> Totals {
    let mut totals = Totals::default();
    job.history()
        .iter()
        .filter_map(|line| line.movement)
        .for_each(|movement| totals.apply(movement).unwrap());
    totals
}

proptest! {
    /// However long a job's life is, what is left of its history adds up to its books: the ledger is
    /// read from there.
    #[test]
    fn a_history_that_was_cut_short_still_adds_up(events in prop::collection::vec(any_event(), 100..600)) {
        let terms = AttemptRules { attempts: 6, keyed: true };
        let mut job = Job::queued();
        for event in events {
            let Ok(transition) = apply(&job, job.attempt(), event, terms, Timestamp(0)) else { continue };
            job = transition.job;
            prop_assert!(job.history().len() <= HISTORY_MAX_LINES);
            let totals = remembered(&job);
            let Books { held, charged, waived } = job.all_books();
            prop_assert_eq!((totals.held, totals.spent, totals.waived), (held, charged, waived));
        }
    }

    /// Whatever happens, the movements add up to the job's own books, a job that is queued or
    /// ended without a charge holds nothing, and an attempt number never goes back.
    #[test]
    fn books_and_movements_agree(events in prop::collection::vec((any_event(), any::<prop::sample::Index>()), 0..60), keyed in any::<bool>()) {
        let terms = AttemptRules { attempts: 3, keyed };
        let (mut job, mut totals, mut at) = (Job::queued(), Totals::default(), Timestamp(0));
        for (event, addressee) in events {
            at = at.after(Millis(1));
            let attempts: Vec<AttemptNo> = job.attempts().iter().map(Attempt::no).collect();
            let Ok(transition) = apply(&job, *addressee.get(&attempts), event, terms, at) else { continue };
            let numbers: Vec<AttemptNo> = transition.job.attempts().iter().map(Attempt::no).collect();
            prop_assert!(numbers.is_sorted_by(|one, next| one < next), "every attempt is there once: {numbers:?}");
            for movement in transition.movements {
                totals.apply(movement).unwrap();
            }
            job = transition.job;
            prop_assert_eq!(totals.held, job.all_books().held);
            prop_assert_eq!(totals.spent, job.all_books().charged);
            let empty = matches!(job.state(), State::Queued | State::Canceled { .. } | State::Expired);
            prop_assert!(!empty || job.books() == Books::default(), "{:?}", job);
            let may_hold = matches!(job.state(), State::Submitting { .. } | State::Running { .. } | State::InDoubt { .. });
            prop_assert!(may_hold || job.books().held.is_zero(), "{:?}", job);
        }
    }
}
