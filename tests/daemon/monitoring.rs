//! Dashboard, alert rules and documentation speak of the metrics that there are, and of no others.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use callsheet::domain::credits::Credits;
use callsheet::domain::gauge_values::Gauges;
use callsheet::domain::job_state::JobState;
use callsheet::domain::parked_reason::Parked;
use callsheet::domain::time::Millis;
use callsheet::metrics::{Answer, Endpoint, Metrics};
use serde_json::Value;

/// Every series that there can be.
fn everything() -> String {
    let metrics = Metrics::new();
    for endpoint in Endpoint::all() {
        for answer in Answer::ALL {
            metrics.request(endpoint, answer, Duration::from_millis(5));
        }
    }
    metrics.poll_late(Millis(1));
    metrics.flushed(Duration::from_micros(300));
    let room = Some(Credits(1));
    metrics.set_gauges(&Gauges {
        jobs: JobState::ALL.into_iter().map(|state| ((state, None), 1)).collect(),
        room_total: room,
        room_day: room,
        room_min_balance: room,
        parked: BTreeMap::from([(Parked::Key, 1)]),
        ..Gauges::default()
    });
    metrics.render()
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Every expression of the dashboard: whatever is called `expr`, at any depth, and what variables ask for.
fn of_dashboard() -> Vec<String> {
    fn gather(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    match value.as_str().filter(|_| name == "expr" || name == "definition") {
                        Some(text) => found.push(text.to_owned()),
                        None => gather(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| gather(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    let dashboard = serde_json::from_str(&read("docs/monitoring/grafana-dashboard.json")).unwrap();
    gather(&dashboard, &mut found);
    found
}

/// Every expression of the alert rules: `expr:` and, after a bar, the deeper lines below it.
fn of_alerts() -> Vec<String> {
    let text = read("docs/monitoring/alerts.yml");
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("expr: ") else { continue };
        let below = lines[at + 1..].iter().take_while(|below| indent(below) > indent(line));
        found.push(match rest {
            "|" => below.map(|below| below.trim()).collect::<Vec<_>>().join(" "),
            one_line => one_line.to_owned(),
        });
    }
    assert_eq!(found.len(), text.matches("- alert: ").count(), "one expression for each alert");
    found
}

/// The metrics of an expression, each with the text between its braces.
fn selectors(expression: &str) -> Vec<(String, String)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = expression.match_indices("callsheet_").map(|(at, _)| &expression[at..]);
    let selector = |text: &str| {
        let name: String = text.chars().take_while(|c| is_name(*c)).collect();
        let braces = text[name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        (name, braces.map(|(inside, _)| inside.to_owned()).unwrap_or_default())
    };
    starts.map(selector).collect()
}

/// What is wrong with a selector: no series of that name, or none with such a label.
fn complaint(rendered: &str, name: &str, matchers: &str) -> Option<String> {
    let series: Vec<&str> = rendered
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
        .collect();
    if series.is_empty() {
        return Some(format!("there is no {name}"));
    }
    // `instance` and `job` are added by who scrapes.
    let matchers = matchers.split(',').filter(|matcher| !matcher.is_empty());
    for matcher in matchers.filter(|matcher| !matcher.starts_with("instance")) {
        let (label, values) = matcher.split_once(['=', '!']).unwrap();
        let values = values.trim_start_matches(['=', '~']).trim_matches('"');
        for value in values.split('|') {
            let wanted = format!("{label}=\"{value}\"");
            if !series.iter().any(|line| line.contains(&wanted)) {
                return Some(format!("{name} has no {wanted}"));
            }
        }
    }
    None
}

#[test]
fn dashboard_and_alerts_ask_for_what_there_is() {
    let rendered = everything();
    for (file, expressions) in [("dashboard", of_dashboard()), ("alerts", of_alerts())] {
        assert!(expressions.len() > 10, "{file}: its expressions were not found");
        for expression in expressions {
            let selectors = selectors(&expression);
            assert!(!selectors.is_empty(), "{file}: no metric of ours: {expression}");
            for (name, matchers) in selectors {
                let wrong = complaint(&rendered, &name, &matchers);
                assert_eq!(wrong, None, "{file}: {expression}");
            }
        }
    }
}

#[test]
fn a_wrong_name_or_label_is_found_out() {
    let rendered = everything();
    let complaint = |name: &str, matchers: &str| complaint(&rendered, name, matchers);
    assert_eq!(complaint("callsheet_jobs", "state=~\"queued|running\""), None);
    assert!(complaint("callsheet_job", "").is_some());
    assert!(complaint("callsheet_requests", "").is_some(), "the series is called _total");
    assert!(complaint("callsheet_jobs", "state=~\"queued|runing\"").is_some());
}

#[test]
fn files_that_move_well_do_not_hide_a_service_that_is_down() {
    let text = read("docs/monitoring/alerts.yml");
    let of = |alert: &str| {
        let begin = text.find(&format!("- alert: {alert}\n")).unwrap();
        text[begin..].split("- alert: ").nth(1).unwrap().to_owned()
    };
    for (_, matchers) in selectors(&of("CallsheetServiceDown")) {
        assert!(matchers.contains("endpoint!~\"results|store\""), "{matchers}");
    }
    for reason in ["store", "scratch", "result_host"] {
        assert!(of("CallsheetStoreRefused").contains(reason), "nobody hears of {reason}");
    }
}

/// Name, type and help of every metric, from the lines that announce it.
fn announced(rendered: &str) -> BTreeSet<[String; 3]> {
    let mut helps: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for line in rendered.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            helps.insert(name, help.trim_end_matches('.'));
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            found.insert([name.to_owned(), kind.to_owned(), helps[name].to_owned()]);
        }
    }
    found
}

#[test]
fn the_documentation_lists_every_metric() {
    let text = read("docs/monitoring.md");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = text.lines().filter(|line| line.starts_with("| `callsheet_")).map(cells);
    let listed: BTreeSet<[String; 3]> =
        rows.map(|row| [row[1].trim_matches('`').to_owned(), row[2].clone(), row[5].clone()]).collect();
    assert_eq!(listed, announced(&everything()));
}

#[test]
fn the_documentation_lists_every_value_of_a_label() {
    let (text, rendered) = (read("docs/monitoring.md"), everything());
    for label in ["state", "kind", "budget", "endpoint", "answer", "reason"] {
        let begin = format!("| `{label}` | ");
        let row = text.lines().find_map(|line| line.strip_prefix(&begin)).unwrap();
        let opening = format!("{label}=\"");
        let values = rendered.split(opening.as_str()).skip(1).filter_map(|rest| rest.split('"').next());
        for value in values.collect::<BTreeSet<_>>() {
            assert!(row.contains(&format!("`{value}`")), "{label} {value} is not in: {row}");
        }
    }
}
