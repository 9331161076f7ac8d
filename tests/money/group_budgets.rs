//! Budgets of clients and of inboxes: over batches, restarts, a rebuild, a limit that is new, and a reload.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use rustix::process::Signal;

use crate::support::{TestEnv, until};

/// What an image of `gi-2` costs.
const IMAGE: u64 = 8;

/// A manifest of images, one for each client; an empty one is nobody's.
fn manifest(clients: &[&str]) -> String {
    let row = |(n, client): (usize, &&str)| format!("image-{n},image,gi-2,a harbour {n},{client}\n");
    let rows: String = clients.iter().enumerate().map(row).collect();
    format!("id,kind,model,prompt,meta.client\n{rows}")
}

fn limited(env: &TestEnv, section: &str) {
    env.configure(&format!("[budget.by.\"meta.client\"]\n{section}"));
}

fn spent(env: &TestEnv) -> u64 {
    let totals = env.audit().totals;
    totals.charged_credits - totals.refunded_credits
}

#[test]
fn a_client_spends_no_more_than_its_limit_whatever_its_batches() {
    let env = TestEnv::new();
    limited(&env, "default = 16\nvalues = { zen = 8 }");
    env.write("a.csv", manifest(&["acme", "zen", "zen", ""]));
    let missing = "a: the next job of meta.client zen needs 8, 0 of 8 credits are left: 8 are missing; set \
                   budget.by.\"meta.client\".values.zen to at least 16";
    env.run(["run", "a.csv"]).exited(4).says("parked: the budget of a client").says(missing);
    assert_eq!(spent(&env), 3 * IMAGE, "a row without a client is not limited");
    env.write("b.csv", manifest(&["acme", "acme"]));
    let plan = env.run(["plan", "b.csv"]).exited(0);
    let short = "budget: meta.client acme may spend 16 in total, 8 are left: 8 short, so jobs will wait for a larger limit";
    assert!(plan.stdout.contains(short), "{}", plan.stdout);
    let plan = env.run(["plan", "b.csv", "--json"]).exited(0).json();
    assert_eq!(plan["group_budgets"][0]["setting"], "budget.by.\"meta.client\".values.acme", "{plan}");
    assert_eq!(plan["group_budgets"][0]["enough_credits"], 24, "{plan}");
    env.run(["run", "b.csv"]).exited(4);
    assert_eq!(spent(&env), 4 * IMAGE, "one is left for the first client");

    let status = env.run(["status", "b", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["parked_by"], "group_budget", "{status}");
    let shortage = &status["batches"][0]["budget_shortage"];
    assert_eq!((&shortage["group"], &shortage["enough_credits"]), (&"meta.client acme".into(), &24.into()));
    env.run(["status"]).exited(0).says(missing);
    let explained = env.run(["explain", "b/image-1"]).exited(0);
    assert!(explained.stdout.contains("next job of meta.client acme needs 8"), "{}", explained.stdout);
    let verified = env.run(["state", "verify"]).exited(0);
    assert!(verified.stderr.contains("all fits"), "{}", verified.stderr);

    // What was spent is counted again from what is left.
    env.run(["state", "rebuild"]).exited(0);
    env.run(["resume"]).exited(0);
    env.run(["run", "a.csv", "b.csv"]).exited(4);
    assert_eq!(spent(&env), 4 * IMAGE);
    limited(&env, "default = 24\nvalues = { zen = 16 }");
    env.run(["run", "a.csv", "b.csv"]).exited(0);
    assert_eq!(spent(&env), 6 * IMAGE);
    env.audit().each_paid_once(6);
}

#[test]
fn a_column_in_another_case_is_of_the_same_client() {
    let env = TestEnv::new();
    limited(&env, "default = 10000\nvalues = { acme = 8 }");
    let rows = [vec!["acme"; 40], vec!["beta"; 4]].concat();
    env.write("a.csv", manifest(&rows).replace("meta.client", "meta.Client"));
    env.run(["run", "a.csv"]).exited(4).says("parked: the budget of a client");
    assert_eq!(spent(&env), 5 * IMAGE, "one is left for acme, and all of the other client");
}

#[test]
fn a_row_does_not_leave_the_client_of_its_inbox_by_a_column_in_another_case() {
    let env = TestEnv::new();
    env.configure(
        "[budget.by.\"meta.Client\"]\ndefault = 8\n[[inbox]]\npath = \"acme\"\nsettle = \"50ms\"\nmeta = { client = \"acme\" }",
    );
    env.write("acme/one.csv", manifest(&["vip", "vip"]).replace("meta.client", "meta.Client"));
    let daemon = env.daemon("info");
    until("the limit", || {
        let status = env.run(["status", "--json"]).exited(0).json();
        status["batches"][0]["parked_by"] == "group_budget"
    });
    assert_eq!(spent(&env), IMAGE);
    let status = env.run(["status", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["budget_shortage"]["group"], "meta.Client acme", "{status}");
    daemon.stop();
}

#[test]
fn a_job_is_told_the_limit_of_its_own_client() {
    let env = TestEnv::new();
    limited(&env, "values = { acme = 8, blue = 100 }\nper_day = { values = { blue = 8 } }");
    env.write("a.csv", manifest(&["acme", "acme", "blue", "blue"]));
    env.run(["run", "a.csv"]).exited(4);
    for (job, missing) in [
        ("a/image-1", "the next job of meta.client acme needs 8, 0 of 8 credits are left"),
        ("a/image-3", "the next job of meta.client blue needs 8, 0 of 8 credits are left"),
    ] {
        let explained = env.run(["explain", job]).exited(0).stdout;
        assert!(explained.contains(missing), "{explained}");
    }
    let explained = env.run(["explain", "a/image-3", "--json"]).exited(0).json();
    assert_eq!(explained["parked_by"], "group_day_budget", "{explained}");
}

#[test]
fn a_limit_that_is_new_counts_what_was_spent_before() {
    let env = TestEnv::new();
    env.write("a.csv", manifest(&["acme", "acme"]));
    env.run(["run", "a.csv"]).exited(0);
    limited(&env, "default = 20");
    env.write("b.csv", manifest(&["acme"]));
    env.run(["run", "b.csv"]).exited(4).says("4 of 20 credits are left: 4 are missing");
    // A process without these budgets spends past them, and the next one that has them knows.
    env.configure("");
    env.run(["run", "b.csv"]).exited(0);
    limited(&env, "default = 32");
    env.write("c.csv", manifest(&["acme", "acme"]));
    env.run(["run", "c.csv"]).exited(4);
    assert_eq!(spent(&env), 4 * IMAGE);
}

#[test]
fn a_reload_puts_limits_of_groups_in_force() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    env.write("a.csv", manifest(&["acme", "zen"]));
    env.run(["submit", "a.csv", "--wait"]).exited(0);
    let reload = |section: &str, times: usize| {
        limited(&env, section);
        daemon.signal(Signal::HUP);
        until("the reload", || daemon.said().matches("configuration reloaded").count() == times);
    };
    reload("missing = 8", 1);
    reload("default = 8\nmissing = 8", 2);
    env.write("b.csv", manifest(&["acme", "", ""]));
    env.run(["submit", "b.csv", "--wait"]).exited(4).says("parked: the budget of a client");
    assert_eq!(spent(&env), 3 * IMAGE, "what was spent before the limit counts");
    let status = env.run(["status", "b", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["parked_by"], "group_budget", "{status}");
    env.write("c.csv", manifest(&["zen", "ace"]));
    let plan = env.run(["plan", "c.csv"]).exited(0);
    assert!(
        plan.stdout.contains("meta.client zen may spend 8 in total, 0 are left: 8 short"),
        "{}",
        plan.stdout
    );
    assert!(!plan.stdout.contains("meta.client ace"), "{}", plan.stdout);
    reload("default = 16\nmissing = 16", 3);
    env.run(["submit", "b.csv", "--wait"]).exited(0);
    assert_eq!(spent(&env), 5 * IMAGE);
    daemon.stop();
}

#[test]
fn an_inbox_has_a_limit_over_all_its_batches() {
    let env = TestEnv::new();
    env.configure(
        "[[inbox]]\npath = \"acme\"\nsettle = \"50ms\"\n[[inbox]]\npath = \"zen\"\nsettle = \"50ms\"\n\
         [budget.by.inbox]\ndefault = 8\nvalues = { zen = 100 }",
    );
    for (inbox, name) in [("acme", "one"), ("acme", "two"), ("zen", "one"), ("zen", "two")] {
        env.write(&format!("{inbox}/{name}.csv"), manifest(&[""]));
    }
    let daemon = env.daemon("info");
    let parked = || {
        let status = env.run(["status", "--json"]).exited(0).json();
        let batches = status["batches"].as_array().unwrap().clone();
        let of = |state: &str| batches.iter().filter(|batch| batch["state"] == state).count();
        (of("parked"), of("done")) == (1, 3)
    };
    until("one of the batches to be parked", parked);
    assert_eq!(spent(&env), 3 * IMAGE);
    env.run(["status"]).exited(0).says("set budget.by.inbox.values.acme to at least 16");
    // Its batches stay with it, whoever adds to them.
    env.write("more.csv", manifest(&["", "", ""]));
    let plan = env.run(["plan", "more.csv", "--batch", "acme--one", "--json"]).json();
    assert_eq!(plan["group_budgets"][0]["setting"], "budget.by.inbox.values.acme", "{plan}");
    daemon.stop();
}

#[test]
fn a_client_at_its_limit_holds_up_no_other_of_the_same_manifest() {
    let env = TestEnv::new();
    limited(&env, "values = { acme = 8 }");
    let mut clients = vec!["acme"; 400];
    clients.extend(["beta", "gaia", ""]);
    env.write("a.csv", manifest(&clients));
    let short = "budget: meta.client acme may spend 8 in total, 8 are left: 3192 short, so jobs will wait for a larger limit";
    env.run(["run", "a.csv"]).exited(4).says(short);
    assert_eq!(spent(&env), 4 * IMAGE, "the first of acme, and all others");
    env.run(["state", "verify"]).exited(0);
}
