//! A batch whose output folder cannot be written to, although the disk can.

use super::*;

fn refused(stage: &mut Stage, seq: u32) -> String {
    let fault = FetchFault::FolderRefuses(Fault::new("disk", "permission denied"));
    stage.step(vec![Input::Fetched(Stage::key(seq), AttemptNo(1), Err(fault))])
}

#[test]
fn a_folder_that_refuses_outputs_parks_its_batch_and_no_file_is_given_up() {
    let limits = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::with(2, Settings { limits, ..settings() });
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1, post 1#1");
    stage.posted(1, lost());
    for _ in 0..20 {
        assert_eq!(refused(&mut stage, 0), "");
        assert_eq!(stage.scheduler.refused_folders().len(), 1);
        stage.pass_until("fetch 0#1");
    }
    assert_eq!(stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]), "");
    assert_eq!(stage.ended, ["job-0 succeeded"]);
}

#[test]
fn nothing_is_bought_for_a_folder_that_refuses_until_it_takes_files_again() {
    let mut stage = Stage::of(2);
    let why = "output/b is a link".to_owned();
    assert_eq!(stage.step(vec![Input::FolderRefused(BatchNo(1), why)]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Disk)));
    assert_eq!(stage.pass(Millis::from_secs(3600)).step(vec![]), "");
    assert_eq!(stage.step(vec![Input::FolderTakes(BatchNo(1))]), "post 0#1, post 1#1");
}

#[test]
fn what_waits_for_its_folder_is_downloaded_as_soon_as_it_can_be_and_keeps_no_run_from_ending() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    assert_eq!(refused(&mut stage, 0), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Disk)));
    assert_eq!(stage.step(vec![Input::FolderTakes(BatchNo(1))]), "fetch 0#1");
    assert_eq!(stage.scheduler.standstill(), None);
}

#[test]
fn what_waits_for_its_folder_keeps_no_other_batch_from_sending() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("success"));
    assert_eq!(stage.scheduler.backlog().0, 1, "it is downloaded");
    refused(&mut stage, 0);
    assert_eq!(stage.scheduler.backlog().0, 0, "it waits for itself alone");
    stage.pass_until("fetch 0#1");
    assert_eq!(stage.scheduler.backlog().0, 1, "it is tried again");
}
