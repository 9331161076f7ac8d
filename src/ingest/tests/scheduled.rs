//! Runs of schedules at the ingest.

use super::*;

#[test]
fn a_schedule_fills_placeholders_before_rows_become_jobs() {
    let text = format!("{HEADER}a-{{date}},image,flat,fox on {{weekday}},,\nb,image,flat,{{n}} {{owls}},,\n");
    let mut ingest = ingest();
    ingest.check("m.csv", &text, "2 new 0 have 0 invalid 6 credits");
    let schedule = Schedule::parse("@daily", None).unwrap();
    let saturday = Timestamp(1_795_219_200_000);
    ingest.occasion = Some(schedule.occasion(saturday));
    ingest.check("m.csv", &text, "2 new 0 have 0 invalid 6 credits");
    // The same run again is the same jobs; the next day's is not.
    ingest.check("m.csv", &text, "0 new 2 have 0 invalid 0 credits");
    ingest.occasion = Some(schedule.occasion(Timestamp(saturday.0 + 86_400_000)));
    ingest.check("m.csv", &text, "2 new 0 have 0 invalid 6 credits");
    assert_eq!(ingest.labels("m"), ["0 a-{date}", "1 b", "2 a-2026-11-21", "3 b", "4 a-2026-11-22", "5 b"]);
}

#[test]
fn a_run_of_a_schedule_spends_no_more_than_schedule_and_manifest_allow() {
    let mut ingest = ingest();
    let mut check = |occasion: Option<ScheduledRun>, schedule, manifest: &str, expected| {
        ingest.occasion = occasion;
        ingest.budget = schedule;
        let jobs = r#""jobs": [{"id": "a", "kind": "image", "model": "flat", "prompt": "fox"}]"#;
        let name = format!("m{}.json", ingest.store.batches().unwrap().len());
        ingest.accept(&name, &format!("{{\"policy\": {{{manifest}}}, {jobs}}}"));
        assert_eq!(ingest.store.batches().unwrap().last().unwrap().policy.budget, expected, "{manifest}");
    };
    let occasion = || Some(Schedule::parse("@daily", None).unwrap().occasion(Timestamp(0)));
    let [nine, fifty] = [Credits(9), Credits(50)];
    check(occasion(), Some(fifty), "\"budget\": 9", Some(nine));
    check(occasion(), Some(nine), "\"budget\": 50", Some(nine));
    check(occasion(), Some(nine), "", Some(nine));
    check(occasion(), None, "\"budget\": 50", Some(fifty));
    // A flag is the last word.
    check(None, Some(fifty), "\"budget\": 9", Some(fifty));
}
