//! The emulator, spoken to over real HTTP, against the service's document.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::path::Path;
use std::time::Duration;

use callsheet::emulator::{DEFAULT_API_KEY, Emulator, Faults, Options, Plan, READY_PLANS, start};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};

/// An emulator and a client with its key.
struct Bench {
    emulator: Emulator,
    client: Client,
}

fn quick() -> Options {
    Options { speed: 10_000.0, credits: 1_000, ..Options::default() }
}

fn standing_still() -> Options {
    Options { manual_clock: true, ..quick() }
}

fn faulty(plan: &str) -> Options {
    Options { faults: Some(Faults::parse(plan).unwrap()), ..quick() }
}

impl Bench {
    async fn new(options: Options) -> Self {
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .unwrap();
        Self { emulator: start(options).await.unwrap(), client }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.emulator.base_url()))
    }

    async fn post_with_key(&self, path: &str, key: &str, body: &Value) -> reqwest::Result<Response> {
        let request = self.request(Method::POST, path).bearer_auth(DEFAULT_API_KEY);
        request.header("Idempotency-Key", key).json(body).send().await
    }

    async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response =
            self.request(Method::POST, path).bearer_auth(DEFAULT_API_KEY).json(body).send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        let response = self.request(Method::GET, path).bearer_auth(DEFAULT_API_KEY).send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    async fn finished(&self, id: &Value) -> Value {
        for _ in 0..2_000 {
            let (_, body) = self.get(&format!("/api/v1/tasks/{}", id.as_str().unwrap())).await;
            if !["pending", "processing"].contains(&body["data"]["status"].as_str().unwrap()) {
                return body["data"].clone();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("task {id} did not finish");
    }

    async fn balance(&self) -> u64 {
        self.get("/api/v1/credits").await.1["data"]["remainingCredits"].as_u64().unwrap()
    }
}

fn video() -> Value {
    json!({"model": "house-c1", "prompt": "a boat"})
}

async fn json_of(response: reqwest::Result<Response>) -> (StatusCode, Value) {
    let response = response.unwrap();
    (response.status(), response.json().await.unwrap())
}

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
        let journal = std::fs::read_to_string(dir.path().join("emulator.jsonl")).unwrap();
        assert!(
            journal.contains(body["data"]["id"].as_str().unwrap()) && journal.contains(&format!("key-{n}"))
        );
    }
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

#[tokio::test]
async fn shorts_studio_is_202_while_it_runs_and_its_errors_are_bare() {
    let bench = Bench::new(standing_still()).await;
    let bare = bench.request(Method::POST, "/api/v1/shorts-studio").json(&json!({})).send().await.unwrap();
    assert_eq!(bare.status(), 401);
    let bare: Value = bare.json().await.unwrap();
    assert_eq!(bare.as_object().unwrap().keys().collect::<Vec<_>>(), ["code", "message"]);
    let (status, body) = bench.post("/api/v1/shorts-studio", &json!({"taskId": "seg"})).await;
    assert_eq!(status, 202);
    let path = format!("/api/v1/shorts-studio?taskId={}", body["data"]["taskId"].as_str().unwrap());
    assert_eq!(bench.get(&path).await.0, 202);
    bench.emulator.advance(Duration::from_secs(600));
    let (status, body) = bench.get(&path).await;
    assert_eq!((status.as_u16(), &body["data"]["status"]), (200, &json!("success")));
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

/// A client that does what the document tells it to, in each weather that ships.
#[tokio::test]
async fn a_careful_client_pays_once_for_each_success_in_any_weather() {
    for plan in READY_PLANS {
        pay_once_for_each_success(plan).await;
    }
}

async fn pay_once_for_each_success(plan: &str) {
    let faults = Some(Faults::load(plan).unwrap());
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
    bench.emulator.set_faults(Faults::default());
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

/// The death of the process at any moment leaves a prefix of the journal: whatever it is, it opens, and every
/// key in it is still good.
#[tokio::test]
async fn any_prefix_of_the_journal_opens_and_agrees_with_itself() {
    let dir = tempfile::tempdir().unwrap();
    let plan = "[[rules]]\nevery = 3\neffect = { do = 'task-canceled' }";
    let bench = Bench::new(Options { state_dir: Some(dir.path().to_owned()), ..faulty(plan) }).await;
    for n in 0..6 {
        bench.post_with_key("/api/v1/videos", &format!("key-{n}"), &video()).await.unwrap();
    }
    bench.emulator.stop().await;
    let journal = std::fs::read(dir.path().join("emulator.jsonl")).unwrap();
    for length in (0..journal.len()).step_by(29) {
        let cut = tempfile::tempdir().unwrap();
        std::fs::write(cut.path().join("emulator.jsonl"), &journal[..length]).unwrap();
        let bench = Bench::new(Options { state_dir: Some(cut.path().to_owned()), ..quick() }).await;
        bench.emulator.advance(Duration::from_secs(3_600));
        let audit = bench.emulator.audit();
        let (totals, tasks) = (&audit["totals"], audit["tasks"].as_array().unwrap());
        let whole = journal[..length].iter().filter(|byte| **byte == b'\n').count();
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
