//! What waits, and what it stands in the way of: nothing but its own class.

use super::job_inputs::finish;
use super::*;
use crate::domain::manifest::row::Deadline;
use crate::domain::pilot::Pilot;
use crate::domain::queue_class::{Census, Classes, GroupHash};
use crate::store::Pause;

/// A row of a kind at a price.
type Row = (Kind, u64);

impl Stage {
    /// A batch of these rows, sorted by class as `ingest` does it; `is_sorted` says whether.
    fn queue_of(rows: &[Row], is_sorted: bool, settings: Settings) -> Stage {
        let mut specs: Vec<Arc<JobSpec>> = Vec::new();
        let mut census = Census::default();
        for (seq, (kind, price)) in (0..).zip(rows) {
            let mut spec = (*spec(seq, *kind)).clone();
            spec.order.terms_mut().price = Some(Credits(*price));
            census.count(&spec.order);
            specs.push(Arc::new(spec));
        }
        let count = u32::try_from(rows.len()).unwrap();
        let mut batch = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(0));
        batch.rows = count;
        batch.planned = rows.iter().map(|(_, price)| Credits(*price)).sum();
        batch.spool_bytes = u64::from(count);
        let class_of =
            |spec: &Arc<JobSpec>| census.division().of(&Classes::of(&spec.order, GroupHash::default()));
        if is_sorted {
            specs.sort_by_key(class_of);
            for (at, spec) in (0..).zip(&specs) {
                match batch.segments.last_mut() {
                    Some(last) if last.class == class_of(spec) => last.end = at + 1,
                    _ => batch
                        .segments
                        .push(Segment { class: class_of(spec), ..Segment::mixed(0, at, at + 1) }),
                }
            }
        } else {
            batch.segments.push(Segment::mixed(0, 0, u64::from(count)));
        }
        let mut scheduler = Scheduler::new(settings.clone(), Totals::default());
        scheduler.add_batch(batch.clone());
        Stage { scheduler, specs, batch, ..Stage::with(0, settings) }
    }

    /// Sets the batch's budget.
    fn allow(&mut self, credits: u64) {
        self.batch.policy.budget = Some(Credits(credits));
        self.scheduler.add_batch(self.batch.clone());
    }

    /// How many candidates a step looks at.
    fn looked_at(&mut self) -> usize {
        let limits = self.scheduler.admission_input(self.now).limits;
        let in_flight = self.scheduler.in_flight();
        let waiting = self.scheduler.all_waiting(&limits, &in_flight, self.now);
        waiting.iter().map(|waiting| waiting.candidates.len()).sum()
    }

    /// Every job that is open succeeds; what is admitted meanwhile waits for the next round.
    fn end_all(&mut self) {
        let begun: Vec<u32> = self.durable.keys().map(|key| key.seq.0).collect();
        for seq in begun {
            self.posted(seq, task("success"));
            self.step(vec![Input::Fetched(Stage::key(seq), AttemptNo(1), Ok(files()))]);
        }
    }
}

fn rows(parts: &[(usize, Row)]) -> Vec<Row> {
    parts.iter().flat_map(|(count, row)| vec![*row; *count]).collect()
}

fn posts(said: &str) -> usize {
    said.split(", ").filter(|what| what.starts_with("post")).count()
}

#[test]
fn rows_that_fit_no_budget_stand_in_the_way_of_none_that_do() {
    for dear in [64, 5_000] {
        let rows = rows(&[(dear, (Kind::Image, 12)), (8, (Kind::Image, 1))]);
        let mut stage = Stage::queue_of(&rows, true, settings());
        stage.allow(10);
        assert_eq!(posts(&stage.step(vec![])), 8, "behind {dear}");
        assert_eq!(stage.batch.totals.held, Credits(8));
        assert_eq!(stage.durable.len(), 8, "what does not fit costs no record");
        assert!(stage.looked_at() <= 64, "{}", stage.looked_at());
    }
}

#[test]
fn a_kind_without_a_free_slot_holds_back_no_other() {
    let kinds = BTreeMap::from([(Kind::Video, 2)]);
    let limits = Limits { in_flight_per_kind: kinds, ..settings().limits };
    let rows = rows(&[(200, (Kind::Video, 20)), (30, (Kind::SoundEffect, 5))]);
    let mut stage = Stage::queue_of(&rows, true, Settings { limits, ..settings() });
    let said = stage.step(vec![]);
    assert!(said.starts_with("post 0#1, post 1#1, post 200#1, post 201#1"), "{said}");
    assert_eq!(posts(&said), 16, "every slot is used");
}

#[test]
fn what_fits_leaves_in_the_order_of_the_manifest() {
    let row = |n: u64| (if n.is_multiple_of(3) { Kind::Video } else { Kind::Image }, 1 + n % 5);
    let rows: Vec<Row> = (0..400).map(row).collect();
    let mut stage = Stage::queue_of(&rows, true, settings());
    // Every task is charged alike here.
    stage.allow(PRICE * 400);
    stage.step(vec![]);
    while stage.scheduler.standstill().is_none() {
        stage.end_all();
    }
    assert_eq!(stage.ended.len(), 400);
    let ended: Vec<u32> = stage.ended.iter().map(|line| number(line)).collect();
    let worst = (0..).zip(&ended).map(|(place, seq): (u32, _)| place.abs_diff(*seq)).max();
    assert!(worst <= Some(16), "no job went out of turn by more than the slots: {worst:?}");
}

fn number(line: &str) -> u32 {
    line.trim_start_matches("job-").split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn thousands_that_are_queued_again_stand_in_the_way_of_none_that_fit() {
    let rows = rows(&[(3_000, (Kind::Image, 12)), (8, (Kind::Image, 1))]);
    let mut stage = Stage::queue_of(&rows, true, settings());
    stage.allow(10);
    for segment in &mut stage.batch.segments {
        segment.cursor = segment.end;
    }
    // As after a retry of them all.
    for (at, spec) in (0..).zip(&stage.specs) {
        let key = JobKey { batch: BatchNo(1), seq: spec.seq };
        let record = JobRecord { key, id: spec.id, row_at: at, job: crate::domain::job::Job::queued() };
        stage.durable.insert(key, record);
    }
    stage.specs.sort_by_key(|spec| spec.seq);
    stage.restart();
    assert_eq!(posts(&stage.step(vec![])), 8);
    assert!(stage.looked_at() <= 64, "{}", stage.looked_at());
}

#[test]
fn what_a_turn_looks_at_and_keeps_in_memory_does_not_grow_with_what_waits() {
    for count in [100_u64, 20_000] {
        let rows: Vec<Row> = (0..count).map(|n| (Kind::Speech, 1_000 + n % 700)).collect();
        let mut stage = Stage::queue_of(&rows, true, settings());
        stage.allow(0);
        stage.step(vec![]);
        assert!(stage.looked_at() <= 2_048, "{} of {count}", stage.looked_at());
        assert!(stage.rows_in_memory() <= 2_048, "{} of {count}", stage.rows_in_memory());
        assert!(stage.durable.is_empty());
    }
}

#[test]
fn a_batch_of_an_earlier_version_is_one_queue_and_passes_over_what_does_not_fit() {
    let rows = rows(&[(20, (Kind::Image, 12)), (8, (Kind::Image, 1))]);
    let mut stage = Stage::queue_of(&rows, false, settings());
    stage.allow(10);
    assert_eq!(posts(&stage.step(vec![])), 8);
    assert_eq!(stage.durable.len(), 28, "those that were passed over are open");
}

#[test]
fn a_batch_with_many_classes_is_canceled_to_the_end() {
    let rows: Vec<Row> = (0..1_000).map(|n| (Kind::Speech, 1 + n % 100)).collect();
    let mut stage = Stage::queue_of(&rows, true, settings());
    stage.step(vec![]);
    stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
    while stage.ended.len() < 984 {
        let before = stage.ended.len();
        stage.step(vec![]);
        assert!(stage.ended.len() > before, "{before} were canceled, and nothing goes on");
    }
    assert!(stage.ended.iter().all(|line| line.ends_with("canceled")));
}

#[test]
fn what_comes_in_later_joins_the_queue_of_its_class() {
    let mut stage = Stage::queue_of(&rows(&[(40, (Kind::Image, PRICE))]), true, settings());
    stage.step(vec![]);
    // As `ingest` leaves it: read before the first rows began, and with 10 more of the same.
    let mut batch = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(0));
    let class = stage.batch.segments[0].class;
    for (cursor, end) in [(0, 40), (40, 50)] {
        batch.segments.push(Segment { class, ..Segment::mixed(0, cursor, end) });
    }
    (batch.rows, batch.spool_bytes, batch.planned) = (50, 50, Credits(50 * PRICE));
    for seq in 40..50 {
        let mut spec = (*spec(seq, Kind::Image)).clone();
        spec.order.terms_mut().price = Some(Credits(PRICE));
        stage.specs.push(Arc::new(spec));
    }
    stage.scheduler.add_batch(batch);
    stage.step(vec![]);
    let mut rounds = 0;
    while stage.ended.len() < 50 {
        rounds += 1;
        assert!(rounds < 50, "{} ended", stage.ended.len());
        stage.end_all();
    }
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}

/// `status` where no process works on the state: tasks of others that are still at the service take every slot.
#[test]
fn a_budget_that_keeps_a_batch_is_found_out_beside_tasks_in_flight() {
    let mut stage =
        Stage::with(3, Settings { limits: Limits { in_flight: 2, ..settings().limits }, ..settings() });
    stage.batch.policy.budget = Some(Credits(25));
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
    stage.posted(0, task("pending"));
    stage.posted(1, task("pending"));
    stage.restart();
    stage.scheduler.foresee(stage.now);
    assert_eq!(stage.scheduler.overview()[0].parked, None, "its rows are not read yet");
    stage.step(vec![]);
    stage.scheduler.foresee(stage.now);
    assert_eq!(stage.scheduler.overview()[0].parked, Some(Parked::BatchBudget));
}

/// Three hundred jobs that failed, and what a command about the first `jobs` of them finds.
fn failed_jobs() -> (Stage, impl Fn(usize) -> Vec<FoundJob>) {
    let limits = Limits { in_flight: 300, ..settings().limits };
    let mut stage = Stage::with(300, Settings { limits, adaptive: false, attempts: 1, ..settings() });
    while stage.durable.len() < 300 {
        stage.step(vec![]);
    }
    let failed = |seq| Input::Posted(Stage::key(seq), AttemptNo::FIRST, task("failed"));
    (0..300).for_each(|seq| drop(stage.step(vec![failed(seq)])));
    let found: Vec<FoundJob> = stage.specs.iter().cloned().zip(stage.outcomes.values().cloned()).collect();
    assert_eq!(found.len(), 300);
    (stage, move |jobs| found[..jobs].to_vec())
}

#[test]
fn what_a_retry_queued_and_a_cancel_drops_ends_by_and_by_and_is_not_sent() {
    let (mut stage, found) = failed_jobs();
    assert_eq!(stage.scheduler.execute(Command::Retry(found(300)), stage.now).unwrap().jobs, 300);
    let outcome = stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
    assert_eq!(outcome.jobs, 300);
    assert_eq!(stage.scheduler.standstill(), None);
    let canceled = stage.steps_at_once(|_, step| {
        assert!(step.effects.is_empty(), "{:?}", step.effects);
        step.ended.len()
    });
    // The first step takes up what the commands left.
    assert_eq!(canceled, [128, 64, 64, 44]);
    assert!(stage.outcomes.values().all(|record| *record.job.state() == State::DROPPED));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}

/// How a batch stands that is sent one by one, whose requests of these kinds meet an endpoint that is missing.
fn with_missing_endpoints(rows: &[Row], missing: &[Kind]) -> (usize, usize, Option<Pause>) {
    let limits = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::queue_of(rows, false, Settings { limits, ..settings() });
    rows.iter().for_each(|(kind, _)| stage.batch.count_accepted(*kind));
    stage.scheduler.add_batch(stage.batch.clone());
    let mut said = stage.step(vec![]);
    while let Some(sent) = said.split(", ").find_map(|said| said.strip_prefix("post ")) {
        let seq: u32 = sent.strip_suffix("#1").unwrap().parse().unwrap();
        said = if missing.contains(&rows[seq as usize].0) {
            stage.posted(seq, PostAnswer::Refused(fault("not_found")))
        } else {
            let next = stage.posted(seq, task("success"));
            let fetched = vec![Input::Fetched(Stage::key(seq), AttemptNo::FIRST, Ok(files()))];
            format!("{next}, {}", stage.step(fetched))
        };
    }
    (stage.batch.ended.failed as usize, stage.batch.ended.succeeded as usize, stage.batch.paused)
}

#[test]
fn an_endpoint_that_is_missing_stops_no_rows_of_other_kinds() {
    let (sound, image) = ((Kind::SoundEffect, PRICE), (Kind::Image, PRICE));
    let both = [vec![sound; 5], vec![image; 4]].concat();
    let missing = [Kind::SoundEffect];
    assert_eq!(with_missing_endpoints(&both, &missing), (5, 4, None));
    let images_first = [vec![image; 4], vec![sound; 5]].concat();
    assert_eq!(with_missing_endpoints(&images_first, &missing), (3, 4, Some(Pause::Rejections)));
    assert_eq!(with_missing_endpoints(&[sound; 5], &missing), (3, 0, Some(Pause::Rejections)));
    // Where all are missing, it ends soon.
    let many = [[sound, image]; 50].concat();
    let missing = [Kind::SoundEffect, Kind::Image];
    assert_eq!(with_missing_endpoints(&many, &missing), (8, 0, Some(Pause::Rejections)));
}

#[test]
fn what_was_canceled_stays_canceled_though_its_batch_is_wanted_again_at_once() {
    let (mut stage, found) = failed_jobs();
    stage.scheduler.execute(Command::Retry(found(300)), stage.now).unwrap();
    stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
    stage.scheduler.execute(Command::Retry(found(1)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.ended.iter().filter(|line| line.ends_with("canceled")).count(), 300);
}

#[test]
fn a_pilot_that_ends_while_a_manifest_is_read_does_not_come_back_and_another_one_stands() {
    let pilot = |jobs| Pilot { jobs, ..Pilot::default() };
    let mut stage = Stage::of(4);
    stage.scheduler.execute(Command::Pause(BatchNo(1)), stage.now).unwrap();
    stage.batch.pilot = Some(pilot(1));
    stage.restart();
    let mut more = stage.batch.clone();
    (more.rows, more.spool_bytes) = (5, 5);
    stage.scheduler.execute(Command::Continue(BatchNo(1)), stage.now).unwrap();
    stage.scheduler.execute(Command::AddBatch(Box::new(more.clone())), stage.now).unwrap();
    let pilot_now = |stage: &Stage| stage.scheduler.batches.get(&BatchNo(1)).unwrap().record().pilot;
    assert_eq!(pilot_now(&stage), None);
    (more.pilot, more.pilot_from) = (Some(pilot(2)), 5);
    stage.scheduler.execute(Command::AddBatch(Box::new(more)), stage.now).unwrap();
    assert_eq!(pilot_now(&stage), Some(pilot(2)));
}

/// A batch of a pilot of which nothing but the rest is left.
fn after_its_pilot(rows: u32) -> Stage {
    let mut stage = Stage::of(rows);
    let rest_credits = Credits(PRICE * u64::from(rows));
    stage.batch.pilot = Some(Pilot { rest_jobs: rows, rest_credits, ..Pilot::default() });
    stage.restart();
    assert_eq!(stage.step(vec![]), "");
    stage
}

fn all_ended(stage: &Stage) -> Vec<FoundJob> {
    stage
        .outcomes
        .values()
        .map(|ended| (stage.specs[ended.key.seq.0 as usize].clone(), ended.clone()))
        .collect()
}

#[test]
fn the_rest_of_a_pilot_that_expired_waits_again_once_it_is_wanted() {
    let rows = 200;
    let mut stage = after_its_pilot(rows);
    stage.batch.policy.expires = Some(Deadline::At(Timestamp(2_000_000)));
    stage.restart();
    stage.pass(Millis(1_000_000));
    assert_eq!(stage.step(vec![]), "");
    // A restart between two steps of it changes nothing.
    stage.restart();
    (0..9).for_each(|_| assert_eq!(stage.step(vec![]), ""));
    assert!(stage.ended.iter().all(|line| line.ends_with("expired")), "{:?}", stage.ended);
    assert_eq!((stage.batch.ended.expired, stage.batch.pilot.unwrap().rest_jobs), (rows, 0));
    // There is more time for it.
    stage.batch.policy.expires = None;
    stage.restart();
    let found = all_ended(&stage);
    stage.scheduler.execute(Command::Retry(found), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    let Pilot { rest_jobs, rest_credits, .. } = stage.batch.pilot.unwrap();
    assert_eq!((rest_jobs, rest_credits), (rows, Credits(PRICE * u64::from(rows))));
    stage.scheduler.execute(Command::Continue(BatchNo(1)), stage.now).unwrap();
    assert!(stage.step(vec![]).starts_with("post 0#1"));
}

#[test]
fn rows_of_the_rest_that_are_being_canceled_and_one_that_is_wanted_again_are_not_sent() {
    let rows = 200;
    let mut stage = after_its_pilot(rows);
    let more = stage.batch.clone();
    stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    let first = all_ended(&stage)[..1].to_vec();
    stage.scheduler.execute(Command::Retry(first), stage.now).unwrap();
    (0..9).for_each(|_| assert_eq!(stage.step(vec![]), ""));
    assert_eq!((stage.batch.ended.canceled, stage.batch.pilot.unwrap().rest_jobs), (rows - 1, 1));
    // A manifest that was read meanwhile did not know that they are dropped.
    stage.scheduler.execute(Command::AddBatch(Box::new(more)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.batch.pilot.unwrap().rest_jobs, 1);
}

impl Stage {
    /// The state is carried elsewhere as it stands, and goes on there, with this many rows more, the first `pilot` of them
    /// before the others.
    fn carry_over_and_add(&mut self, more: u32, pilot: u32) {
        self.batch.mark_rebuilt();
        self.restart();
        let mut longer = self.batch.clone();
        let (from, rows) = (longer.spool_bytes, longer.rows);
        let (first, end) = (from + u64::from(pilot), from + u64::from(more));
        let urgent = |seq: u32| {
            let mut spec = (*spec(seq, Kind::Video)).clone();
            spec.order.terms_mut().priority = 5;
            Arc::new(spec)
        };
        self.specs.extend((rows..rows + more).map(urgent));
        if pilot > 0 {
            longer.segments.push(Segment { pilot: true, ..Segment::mixed(5, from, first) });
            let rest_jobs = more - pilot;
            longer.pilot = Some(Pilot { jobs: pilot, rest_jobs, ..Pilot::default() });
            longer.pilot_from = from;
        }
        longer.segments.push(Segment::mixed(5, first, end));
        (longer.rows, longer.spool_bytes) = (rows + more, end);
        longer.planned = longer.planned + Credits(PRICE).times(more);
        self.scheduler.execute(Command::AddBatch(Box::new(longer)), self.now).unwrap();
    }

    /// How many jobs a cancel drops, and how many stay that may have been sent.
    fn cancel(&mut self) -> (u32, u32) {
        let outcome = self.scheduler.execute(Command::Cancel(BatchNo(1)), self.now).unwrap();
        (outcome.jobs, outcome.may_have_been_sent)
    }
}

fn one_at_a_time(rows: u32) -> Stage {
    Stage::with(rows, Settings { limits: Limits { in_flight: 1, ..settings().limits }, ..settings() })
}

#[test]
fn a_row_that_a_gone_state_may_have_sent_is_not_sent_after_a_cancel_though_newer_ones_have_begun() {
    let mut stage = one_at_a_time(3);
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.posted(0, PostAnswer::Refused(fault("generic"))), "post 1#1");
    assert_eq!(stage.posted(1, PostAnswer::Refused(fault("generic"))), "post 2#1");
    // As many have ended as it has rows that may have been sent; the third waits.
    let mut stage =
        Stage { batch: stage.batch.clone(), outcomes: stage.outcomes.clone(), ..one_at_a_time(3) };
    (stage.batch.segments[0].cursor, stage.batch.totals) = (2, Totals::default());
    stage.carry_over_and_add(3, 0);
    assert_eq!(stage.step(vec![]), "post 3#1", "the newer ones are more urgent");
    assert_eq!(stage.cancel(), (2, 1));
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(finish(&mut stage, 3), "");
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.batch.paused, Some(Pause::Rebuilt));
    assert_eq!(stage.ended, ["job-4 canceled", "job-5 canceled", "job-3 succeeded"]);
    let resumed = stage.scheduler.execute(Command::Resume(BatchNo(1)), stage.now).unwrap();
    assert_eq!(resumed.canceled_go_on, 1);
    assert_eq!(stage.step(vec![]), "post 2#1");
}

/// An earlier version of the program noted how many rows there were, and not how long they are.
#[test]
fn what_may_have_been_sent_is_kept_where_only_its_number_was_noted() {
    let mut stage = one_at_a_time(1);
    stage.carry_over_and_add(3, 0);
    let mut record = stage.scheduler.batches.get(&BatchNo(1)).unwrap().record().clone();
    record.rebuilt_bytes = 0;
    stage.batch = record;
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 1#1");
    assert_eq!(stage.cancel(), (2, 1));
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(finish(&mut stage, 1), "");
    assert_eq!((stage.batch.paused, stage.batch.ended.canceled), (Some(Pause::Rebuilt), 2));
}

/// One row of it is done, and may not have been sent any more; so is the pilot of four rows that came in since.
fn after_a_pilot_in_a_state_that_was_carried_over() -> Stage {
    let mut stage = Stage::of(1);
    stage.carry_over_and_add(4, 1);
    assert_eq!(stage.step(vec![]), "post 1#1", "what came before the pilot waits, too");
    finish(&mut stage, 1);
    stage
}

/// The same, but the row of before is done.
fn done_before_and_after_a_pilot() -> Stage {
    let mut stage = Stage::of(1);
    assert_eq!(stage.step(vec![]), "post 0#1");
    finish(&mut stage, 0);
    stage.carry_over_and_add(4, 1);
    assert_eq!(stage.step(vec![]), "post 1#1");
    finish(&mut stage, 1);
    stage
}

#[test]
fn a_cancel_drops_what_came_after_a_loss_and_waits_after_its_pilot() {
    let mut stage = done_before_and_after_a_pilot();
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Pilot)));
    assert_eq!(stage.cancel(), (3, 0));
    assert_eq!(stage.step(vec![]), "");
    assert_eq!((stage.batch.ended.canceled, stage.batch.paused), (3, None));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}

#[test]
fn a_cancel_keeps_what_may_have_been_sent_and_waits_after_a_pilot() {
    let mut stage = after_a_pilot_in_a_state_that_was_carried_over();
    assert_eq!(stage.cancel(), (3, 1));
    assert_eq!(stage.step(vec![]), "");
    let pilot_rest = |stage: &Stage| stage.batch.pilot.map(|pilot| pilot.rest_jobs);
    assert_eq!((stage.batch.ended.canceled, pilot_rest(&stage)), (3, Some(1)));
    stage.restart();
    stage.scheduler.execute(Command::Resume(BatchNo(1)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Pilot)));
    stage.scheduler.execute(Command::Continue(BatchNo(1)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "post 0#1");
}

#[test]
fn what_came_after_a_loss_and_waits_after_its_pilot_expires() {
    let mut stage = done_before_and_after_a_pilot();
    stage.batch.policy.expires = Some(Deadline::At(stage.now.wall.after(Millis(1_000))));
    stage.restart();
    stage.pass(Millis(1_000));
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.batch.ended.expired, 3);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}
