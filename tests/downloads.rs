//! Result hosts that misbehave: the right file lands in the end, and nothing else ever does.

mod stage;

use self::stage::harvest::{Harvest, OF_THE_BATCH};
use self::stage::{Stage, scripts};

const RUN: [&str; 2] = ["run", "batch.csv"];

/// One job of each kind, whose first downloads go wrong in this way.
fn lands_in_spite_of(trouble: &str) -> Stage {
    let (manifest, ids) = scripts::of_all_kinds(1);
    let stage = Stage::new();
    stage.faults(&format!("[[rules]]\non = 'download'\nper = 'task'\n{trouble}"));
    stage.write("batch.csv", manifest);
    stage.run(RUN).exited(0);
    let (audit, harvest) = (stage.audit(), Harvest::of(&stage, "batch"));
    assert!(audit.totals.faults_struck >= 5, "every job met it: {:?}", audit.totals);
    audit.each_paid_once(ids.len());
    harvest.is_complete(&ids);
    stage
}

#[test]
fn a_page_is_not_taken_for_media() {
    lands_in_spite_of("times = 2\neffect = { do = 'html-download' }");
}

#[test]
fn a_transfer_that_breaks_off_is_taken_up_again() {
    lands_in_spite_of("times = 3\neffect = { do = 'truncated-download', keep_percent = 40 }");
}

#[test]
fn an_empty_file_is_no_result() {
    lands_in_spite_of("times = 1\neffect = { do = 'empty-download' }");
}

#[test]
fn a_file_that_is_cut_short_with_headers_that_agree_is_no_result() {
    lands_in_spite_of("times = 1\neffect = { do = 'short-download', keep_percent = 50 }");
}

#[test]
fn a_slow_host_is_waited_for() {
    lands_in_spite_of("times = 1\neffect = { do = 'slow-download', bytes_per_second = 40000 }");
}

#[test]
fn a_redirect_is_followed_without_the_key() {
    let stage = lands_in_spite_of("times = 1\neffect = { do = 'redirected-download' }");
    assert_eq!(stage.audit().totals.media_requests_with_key, 0);
}

#[test]
fn links_that_expire_are_read_anew() {
    let stage = Stage::new();
    let late = "[[rules]]\neffect = { do = 'urls-expire', ms = 300 }\n\
                [[rules]]\non = 'download'\nper = 'task'\ntimes = 1\neffect = { do = 'delay', ms = 400 }";
    stage.faults(late);
    let (manifest, ids) = scripts::of_all_kinds(1);
    stage.write("batch.csv", manifest);
    stage.run(RUN).exited(0).says("answered 403");
    stage.audit().each_paid_once(ids.len());
    Harvest::of(&stage, "batch").is_complete(&ids);
}

/// A host that never gets it right: the job fails, its charge is told, its results are never a page.
#[test]
fn a_host_that_serves_nothing_but_pages_leaves_no_file() {
    let stage = Stage::new();
    stage.faults("[[rules]]\non = 'download'\neffect = { do = 'html-download' }");
    stage.write("batch.csv", scripts::manifest("image", 2));
    stage.run(RUN).exited(1);
    let harvest = Harvest::of(&stage, "batch");
    assert_eq!(harvest.names(), OF_THE_BATCH);
    assert_eq!(harvest.column("state"), ["failed", "failed"]);
    for line in &harvest.lines {
        assert_eq!(line["error"]["code"], "download_failed");
        assert_eq!(line["charged_credits"], 8, "it was paid for, and stays so");
    }
    assert_eq!(stage.audit().totals.tasks, 2, "and nothing was bought again");
}

#[test]
fn a_strangers_file_in_the_way_is_left_alone() {
    let stage = Stage::new();
    stage.write("output/batch/image-1.png", "mine");
    stage.write("batch.csv", scripts::manifest("image", 1));
    stage.run(RUN).exited(0);
    assert_eq!(std::fs::read_to_string(stage.path("output/batch/image-1.png")).unwrap(), "mine");
    let file = Harvest::of(&stage, "batch").lines[0]["files"][0]["path"].as_str().unwrap().to_owned();
    assert_ne!(file, "image-1.png");
    assert!(stage.path("output/batch").join(file).is_file());
}
