//! What jobs are let out of the queue at: the price in force then, and not the one that was planned.

use serde_json::{Value, json};

use super::job_inputs;
use super::*;
use crate::domain::credit_hold::{ABOVE_MAX, Basis, Hold};
use crate::domain::job::Job;
use crate::domain::job_reference::{FoundInput, InputField, JobInput};
use crate::domain::quote::{Catalog, CatalogPart, Rules};
use crate::store::Pause;

/// One image model, at this price.
fn catalog(price: u64) -> Input {
    let prices = json!({"aspect_ratios": [], "qualities": [], "credits_per_generation": price});
    listing(&json!([{"id": "flat", "modes": {"text-to-image": prices}}]))
}

/// A catalog without that model.
fn without_it() -> Input {
    listing(&json!([{"id": "other", "modes": {}}]))
}

fn listing(image: &Value) -> Input {
    let catalog = Catalog::of(&json!([]), image, &json!([]), &Value::Null);
    Input::Catalog(Ok(Arc::new(catalog)))
}

/// The service does not give its catalog of images, and the one that is kept is too old to send by.
fn without_images() -> Input {
    let mut catalog = Catalog::of(&json!([]), &json!([]), &json!([]), &Value::Null);
    catalog.missing.push((CatalogPart::Image, "503".to_owned()));
    Input::Catalog(Ok(Arc::new(catalog)))
}

fn not_answered() -> Input {
    Input::Catalog(Err(fault("catalog")))
}

fn priced() -> Settings {
    Settings { rules: Some(Arc::new(Rules::builtin())), ..settings() }
}

/// A batch of images that were accepted at 10 credits each.
fn images(rows: u32, max_credits: Option<u64>) -> Stage {
    let mut stage = Stage::with(rows, priced());
    stage.specs = (0..rows).map(|seq| image(seq, max_credits)).collect();
    stage
}

fn image(seq: u32, max_credits: Option<u64>) -> Arc<JobSpec> {
    let body = json!({"model": "flat", "prompt": "a fox", "scene": "text-to-image"});
    let spec = (*spec(seq, Kind::Image)).clone();
    let mut order = Order { body: serde_json::from_value(body).unwrap(), ..spec.order };
    order.terms_mut().model = Some("flat".to_owned());
    order.terms_mut().max_credits = max_credits.map(Credits);
    Arc::new(JobSpec { order, ..spec })
}

/// A row that nothing bounds, which may cost this much.
fn short(seq: u32, max_credits: u64) -> Arc<JobSpec> {
    let mut spec = (*spec(seq, Kind::ShortsStudio)).clone();
    let terms = spec.order.terms_mut();
    (terms.price, terms.max_credits) = (None, Some(Credits(max_credits)));
    Arc::new(spec)
}

fn charged(credits: u64) -> PostAnswer {
    PostAnswer::Task(TaskReading { charged: Some(Credits(credits)), ..reading("pending") })
}

#[test]
fn nothing_is_sent_before_the_catalog_in_force_is_known_and_the_hold_is_its_price() {
    let mut stage = images(2, None);
    assert_eq!(stage.step(vec![]), "catalog?");
    assert_eq!(stage.scheduler.standstill(), None, "an answer is on its way");
    // It may spend the 20 that its plan showed.
    assert_eq!(stage.step(vec![catalog(20)]), "post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(20));
    let job = &stage.durable[&Stage::key(0)].job;
    assert_eq!(job.admission_hold(), Some(Hold::priced(Credits(20))));
    let said: Vec<&str> = job.history().iter().map(|line| &*line.what).collect();
    assert_eq!(said, ["the price is 20 credits now, was 10 when it was accepted", "admitted"]);
    stage.posted(0, charged(20));
    assert_eq!(stage.scheduler.overview()[0].parked, Some(Parked::BatchBudget));
    assert_eq!(stage.batch.totals.spent, Credits(20));
}

#[test]
fn a_price_that_did_not_change_is_not_spoken_of() {
    let mut stage = images(1, None);
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    assert_eq!(stage.durable[&Stage::key(0)].job.history().len(), 1);
}

#[test]
fn a_batch_that_is_accepted_later_is_sent_at_the_prices_of_then() {
    let mut stage = images(2, None);
    stage.scheduler.adaptive_limit = AdaptiveLimit::new(1, false);
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    let accept = |stage: &mut Stage| {
        let batch = Box::new(stage.batch.clone());
        stage.scheduler.execute(Command::AddBatch(batch), stage.now).unwrap();
    };
    accept(stage.pass(Millis::from_secs(4)));
    assert_eq!(stage.step(vec![]), "", "the catalogs have just come");
    accept(stage.pass(Millis::from_secs(1)));
    assert_eq!(stage.step(vec![]), "catalog?");
    stage.step(vec![catalog(20)]);
    stage.posted(0, PostAnswer::Refused(fault("invalid_request")));
    assert_eq!(stage.durable[&Stage::key(1)].job.books().held, Credits(20));
}

#[test]
fn what_an_owner_lets_go_is_sent_at_the_prices_of_then() {
    let budget = |stage: &mut Stage| {
        stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(100)), stage.now).unwrap();
    };
    let reload = |stage: &mut Stage| {
        stage.scheduler.execute(Command::Reload(Box::new(priced())), stage.now).unwrap();
    };
    for lets_go in [budget as fn(&mut Stage), reload] {
        let mut stage = images(1, Some(15));
        let none = Limits { total: Some(Credits::ZERO), ..settings().limits };
        stage
            .scheduler
            .execute(Command::Reload(Box::new(Settings { limits: none, ..priced() })), stage.now)
            .unwrap();
        stage.step(vec![]);
        assert_eq!(stage.step(vec![catalog(10)]), "", "no budget");
        lets_go(stage.pass(Millis::from_secs(20)));
        assert_eq!(stage.step(vec![]), "catalog?");
        reload(&mut stage);
        stage.step(vec![catalog(20)]);
        assert_eq!(stage.ended, ["job-0 failed"], "it costs more than it may");
    }
}

#[test]
fn what_waited_for_credits_is_priced_again_before_it_goes() {
    let mut stage = images(1, None);
    stage.batch.policy.budget = Some(Credits(100));
    stage.scheduler.add_batch(stage.batch.clone());
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    assert_eq!(stage.posted(0, PostAnswer::OutOfCredits(fault("insufficient_credits"))), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(1000)))]), "catalog?");
    assert_eq!(stage.step(vec![catalog(30)]), "post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(30));
}

#[test]
fn a_job_that_costs_more_than_it_may_ends_free_of_charge_and_a_person_may_let_it_go() {
    let mut stage = images(2, Some(10));
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(20)]), "");
    assert_eq!(stage.ended, ["job-0 failed", "job-1 failed"]);
    assert_eq!(stage.batch.totals, Totals::default());
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));

    let message = "the price is 20 credits now";
    let failed = State::Failed { fault: Fault::new(ABOVE_MAX, message), task: None };
    let mut job = Job::at(AttemptNo::FIRST, failed);
    job.set_max_credits(Some(Credits(20)));
    let record = JobRecord { key: Stage::key(0), id: stage.specs[0].id, row_at: 0, job };
    let found = vec![(stage.specs[0].clone(), record)];
    stage.batch.policy.budget = Some(Credits(100));
    stage.scheduler.add_batch(stage.batch.clone());
    let outcome = stage.scheduler.execute(Command::Retry(found), stage.now).unwrap();
    assert_eq!(outcome.jobs, 1);
    assert_eq!(stage.step(vec![]), "catalog?", "a retry asks anew");
    let said = stage.step(vec![catalog(20)]);
    assert!(said.starts_with("post 0#"), "{said}");
}

/// An image has no price after this answer: it waits, blocks no other, and goes once there is one again, which is asked
/// for after so many seconds.
fn waits_for_a_price(answer: Input, standstill: Option<Standstill>, asked_after: u64) {
    let mut stage = images(2, None);
    stage.specs[1] = short(1, 7);
    assert_eq!(stage.step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![answer]), "post 1#1");
    stage.posted(1, PostAnswer::Refused(fault("invalid_request")));
    assert_eq!(stage.scheduler.overview()[0].parked, Some(Parked::NoPrice));
    assert_eq!(stage.scheduler.standstill(), standstill);
    assert_eq!(stage.pass(Millis::from_secs(asked_after - 1)).step(vec![]), "");
    assert_eq!(stage.pass(Millis::from_secs(1)).step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
}

#[test]
fn what_a_missing_catalog_would_price_waits_for_it_and_blocks_no_other() {
    waits_for_a_price(without_images(), None, 30);
}

/// Its price is a matter of the voice catalog: how many characters a credit has (Voice catalog).
#[test]
fn speech_waits_for_the_voice_catalog_that_prices_it() {
    let voices = json!({"characters_per_credit": 2, "voices": [{"id": "v", "name": "V"}]});
    let catalog = |missing: Option<CatalogPart>| {
        let nothing = json!([]);
        let voices = if missing.is_some() { &Value::Null } else { &voices };
        let mut catalog = Catalog::of(&nothing, &nothing, &nothing, voices);
        catalog.missing.extend(missing.map(|part| (part, "503".to_owned())));
        Input::Catalog(Ok(Arc::new(catalog)))
    };
    let mut stage = Stage::with(1, priced());
    let spec = (*spec(0, Kind::Speech)).clone();
    let body = json!({"text": "twelve signs", "voice_id": "v"});
    let order = Order { body: serde_json::from_value(body).unwrap(), ..spec.order };
    stage.specs = vec![Arc::new(JobSpec { order, ..spec })];
    assert_eq!(stage.step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![catalog(Some(CatalogPart::Voices))]), "");
    assert_eq!(stage.pass(Millis::from_secs(30)).step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![catalog(None)]), "post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(6));
}

#[test]
fn what_the_catalog_does_not_price_waits_and_blocks_no_other() {
    waits_for_a_price(without_it(), Some(Standstill::Parked(Parked::NoPrice)), 300);
}

#[test]
fn an_unanswered_renewal_goes_on_with_what_is_known_and_without_any_nothing_is_sent() {
    let mut stage = images(2, None);
    stage.scheduler.adaptive_limit = AdaptiveLimit::new(1, false);
    assert_eq!(stage.step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![not_answered()]), "", "no catalog at all");
    assert_eq!(stage.scheduler.standstill(), None, "it is asked for again");
    assert_eq!(stage.pass(Millis::from_secs(30)).step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    stage.pass(Millis::from_secs(300));
    assert_eq!(stage.posted(0, PostAnswer::Refused(fault("invalid_request"))), "catalog?");
    assert_eq!(stage.step(vec![not_answered()]), "post 1#1");
}

#[test]
fn a_catalog_that_is_not_renewed_is_used_for_an_hour() {
    let mut stage = images(2, None);
    stage.scheduler.adaptive_limit = AdaptiveLimit::new(1, false);
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    for _ in 0..12 {
        assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "catalog?");
        assert_eq!(stage.step(vec![not_answered()]), "");
    }
    assert_eq!(stage.posted(0, PostAnswer::Refused(fault("invalid_request"))), "", "at which price?");
    assert_eq!(stage.scheduler.standstill(), None, "they are asked for again");
    assert_eq!(stage.pass(Millis::from_secs(30)).step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![catalog(10)]), "post 1#1");
}

#[test]
fn a_further_attempt_is_priced_anew() {
    let mut stage = images(1, None);
    stage.batch.policy.budget = Some(Credits(100));
    stage.scheduler.add_batch(stage.batch.clone());
    stage.step(vec![]);
    stage.step(vec![catalog(10)]);
    let failed = TaskReading { fault: Some(fault("generic")), ..reading("failed") };
    stage.posted(0, PostAnswer::Task(failed));
    stage.pass(Millis::from_secs(300));
    assert_eq!(stage.step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![catalog(25)]), "post 0#2");
    assert_eq!(stage.batch.totals.held, Credits(25));
}

#[test]
fn jobs_whose_charge_nothing_bounds_go_one_at_a_time_also_after_a_restart() {
    let mut stage = Stage::with(3, priced());
    stage.specs = (0..3).map(|seq| short(seq, 7)).collect();
    stage.batch.policy.budget = Some(Credits(100));
    stage.scheduler.add_batch(stage.batch.clone());
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(7));
    let hold = stage.durable[&Stage::key(0)].job.admission_hold().unwrap();
    assert_eq!(hold, Hold { hold: Credits(7), basis: Basis::MaxCredits });
    assert_eq!(stage.pass(Millis::from_secs(1)).step(vec![]), "");
    assert_eq!(stage.posted(0, charged(7)), "post 1#1");
    assert_eq!(stage.posted(1, charged(8)), "", "more than was held for it");
    assert_eq!(stage.batch.paused, Some(Pause::Drift), "whatever the policy says");
}

#[test]
fn a_charge_above_the_price_is_the_price_of_the_next() {
    let mut stage = images(2, None);
    stage.scheduler.adaptive_limit = AdaptiveLimit::new(1, false);
    stage.batch.policy.budget = Some(Credits(100));
    stage.scheduler.add_batch(stage.batch.clone());
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    let answer = TaskReading { charged: Some(Credits(13)), ..reading("success") };
    let said = stage.posted(0, PostAnswer::Task(answer));
    assert_eq!(said, "surcharges, fetch 0#1, post 1#1");
    assert_eq!(stage.batch.totals.held, Credits(13));
    assert_eq!(stage.batch.paused, None);
}

#[test]
fn a_waiting_job_may_be_allowed_to_cost_more() {
    let mut stage = images(1, None);
    stage.specs[0] = short(0, 7);
    Arc::make_mut(&mut stage.specs[0]).order.terms_mut().max_credits = None;
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::NoPrice)));
    let mut job = Job::queued();
    job.set_max_credits(Some(Credits(9)));
    let record = JobRecord { key: Stage::key(0), id: stage.specs[0].id, row_at: 0, job };
    let outcome = stage.scheduler.execute(Command::Retry(vec![(stage.specs[0].clone(), record)]), stage.now);
    assert_eq!(outcome.unwrap().jobs, 1);
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(9));
}

/// An answer that shows that no task was made.
fn turned_away() -> PostAnswer {
    PostAnswer::Again { fault: fault("http_429"), wait: None, may_have_run: false }
}

/// One image of 10 credits, which was turned away once before its price became 30.
fn turned_away_before_its_price_rose(max_credits: Option<u64>, budget: u64) -> (Stage, String) {
    let mut stage = images(1, max_credits);
    stage.batch.policy.budget = Some(Credits(budget));
    stage.scheduler.add_batch(stage.batch.clone());
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    stage.posted(0, turned_away());
    stage.pass_until("post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(10), "the price is the same");
    stage.posted(0, turned_away());
    stage.pass(Millis::from_secs(300)).pass_until("catalog?");
    stage.pass(Millis::from_secs(2));
    let said = stage.step(vec![catalog(30)]);
    (stage, said)
}

#[test]
fn what_is_turned_away_again_and_again_is_priced_again_and_keeps_its_key() {
    let (stage, said) = turned_away_before_its_price_rose(None, 30);
    assert_eq!(said, "post 0#1");
    let job = &stage.durable[&Stage::key(0)].job;
    assert_eq!(
        (stage.batch.totals.held, job.admission_hold()),
        (Credits(30), Some(Hold::priced(Credits(30))))
    );
}

#[test]
fn what_is_turned_away_is_asked_against_budget_and_max_credits_again() {
    let (stage, said) = turned_away_before_its_price_rose(None, 29);
    assert_eq!(said, "");
    assert_eq!(stage.scheduler.overview()[0].parked, Some(Parked::BatchBudget));
    assert_eq!(stage.batch.totals, Totals::default());
    let (stage, _) = turned_away_before_its_price_rose(Some(20), 100);
    assert_eq!(stage.ended, ["job-0 failed"]);
    assert_eq!(stage.batch.totals, Totals::default());
}

#[test]
fn what_may_have_made_a_task_keeps_its_hold() {
    let mut stage = images(1, None);
    stage.step(vec![]);
    assert_eq!(stage.step(vec![catalog(10)]), "post 0#1");
    stage.posted(0, lost());
    stage.pass(Millis::from_secs(301)).pass_until("post 0#1");
    stage.posted(0, turned_away());
    stage.pass(Millis::from_secs(301)).pass_until("post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(10));
}

/// Two rows: a voice, and a clip that is to be as long and costs 2 credits a second.
fn clip_of_a_voice() -> Stage {
    let mut stage = Stage::with(2, priced());
    let body = json!({"model": "clips", "prompt": "x", "mode": "text-to-video", "options": {"duration": "job:job-0"}});
    let clip = (*spec(1, Kind::Video)).clone();
    let input = JobInput {
        field: InputField::Duration,
        place: 0,
        batch: None,
        row: "job-0".to_owned(),
        fingerprint: Fingerprint(0_u128.to_be_bytes()),
        takes: 1,
        variation: None,
        output: 1,
    };
    let mut order = Order {
        body: serde_json::from_value(body).unwrap(),
        inputs: vec![input.clone()].into(),
        ..clip.order
    };
    let terms = order.terms_mut();
    terms.model = Some("clips".to_owned());
    (terms.price, terms.bound, terms.cheapest) = (None, Some(Credits(20)), Some(Credits(10)));
    stage.specs[1] = Arc::new(JobSpec { order, ..clip });
    let voice = (*short(0, 10)).clone();
    stage.specs[0] = Arc::new(JobSpec { id: JobId::derive(input.fingerprint, 1), ..voice });
    stage.batch.policy.budget = Some(Credits(30));
    stage.scheduler.add_batch(stage.batch.clone());
    stage
}

/// A catalog with clips of these durations, at 2 credits a second.
fn clips(durations: &Value) -> Input {
    let prices = json!({"durations": durations, "resolutions": ["768P"], "credits_per_second": {"768P": 2},
        "defaults": {"resolution": "768P"}});
    let video = json!([{"id": "clips", "modes": {"text-to-video": prices}}]);
    Input::Catalog(Ok(Arc::new(Catalog::of(&video, &json!([]), &json!([]), &Value::Null))))
}

/// The voice is there, and turned out to be so long.
fn measured(stage: &mut Stage, ms: u64) -> String {
    let found = FoundInput { address: String::new(), take: None, length: Some(Millis(ms)) };
    let attempt = stage.attempt(1);
    stage.step(vec![Input::InputsFound(Stage::key(1), attempt, Ok(vec![found]))])
}

fn voice_is_done(stage: &mut Stage) {
    assert_eq!(stage.step(vec![]), "catalog?");
    assert_eq!(stage.step(vec![clips(&json!(["5s", "10s"]))]), "post 0#1");
    stage.posted(0, charged(10));
    stage.pass_until("read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    let said = stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo::FIRST, Ok(files()))]);
    assert_eq!(said, "inputs 1#1 of [0]", "{:?}", stage.scheduler.overview());
}

#[test]
fn a_clip_is_held_at_the_most_and_sent_with_the_next_length_at_its_price() {
    let mut stage = clip_of_a_voice();
    voice_is_done(&mut stage);
    let job = |stage: &Stage| stage.durable[&Stage::key(1)].job.clone();
    assert_eq!(job(&stage).admission_hold(), Some(Hold { hold: Credits(20), basis: Basis::Bound }));
    assert_eq!(measured(&mut stage, 4_290), "post 1#1");
    assert_eq!(job(&stage).present().inputs(), ["5s"]);
    assert_eq!(job(&stage).present().input_lengths(), [Millis(4_290)]);
    assert_eq!(
        (job(&stage).admission_hold(), job(&stage).books().held),
        (Some(Hold::priced(Credits(10))), Credits(20))
    );
    // Another catalog changes nothing of what may have been sent.
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 1#1");
    assert_eq!(job(&stage).present().inputs(), ["5s"]);
    stage.posted(1, charged(10));
    assert_eq!(job(&stage).books().charged, Credits(10));
    assert_eq!(stage.batch.totals.held, Credits::ZERO);
}

#[test]
fn another_attempt_is_held_at_the_most_again_and_measures_again() {
    let mut stage = clip_of_a_voice();
    voice_is_done(&mut stage);
    measured(&mut stage, 4_290);
    assert_eq!(stage.posted(1, PostAnswer::OutOfCredits(fault("insufficient_credits"))), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(1000)))]), "catalog?");
    assert_eq!(stage.step(vec![clips(&json!(["6s", "10s"]))]), "inputs 1#1 of [0]");
    assert_eq!(stage.batch.totals.held, Credits(20));
    assert_eq!(measured(&mut stage, 4_290), "post 1#1");
    let job = &stage.durable[&Stage::key(1)].job;
    assert_eq!(
        (job.present().inputs(), job.admission_hold()),
        (&["6s".to_owned()][..], Some(Hold::priced(Credits(12))))
    );
    assert!(job.history().iter().all(|line| !line.what.contains("were planned")), "{:?}", job.history());
}

#[test]
fn a_clip_that_would_be_too_long_ends_free_of_charge() {
    let mut stage = clip_of_a_voice();
    voice_is_done(&mut stage);
    assert_eq!(measured(&mut stage, 10_001), "");
    let record = &stage.outcomes[&Stage::key(1)];
    let State::Failed { fault, .. } = record.job.state() else { panic!("{record:?}") };
    assert_eq!(fault.code, "input_too_long");
    assert!(fault.message.ends_with("callsheet retry b/job-1 --set duration=10s"), "{}", fault.message);
    assert_eq!(stage.batch.totals.held, Credits::ZERO);
}

#[test]
fn what_may_cost_beyond_all_measure_and_takes_an_output_is_sent() {
    let mut stage = job_inputs::stage(&[&[], &[0]]);
    let mut child = (*stage.specs[1]).clone();
    let beyond = Credits(2 * Credits::TASK_MAX.0);
    let terms = child.order.terms_mut();
    (terms.price, terms.max_credits) = (None, Some(beyond));
    stage.specs[1] = Arc::new(child);
    stage.batch.policy.budget = Some(beyond);
    stage.restart();
    stage.step(vec![]);
    assert_eq!(job_inputs::finish(&mut stage, 0), "inputs 1#1 of [0]");
    assert_eq!(job_inputs::found(&mut stage, 1), "post 1#1");
    assert_eq!(stage.batch.totals.held, Credits::TASK_MAX);
}
