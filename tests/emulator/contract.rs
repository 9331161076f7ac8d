//! The emulator, spoken to over real HTTP, against the service's document.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::time::Duration;

use crate::emulator::bench::{Bench, json_of, quick, standing_still, video};
use callsheet_emulator::{DEFAULT_API_KEY, Options, Plan};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

#[tokio::test]
async fn a_video_is_created_polled_and_downloaded_from_another_origin() {
    let bench = Bench::new(quick()).await;
    let (status, body) = json_of(bench.post_with_key("/api/v1/videos", "k-1", &video()).await).await;
    assert_eq!((status, &body["code"], &body["message"]), (StatusCode::OK, &json!(0), &json!("ok")));
    let task = bench.finished(&body["data"]["id"]).await;
    assert_eq!((&task["status"], &task["costCredits"]), (&json!("success"), &json!(10)));
    assert_eq!(bench.balance().await, 990);

    let url = task["taskUrls"][0].as_str().unwrap();
    assert!(url.starts_with(&bench.emulator.media_url()) && !url.starts_with(&bench.emulator.base_url()));
    let file = bench.client.get(url).send().await.unwrap();
    assert_eq!(file.headers()["content-type"], "video/mp4");
    let bytes = file.bytes().await.unwrap();
    assert_eq!(&bytes[4..8], b"ftyp");
}

#[tokio::test]
async fn public_endpoints_need_no_key_and_the_others_do() {
    let bench = Bench::new(quick()).await;
    for path in [
        "/api/v1/models",
        "/api/v1/models?type=image",
        "/api/v1/voices",
        "/openapi.json",
        "/api/openapi.yaml",
    ] {
        assert_eq!(bench.request(Method::GET, path).send().await.unwrap().status(), 200, "{path}");
    }
    let closed = [
        (Method::GET, "/api/v1/credits"),
        (Method::GET, "/api/v1/tasks/00000000-0000-4000-8000-000000000000"),
        (Method::POST, "/api/v1/videos"),
        (Method::POST, "/api/v1/speech"),
    ];
    for (method, path) in closed {
        for key in ["", "wrong"] {
            let request = bench.request(method.clone(), path);
            let request = if key.is_empty() { request } else { request.bearer_auth(key) };
            let (status, body) = json_of(request.send().await).await;
            assert_eq!((status.as_u16(), &body["code"]), (401, &json!(-1001)), "{path}");
            assert_eq!(body["error"]["type"], "unauthorized");
        }
    }
}

#[tokio::test]
async fn unknown_paths_are_404_envelopes_and_wrong_methods_405_with_an_empty_body() {
    let bench = Bench::new(quick()).await;
    let (status, body) = bench.get("/api/v1/nothing").await;
    assert_eq!((status.as_u16(), &body["error"]["type"]), (404, &json!("not_found")));
    let (status, body) = bench.get("/api/v1/tasks/not-a-task").await;
    assert_eq!((status.as_u16(), &body["code"]), (404, &json!(-1)));
    for (method, path) in [
        (Method::GET, "/api/v1/videos"),
        (Method::DELETE, "/api/v1/tasks/x"),
        (Method::POST, "/api/v1/credits"),
        (Method::OPTIONS, "/api/v1/images"),
    ] {
        let response = bench.request(method, path).send().await.unwrap();
        assert_eq!(response.status(), 405, "{path}");
        assert!(response.bytes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_result_of_its_own_can_be_an_input_where_it_is_there() {
    let bench = Bench::new(quick()).await;
    let (_, body) = json_of(bench.post_with_key("/api/v1/videos", "k-1", &video()).await).await;
    let clip = bench.finished(&body["data"]["id"]).await["taskUrls"][0].as_str().unwrap().to_owned();
    let missing = clip.replace("/0.mp4", "/1.mp4");
    let elsewhere = "https://example.com/clip.mp4".to_owned();
    for (key, address, status) in
        [("there", clip, "success"), ("elsewhere", elsewhere, "success"), ("missing", missing, "failed")]
    {
        let order = json!({"model": "model-s-2-5", "prompt": "and on", "video_urls": [address],
            "options": {"duration": 5, "source_video_duration_seconds": 5}});
        let (_, body) = json_of(bench.post_with_key("/api/v1/videos", key, &order).await).await;
        let task = bench.finished(&body["data"]["id"]).await;
        assert_eq!(task["status"], status, "{key}: {task}");
    }
    let audit = bench.emulator.audit();
    assert_eq!(audit["totals"]["refunds"], 1, "what could not be fetched is given back: {}", audit["totals"]);
}

#[tokio::test]
async fn repeating_a_key_returns_the_first_task_and_charges_once_whatever_the_body() {
    let bench = Bench::new(quick()).await;
    let (_, first) = json_of(bench.post_with_key("/api/v1/videos", "k", &video()).await).await;
    let (_, same) = json_of(bench.post_with_key("/api/v1/videos", "k", &video()).await).await;
    let foreign = json!({"text": "other", "voice_id": "aria"});
    let (status, other) = json_of(bench.post_with_key("/api/v1/speech", "k", &foreign).await).await;
    assert_eq!(status, 200);
    for again in [same, other] {
        assert_eq!(again["data"]["id"], first["data"]["id"]);
        assert_eq!(again["data"]["costCredits"], 10);
    }
    assert_eq!(bench.balance().await, 990);
    let audit = bench.emulator.audit();
    assert_eq!(
        (&audit["tasks"][0]["posts"], &audit["tasks"][0]["foreign_body_replays"]),
        (&json!(3), &json!(1))
    );
}

#[tokio::test]
async fn a_key_that_is_still_rendering_is_waited_for_and_charged_once() {
    let bench = Bench::new(Options { speed: 20.0, ..quick() }).await;
    let body = json!({"prompt": "rain"});
    let calls = (0..8).map(|_| bench.post_with_key("/api/v1/sound-effects", "k", &body));
    let mut ids = Vec::new();
    for answer in futures_util::future::join_all(calls).await {
        let (status, body) = json_of(answer).await;
        assert_eq!((status.as_u16(), &body["data"]["status"]), (200, &json!("success")));
        ids.push(body["data"]["id"].clone());
    }
    ids.dedup();
    assert_eq!((ids.len(), bench.balance().await), (1, 995));
}

#[tokio::test]
async fn without_a_key_every_post_creates_and_charges() {
    let bench = Bench::new(quick()).await;
    let (_, first) = bench.post("/api/v1/videos", &video()).await;
    let (_, second) = bench.post("/api/v1/videos", &video()).await;
    assert_ne!(first["data"]["id"], second["data"]["id"]);
    assert_eq!(bench.balance().await, 980);
}

#[tokio::test]
async fn a_bad_key_is_refused_before_anything_else() {
    let bench = Bench::new(quick()).await;
    for bad in ["has space", &"k".repeat(201)] {
        let (status, body) = json_of(bench.post_with_key("/api/v1/videos", bad, &json!({})).await).await;
        assert_eq!(status, 400);
        assert_eq!(body["message"], "Idempotency-Key must be 1-200 visible ASCII characters without spaces");
    }
}

#[tokio::test]
async fn an_order_dearer_than_the_balance_is_402_and_creates_no_task() {
    let bench = Bench::new(Options { credits: 9, ..quick() }).await;
    let (status, body) = json_of(bench.post_with_key("/api/v1/videos", "k", &video()).await).await;
    assert_eq!(
        (status.as_u16(), &body["code"], &body["message"]),
        (402, &json!(-1002), &json!("insufficient credits"))
    );
    let (status, _) = bench.post("/emulator/account", &json!({"credits": 10})).await;
    assert_eq!(status, 200);
    let (status, _) = json_of(bench.post_with_key("/api/v1/videos", "k", &video()).await).await;
    assert_eq!((status.as_u16(), bench.balance().await), (200, 0));
}

#[tokio::test]
async fn synchronous_kinds_answer_finished() {
    let bench = Bench::new(quick()).await;
    let speech = json!({"text": "a".repeat(21), "voice_id": "aria"});
    for (path, body, cost, media, scene) in [
        (
            "/api/v1/music",
            json!({"prompt": "x", "options": {"duration_seconds": 61}}),
            61,
            "music",
            "text-to-music",
        ),
        ("/api/v1/speech", speech, 2, "audio", "text-to-speech"),
        ("/api/v1/sound-effects", json!({"prompt": "x"}), 5, "audio", "text-to-sound-effects"),
    ] {
        let (status, body) = bench.post(path, &body).await;
        let task = &body["data"];
        assert_eq!(
            (status.as_u16(), &task["status"], &task["costCredits"]),
            (200, &json!("success"), &json!(cost))
        );
        assert_eq!((&task["mediaType"], &task["scene"]), (&json!(media), &json!(scene)));
        assert_eq!(task["taskId"], format!("sync:{}", task["id"].as_str().unwrap()));
        let file = bench.client.get(task["taskUrls"][0].as_str().unwrap()).send().await.unwrap();
        assert_eq!(file.headers()["content-type"], "audio/wav");
    }
}

#[tokio::test]
async fn a_request_the_provider_refuses_is_400_with_a_refunded_task() {
    let bench = Bench::new(quick()).await;
    let body = json!({"text": "hello", "voice_id": "aria", "options": {"model_id": "nope"}});
    let (status, error) = json_of(bench.post_with_key("/api/v1/speech", "k", &body).await).await;
    assert_eq!(status, 400);
    assert_eq!(error["message"], "the generation request uses unsupported settings");
    let task = bench.finished(&error["error"]["task_id"]).await;
    let info: Value = serde_json::from_str(task["taskInfo"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&info["errorCode"], &info["errorMessage"]),
        (&json!("invalid_input"), &json!("unknown model_id: nope"))
    );
    assert_eq!(bench.balance().await, 1_000);
    let (status, again) = json_of(bench.post_with_key("/api/v1/speech", "k", &body).await).await;
    assert_eq!((status.as_u16(), &again["data"]["status"]), (200, &json!("failed")));
}

#[tokio::test]
async fn allowances_cover_a_day_and_begin_again_with_the_next() {
    let bench = Bench::new(Options { plan: Plan::Ultra, credits: 100, ..standing_still() }).await;
    let long = json!({"model": "house-c1", "prompt": "x", "options": {"duration": 15}});
    for n in 0..21 {
        let (_, body) = bench.post("/api/v1/videos", &long).await;
        let paid = (body["data"]["costCredits"].as_u64(), body["data"]["waivedCredits"].as_u64());
        let covered = n < 20;
        assert_eq!(paid, if covered { (Some(0), Some(30)) } else { (Some(30), Some(0)) }, "{n}");
        assert_eq!(body["data"]["fairUseKey"].is_string(), covered);
    }
    bench.post("/emulator/clock", &json!({"advance_ms": 86_400_000})).await;
    let (_, body) = bench.post("/api/v1/videos", &long).await;
    assert_eq!(body["data"]["waivedCredits"], 30);
}

#[tokio::test]
async fn media_have_ranges_and_etags_and_refuse_keys() {
    let bench = Bench::new(quick()).await;
    let (_, body) = bench.post("/api/v1/images", &json!({"model": "gi-2", "prompt": "x"})).await;
    let task = bench.finished(&body["data"]["id"]).await;
    let url = task["taskUrls"][0].as_str().unwrap();
    let whole = bench.client.get(url).send().await.unwrap();
    assert_eq!(
        (&whole.headers()["content-type"], &whole.headers()["accept-ranges"]),
        (&"image/png".parse().unwrap(), &"bytes".parse().unwrap())
    );
    let etag = whole.headers()["etag"].clone();
    let bytes = whole.bytes().await.unwrap();

    let part =
        bench.client.get(url).header("range", "bytes=10-19").header("if-range", &etag).send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.headers()["content-range"], format!("bytes 10-19/{}", bytes.len()));
    assert_eq!(part.bytes().await.unwrap(), bytes.slice(10..20));
    let outside = bench.client.get(url).header("range", "bytes=9999999-").send().await.unwrap();
    assert_eq!(outside.status(), 416);
    let unchanged = bench.client.get(url).header("if-none-match", &etag).send().await.unwrap();
    assert_eq!(unchanged.status(), 304);
    let head = bench.client.head(url).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], bytes.len().to_string());

    let leaky = bench.client.get(url).bearer_auth(DEFAULT_API_KEY).send().await.unwrap();
    assert_eq!(leaky.status(), 400);
    assert_eq!(bench.emulator.audit()["totals"]["media_requests_with_key"], 1);
    let missing = bench.client.get(url.replace("0.png", "1.png")).send().await.unwrap();
    assert_eq!(missing.status(), 404);
}

#[tokio::test]
async fn voice_previews_can_be_heard() {
    let bench = Bench::new(quick()).await;
    let (_, body) = bench.get("/api/v1/voices").await;
    let voices = body["data"]["voices"].as_array().unwrap();
    assert_eq!(voices.len(), 12);
    let preview = bench.client.get(voices[0]["preview_url"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(
        (preview.status().as_u16(), &preview.headers()["content-type"]),
        (200, &"audio/wav".parse().unwrap())
    );
}

#[tokio::test]
async fn any_bytes_are_answered_with_a_documented_error_and_never_charged() {
    let bench = Bench::new(quick()).await;
    let deep = "[".repeat(200_000);
    let big = format!("{{\"model\": \"house-c1\", \"prompt\": \"{}\"}}", "x".repeat(2 << 20));
    let bodies: Vec<Vec<u8>> = [
        &b""[..],
        b"{",
        b"null",
        b"[]",
        b"\"x\"",
        b"\xff\xfe{}",
        b"{\"model\": 1e999}",
        deep.as_bytes(),
        big.as_bytes(),
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    for path in ["videos", "images", "music", "speech", "sound-effects"] {
        for body in &bodies {
            let request =
                bench.request(Method::POST, &format!("/api/v1/{path}")).bearer_auth(DEFAULT_API_KEY);
            let (status, body) = json_of(request.body(body.clone()).send().await).await;
            assert_eq!((status.as_u16(), &body["error"]["type"]), (400, &json!("invalid_request")), "{path}");
        }
    }
    assert_eq!((bench.balance().await, &bench.emulator.audit()["totals"]["tasks"]), (1_000, &json!(0)));
}

#[tokio::test]
async fn shorts_studio_is_202_while_it_runs_and_its_errors_are_bare() {
    let bench = Bench::new(standing_still()).await;
    let bare = bench.request(Method::POST, "/api/v1/shorts-studio").json(&json!({})).send().await.unwrap();
    assert_eq!(bare.status(), 401);
    let bare: Value = bare.json().await.unwrap();
    assert_eq!(bare.as_object().unwrap().keys().collect::<Vec<_>>(), ["code", "message"]);
    let (status, body) = bench.post("/api/v1/shorts-studio", &json!({"taskId": "seg"})).await;
    assert_eq!(status, 202);
    let task = body["data"]["taskId"].as_str().unwrap();
    let elsewhere = bench.get(&format!("/api/v1/tasks/{task}")).await.0;
    assert_eq!(elsewhere, 404, "the document lists the other kinds there alone");
    let path = format!("/api/v1/shorts-studio?taskId={task}");
    assert_eq!(bench.get(&path).await.0, 202);
    bench.emulator.advance(Duration::from_secs(600));
    let (status, body) = bench.get(&path).await;
    assert_eq!((status.as_u16(), &body["data"]["status"]), (200, &json!("success")));
}

#[tokio::test]
async fn the_openapi_description_names_exactly_what_is_served() {
    let bench = Bench::new(quick()).await;
    let (_, description) = bench.get("/openapi.json").await;
    for (path, operations) in description["paths"].as_object().unwrap() {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let described = operations.get(method.to_lowercase()).is_some();
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let response = bench.request(method.clone(), path).send().await.unwrap();
            assert_eq!(response.status() != 405, described, "{method} {path}");
            assert!(!described || response.status() != 404, "{method} {path}");
        }
    }
    let yaml = bench.request(Method::GET, "/api/openapi.yaml").send().await.unwrap();
    assert_eq!(yaml.headers()["content-type"], "application/yaml");
    assert!(yaml.text().await.unwrap().contains("\n\"openapi\": \"3.1.0\"\n"));
}
