//! A table of schedules, zones and days on which clocks are changed, with every fire. It was written by a model of
//! Debian's cron (`.ci/schedule-oracle --freeze`), not by this program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use callsheet::domain::schedule::Schedule;
use callsheet::domain::time::Timestamp;
use chrono::DateTime;

fn instant(text: &str) -> Timestamp {
    Timestamp(DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis())
}

#[test]
fn every_fire_is_the_one_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schedule_table.csv");
    let mut zones = BTreeSet::new();
    let mut fires = 0;
    for row in csv::Reader::from_path(path).unwrap().records() {
        let row = row.unwrap();
        let [cron, zone, after, until, expected] = [&row[0], &row[1], &row[2], &row[3], &row[4]];
        let schedule = Schedule::parse(cron, Some(zone)).unwrap();
        let until = instant(until);
        let found = schedule.fires_after(instant(after)).take_while(|fire| *fire <= until);
        let found: Vec<String> = found.map(|fire| schedule.local(fire)).collect();
        assert_eq!(found.join(" "), expected, "{cron} in {zone} after {after}");
        zones.insert(zone.to_owned());
        fires += found.len();
    }
    assert!(zones.len() >= 8 && fires > 1000, "{fires} fires in {zones:?}");
}
