//! `callsheet init`: what it writes works as it stands, and it overwrites nothing.

use crate::support::TestEnv;

#[test]
fn what_it_writes_can_be_run_at_once() {
    let env = TestEnv::new();
    let said = env.run(["init", "studio", "--base-url", &env.base_url()]).exited(0).stdout;
    assert!(said.contains("studio/callsheet.toml: written") && said.contains("    cd studio\n"), "{said}");
    let plan = env.run(["plan", "studio/jobs/sample.csv", "--config", "studio/callsheet.toml"]).exited(0);
    assert!(plan.stdout.contains("sample"), "{}", plan.stdout);
    env.run(["run", "studio/jobs/sample.csv", "--config", "studio/callsheet.toml"]).exited(0);
    for name in ["gull", "rain", "theme"] {
        let found = std::fs::read_dir(env.path("output/sample")).unwrap();
        let is_there = found.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(name));
        assert!(is_there, "{name} is missing");
    }
}

#[test]
fn files_that_exist_are_left_as_they_are() {
    let env = TestEnv::new();
    env.write("studio/callsheet.toml", "# mine\n");
    let said: serde_json::Value =
        serde_json::from_str(&env.run(["init", "studio", "--json"]).exited(0).stdout).unwrap();
    assert_eq!(said["kept"], serde_json::json!(["studio/callsheet.toml"]));
    assert_eq!(said["written"], serde_json::json!(["studio/jobs/sample.csv"]));
    assert_eq!(std::fs::read_to_string(env.path("studio/callsheet.toml")).unwrap(), "# mine\n");
}
