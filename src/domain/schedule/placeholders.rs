//! `{date}`, `{time}`, `{weekday}` and `{n}` in what a schedule hands in.
//!
//! | word | in prompts and texts | in ids, and in references to rows (`job:still-{date}`) |
//! |---|---|---|
//! | `{date}` | `2026-11-21` | the same |
//! | `{time}` | `03:00`, with seconds where they are not 0 | `0300`: ids become file names |
//! | `{weekday}` | `Saturday` | the same |
//! | `{n}` | `325`: which run of its year it is, from 1 | the same |
//!
//! All of them are read off the schedule's own clock at the instant of the run. `{n}` counts the times at
//! which the schedule, as it is, fires in that year, whether a run came of them or not. So they follow from
//! schedule and instant alone: the same run taken in twice, after a crash or from a state that was lost,
//! asks for the same again, which is paid for already. A count of runs kept on disk would not do that.
//!
//! Other words in braces stay as they are, and without a schedule all of them do.

use chrono::Timelike;

use crate::domain::job_reference::is_reference;
use crate::domain::manifest::row::Row;
use crate::domain::schedule::Schedule;
use crate::domain::time::Timestamp;

/// Options that are text for people, as prompts are (the document's music options).
const TEXT_OPTIONS: [&str; 2] = ["lyrics", "title"];

/// Which run of a schedule something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledRun {
    /// `2026-11-21`
    pub date: String,
    /// `03:00`, or `03:00:10`.
    pub time: String,
    /// `Saturday`
    pub weekday: String,
    /// Which of its year, from 1.
    pub n: u32,
}

/// What kind of field a placeholder is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Text,
    Id,
}

impl Schedule {
    /// What the placeholders stand for in a run at `at`: a fire time, or the instant at which somebody
    /// started it by hand.
    pub fn occasion(&self, at: Timestamp) -> ScheduledRun {
        // Outside the calendar the instant itself has to do.
        let Some(local) = self.zone.local(at) else {
            let text = at.to_string();
            return ScheduledRun { date: text.clone(), time: text, weekday: String::new(), n: 1 };
        };
        let time = if local.second() == 0 { "%H:%M" } else { "%H:%M:%S" };
        ScheduledRun {
            date: local.format("%F").to_string(),
            time: local.format(time).to_string(),
            weekday: local.format("%A").to_string(),
            n: self.number_in_year(at),
        }
    }
}

impl ScheduledRun {
    /// Fills the placeholders of a row: in its prompt, its texts, its id, and the ids of rows that it takes outputs of.
    pub fn fill(&self, row: &mut Row) {
        let request = &mut row.request;
        for text in [&mut request.prompt, &mut request.text].into_iter().flatten() {
            *text = self.filled(text, FieldKind::Text);
        }
        for option in TEXT_OPTIONS {
            if let Some(serde_json::Value::String(text)) = request.options.get_mut(option) {
                *text = self.filled(text, FieldKind::Text);
            }
        }
        let lengths = request.options.values_mut().filter_map(|value| match value {
            serde_json::Value::String(text) => Some(text),
            _ => None,
        });
        let urls = request.image_urls.iter_mut().chain(&mut request.video_urls);
        for reference in urls.chain(lengths).filter(|text| is_reference(text)) {
            *reference = self.filled(reference, FieldKind::Id);
        }
        if let Some(id) = &mut row.id {
            *id = self.filled(id, FieldKind::Id);
        }
    }

    fn filled(&self, text: &str, kind: FieldKind) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            let known = rest.find('}').and_then(|end| Some((self.value(&rest[1..end], kind)?, end)));
            match known {
                Some((value, end)) => {
                    filled.push_str(&value);
                    rest = &rest[end + 1..];
                }
                None => {
                    filled.push('{');
                    rest = &rest[1..];
                }
            }
        }
        filled.push_str(rest);
        filled
    }

    fn value(&self, word: &str, kind: FieldKind) -> Option<String> {
        match word {
            "date" => Some(self.date.clone()),
            "time" if kind == FieldKind::Id => Some(self.time.replace(':', "")),
            "time" => Some(self.time.clone()),
            "weekday" => Some(self.weekday.clone()),
            "n" => Some(self.n.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::diagnostic::Position;

    fn occasion() -> ScheduledRun {
        // Saturday, 21 November 2026, 03:00 in Berlin.
        let schedule = Schedule::parse("0 3 * * *", Some("Europe/Berlin")).unwrap();
        schedule.occasion(Timestamp(1_795_226_400_000))
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_stay() {
        let check = |text: &str, expected: &str| {
            assert_eq!(occasion().filled(text, FieldKind::Text), expected, "{text}");
        };
        check("News of {weekday}, {date}, {time}", "News of Saturday, 2026-11-21, 03:00");
        check("episode {n}", "episode 325");
        check("{dates} {Date} { date } {} { {date", "{dates} {Date} { date } {} { {date");
        check("{{date}} and {a{n}}", "{2026-11-21} and {a325}");
        check("json: {\"n\": {n}}", "json: {\"n\": 325}");
        check("狐 {weekday} 🦊", "狐 Saturday 🦊");
    }

    #[test]
    fn a_row_is_filled_where_people_write() {
        let mut row = Row::at(Position::line(2));
        row.id = Some("news-{date}-{time}".to_owned());
        row.request.prompt = Some("{weekday} at {time}".to_owned());
        row.request.text = Some("It is {weekday}.".to_owned());
        row.request.mode = Some("{date}".to_owned());
        row.request.options.insert("lyrics".to_owned(), "la {n}".into());
        row.request.options.insert("seed".to_owned(), "{n}".into());
        row.request.image_urls =
            vec!["job:still-{date}-{time}".to_owned(), "https://a/{date}.png".to_owned()];
        row.request.options.insert("duration".to_owned(), "job:voice-{n}".into());
        occasion().fill(&mut row);
        assert_eq!(row.request.image_urls, ["job:still-2026-11-21-0300", "https://a/{date}.png"]);
        assert_eq!(row.request.options["duration"], "job:voice-325");
        assert_eq!(row.id.as_deref(), Some("news-2026-11-21-0300"));
        assert_eq!(row.request.prompt.as_deref(), Some("Saturday at 03:00"));
        assert_eq!(row.request.text.as_deref(), Some("It is Saturday."));
        assert_eq!(row.request.mode.as_deref(), Some("{date}"));
        assert_eq!(row.request.options["lyrics"], "la 325");
        assert_eq!(row.request.options["seed"], "{n}");
    }
}
