//! What becomes of a doubt once a person finds out what was charged.

use super::*;

#[test]
fn a_recorded_charge_is_corrected_when_the_service_gives_it_back() {
    let in_doubt = || vec![admit(10), task("pending", 10), Event::TaskMissing(fault())];
    let (ten, none) = (Event::Resolve(Credits(10)), Event::Resolve(Credits::ZERO));
    check(
        TERMS,
        in_doubt().into_iter().chain([ten.clone(), ten.clone(), none.clone(), none, ten]).collect(),
        "admit: submitting#1 10/0
         posted: running#1 0/10
         task missing: in_doubt#1 0/10
         resolve: failed#1 0/10
         resolve: \"resolve\" cannot happen to a job that is failed
         resolve: failed#1 0/0
         resolve: \"resolve\" cannot happen to a job that is failed
         resolve: failed#1 0/10",
    );
    let corrected = in_doubt().into_iter().chain([Event::Resolve(Credits(10))]);
    assert_eq!(resolved(corrected.collect(), 0), "failed 0/0 spent 0 refunded 10");
}

/// What a doubt comes to: the state, the books and the totals that every movement was added to.
fn resolved(events: Vec<Event>, charged: u64) -> String {
    let mut job = Job::queued();
    let mut totals = Totals::default();
    for event in events.into_iter().chain([Event::Resolve(Credits(charged))]) {
        let transition = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap();
        job = transition.job;
        transition.movements.into_iter().for_each(|movement| totals.apply(movement).unwrap());
    }
    let (Books { held, charged, .. }, Totals { spent, refunded, .. }) = (job.books(), totals);
    assert_eq!(totals.held, held);
    format!("{} {}/{} spent {} refunded {}", job.state().name(), held.0, charged.0, spent.0, refunded.0)
}

#[test]
fn a_person_ends_a_doubt_and_the_books_follow() {
    let held = || {
        let named = Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()));
        vec![admit(10), named, Event::TaskMissing(fault())]
    };
    assert_eq!(resolved(held(), 0), "failed 0/0 spent 0 refunded 0");
    assert_eq!(resolved(held(), 7), "failed 0/7 spent 7 refunded 0");
    let charged = || vec![admit(10), task("pending", 10), Event::TaskMissing(fault())];
    assert_eq!(resolved(charged(), 10), "failed 0/10 spent 10 refunded 0");
    assert_eq!(resolved(charged(), 0), "failed 0/0 spent 0 refunded 10");
    assert_eq!(resolved(charged(), 4), "failed 0/4 spent 4 refunded 0");
}
