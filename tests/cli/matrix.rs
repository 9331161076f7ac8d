//! Rows that a matrix makes: what is planned, bought and told, and where its tables may come from.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::support::{TestEnv, eventually};

const MANIFEST: &str = r#"{
  "batch": "shop",
  "matrix": {"product": "tables/products.csv", "locale": ["en", "de"]},
  "jobs": [
    {"id": "still-{{ product.sku }}", "kind": "image", "model": "gi-2", "prompt": "a {{ product.name }}"},
    {"id": "voice-{{ product.sku }}-{{ locale }}", "kind": "speech", "voice_id": "aria", "text": "{{ locale }}: {{ product.name }}"}
  ]
}"#;
const PRODUCTS: &str = "sku,name\nA-1,red mug\nB-2,blue bowl\n";

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("shop.json", MANIFEST);
    env.write("tables/products.csv", PRODUCTS);
    env
}

fn receipt(env: &TestEnv, path: &str) -> Value {
    eventually("a receipt", || {
        fs::read(env.path(path)).ok().and_then(|text| serde_json::from_slice(&text).ok())
    })
}

fn drop_in(env: &TestEnv, name: &str, content: &str) {
    let temporary = env.write(&format!("jobs/inbox/.{name}.tmp"), content);
    fs::rename(temporary, env.path(&format!("jobs/inbox/{name}"))).unwrap();
}

#[test]
fn another_product_adds_its_rows_and_buys_nothing_else_again() {
    let env = env();
    env.run(["run", "shop.json"]).exited(0).says("batch shop: 6 new");
    for file in ["still-A-1.png", "voice-B-2-de.wav"] {
        assert!(env.path(&format!("output/shop/{file}")).exists(), "{file}");
    }
    // From another directory, in another order, with another product.
    env.write("tables/products.csv", "sku,name\nC-3,oak tray\nB-2,blue bowl\nA-1,red mug\n");
    env.run(["run", "shop.json"]).exited(0).says("3 new").says("6 already there");
    // The text of one product is edited: only its rows are new.
    env.write("tables/products.csv", "sku,name\nC-3,oak tray\nB-2,blue bowl\nA-1,green mug\n");
    let plan = env.run(["plan", "shop.json", "--json"]).exited(0).json();
    let verdict = |id: &str| {
        plan["rows"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap()["verdict"].clone()
    };
    assert_eq!((verdict("still-A-1"), verdict("still-B-2")), ("changed".into(), "done".into()), "{plan:#}");
    env.audit().each_paid_once(9);
}

#[test]
fn tables_reach_a_daemon_with_the_manifest() {
    let env = env();
    let daemon = env.daemon("info");
    env.run(["submit", "shop.json", "--wait"]).exited(0).says("6 new");
    daemon.stop();
    env.run(["run", "shop.json"]).exited(0).says("0 new (0 credits), 6 already there");
    env.audit().each_paid_once(6);
}

#[test]
fn a_daemon_reads_tables_only_where_its_configuration_allows() {
    let env = TestEnv::new();
    env.write("shared/products.csv", PRODUCTS);
    env.write("secret/products.csv", "sku,name\nS-1,secret\n");
    symlink(env.path("secret/products.csv"), env.path("shared/link.csv")).unwrap();
    let shared = env.path("shared");
    let manifest = |table: &str| {
        let table = shared.join(table).display().to_string();
        MANIFEST.replace("tables/products.csv", &table).replace("\"batch\": \"shop\",", "")
    };
    let daemon = env.daemon("info");
    eventually("the inbox", || env.path("jobs/inbox").exists().then_some(()));
    drop_in(&env, "denied.json", &manifest("products.csv"));
    let denied = receipt(&env, "jobs/rejected/denied.json.receipt.json");
    assert_eq!(denied["problems"][0]["field"], "matrix.product");
    let message = denied["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains("is not a file below a folder of inputs.roots"), "{message}");
    daemon.stop();

    env.configure(&format!("[inputs]\nroots = [\"{}\"]", shared.display()));
    let daemon = env.daemon("info");
    drop_in(&env, "allowed.json", &manifest("products.csv"));
    assert_eq!(receipt(&env, "jobs/accepted/allowed.json.receipt.json")["new"], 6);
    for table in ["link.csv", "../secret/products.csv", "gone.csv"] {
        let name = format!("{}.json", table.replace(['/', '.'], "-"));
        drop_in(&env, &name, &manifest(table));
        let receipt = receipt(&env, &format!("jobs/rejected/{name}.receipt.json"));
        let message = receipt["problems"][0]["message"].as_str().unwrap();
        assert!(message.contains("is not a file below") && !message.contains("secret,"), "{message}");
    }
    daemon.stop();
}

#[test]
fn a_template_that_would_run_for_ever_stops_no_inbox() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    eventually("the inbox", || env.path("jobs/inbox").exists().then_some(()));
    let nested =
        "{% set n=namespace(a=[1]) %}{% for i in range(30000) %}{% set n.a=[n.a] %}{% endfor %}{{p}}";
    let doubled =
        format!("{{% set a = [1] %}}{}{{{{ a|length }}}}{{{{ p }}}}", "{% set a = a + a %}".repeat(60));
    for (name, template) in [("nested.json", nested), ("doubled.json", doubled.as_str())] {
        let manifest = serde_json::json!({
            "matrix": {"p": ["a"]},
            "jobs": [{"kind": "sound-effect", "prompt": template}]
        });
        drop_in(&env, name, &manifest.to_string());
        let refused = receipt(&env, &format!("jobs/rejected/{name}.receipt.json"));
        assert_eq!(refused["problems"][0]["field"], "prompt", "{refused:#}");
    }
    drop_in(&env, "good.csv", "kind,prompt\nsound-effect,a bell\n");
    assert_eq!(receipt(&env, "jobs/accepted/good.csv.receipt.json")["new"], 1);
    daemon.stop();
}

#[test]
fn what_is_wrong_is_said_before_anything_is_sent() {
    let env = env();
    env.write("tables/products.csv", "sku,title\nA-1,red mug\n");
    env.run(["run", "shop.json"])
        .exited(2)
        .says("\"product.name\" is not defined for this combination")
        .says("with product.sku \"A-1\"");
    fs::remove_file(env.path("tables/products.csv")).unwrap();
    env.run(["run", "shop.json"]).exited(2).says("shop.json:3:25: matrix.product: failed to read the table");
    env.audit().each_paid_once(0);
}
