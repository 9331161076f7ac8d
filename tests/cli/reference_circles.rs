//! Rows of different manifests that would be made from each other: they would be bought again at every drop.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use serde_json::Value;

use crate::support::TestEnv;

/// A manifest of pictures: the id of each, and the row that it is made from.
fn stills(rows: &[(&str, Option<&str>)]) -> String {
    let row = |(id, from): &(&str, Option<&str>)| {
        let mut row =
            serde_json::json!({"id": id, "kind": "image", "model": "gi-2", "prompt": format!("a fox, {id}")});
        if let Some(from) = from {
            row["image_urls"] = Value::from(vec![format!("job:{from}")]);
        }
        row
    };
    Value::from(rows.iter().map(row).collect::<Vec<_>>()).to_string()
}

#[test]
fn a_circle_over_two_batches_is_refused_and_buys_nothing_however_often_they_are_dropped() {
    let env = TestEnv::new();
    env.write("B.json", stills(&[("b1", None)]));
    env.write("A.json", stills(&[("a2", Some("B/b1"))]));
    env.run(["run", "B.json", "A.json"]).exited(0);
    env.write("B.json", stills(&[("b1", Some("A/a2"))]));
    for _ in 0..2 {
        for command in ["plan", "run"] {
            let refused = env.run([command, "B.json"]).exited(2);
            refused.says("\"job:A/a2\" makes a circle: B/b1 -> A/a2 -> B/b1");
        }
        env.run(["run", "A.json"]).exited(0).says("0 new (0 credits), 1 already there");
    }
    env.audit().each_paid_once(2);
    // A daemon says so, too.
    let daemon = env.daemon("info");
    env.run(["submit", "B.json"]).exited(2).says("makes a circle: B/b1 -> A/a2 -> B/b1");
    daemon.stop();
    // Batches may name rows of each other.
    env.write("B.json", stills(&[("b1", None), ("b9", Some("A/a2"))]));
    env.run(["run", "B.json"]).exited(0).says("1 new");
    env.run(["run", "A.json"]).exited(0).says("0 new (0 credits), 1 already there");
    env.audit().each_paid_once(3);
    // A backup of an earlier version does not say which batches its rows name: they are read.
    let backups = std::fs::read_dir(env.path("state/spool")).unwrap();
    for backup in backups.map(|dir| dir.unwrap().path().join("batch.json")).filter(|file| file.exists()) {
        let mut fields: Value = serde_json::from_slice(&std::fs::read(&backup).unwrap()).unwrap();
        let known = fields.as_object_mut().unwrap();
        assert!(known.remove("checksum").is_some() && known.remove("refers_to").is_some(), "{known:?}");
        std::fs::write(&backup, fields.to_string()).unwrap();
    }
    env.write("B.json", stills(&[("b1", Some("A/a2"))]));
    env.run(["plan", "B.json"]).exited(2).says("makes a circle: B/b1 -> A/a2 -> B/b1");
}

#[test]
fn a_circle_over_several_manifests_of_one_batch_is_refused() {
    let env = TestEnv::new();
    env.write("0.json", stills(&[("x", None)]));
    env.write("1.json", stills(&[("y", Some("own/x"))]));
    env.write("2.json", stills(&[("x", Some("own/y"))]));
    env.run(["run", "0.json", "--batch", "own"]).exited(0);
    env.run(["run", "1.json", "--batch", "own"]).exited(0);
    for _ in 0..2 {
        let refused = env.run(["run", "2.json", "--batch", "own"]).exited(2);
        refused.says("\"job:own/y\" makes a circle: own/x -> own/y -> own/x");
        env.run(["run", "1.json", "--batch", "own"]).exited(0).says("0 new (0 credits), 1 already there");
    }
    env.audit().each_paid_once(2);
}

#[test]
fn a_circle_is_seen_at_any_distance_and_by_a_plan_of_all_its_manifests() {
    let env = TestEnv::new();
    env.write("B.json", stills(&[("b1", None)]));
    env.write("A.json", stills(&[("a2", Some("B/b1"))]));
    env.write("C.json", stills(&[("c3", Some("A/a2")), ("c4", Some("c3"))]));
    let circle = "\"job:mid\" makes a circle: B/b1 -> B/mid -> C/c4 -> C/c3 -> A/a2 -> B/b1";
    env.write(
        "again.json",
        stills(&[("b1", Some("mid")), ("mid", Some("C/c4"))]).replacen('[', r#"{"batch": "B", "jobs": ["#, 1)
            + "}",
    );
    env.run(["plan", "B.json", "A.json", "C.json", "again.json"]).exited(2).says(circle);
    env.run(["run", "B.json", "A.json", "C.json"]).exited(0);
    env.run(["plan", "again.json"]).exited(2).says(circle);
    // What is in no circle is made.
    env.run(["run", "again.json"]).says(circle);
    env.audit().each_paid_once(5);
    env.run(["state", "verify"]).exited(0).says("all fits");
}
