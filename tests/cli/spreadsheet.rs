//! Manifests as spreadsheets and people write them, and all that is wrong with a file at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use insta::assert_snapshot;

use crate::support::TestEnv;

const SPREADSHEET: &str = "\
ID;Kind;Model;Prompt;Duration;Aspect Ratio;Duration Seconds;Meta.Client
boat;Video;House-C1;A paper boat;5 s;16:09;;acme
wind;Sound Effect;;Wind in the rigging;;;1,5;acme
";

#[test]
fn a_spreadsheet_is_read_as_it_was_meant_and_says_how() {
    let env = TestEnv::new();
    env.write("sheet.csv", SPREADSHEET);
    let outcome = env.run(["run", "sheet.csv"]).exited(0);
    let said: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("sheet.csv")).collect();
    assert_snapshot!(said.join("\n"), @r#"
    sheet.csv:2:12: model: "House-C1" is read as house-c1 (note)
    sheet.csv:2:34: options.duration: "5 s" is read as 5s (note)
    sheet.csv:2:38: options.aspect_ratio: "16:09" is read as 16:9 (note)
    sheet.csv:3:42: Duration Seconds: "1,5" is read as 1.5 (note)
    sheet.csv: batch sheet: 2 new (15 credits)
    "#);
    env.audit().each_paid_once(2);
    // The same file again finds both.
    env.run(["run", "sheet.csv"]).exited(0).says("2 already there");
    env.audit().each_paid_once(2);
}

#[test]
fn all_problems_of_a_file_and_of_each_row_are_said_at_once() {
    let env = TestEnv::new();
    let text = "id,kind,modle,prompt,duration,deadline,count\n\
                a,video,house-c1,A boat,99s,soon,1\n\
                b,image,gi-9,A gull,,30m,many\n\
                c,image,gi-2,A harbour,,30m,1\n";
    env.write("batch.csv", text);
    let outcome = env.run(["run", "batch.csv"]).exited(2);
    assert_snapshot!(env.plain(&outcome.stderr), @r#"
    batch.csv:1:9: modle: unknown column; did you mean "model"? (hint: "options.modle" would be sent to the service, "meta.modle" kept for the results)
    batch.csv:2:25: options.duration: found "99s"; house-c1 takes 1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 9s, 10s, 11s, 12s, 13s, 14s or 15s in text-to-video
    batch.csv:2:29: deadline: found "soon", expected a span such as 30m or 2h 30m, or an instant such as 2026-12-01T08:00:00Z
    batch.csv:3:9: model: "gi-9" is not in the image catalog, which lists 8 (hint: did you mean gi-2?)
    batch.csv:3:26: count: found "many", expected a whole number from 1 to 1000
    batch.csv: nothing was accepted
    "#);
    assert_eq!(env.audit().totals.tasks, 0);
    // With the heading mended, the same problems of rows, and the good row is made.
    env.write("batch.csv", text.replace("modle", "model"));
    let mended = env.run(["run", "batch.csv"]).exited(2);
    let of_rows = |said: &str| {
        let rows =
            said.lines().filter(|line| line.starts_with("batch.csv:2:") || line.starts_with("batch.csv:3:"));
        rows.map(|line| line.replace("modle", "model")).collect::<Vec<_>>()
    };
    assert_eq!(of_rows(&mended.stderr), of_rows(&outcome.stderr));
    env.audit().each_paid_once(1);
}

#[test]
fn a_bad_policy_hides_no_row() {
    let env = TestEnv::new();
    let text = r#"{
  "policy": {"budget": "much", "on_drift": "stop"},
  "jobs": [
    {"id": "a", "kind": "image", "model": "gi-9", "prompt": "A gull"},
    {"id": "b", "kind": "image", "model": "gi-2", "prompt": "A harbour"}
  ]
}"#;
    env.write("batch.json", text);
    let outcome = env.run(["run", "batch.json"]).exited(2);
    assert_snapshot!(env.plain(&outcome.stderr), @r#"
    batch.json:2:24: policy.budget: found "much", expected a whole number of credits, 0 or more
    batch.json:2:44: policy.on_drift: found "stop", expected one of report, pause
    batch.json:4:43: model: "gi-9" is not in the image catalog, which lists 8 (hint: did you mean gi-2?)
    batch.json: nothing was accepted
    "#);
    assert_eq!(env.audit().totals.tasks, 0);
}

#[test]
fn all_problems_of_a_configuration_are_said_at_once() {
    let env = TestEnv::new();
    env.write("batch.csv", "id,kind,model,prompt\na,image,gi-2,A gull\n");
    env.write(
        "bad.toml",
        "[limits]\nin_flight = \"many\"\n[service]\nbase_ulr = \"https://x\"\n[output]\nlayout = 5\n",
    );
    let outcome = env.run(["plan", "batch.csv", "--config", "bad.toml"]).exited(2);
    assert_snapshot!(env.plain(&outcome.stderr), @r#"
    error: bad.toml:2: limits.in_flight: found "many", expected a whole number, 0 or more
    error: bad.toml:4: unknown key `base_ulr`: did you mean `base_url`?
    error: bad.toml:6: output.layout: found 5, expected a text in quotes
    "#);
    let doctor = env.run(["doctor", "--config-only", "--config", "bad.toml"]).exited(2);
    for place in ["bad.toml:2: limits.in_flight", "bad.toml:4: unknown key", "bad.toml:6: output.layout"] {
        assert!(doctor.stdout.contains(&format!("WRONG   config    {place}")), "{}", doctor.stdout);
    }
}
