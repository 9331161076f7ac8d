//! While a run waits out an outage it says so once, and once when it is over.

use crate::support::{TestEnv, manifests};

fn run_through(faults: &str) -> (TestEnv, String) {
    let env = TestEnv::with_faults(faults);
    env.write("batch.csv", manifests::manifest("image", 2));
    let said = env.run(["run", "batch.csv"]).exited(0).stderr;
    (env, said)
}

#[test]
fn an_outage_is_told_once_and_its_end_once() {
    for answer in ["status = 502, body = 'html'", "status = 429"] {
        let (env, said) = run_through(&format!(
            "[[rules]]\non = 'create'\ntimes = 16\neffect = {{ do = 'answer', {answer} }}\n"
        ));
        let lines = |what: &str| said.lines().filter(|line| line.contains(what)).count();
        assert_eq!(lines("no usable answer from the service since 20"), 1, "{said}");
        assert_eq!(lines("the service answers again, after "), 1, "{said}");
        assert!(said.contains("retrying") && said.contains("nothing is lost"), "{said}");
        env.audit().each_paid_once(2);
    }
}

#[test]
fn a_single_fault_is_nobodys_concern() {
    let (_, said) =
        run_through("[[rules]]\non = 'create'\ntimes = 1\neffect = { do = 'answer', status = 502 }\n");
    assert!(!said.contains("no usable answer"), "{said}");
}
