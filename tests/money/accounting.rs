//! One storm, told by everybody: the jobs' results, the ledger, the report and the service's own account
//! name the same credits, for every kind and every model.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::TestEnv;
use crate::support::collect_outputs::Outputs;
use crate::support::fault_matrix::{SPEED, STUDIO_HOLD};
use callsheet_emulator::Options;

const ROWS_OF_EACH: usize = 12;

/// What somebody says about some jobs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Sums {
    jobs: u64,
    planned: u64,
    held: u64,
    charged: u64,
    waived: u64,
    refunded: u64,
    late: u64,
    states: BTreeMap<String, u64>,
}

/// The kinds and models of the rows, in turn.
fn rows() -> Vec<Value> {
    let each = |n: usize| {
        [
            json!({"id": format!("video:{n}"), "kind": "video", "model": "house-turbo", "prompt": format!("video {n}"), "duration": 5}),
            json!({"id": format!("film:{n}"), "kind": "video", "model": "house-c1", "prompt": format!("film {n}"), "duration": 2}),
            json!({"id": format!("free:{n}"), "kind": "image", "model": "gi-2", "prompt": format!("free {n}")}),
            json!({"id": format!("image:{n}"), "kind": "image", "model": "si-4", "prompt": format!("image {n}")}),
            json!({"id": format!("music:{n}"), "kind": "music", "prompt": format!("music {n}"), "duration_seconds": 10}),
            json!({"id": format!("speech:{n}"), "kind": "speech", "text": format!("speech {n}"), "voice_id": "aria"}),
            json!({"id": format!("sound:{n}"), "kind": "sound-effect", "prompt": format!("sound {n}"), "duration_seconds": 1}),
            json!({"id": format!("short:{n}"), "kind": "shorts-studio", "options": {"prompt": format!("short {n}")}, "max_credits": STUDIO_HOLD}),
        ]
    };
    (0..ROWS_OF_EACH).flat_map(each).collect()
}

/// The first word of a row's name or prompt: it decides kind and model.
fn group(name: &str) -> &str {
    name.split([':', ' ']).next().unwrap()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value:#}"))
}

/// As `results.jsonl` has it; what came back is not told there.
fn of_results(outputs: &Outputs) -> BTreeMap<String, Sums> {
    let mut groups = BTreeMap::<String, Sums>::new();
    for line in &outputs.lines {
        let sums = groups.entry(group(line["id"].as_str().unwrap()).to_owned()).or_default();
        sums.jobs += 1;
        sums.planned += line["price_credits"].as_u64().unwrap_or(STUDIO_HOLD);
        sums.charged += number(line, "charged_credits");
        sums.waived += number(line, "waived_credits");
        sums.late += u64::from(line["late"] == true);
        *sums.states.entry(line["state"].as_str().unwrap().to_owned()).or_default() += 1;
        let is_in_doubt = line["state"] == "in_doubt" && line["task_id"].is_null();
        sums.held += if is_in_doubt { STUDIO_HOLD } else { 0 };
    }
    groups
}

/// Held, charged, waived and given back, as the ledger adds up.
fn of_ledger(env: &TestEnv) -> BTreeMap<String, [i64; 4]> {
    let text = env.run(["ledger", "--csv"]).exited(0).stdout;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut groups = BTreeMap::<String, [i64; 4]>::new();
    let mut attempts_of_tasks = BTreeMap::new();
    for row in reader.deserialize::<BTreeMap<String, String>>().map(Result::unwrap) {
        let attempt = (row["job"].clone(), row["attempt"].clone());
        if !row["task_id"].is_empty() {
            let of_task = attempts_of_tasks.entry(row["task_id"].clone()).or_insert_with(|| attempt.clone());
            assert_eq!(*of_task, attempt, "a task belongs to one attempt");
        }
        let sums = groups.entry(group(&row["job"]).to_owned()).or_default();
        let credits = |name: &str| row[name].parse::<i64>().unwrap();
        sums[0] += credits("held_credits");
        sums[1] += credits("charged_credits");
        sums[2] += credits("waived_credits");
        sums[3] -= if row["movement"] == "refund" { credits("charged_credits") } else { 0 };
    }
    groups
}

/// Charged, waived and given back, as the service's own account has it, without the tasks whose outcome nobody
/// knows: of a row in doubt the last attempt's, if it made one. Those before it have ended, or there had been no
/// other attempt.
fn of_service(env: &TestEnv, outputs: &Outputs) -> BTreeMap<String, [u64; 3]> {
    let in_doubt = outputs.lines.iter().filter(|line| line["state"] == "in_doubt");
    let name = |line: &Value| line["id"].as_str().unwrap().replace(':', " ");
    let mut known: BTreeMap<String, u64> =
        in_doubt.map(|line| (name(line), number(line, "attempts") - 1)).collect();
    let mut is_known = |prompt: &str| match known.get_mut(prompt) {
        Some(0) => false,
        Some(left) => {
            *left -= 1;
            true
        }
        None => true,
    };
    let mut groups = BTreeMap::<String, [u64; 3]>::new();
    for task in env.audit().tasks.iter().filter(|task| is_known(&task.prompt)) {
        let sums = groups.entry(group(&task.prompt).to_owned()).or_default();
        sums[0] += task.net_credits();
        sums[1] += if task.status == "success" { task.waived_credits } else { 0 };
        sums[2] += task.charged_credits - task.net_credits();
    }
    groups
}

fn of_report(sums: &Value) -> Sums {
    Sums {
        jobs: number(sums, "jobs"),
        planned: number(sums, "planned_credits"),
        held: number(sums, "held_credits"),
        charged: number(sums, "charged_credits"),
        waived: number(sums, "waived_credits"),
        refunded: number(sums, "refunded_credits"),
        late: number(sums, "late"),
        states: serde_json::from_value(sums["states"].clone()).unwrap(),
    }
}

fn added(sums: &[&Sums]) -> Sums {
    let mut all = Sums::default();
    for one in sums {
        all.jobs += one.jobs;
        all.planned += one.planned;
        all.held += one.held;
        all.charged += one.charged;
        all.waived += one.waived;
        all.refunded += one.refunded;
        all.late += one.late;
        for (state, n) in &one.states {
            *all.states.entry(state.clone()).or_default() += n;
        }
    }
    all
}

/// A service in a storm, and a batch of everything.
fn in_a_storm() -> TestEnv {
    let env = TestEnv::with(Options { speed: SPEED, ..Options::default() });
    env.account(&json!({"plan": "pro"}));
    env.configure_service("plan = 'pro'\n", "[limits]\nin_flight = 32\npause_after_rejections = 1000");
    let rows: String = rows().iter().map(|row| format!("{row}\n")).collect();
    env.write("batch.jsonl", rows);
    // The catalogs are asked for once, before anything is at stake: they come before the storm.
    env.run(["plan", "batch.jsonl"]).exited(0);
    env.faults("storm");
    env
}

#[test]
fn results_ledger_report_and_account_name_the_same_credits() {
    let env = in_a_storm();
    // A storm refuses the key for a moment, and the run ends; the same command resumes.
    let mut resumed = (0..100).map(|_| env.run(["run", "--json", "batch.jsonl"]));
    let run = resumed.find(|run| !matches!(run.code, Some(3 | 4))).unwrap();
    assert!(matches!(run.code, Some(0 | 1 | 7)), "{run:#?}");
    let outputs = Outputs::of(&env, "batch");
    outputs.is_whole();
    let mut groups = of_results(&outputs);
    let (ledger, service) = (of_ledger(&env), of_service(&env, &outputs));
    for (name, sums) in &mut groups {
        let [held, charged, waived, refunded] = ledger[name].map(|n| u64::try_from(n).unwrap());
        assert_eq!((sums.held, sums.charged, sums.waived), (held, charged, waived), "{name}: the ledger");
        let theirs = service.get(name).copied().unwrap_or_default();
        assert_eq!([charged, waived, refunded], theirs, "{name}: the service's account");
        sums.refunded = refunded;
    }

    let report = outputs.report();
    let of = |names: &[&str]| added(&names.iter().map(|name| &groups[*name]).collect::<Vec<_>>());
    for (kind, names) in [
        ("video", &["video", "film"][..]),
        ("image", &["free", "image"]),
        ("music", &["music"]),
        ("speech", &["speech"]),
        ("sound-effect", &["sound"]),
        ("shorts-studio", &["short"]),
    ] {
        assert_eq!(of_report(&report["by_kind"][kind]), of(names), "{kind}");
    }
    for (model, name) in [("house-turbo", "video"), ("house-c1", "film"), ("gi-2", "free"), ("si-4", "image")]
    {
        assert_eq!(of_report(&report["by_model"][model]), of(&[name]), "{model}");
    }
    let all = added(&groups.values().collect::<Vec<_>>());
    assert_eq!(of_report(&report["total"]), all);
    assert!(all.refunded > 0 && all.waived > 0, "the storm was one: {all:?}");

    let batch = &run.json()["batches"][0];
    let batch =
        ["planned", "held", "charged", "waived", "refunded"].map(|n| number(batch, &format!("{n}_credits")));
    assert_eq!(batch, [all.planned, all.held, all.charged, all.waived, all.refunded], "the batch");
    lists_what_stands_out(&report, &outputs);
}

/// Every job that failed, is in doubt, is late or differs from its plan is named, and no other.
fn lists_what_stands_out(report: &Value, outputs: &Outputs) {
    let listed = |name: &str| -> Vec<&str> {
        report[name].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect()
    };
    let named = |wanted: &dyn Fn(&Value) -> bool| -> Vec<&str> {
        outputs.lines.iter().filter(|line| wanted(line)).map(|line| line["id"].as_str().unwrap()).collect()
    };
    assert_eq!(listed("failed"), named(&|line| line["state"] == "failed"));
    assert_eq!(listed("in_doubt"), named(&|line| line["state"] == "in_doubt"));
    assert_eq!(listed("late"), named(&|line| line["late"] == true));
    // One line for each way in which it differs.
    let mut drift = listed("drift");
    drift.dedup();
    assert_eq!(drift, named(&|line| line["drift"] != json!([])));
}
