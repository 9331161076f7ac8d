//! Faults on demand, and what they do to a client.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::time::Duration;

use crate::emulator::bench::{Bench, faulty, json_of, quick, standing_still, video};
use callsheet_emulator::{DEFAULT_API_KEY, FaultPlan, Options, READY_PLANS};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_connection_dropped_after_processing_keeps_its_task_and_the_key_finds_it() {
    let plan = "[[rules]]\non = 'create'\ntimes = 1\neffect = { do = 'drop', when = 'after' }";
    let bench = Bench::new(faulty(plan)).await;
    assert!(bench.post_with_key("/api/v1/videos", "k", &video()).await.is_err());
    let (status, body) = json_of(bench.post_with_key("/api/v1/videos", "k", &video()).await).await;
    assert_eq!((status.as_u16(), bench.balance().await), (200, 990));
    bench.finished(&body["data"]["id"]).await;
}

#[tokio::test]
async fn a_connection_dropped_before_processing_creates_nothing() {
    let plan = "[[rules]]\non = 'create'\neffect = { do = 'drop', when = 'before' }";
    let bench = Bench::new(faulty(plan)).await;
    assert!(bench.post_with_key("/api/v1/videos", "k", &video()).await.is_err());
    assert_eq!((bench.balance().await, &bench.emulator.audit()["totals"]["tasks"]), (1_000, &json!(0)));
}

#[tokio::test]
async fn a_client_that_gives_up_is_charged_all_the_same() {
    let plan = "[[rules]]\non = 'create'\ntimes = 1\neffect = { do = 'delay', ms = 400, when = 'after' }";
    let bench = Bench::new(faulty(plan)).await;
    let request = bench.request(Method::POST, "/api/v1/videos").bearer_auth(DEFAULT_API_KEY);
    let sent = request
        .header("Idempotency-Key", "k")
        .json(&video())
        .timeout(Duration::from_millis(100))
        .send()
        .await;
    assert!(sent.unwrap_err().is_timeout());
    let (_, body) = json_of(bench.post_with_key("/api/v1/videos", "k", &video()).await).await;
    assert_eq!((&body["data"]["costCredits"], bench.balance().await), (&json!(10), 990));
}

#[tokio::test]
async fn foreign_answers_come_with_the_asked_status_and_body() {
    let bench = Bench::new(quick()).await;
    for (effect, status, starts) in [
        (json!({"do": "answer", "status": 429, "retry_after_s": 7}), 429, "{\"code\":-1"),
        (json!({"do": "answer", "status": 502, "body": "html"}), 502, "<!doctype"),
        (json!({"do": "answer", "status": 200, "body": "broken-json"}), 200, "{\"code\": 0"),
        (json!({"do": "answer", "status": 401}), 401, "{\"code\":-1001"),
    ] {
        bench.post("/emulator/faults", &json!({"rules": [{"on": "poll", "effect": effect}]})).await;
        let response = bench.request(Method::GET, "/api/v1/tasks/x").send().await.unwrap();
        assert_eq!(response.status(), status);
        if status == 429 {
            assert_eq!(response.headers()["retry-after"], "7");
        }
        assert!(response.text().await.unwrap().starts_with(starts));
    }
}

#[tokio::test]
async fn a_retry_after_comes_in_seconds_or_as_a_date_in_each_of_the_three_forms() {
    use chrono::{DateTime, NaiveDateTime};
    let bench = Bench::new(quick()).await;
    for (form, format) in [
        ("imf-fixdate", "%a, %d %b %Y %H:%M:%S GMT"),
        ("rfc850", "%A, %d-%b-%y %H:%M:%S GMT"),
        ("asctime", "%a %b %e %H:%M:%S %Y"),
    ] {
        for without_date in [false, true] {
            let effect = json!({"do": "answer", "status": 429, "retry_after_s": 3_600, "retry_after_as": form,
                "without_date": without_date});
            bench.post("/emulator/faults", &json!({"rules": [{"on": "poll", "effect": effect}]})).await;
            let response = bench.request(Method::GET, "/api/v1/tasks/x").send().await.unwrap();
            let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            let at = NaiveDateTime::parse_from_str(&header("retry-after"), format).unwrap().and_utc();
            let date = DateTime::parse_from_rfc2822(&header("date"));
            match date {
                Ok(date) => {
                    assert!((3_598..=3_601).contains(&(at - date.to_utc()).num_seconds()) && !without_date);
                }
                Err(_) => assert!(without_date && header("date").is_empty()),
            }
        }
    }
}

#[tokio::test]
async fn an_image_may_be_finished_when_its_call_returns_and_a_failure_is_its_answer() {
    let bench = Bench::new(quick()).await;
    let image = json!({"model": "gi-2", "prompt": "x"});
    let rules = |effects: &[Value]| json!({"rules": effects.iter().map(|effect| json!({"effect": effect})).collect::<Vec<_>>()});
    bench.post("/emulator/faults", &rules(&[json!({"do": "renders-in-call"})])).await;
    let (status, body) = bench.post("/api/v1/images", &image).await;
    assert_eq!((status.as_u16(), &body["data"]["status"]), (200, &json!("success")));
    assert_eq!(body["data"]["taskUrls"].as_array().unwrap().len(), 1);

    let fails = json!({"do": "task-fails", "code": "busy"});
    bench.post("/emulator/faults", &rules(&[json!({"do": "renders-in-call"}), fails])).await;
    let (status, body) = bench.post("/api/v1/images", &image).await;
    assert_eq!((status.as_u16(), &body["error"]["type"]), (500, &json!("internal_error")));
    assert_eq!(bench.finished(&body["error"]["task_id"]).await["status"], "failed");
    assert_eq!(bench.balance().await, 992);
}

#[tokio::test]
async fn shorts_studio_may_name_a_task_by_its_request_id_alone() {
    let bench = Bench::new(standing_still()).await;
    let effect = json!({"rules": [{"effect": {"do": "request-id-alone"}}]});
    bench.post("/emulator/faults", &effect).await;
    let (status, body) = bench.post("/api/v1/shorts-studio", &json!({"prompt": "x"})).await;
    let request = body["data"]["requestId"].as_str().unwrap().to_owned();
    assert_eq!((status.as_u16(), &body["data"]["taskId"]), (202, &Value::Null));
    let answered = bench.get(&format!("/api/v1/shorts-studio?requestId={request}")).await;
    assert!(answered.0.is_success() && answered.1["data"]["requestId"] == request.as_str(), "{answered:?}");
    assert_eq!(bench.get(&format!("/api/v1/shorts-studio?taskId={request}")).await.0, 404);
}

#[tokio::test]
async fn every_task_error_code_of_the_document_can_be_had_and_only_one_shows_the_reason() {
    let bench = Bench::new(quick()).await;
    let codes = "insufficient_credits auth_required rate_limited request_cancelled provider_unavailable invalid_input \
        content_rejected busy duplicate_request generic";
    for code in codes.split_whitespace() {
        let effect = json!({"do": "task-fails", "code": code, "reason": "seven fingers"});
        bench.post("/emulator/faults", &json!({"rules": [{"effect": effect}]})).await;
        let (_, body) = bench.post("/api/v1/videos", &video()).await;
        let task = bench.finished(&body["data"]["id"]).await;
        let info: Value = serde_json::from_str(task["taskInfo"].as_str().unwrap()).unwrap();
        assert_eq!((&task["status"], &info["errorCode"]), (&json!("failed"), &json!(code)));
        assert_eq!(info["errorMessage"] == "seven fingers", code == "invalid_input");
    }
    assert_eq!(bench.balance().await, 1_000);
}

/// What a storm is made of: a test under one meets all of it.
#[test]
fn a_storm_holds_refusals_and_every_task_error_code() {
    let plan = serde_json::to_value(FaultPlan::named("storm").unwrap()).unwrap();
    let effects: Vec<&Value> = plan["rules"].as_array().unwrap().iter().map(|rule| &rule["effect"]).collect();
    let answers = |status: u64| effects.iter().any(|effect| effect["status"] == status);
    assert!([401, 402, 429].into_iter().all(answers));
    assert!(effects.iter().any(|effect| effect["do"] == "content-rejected"));
    let codes: std::collections::BTreeSet<&str> =
        effects.iter().filter_map(|effect| effect["code"].as_str()).collect();
    assert_eq!(codes.len(), 10, "{codes:?}");
}

#[tokio::test]
async fn submissions_that_fail_carry_their_task() {
    let bench = Bench::new(quick()).await;
    for (effect, status, kind, ends) in [
        (json!({"do": "fail-at-submission"}), 500, "internal_error", "failed"),
        (json!({"do": "unknown-outcome"}), 500, "internal_error", "success"),
        (json!({"do": "unknown-outcome", "ending": "failed"}), 500, "internal_error", "failed"),
        (json!({"do": "reject-at-submission", "reason": "no"}), 400, "invalid_request", "failed"),
        (json!({"do": "content-rejected", "with_task": true}), 400, "content_rejected", "failed"),
    ] {
        bench.post("/emulator/faults", &json!({"rules": [{"effect": effect}]})).await;
        let (answered, body) = bench.post("/api/v1/videos", &video()).await;
        assert_eq!((answered.as_u16(), &body["error"]["type"]), (status, &json!(kind)));
        assert_eq!(bench.finished(&body["error"]["task_id"]).await["status"], ends);
    }
    assert_eq!(bench.balance().await, 990);
}

#[tokio::test]
async fn downloads_can_be_truncated_empty_html_redirected_and_expired() {
    let bench = Bench::new(quick()).await;
    let (_, body) = bench.post("/api/v1/images", &json!({"model": "gi-2", "prompt": "x"})).await;
    let url = bench.finished(&body["data"]["id"]).await["taskUrls"][0].as_str().unwrap().to_owned();
    let fetch = async |effect: Value| {
        bench.post("/emulator/faults", &json!({"rules": [{"on": "download", "effect": effect}]})).await;
        bench.client.get(&url).send().await.unwrap()
    };
    let cut = fetch(json!({"do": "truncated-download", "keep_percent": 50})).await;
    assert!(cut.content_length().unwrap() > 0 && cut.bytes().await.is_err());
    let short = fetch(json!({"do": "short-download", "keep_percent": 50})).await;
    assert!(!short.bytes().await.unwrap().is_empty());
    assert!(fetch(json!({"do": "empty-download"})).await.bytes().await.unwrap().is_empty());
    assert_eq!(fetch(json!({"do": "html-download"})).await.headers()["content-type"], "text/html");
    let moved = fetch(json!({"do": "redirected-download"})).await;
    assert_eq!(moved.status(), 302);
    let there = format!("{}{}", bench.emulator.media_url(), moved.headers()["location"].to_str().unwrap());
    assert_eq!(bench.client.get(there).send().await.unwrap().status(), 200);

    bench.post("/emulator/faults", &json!({"rules": [{"effect": {"do": "urls-expire", "ms": 1000}}]})).await;
    let (_, body) = bench.post("/api/v1/images", &json!({"model": "gi-2", "prompt": "x"})).await;
    let task = bench.finished(&body["data"]["id"]).await;
    let url = task["taskUrls"][0].as_str().unwrap();
    assert_eq!(bench.client.get(url).send().await.unwrap().status(), 200);
    bench.emulator.advance(Duration::from_secs(2));
    assert_eq!(bench.client.get(url).send().await.unwrap().status(), 403);
    let renewed = bench.finished(&task["id"]).await["taskUrls"][0].as_str().unwrap().to_owned();
    assert_eq!(bench.client.get(renewed).send().await.unwrap().status(), 200);
}

/// A client that does what the document tells it to, under each fault plan that ships.
#[tokio::test]
async fn a_careful_client_pays_once_for_each_success_under_any_plan() {
    for plan in READY_PLANS {
        pay_once_for_each_success(plan).await;
    }
}

async fn pay_once_for_each_success(plan: &str) {
    let faults = Some(FaultPlan::load(plan).unwrap());
    let bench =
        Bench::new(Options { faults, credits: 100_000, speed: f64::INFINITY, ..Options::default() }).await;
    let mut succeeded = 0;
    for job in 0..60 {
        for attempt in 0..20 {
            let key = format!("job-{job}-{attempt}");
            if settle(&bench, &key).await {
                succeeded += 1;
                break;
            }
        }
    }
    bench.emulator.set_faults(FaultPlan::default());
    let totals = bench.emulator.audit()["totals"].clone();
    let net = totals["charged_credits"].as_u64().unwrap() - totals["refunded_credits"].as_u64().unwrap();
    assert_eq!((succeeded, net, bench.balance().await), (60, 600, 99_400));
    assert_eq!(totals["replays"].as_u64().unwrap() > 0, plan != "calm");
}

/// Post under one key until the service says what became of it; true when it succeeded.
async fn settle(bench: &Bench, key: &str) -> bool {
    for _ in 0..200 {
        let Ok(answer) = bench.post_with_key("/api/v1/videos", key, &video()).await else { continue };
        let Ok(body) = answer.json::<Value>().await else { continue };
        let id = [&body["data"]["id"], &body["error"]["task_id"]].into_iter().find_map(Value::as_str);
        let Some(id) = id else { continue };
        loop {
            let polled =
                bench.request(Method::GET, &format!("/api/v1/tasks/{id}")).bearer_auth(DEFAULT_API_KEY);
            let Ok(answer) = polled.send().await else { continue };
            let Ok(body) = answer.json::<Value>().await else { continue };
            match body["data"]["status"].as_str() {
                Some("success") => return true,
                Some("failed" | "canceled") => return false,
                _ => {}
            }
        }
    }
    panic!("{key} was never settled");
}
