//! Schedules as transcripts: what is read, when it fires, what is due.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike, NaiveDate};
use proptest::prelude::*;

use super::catch_up::{Due, Handled, Missed, Overlap, Reason, SchedulePolicy, decide};
use super::cron_field::{DAY, Field, HOUR, MINUTE, MONTH, SECOND, WEEKDAY};
use super::*;
use crate::domain::time::Millis;

const BERLIN: Option<&str> = Some("Europe/Berlin");

/// `2026-11-21T03:00:00Z`
fn at(text: &str) -> Timestamp {
    Timestamp(DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis())
}

fn schedule(cron: &str, zone: Option<&str>) -> Schedule {
    Schedule::parse(cron, zone).unwrap()
}

fn error(cron: &str, zone: Option<&str>) -> String {
    let error = Schedule::parse(cron, zone).unwrap_err();
    format!("{}: {}", error.key, error.message)
}

/// The local times of the first fires after an instant.
fn fires(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = schedule(cron, Some(zone));
    schedule.fires_after(at(after)).take(count).map(|fire| schedule.local(fire)).collect()
}

#[test]
fn errors_name_what_was_found_and_what_would_do() {
    let check = |cron: &str, expected: &str| {
        let said = error(cron, None);
        assert!(said.starts_with("cron: ") && said.contains(expected), "{cron}: {said}");
    };
    check("0 0 30 2 *", "\"0 0 30 2 *\" never fires: no year from 1970 to 2100 has such a day");
    check("0 0 31 4,6,9,11 *", "never fires");
    check("0 0 0 29 2 * 2026", "never fires");
    check("@reboot", "found \"@reboot\", which is not a time; @yearly");
    check("@dayly", "did you mean @daily?");
    check("0 0 L * *", "day-of-month: found \"L\"; crontab does not support L, W or #; 1 to 31");
    check(
        "0 0 * * 5#2",
        "day-of-week: found \"5#2\"; crontab does not support L, W or #; 0 to 7, sun to sat",
    );
    check("0 0 ? * 1", "day-of-month: found \"?\"; write * for any");
    check("60 * * * *", "minute: found \"60\"; 0 to 59");
    check("0 24 * * *", "hour: found \"24\"; 0 to 23");
    check("0 0 0 * *", "day-of-month: found \"0\"; 1 to 31");
    check("0 0 * 13 *", "month: found \"13\"; 1 to 12, jan to dec");
    check("0 0 * * 8", "day-of-week: found \"8\"; 0 to 7");
    check("5/10 * * * *", "minute: found \"5/10\"; a step needs a range: 5-59/10");
    check("*/90 * * * *", "minute: found \"*/90\"; a step is a number from 1 to 60");
    check("*/0 * * * *", "a step is a number from 1 to 60");
    check("0 22-6 * * *", "hour: found \"22-6\"; a range goes upwards: write 22-23,0-6");
    check("0 0 * * fri-sun", "a range goes upwards, and Sunday at its end is 7: write 5-7");
    check("0 0 * * sat-mon", "write 6-6,0-1");
    check("1,,2 * * * *", "minute: found \"1,,2\"; a comma stands between two values");
    check("+5 * * * *", "minute: found \"+5\"");
    check("* * * *", "found 4 fields in \"* * * *\"; five are accepted");
    check("", "found 0 fields in \"\"");
    check(
        "CRON_TZ=Europe/Berlin 0 3 * * *",
        "found \"CRON_TZ=Europe/Berlin\"; the zone of the clock is given",
    );
    check("0 0 0 1 1 * 1969", "year: found \"1969\"; 1970 to 2100");
    check(&"1,".repeat(600), "longer than 1000 characters");
}

#[test]
fn zones_are_named_and_guessed() {
    let check = |zone: &str, expected: &str| {
        let said = error("@daily", Some(zone));
        assert!(said.contains(expected), "{zone}: {said}");
    };
    check("Europe/Berln", "\"Europe/Berln\" is not a time zone; did you mean \"Europe/Berlin\"?");
    check("new york", "did you mean \"America/New_York\"?");
    check("europe/berlin", "did you mean \"Europe/Berlin\"?");
    check("+02:00", "an IANA name such as Europe/Berlin or UTC is accepted");
    check("local", "is not a time zone");
    assert_eq!(schedule("@daily", None).timezone(), "UTC");
    let berlin = schedule("@daily", BERLIN);
    assert_eq!(berlin.offset(at("2026-01-01T00:00:00Z")), "CET, UTC+01:00");
    assert_eq!(berlin.offset(at("2026-07-01T00:00:00Z")), "CEST, UTC+02:00");
    assert_eq!(schedule("@daily", None).offset(at("2026-07-01T00:00:00Z")), "UTC");
}

#[test]
fn one_spelling_is_as_good_as_another() {
    let check = |one: &str, other: &str| {
        let fires = |cron| -> Vec<Timestamp> {
            schedule(cron, BERLIN).fires_after(at("2026-03-01T00:00:00Z")).take(100).collect()
        };
        assert_eq!(fires(one), fires(other), "{one} and {other}");
    };
    check("0 0 * * 0", "0 0 * * 7");
    check("0 0 * * 5-7", "0 0 * * FRI,sat,Sun");
    check("0 9 * jan-mar mon-fri", "00 09 * 1,2,3 1-5");
    check("@weekly", "0 0 * * 0");
    check("@Hourly", "0 * * * *");
    check("0 0 12 * * *", "0 12 * * *");
    check("0 0 12 * * * *", "0 12 * * *");
    check("  0\t12  * * * ", "0 12 * * *");
    check("*/60 * * * *", "0 * * * *");
}

#[test]
fn a_day_fits_by_either_field_unless_one_begins_with_a_star() {
    let days = |cron: &str| {
        let fires = fires(cron, "UTC", "2026-11-01T00:00:00Z", 6);
        fires.iter().map(|fire| fire[8..10].to_owned()).collect::<Vec<_>>().join(" ")
    };
    // November 2026 begins on a Sunday.
    assert_eq!(days("0 12 13 * fri"), "06 13 20 27 04 11");
    assert_eq!(days("0 12 1,15 * mon"), "01 02 09 15 16 23");
    assert_eq!(days("0 12 */2 * mon"), "09 23 07 21 11 25");
    assert_eq!(days("0 12 1-31/2 * mon"), "01 02 03 05 07 09");
    assert_eq!(days("0 12 15 * *"), "15 15 15 15 15 15");
    // One of the two that never comes about takes nothing from the other.
    assert_eq!(days("0 12 31 11 mon"), "02 09 16 23 30 01");
}

#[test]
fn years_and_leap_days() {
    assert_eq!(
        fires("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2),
        ["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]
    );
    assert_eq!(fires("0 0 0 1 1 * 2027-2030/2", "UTC", "2026-01-01T00:00:00Z", 5).len(), 2);
    assert_eq!(schedule("0 0 0 1 1 * 2020", None).next_after(at("2026-01-01T00:00:00Z")), None);
    assert_eq!(schedule("@yearly", None).next_after(at("2100-06-01T00:00:00Z")), None);
    assert_eq!(schedule("* * * * *", None).next_after(Timestamp(i64::MAX)), None);
}

#[test]
fn a_fixed_time_that_a_gap_swallows_comes_right_after_it() {
    // 29 March 2026: 02:00 becomes 03:00.
    let check = |cron: &str, expected: &[&str]| {
        let fires = fires(cron, "Europe/Berlin", "2026-03-28T23:30:00Z", expected.len());
        let fires: Vec<&str> = fires.iter().map(|fire| &fire[5..16]).collect();
        assert_eq!(fires, expected, "{cron}");
    };
    check("30 2 * * *", &["03-29T03:00", "03-30T02:30"]);
    check("0,30 2 * * *", &["03-29T03:00", "03-30T02:00", "03-30T02:30"]);
    check("15 2,3 * * *", &["03-29T03:00", "03-29T03:15", "03-30T02:15"]);
    check("0 2,3 * * *", &["03-29T03:00", "03-30T02:00"]);
    check("0 3 * * *", &["03-29T03:00", "03-30T03:00"]);
    // What follows the clock finds no such hour.
    check("*/30 2 * * *", &["03-30T02:00", "03-30T02:30"]);
    check("30 * * * *", &["03-29T01:30", "03-29T03:30", "03-29T04:30"]);
    check("*/30 * * * *", &["03-29T01:00", "03-29T01:30", "03-29T03:00", "03-29T03:30"]);
}

#[test]
fn a_fixed_time_in_a_fold_comes_once_and_first() {
    // 25 October 2026: 03:00 becomes 02:00.
    let check = |cron: &str, expected: &[&str]| {
        let fires = fires(cron, "Europe/Berlin", "2026-10-24T22:45:00Z", expected.len());
        let fires: Vec<String> =
            fires.iter().map(|fire| format!("{}{}", &fire[5..16], &fire[19..22])).collect();
        assert_eq!(fires, expected, "{cron}");
    };
    check("30 2 * * *", &["10-25T02:30+02", "10-26T02:30+01"]);
    check("0,59 2 * * *", &["10-25T02:00+02", "10-25T02:59+02", "10-26T02:00+01"]);
    check("0 3 * * *", &["10-25T03:00+01", "10-26T03:00+01"]);
    check("30 * * * *", &["10-25T01:30+02", "10-25T02:30+02", "10-25T02:30+01", "10-25T03:30+01"]);
    check("*/30 2 * * *", &["10-25T02:00+02", "10-25T02:30+02", "10-25T02:00+01", "10-25T02:30+01"]);
}

#[test]
fn half_an_hour_and_midnight_are_gaps_and_folds_too() {
    let lord_howe = |after| fires("15 2 * * *", "Australia/Lord_Howe", after, 2);
    assert_eq!(lord_howe("2026-10-03T15:00:00Z"), ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"]);
    // At 02:00 back to 01:30: a quarter to two comes twice.
    assert_eq!(
        fires("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", 2),
        ["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"]
    );
    // Santiago has no midnight on that day.
    assert_eq!(
        fires("@daily", "America/Santiago", "2026-09-05T12:00:00Z", 2),
        ["2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"]
    );
    // Samoa left out a whole day: that is no daylight saving.
    assert_eq!(
        fires("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 2),
        ["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"]
    );
}

#[test]
fn runs_are_numbered_by_year_and_instant() {
    let n = |cron: &str, zone, instant: &str| schedule(cron, zone).occasion(at(instant)).n;
    assert_eq!(n("@daily", None, "2026-01-01T00:00:00Z"), 1);
    assert_eq!(n("@daily", None, "2026-12-31T00:00:00Z"), 365);
    assert_eq!(n("@daily", BERLIN, "2026-12-31T23:00:00Z"), 1);
    assert_eq!(n("@hourly", BERLIN, "2026-12-31T22:00:00Z"), 8760);
    assert_eq!(n("* * * * * *", BERLIN, "2026-12-31T22:59:59Z"), 365 * 86_400);
    assert_eq!(n("0 9 * * mon", BERLIN, "2026-01-12T08:00:00Z"), 2);
    // By hand, between two fires: as if it had fired then.
    assert_eq!(n("@daily", None, "2026-01-02T12:34:56Z"), 3);
    assert_eq!(n("@daily", Some("America/Santiago"), "2026-12-31T03:00:00Z"), 365);
}

#[test]
fn runs_are_named_after_schedule_and_instant() {
    let named = |schedule: &str, instant| name::of_run(schedule, at(instant)).map(String::from);
    assert_eq!(named("nightly", "2026-11-21T02:00:00Z").unwrap(), "nightly-2026-11-21T0200Z");
    assert_eq!(named("nightly", "2026-11-21T02:00:07Z").unwrap(), "nightly-2026-11-21T020007Z");
    assert_eq!(named("nightly", "2026-11-21T03:00:00+01:00").unwrap(), "nightly-2026-11-21T0200Z");
    assert!(name::check(&"n".repeat(81)).is_ok());
    for bad in ["", "a b", "a/b", "-a", &"n".repeat(82)] {
        assert!(name::check(bad).unwrap_err().message.contains("1 to 81 letters"), "{bad}");
    }
}

/// A clock, a schedule, and what became of it.
struct Story {
    schedule: Schedule,
    policy: SchedulePolicy,
    handled: Option<Handled>,
    is_active: bool,
}

fn story(cron: &str, missed: Missed) -> Story {
    let policy = SchedulePolicy { missed, missed_max: 3, overlap: Overlap::Skip };
    Story { schedule: schedule(cron, None), policy, handled: None, is_active: false }
}

impl Story {
    fn decide(&mut self, now: &str) -> Due {
        let due =
            decide(&self.schedule, self.policy, self.handled.as_ref(), at(now), Millis(0), self.is_active);
        self.handled = Some(due.handled.clone());
        due
    }

    /// `start 03:00 04:00; left out 2 missed`
    fn check(&mut self, now: &str, expected: &str) {
        let due = self.decide(now);
        let start: Vec<String> =
            due.start.iter().map(|fire| self.schedule.local(*fire)[11..16].to_owned()).collect();
        let mut said = if start.is_empty() { String::new() } else { format!("start {}", start.join(" ")) };
        for left in &due.left_out {
            let more = if left.or_more { "+" } else { "" };
            said += &format!("; left out {}{more} {}", left.count, left.reason.words());
        }
        assert_eq!(said.trim_start_matches("; "), expected, "{now}");
    }
}

#[test]
fn a_schedule_begins_when_it_is_first_seen() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All] {
        let mut story = story("@hourly", missed);
        story.check("2026-11-21T03:00:00Z", "");
        story.check("2026-11-21T03:59:59Z", "");
        story.check("2026-11-21T04:00:00Z", "start 04:00");
        story.check("2026-11-21T04:00:01Z", "");
    }
}

#[test]
fn an_outage_costs_what_the_policy_says() {
    let outage = |missed, expected: &str| {
        let mut story = story("@hourly", missed);
        story.check("2026-11-21T02:30:00Z", "");
        story.check("2026-11-21T08:30:00Z", expected);
        story.check("2026-11-21T08:31:00Z", "");
        story.check("2026-11-21T09:00:10Z", "start 09:00");
    };
    outage(Missed::Skip, "left out 6 missed");
    outage(Missed::Latest, "start 08:00; left out 5 missed");
    outage(Missed::All, "start 06:00 07:00 08:00; left out 3 missed, and more than missed_max");
}

#[test]
fn a_restart_over_a_fire_time_misses_nothing() {
    let mut story = story("0 3 * * *", Missed::Skip);
    story.check("2026-11-21T02:59:50Z", "");
    story.check("2026-11-21T03:01:00Z", "start 03:00");
    let mut late = self::story("0 3 * * *", Missed::Skip);
    late.check("2026-11-21T02:59:50Z", "");
    late.check("2026-11-21T03:01:01Z", "left out 1 missed");
}

#[test]
fn a_stall_of_less_than_a_minute_misses_nothing() {
    let stall = |missed, overlap, expected: &str| {
        let mut story = story("*/5 * * * * *", missed);
        story.policy.overlap = overlap;
        story.check("2026-11-21T03:00:00Z", "");
        story.check("2026-11-21T03:00:16Z", expected);
        story.check("2026-11-21T03:00:17Z", "");
    };
    let together = "a later one is due with it, and they may not overlap";
    for missed in [Missed::Skip, Missed::Latest] {
        stall(missed, Overlap::Allow, "start 03:00 03:00 03:00");
        stall(missed, Overlap::Skip, &format!("start 03:00; left out 2 {together}"));
    }
    stall(Missed::All, Overlap::Skip, "start 03:00 03:00 03:00");
    // Longer than that: what is older was missed.
    let mut story = story("*/30 * * * * *", Missed::Latest);
    story.policy.overlap = Overlap::Allow;
    story.check("2026-11-21T03:00:00Z", "");
    story.check("2026-11-21T03:02:10Z", "start 03:01 03:02; left out 2 missed");
    story.policy.missed = Missed::All;
    story.check(
        "2026-11-21T03:05:10Z",
        "start 03:04 03:04 03:05; left out 3 missed, and more than missed_max",
    );
}

#[test]
fn a_clock_that_is_set_back_fires_nothing_again() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All] {
        let mut story = story("@hourly", missed);
        story.check("2026-11-21T02:30:00Z", "");
        story.check("2026-11-21T03:00:01Z", "start 03:00");
        story.check("2026-11-21T02:10:00Z", "");
        story.check("2026-11-21T03:00:00Z", "");
        story.check("2026-11-21T04:00:00Z", "start 04:00");
        story.check("2025-01-01T00:00:00Z", "");
        story.check("2026-11-21T04:00:30Z", "");
        story.check("2026-11-21T05:00:00Z", "start 05:00");
    }
}

#[test]
fn an_edit_begins_anew_and_fires_nothing_that_lies_behind() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All] {
        let mut story = story("0 3 * * *", missed);
        story.check("2026-11-20T12:00:00Z", "");
        story.check("2026-11-21T03:00:00Z", "start 03:00");
        story.schedule = schedule("0 3,9 * * *", None);
        story.check("2026-11-21T12:00:00Z", "");
        story.schedule = schedule("0 3 * * *", None);
        // Behind what was handled under the other expression: nothing until the clock has passed it.
        story.check("2026-11-21T02:00:00Z", "");
        story.check("2026-11-21T03:00:00Z", "");
        story.check("2026-11-22T03:00:00Z", "start 03:00");
        story.schedule = schedule("0 3 * * *", BERLIN);
        story.check("2026-11-22T12:00:00Z", "");
    }
}

#[test]
fn an_unfinished_run_leaves_the_next_out_unless_they_may_overlap() {
    let mut story = story("@hourly", Missed::Skip);
    story.check("2026-11-21T02:30:00Z", "");
    story.is_active = true;
    story.check("2026-11-21T03:00:00Z", "left out 1 the run before has not ended");
    story.is_active = false;
    story.check("2026-11-21T03:00:30Z", "");
    story.is_active = true;
    story.policy.overlap = Overlap::Allow;
    story.check("2026-11-21T04:00:00Z", "start 04:00");
    story.policy = SchedulePolicy { missed: Missed::All, missed_max: 3, overlap: Overlap::Skip };
    story.check(
        "2026-11-21T09:30:00Z",
        "left out 2 missed, and more than missed_max; left out 3 the run before has not ended",
    );
}

#[test]
fn years_of_seconds_are_decided_at_once() {
    for (missed, expected) in [(Missed::Skip, 1), (Missed::Latest, 1), (Missed::All, 1000)] {
        let mut story = story("* * * * * *", missed);
        story.policy.missed_max = u32::MAX;
        story.decide("1995-01-01T00:00:00Z");
        let due = story.decide("2026-11-21T03:00:00.500Z");
        assert_eq!(due.start.len(), expected, "{missed:?}");
        assert_eq!(due.start.last(), Some(&at("2026-11-21T03:00:00Z")));
        assert!(due.left_out[0].or_more && due.handled.up_to == at("2026-11-21T03:00:00Z"));
    }
}

#[test]
fn a_dense_month_in_a_long_outage_is_found() {
    // Every second of January, and not one since: what is last lies ten months back.
    let mut story = story("* * * * 1 *", Missed::All);
    story.decide("2001-01-01T00:00:00Z");
    let due = story.decide("2026-11-21T00:00:00Z");
    let last: Vec<String> = due.start.iter().map(ToString::to_string).collect();
    assert_eq!(last, ["2026-01-31T23:59:57.000Z", "2026-01-31T23:59:58.000Z", "2026-01-31T23:59:59.000Z"]);
    assert_eq!(due.left_out[0].reason, Reason::TooMany);
}

/// Expressions as people write them, and worse.
fn expressions() -> impl Strategy<Value = String> {
    let field = |low: u32, high: u32| {
        let value = low..=high;
        let range = (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
        let part = prop_oneof![
            value.prop_map(|value| value.to_string()),
            range.clone(),
            (range, 1..8_u32).prop_map(|(range, step)| format!("{range}/{step}")),
        ];
        let list = proptest::collection::vec(part, 1..3).prop_map(|parts| parts.join(","));
        prop_oneof![3 => Just("*".to_owned()), 1 => (2..8_u32).prop_map(|step| format!("*/{step}")), 4 => list]
    };
    let five = (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7));
    (five, proptest::option::weighted(0.2, field(0, 59))).prop_map(|((m, h, d, mo, w), second)| {
        let five = format!("{m} {h} {d} {mo} {w}");
        second.map_or(five.clone(), |second| format!("{second} {five}"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Every second of a day is asked one by one whether the fields of the expression have it.
    #[test]
    fn fires_agree_with_the_fields(cron in expressions(), day in 0_i64..1461) {
        let schedule = schedule(&cron, None);
        let begin = at("2025-01-01T00:00:00Z").0 / 1000 + day * 86_400;
        let end = Timestamp((begin + 86_400) * 1000);
        let walked: BTreeSet<i64> = schedule
            .fires_after(Timestamp((begin - 1) * 1000))
            .take_while(|fire| *fire < end)
            .map(|fire| fire.0 / 1000 - begin)
            .collect();
        let texts: Vec<&str> = cron.split(' ').collect();
        let (second, texts) = if texts.len() == 6 { (texts[0], &texts[1..]) } else { ("0", &texts[..]) };
        let (seconds, minutes) = (SECOND.parse(second).unwrap(), MINUTE.parse(texts[0]).unwrap());
        let (hours, days) = (HOUR.parse(texts[1]).unwrap(), DAY.parse(texts[2]).unwrap());
        let (months, weekdays) = (MONTH.parse(texts[3]).unwrap(), WEEKDAY.parse(texts[4]).unwrap());
        let date = DateTime::from_timestamp(begin, 0).unwrap().date_naive();
        let by_day = days.values.contains(&date.day());
        let by_weekday = weekdays.values.contains(&date.weekday().num_days_from_sunday());
        let needs_both = days.is_star || weekdays.is_star;
        let fits_day = months.values.contains(&date.month())
            && if needs_both { by_day && by_weekday } else { by_day || by_weekday };
        let named = |second: &i64| {
            let has = |field: &Field, value: i64| field.values.contains(&u32::try_from(value).unwrap());
            fits_day
                && has(&hours, second / 3600)
                && has(&minutes, second / 60 % 60)
                && has(&seconds, second % 60)
        };
        prop_assert_eq!(walked, (0..86_400).filter(named).collect::<BTreeSet<i64>>());
    }

    /// In every zone, through two years of changed clocks: strictly later, and the same from anywhere.
    #[test]
    fn fires_are_in_order_from_wherever_one_looks(
        cron in expressions(),
        zone in 0..chrono_tz::TZ_VARIANTS.len(),
        start in 1_700_000_000_i64..1_760_000_000,
        offset in 0_u64..86_400_000,
    ) {
        let schedule = schedule(&cron, Some(chrono_tz::TZ_VARIANTS[zone].name()));
        let start = Timestamp(start * 1000);
        let fires: Vec<Timestamp> = schedule.fires_after(start).take(60).collect();
        prop_assert!(fires.windows(2).all(|pair| pair[0] < pair[1]));
        let later = start.after(Millis(offset));
        let again: Vec<Timestamp> = schedule.fires_after(later).take(20).collect();
        let rest: Vec<Timestamp> = fires.iter().copied().filter(|fire| *fire > later).take(20).collect();
        prop_assert!(again.starts_with(&rest));
    }

    /// The number of a run is what counting to it would give, through changed clocks, too.
    #[test]
    fn numbers_are_counted(
        hours in "[0-9],1[0-9]|\\*|\\*/5|2",
        minute in 0..60_u32,
        second in prop_oneof![Just("0"), Just("10,50")],
        zone in 0..chrono_tz::TZ_VARIANTS.len(),
        after in 0_i64..110 * 86_400,
    ) {
        let cron = format!("{second} {minute} {hours} * * *");
        let schedule = schedule(&cron, Some(chrono_tz::TZ_VARIANTS[zone].name()));
        let new_year = NaiveDate::from_ymd_opt(2025, 1, 1).unwrap();
        let begins = schedule.day_begins(new_year);
        let at = Timestamp((begins + after) * 1000 + 250);
        let before = schedule.fires_after(Timestamp((begins - 1) * 1000)).take_while(|fire| fire.0 < at.0 - 250);
        prop_assert_eq!(schedule.number_in_year(at), 1 + u32::try_from(before.count()).unwrap());
    }

    /// Whatever the clock and the policy do, an instant is started at most once, and none before the first
    /// look.
    #[test]
    fn nothing_is_started_twice(
        steps in proptest::collection::vec((-100_000_i64..100_000, any::<bool>(), 0..3_usize), 1..40),
        missed in 0..3_usize,
    ) {
        let mut story = story("*/7 * * * *", [Missed::Skip, Missed::Latest, Missed::All][missed]);
        let mut now = at("2026-03-28T22:00:00Z");
        let mut started = BTreeSet::new();
        let first = now;
        story.decide(&now.to_string());
        for (step, is_active, edit) in steps {
            now = Timestamp(now.0 + step * 100);
            story.is_active = is_active;
            story.schedule = schedule(["*/7 * * * *", "*/7 * * * *", "*/5 * * * *"][edit], BERLIN);
            for fire in story.decide(&now.to_string()).start {
                prop_assert!(fire > first && fire <= now);
                prop_assert!(started.insert(fire), "{fire} twice");
            }
        }
    }
}
