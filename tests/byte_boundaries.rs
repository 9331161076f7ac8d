//! The line breaks after every single byte of a creating call, on its way there and on its way back: one
//! key and one charge for every wanted file.

mod stage;

use std::collections::BTreeSet;

use callsheet::emulator::Options;

use self::stage::Stage;
use self::stage::harvest::Harvest;
use self::stage::proxy::{Cut, Passed, Proxy};

/// Runs a batch through the line.
fn run(stage: &Stage, proxy: &Proxy, batch: &str, jobs: usize) -> Vec<Passed> {
    // Names of one width, so that every call and every reply has one length.
    let ids: Vec<String> = (0..jobs).map(|n| format!("{batch}-{n:05}")).collect();
    let row = |id: &String| format!("{id},sound-effect,a gull {id},1\n");
    let rows: String = ids.iter().map(row).collect();
    let file = format!("{batch}.csv");
    stage.write(&file, format!("id,kind,prompt,duration_seconds\n{rows}"));
    stage.run(["run", &file, "--base-url", &proxy.base_url()]).exited(0);
    Harvest::of(stage, batch).is_complete(&ids);
    proxy.passed()
}

/// One job for each byte of a call or reply, and one whose call passes whole.
fn cut_everywhere(cut: Cut) -> (Stage, Vec<Passed>) {
    let stage = Stage::with(Options { speed: f64::INFINITY, credits: 100_000, ..Options::default() });
    stage.configure("[limits]\nin_flight = 32\nadaptive = false");
    let proxy = Proxy::before(&stage.base_url());
    proxy.cut(cut);
    // The first is cut before its first byte, and tells the length.
    let length = run(&stage, &proxy, "probe", 1)[0].length;
    assert!(length > 200, "a head and a body: {length}");
    proxy.cut(cut);
    let passed = run(&stage, &proxy, "bytes", length + 1);
    let places: BTreeSet<usize> = passed.iter().filter_map(|passed| passed.cut_at).collect();
    assert_eq!(places, (0..length).collect(), "the line broke after every byte");
    assert_eq!(passed.len(), length + 1, "a key for each job, and no other");
    for passed in &passed {
        let sends = if passed.cut_at.is_some() { 2 } else { 1 };
        assert_eq!(passed.sends, sends, "sent again under its key, once: {passed:?}");
    }
    // And the probe.
    stage.audit().each_paid_once(length + 2);
    (stage, passed)
}

#[test]
fn a_reply_that_is_cut_after_any_byte_costs_nothing_twice() {
    let (stage, passed) = cut_everywhere(Cut::Reply);
    let cut = passed.iter().filter(|passed| passed.cut_at.is_some()).count() as u64;
    assert_eq!(stage.audit().totals.replays, cut + 1, "the service had taken every one of them");
}

#[test]
fn a_request_that_is_cut_after_any_byte_costs_nothing_twice() {
    let (stage, _) = cut_everywhere(Cut::Request);
    assert_eq!(stage.audit().totals.replays, 0, "the service had taken none of them");
}
