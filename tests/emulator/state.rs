//! What outlives the emulator, and what its control endpoints change.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::path::Path;
use std::time::Duration;

use crate::emulator::bench::{Bench, faulty, json_of, quick, standing_still, video};
use callsheet_emulator::{Options, Plan, start};
use serde_json::json;

#[tokio::test]
async fn everything_survives_a_restart_on_another_port() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options { state_dir: Some(dir.path().to_owned()), ..standing_still() };
    let bench = Bench::new(options()).await;
    let (_, body) = json_of(bench.post_with_key("/api/v1/videos", "k", &video()).await).await;
    let id = body["data"]["id"].clone();
    bench.emulator.advance(Duration::from_secs(1));
    let old_media = bench.emulator.media_url();
    bench.emulator.stop().await;

    let bench = Bench::new(options()).await;
    let (_, again) = json_of(bench.post_with_key("/api/v1/videos", "k", &video()).await).await;
    assert_eq!((&again["data"]["id"], bench.balance().await), (&id, 990));
    bench.emulator.advance(Duration::from_secs(100));
    let task = bench.finished(&id).await;
    let url = task["taskUrls"][0].as_str().unwrap();
    assert!(url.starts_with(&bench.emulator.media_url()) && !url.starts_with(&old_media));
    assert_eq!(bench.client.get(url).send().await.unwrap().status(), 200);
    let audit = bench.emulator.audit();
    assert_eq!((&audit["totals"]["tasks"], &audit["totals"]["replays"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_creation_is_on_disk_before_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(Options { state_dir: Some(dir.path().to_owned()), ..quick() }).await;
    for n in 0..5 {
        let (_, body) =
            json_of(bench.post_with_key("/api/v1/videos", &format!("key-{n}"), &video()).await).await;
        let log = std::fs::read_to_string(dir.path().join("emulator.jsonl")).unwrap();
        assert!(log.contains(body["data"]["id"].as_str().unwrap()) && log.contains(&format!("key-{n}")));
    }
}

#[tokio::test]
async fn a_second_emulator_on_one_state_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options { state_dir: Some(dir.path().to_owned()), ..quick() };
    let first = start(options()).await.unwrap();
    assert!(start(options()).await.is_err());
    first.stop().await;
    start(options()).await.unwrap().stop().await;
    assert!(Path::new(dir.path()).join("emulator.jsonl").exists());
}

/// The death of the process at any moment leaves a prefix of the record log: whatever it is, it opens, and every
/// key in it is still good.
#[tokio::test]
async fn any_prefix_of_the_record_log_opens_and_agrees_with_itself() {
    let dir = tempfile::tempdir().unwrap();
    let plan = "[[rules]]\nevery = 3\neffect = { do = 'task-canceled' }";
    let bench = Bench::new(Options { state_dir: Some(dir.path().to_owned()), ..faulty(plan) }).await;
    for n in 0..6 {
        bench.post_with_key("/api/v1/videos", &format!("key-{n}"), &video()).await.unwrap();
    }
    bench.emulator.stop().await;
    let log = std::fs::read(dir.path().join("emulator.jsonl")).unwrap();
    for length in (0..log.len()).step_by(29) {
        let cut = tempfile::tempdir().unwrap();
        std::fs::write(cut.path().join("emulator.jsonl"), &log[..length]).unwrap();
        let bench = Bench::new(Options { state_dir: Some(cut.path().to_owned()), ..quick() }).await;
        bench.emulator.advance(Duration::from_secs(3_600));
        let audit = bench.emulator.audit();
        let (totals, tasks) = (&audit["totals"], audit["tasks"].as_array().unwrap());
        let whole = log[..length].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(tasks.len(), whole.saturating_sub(1));
        let net = totals["charged_credits"].as_u64().unwrap() - totals["refunded_credits"].as_u64().unwrap();
        assert_eq!(totals["balance"].as_u64().unwrap() + net, 1_000);
        for task in tasks {
            let key = task["key"].as_str().unwrap();
            let (_, body) = json_of(bench.post_with_key("/api/v1/videos", key, &video()).await).await;
            assert_eq!(body["data"]["id"], task["id"]);
        }
    }
}

#[tokio::test]
async fn the_audit_tells_a_patient_poller_from_a_hasty_one() {
    let bench = Bench::new(Options { speed: 1.0, ..standing_still() }).await;
    let (_, body) = bench.post("/api/v1/videos", &video()).await;
    let path = format!("/api/v1/tasks/{}", body["data"]["id"].as_str().unwrap());
    for pause_ms in [0, 5_000, 4_999, 6_000] {
        bench.emulator.advance(Duration::from_millis(pause_ms));
        bench.get(&path).await;
    }
    let audit = bench.emulator.audit();
    assert_eq!((&audit["totals"]["polls"], &audit["totals"]["hasty_polls"]), (&json!(4), &json!(1)));
    assert_eq!(audit["tasks"][0]["min_poll_interval_ms"], 4_999);
}

#[tokio::test]
async fn under_a_manual_clock_a_synchronous_call_waits_for_the_step() {
    let bench = Bench::new(Options { speed: 1.0, ..standing_still() }).await;
    let body = json!({"prompt": "x"});
    let call = bench.post("/api/v1/music", &body);
    let step = async {
        while bench.emulator.audit()["totals"]["tasks"] == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(bench.emulator.audit()["tasks"][0]["status"], "processing");
        bench.emulator.advance(Duration::from_secs(60));
    };
    let ((status, answer), ()) = tokio::join!(call, step);
    assert_eq!((status.as_u16(), &answer["data"]["status"]), (200, &json!("success")));
}

#[tokio::test]
async fn a_running_task_can_be_ended_by_hand_and_the_key_revoked() {
    let bench = Bench::new(standing_still()).await;
    let (_, body) = bench.post("/api/v1/videos", &video()).await;
    let id = body["data"]["id"].as_str().unwrap();
    let end = json!({"status": "failed", "error_code": "content_rejected"});
    assert_eq!(bench.post(&format!("/emulator/tasks/{id}"), &end).await.0, 200);
    assert_eq!(bench.get(&format!("/api/v1/tasks/{id}")).await.1["data"]["status"], "failed");
    assert_eq!(bench.post(&format!("/emulator/tasks/{id}"), &end).await.0, 400);
    assert_eq!(bench.balance().await, 1_000);
    bench.post("/emulator/account", &json!({"key_valid": false})).await;
    assert_eq!(bench.get("/api/v1/credits").await.0, 401);
    assert_eq!(bench.post("/emulator/account", &json!({"key": 1})).await.0, 400);
}

#[tokio::test]
async fn what_others_do_with_the_account_counts_and_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        || Options { state_dir: Some(dir.path().to_owned()), plan: Plan::Ultra, ..standing_still() };
    let bench = Bench::new(options()).await;
    let elsewhere =
        json!({"top_up": 100, "spend": 40, "use_allowance": {"house_seconds": 296, "images": 99}});
    let (status, account) = bench.post("/emulator/account", &elsewhere).await;
    assert_eq!((status.as_u16(), &account["credits"]), (200, &json!(1_060)));
    assert_eq!(account["allowances_today"]["house_seconds"]["used"], 296);
    let (status, refused) = bench.post("/emulator/account", &json!({"spend": 1_061})).await;
    assert_eq!((status.as_u16(), bench.balance().await), (400, 1_060), "{refused}");
    bench.emulator.stop().await;

    let bench = Bench::new(options()).await;
    let costs = async |path: &str, body: serde_json::Value| {
        let task = bench.post(path, &body).await.1["data"].clone();
        (task["costCredits"].as_u64().unwrap(), task["waivedCredits"].as_u64().unwrap())
    };
    let image = json!({"model": "gi-2", "prompt": "x"});
    assert_eq!(costs("/api/v1/images", image.clone()).await, (0, 8));
    assert_eq!(costs("/api/v1/images", image).await, (8, 0));
    // Five seconds do not fit into the four that are left: charged in full.
    assert_eq!(costs("/api/v1/videos", video()).await, (10, 0));
    let totals = bench.emulator.audit()["totals"].clone();
    assert_eq!(
        (&totals["balance"], &totals["topped_up_credits"], &totals["spent_elsewhere_credits"]),
        (&json!(1_042), &json!(100), &json!(40))
    );
}

#[tokio::test]
async fn prices_change_while_it_runs_and_what_is_served_is_what_is_charged() {
    let bench = Bench::new(quick()).await;
    let served = async || bench.get("/emulator/catalog").await.1;
    let before = served().await;
    let cost = async || bench.post("/api/v1/videos", &video()).await.1["data"]["costCredits"].clone();
    assert_eq!(cost().await, 10);
    bench.post("/emulator/catalog", &json!({"multiply": 2})).await;
    assert_eq!(cost().await, 20);
    let rate = &bench.get("/api/v1/models").await.1["data"]["models"][0]["modes"]["text-to-video"]["credits_per_second"];
    assert_eq!(rate["768P"], 4);
    let voices =
        json!({"voices": {"characters_per_credit": 5, "minimum_credits": 3, "voices": [{"id": "ada"}]}});
    assert_eq!(bench.post("/emulator/catalog", &voices).await.0, 200);
    let speech = json!({"text": "sixteen letters.", "voice_id": "ada"});
    assert_eq!(bench.post("/api/v1/speech", &speech).await.1["data"]["costCredits"], 4);
    // What was not sent stays as it was; what cannot be served changes nothing.
    assert_eq!(cost().await, 20);
    assert_eq!(bench.post("/emulator/catalog", &json!({"video": "none"})).await.0, 400);
    assert_eq!(bench.post("/emulator/catalog", &before).await.0, 200);
    assert_eq!((served().await, cost().await), (before, json!(10)));
}
