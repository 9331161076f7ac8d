//! Prints when schedules fire, to be compared: on each line of standard input an expression, a
//! zone, and two instants in seconds since 1970, separated by tabs; on the same line of standard output what
//! fires after the first, up to and with the second, or `error:` and why there is no such schedule.

#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::error::Error;
use std::io::{BufRead, stdin};

use callsheet::domain::schedule::Schedule;
use callsheet::domain::time::Timestamp;

fn main() -> Result<(), Box<dyn Error>> {
    for line in stdin().lock().lines() {
        let line = line?;
        let fields: Vec<&str> = line.split('\t').collect();
        let [cron, zone, after, until] = *fields else {
            return Err(format!("found {} fields in {line:?}, expected four", fields.len()).into());
        };
        let (after, until): (i64, i64) = (after.parse()?, until.parse()?);
        let answer = match Schedule::parse(cron, Some(zone)) {
            Ok(schedule) => {
                let fires = schedule.fires_after(Timestamp(after * 1000));
                let fires = fires.map(|fire| fire.0 / 1000).take_while(|fire| *fire <= until);
                fires.map(|fire| fire.to_string()).collect::<Vec<_>>().join(" ")
            }
            Err(error) => format!("error: {}: {}", error.key, error.message),
        };
        println!("{answer}");
    }
    Ok(())
}
