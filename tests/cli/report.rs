//! `callsheet report`: the books by client, kind, model, batch and day.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::TestEnv;

const MANIFEST: &str = "id,kind,model,prompt,duration,meta.client\n\
                        a1,image,gi-2,A compass,,acme\n\
                        a2,video,house-c1,A paper boat,5s,acme\n\
                        b1,image,gi-2,A harbour,,beta\n\
                        n1,image,gi-2,A gull,,\n";

fn report(env: &TestEnv, flags: &[&str]) -> String {
    env.run(["report"].iter().chain(flags).copied()).exited(0).stdout
}

#[test]
fn credits_are_added_up_by_whatever_the_rows_say() {
    let env = TestEnv::new();
    env.write("one.csv", MANIFEST);
    env.write("two.csv", "id,kind,prompt,meta.client\nw,sound-effect,Wind,beta\n");
    env.run(["run", "one.csv", "two.csv"]).exited(0);
    assert_snapshot!(report(&env, &["--by", "meta.client", "--csv"]), @r"
    meta.client,held_credits,charged_credits,waived_credits,refunded_credits,files,failures
    ,0,8,0,0,1,0
    acme,0,18,0,0,2,0
    beta,0,13,0,0,2,0
    ");
    assert_eq!(report(&env, &["one", "one"]), report(&env, &["one"]), "a batch is added up once");
    assert_snapshot!(report(&env, &["--by", "kind", "--csv"]), @r"
    kind,held_credits,charged_credits,waived_credits,refunded_credits,files,failures
    image,0,24,0,0,3,0
    sound-effect,0,5,0,0,1,0
    video,0,10,0,0,1,0
    ");
    // A model's charges and files are in one line, whatever its row calls it.
    let by_model = report(&env, &["--by", "model", "--csv"]);
    for line in by_model.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        assert!(!cells[0].is_empty() && cells[2] != "0" && cells[5] != "0", "{by_model}");
    }
    let shown = report(&env, &[]);
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["batch", "held", "charged", "waived", "refunded", "files", "failures"]);
    assert_eq!(
        rows[1..],
        [
            vec!["one", "0", "34", "0", "0", "4", "0"],
            vec!["two", "0", "5", "0", "0", "1", "0"],
            vec!["total", "0", "39", "0", "0", "5", "0"],
        ]
    );
    let json = |flags: &[&str]| -> Value { serde_json::from_str(&report(&env, flags)).unwrap() };
    let of_batch = json(&["two", "--by", "meta.client", "--json"]);
    assert_eq!(of_batch["groups"][0]["key"], "beta");
    assert_eq!(of_batch["total"]["charged_credits"], 5);
    let of_day = json(&["--by", "day", "--json"]);
    assert_eq!(of_day["total"]["charged_credits"], 39);
    assert_eq!(of_day["groups"][0]["key"].as_str().unwrap().len(), "2026-11-01".len());
    // Nothing happened from tomorrow on, and everything in the last day.
    assert_eq!(json(&["--since", "2999-01-01", "--json"])["total"]["charged_credits"], 0);
    assert_eq!(json(&["--since", "1d", "--json"])["total"]["charged_credits"], 39);
    // The books of the service say the same.
    assert_eq!(env.audit().totals.charged_credits, 39);
    let ledger = env.run(["ledger", "--csv"]).exited(0).stdout;
    let acme = r#",image,gi-2,"{""client"":""acme""}",false"#;
    assert!(ledger.lines().any(|line| line.ends_with(acme)), "{ledger}");
    assert_eq!(
        json(&["--by", "meta.Client", "--json"])["groups"],
        json(&["--by", "meta.client", "--json"])["groups"]
    );
    env.run(["report", "--by", "client"]).exited(2).says("expected batch, kind, model, day or meta.NAME");
}

#[test]
fn what_is_refunded_failed_and_held_is_told_apart() {
    let env = TestEnv::new();
    env.write("batch.csv", MANIFEST);
    env.run(["run", "batch.csv", "--budget", "8"]).exited(4);
    let shown: Value = serde_json::from_str(&report(&env, &["--json"])).unwrap();
    let status: Value = serde_json::from_str(&env.run(["status", "--json"]).exited(0).stdout).unwrap();
    let batch = &status["batches"][0];
    for (of_report, of_status) in [
        ("charged_credits", "charged_credits"),
        ("waived_credits", "waived_credits"),
        ("refunded_credits", "refunded_credits"),
    ] {
        assert_eq!(shown["total"][of_report], batch[of_status], "{of_report}: {shown} {status}");
    }
}
