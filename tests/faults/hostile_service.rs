//! A service that means harm, or has lost its mind: endless and slow answers, wrong types, bombs, other people's
//! tasks, impossible charges. Nothing grows, nothing is paid for twice, the bad answer is named, and the rest of
//! the work goes on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::collect_outputs::Outputs;
use crate::support::process::Outcome;
use crate::support::scripted_proxy::{Act, Call, Route, ScriptedProxy, reply_of};
use crate::support::{TestEnv, manifests};

/// The most memory that a run of a debug build may take, whatever it is told. A run of a few rows takes some 80 MB, of which
/// the program itself is 48; an answer of 8 MiB is read before it is given up, and may be there twice while it is looked at.
const MEMORY_MAX_BYTES: u64 = 112 * 1024 * 1024;
/// The most that may be said about one run.
const REPORT_MAX_BYTES: usize = 64 * 1024;

const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
const PICTURE: &str = "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n";

/// Runs a manifest against the service.
#[track_caller]
fn run(env: &TestEnv, hostile: &ScriptedProxy, manifest: &str) -> Outcome {
    env.write("batch.csv", manifest);
    let outcome = env.run_raw(["run", "batch.csv", "--base-url", &hostile.base_url()]);
    is_sober(&outcome);
    outcome
}

/// No panic, bounded memory, few words, none of them a command to the terminal.
#[track_caller]
fn is_sober(outcome: &Outcome) {
    assert_eq!(outcome.signal, None, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    assert!(outcome.peak_bytes < MEMORY_MAX_BYTES, "{} MB of memory", outcome.peak_bytes >> 20);
    let said = outcome.stderr.len() + outcome.stdout.len();
    assert!(said < REPORT_MAX_BYTES, "{said} bytes were said");
    outcome.commands_no_terminal();
}

/// Shows a task that is still being made, so that it is read: on a busy machine it may be done by the time that its
/// creation is answered.
fn unfinished(body: &mut Value) {
    body["data"]["status"] = json!("processing");
    body["data"]["taskUrls"] = json!([]);
}

/// Every first creating call, or every first reading of a task, is answered so; all else is as it should be.
/// Both jobs must be done and paid for once.
#[track_caller]
fn recovers(name: &str, keys: &str, act: impl Fn() -> Act + Send + Sync + Clone + 'static) {
    for route in [Route::Create, Route::Poll] {
        let env = TestEnv::new();
        env.configure_service(keys, "");
        let act = act.clone();
        let first = move |call: &Call| match (call.route, route) {
            (called, meant) if called == meant && call.nth == 0 => act(),
            (Route::Create, Route::Poll) => Act::Change(Box::new(unfinished)),
            _ => Act::Pass,
        };
        let hostile = ScriptedProxy::before(&env.base_url(), first);
        let outcome = run(&env, &hostile, &manifests::manifest("image", 2));
        assert_eq!(outcome.code, Some(0), "{name} at {route:?}: {}", outcome.stderr);
        let times = |nth| hostile.calls(route).iter().filter(|call| call.nth == nth).count();
        assert!(times(0) > 0 && times(0) == times(1), "{name} at {route:?}: each asked again");
        env.audit().each_paid_once(2);
        let outputs = Outputs::of(&env, "batch");
        outputs.is_complete(&manifests::ids("image", 2));
        outputs.agrees_with(&env.audit());
    }
}

/// `recovers`, where the service does its work first and gives this answer then.
#[track_caller]
fn recovers_from(name: &str, reply: Vec<u8>) {
    recovers(name, "", move || Act::Robbed(reply.clone()));
}

/// Ten megabytes of zeros in some ten kilobytes: matches of 258 bytes at distance 1, in fixed Huffman codes.
fn bomb() -> Vec<u8> {
    let mut bits: Vec<bool> = vec![true, true, false];
    let mut code = |value: u32, length: u32| bits.extend((0..length).rev().map(|bit| value >> bit & 1 == 1));
    code(0b0011_0000, 8);
    for _ in 0..40_000 {
        code(0b1100_0101, 8);
        code(0, 5);
    }
    code(0, 7);
    let packed = bits.chunks(8).map(|byte| byte.iter().rev().fold(0u8, |all, bit| all << 1 | u8::from(*bit)));
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    bytes.extend(packed);
    bytes
}

/// Else the job would succeed with fewer files than it was paid for.
#[test]
fn a_success_with_results_that_are_no_links_is_read_again() {
    recovers("no links", "", || {
        Act::Change(Box::new(|body| {
            body["data"]["status"] = json!("success");
            body["data"]["taskUrls"] = json!(["http://127.0.0.1:1/1.png", null, {}]);
        }))
    });
}

// ---- answers that do not end, or hardly begin ----

#[test]
fn an_answer_without_an_end_is_given_up_and_asked_for_again() {
    recovers("endless", "", || Act::Endless(JSON.to_owned(), vec![b'['; 64 * 1024]));
}

#[test]
fn an_answer_of_a_byte_now_and_then_runs_out_of_time() {
    recovers("drip", "request_timeout = \"300ms\"\nrender_timeout = \"300ms\"", || {
        Act::Drip(JSON.to_owned())
    });
}

#[test]
fn a_catalog_without_an_end_is_no_catalog() {
    let env = TestEnv::new();
    let endless = |call: &Call| match call.route {
        Route::Catalog => Act::Endless(JSON.to_owned(), vec![b' '; 64 * 1024]),
        _ => Act::Pass,
    };
    let hostile = ScriptedProxy::before(&env.base_url(), endless);
    run(&env, &hostile, &manifests::manifest("image", 1)).exited(5).says("/api/v1/");
    assert_eq!(env.audit().totals.tasks, 0);
}

#[test]
fn a_result_without_an_end_fills_no_disk() {
    let env = TestEnv::new();
    env.configure("[output]\nmax_file = \"1MiB\"");
    let hostile = results(&env, |_| Act::Endless(PICTURE.to_owned(), vec![7; 64 * 1024]));
    let outcome = run(&env, &hostile, &manifests::manifest("image", 2)).exited(1);
    outcome.says("output.max_file");
    one_was_lost(&env, "larger than 1048576 bytes");
}

#[test]
fn outputs_that_cannot_be_stored_one_after_the_other_pause_their_batch() {
    let env = TestEnv::new();
    env.configure("[output]\nmax_file = \"1KiB\"\n[limits]\nin_flight = 2\npause_after_rejections = 3");
    env.write("batch.csv", manifests::manifest("image", 60));
    let outcome = env.run(["run", "batch.csv"]).exited(7);
    outcome.says("outputs that are paid for could not be downloaded, one after the other");
    let bought = env.audit().totals.tasks;
    assert!((3..40).contains(&bought), "{bought} were bought: those that wait for their download come to it");
    env.configure("[output]\nmax_file = \"1GiB\"");
    env.run(["download", "batch"]);
    env.run(["resume", "batch"]).exited(0);
    env.run(["run", "batch.csv"]).exited(0);
    env.audit().each_paid_once(60);
}

/// With a single slot for downloads, two results that come not at all and then bit by bit, and four that are there
/// at once.
#[test]
fn slow_results_make_room_for_others_and_go_on_where_they_stopped() {
    let env = TestEnv::new();
    env.configure("[limits]\ndownloads = 1\nmin_download_rate = \"100MiB\"\nslow_window = \"1s\"");
    let (there, media) = (Arc::new(OnceLock::<String>::new()), Arc::new(OnceLock::<String>::new()));
    let links = there.clone();
    let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Result if call.nth == 0 => Act::Mute,
        Route::Result => Act::Slow(media.wait().clone()),
        Route::Create | Route::Poll => {
            let (links, media) = (links.clone(), media.clone());
            Act::Change(Box::new(move |body| {
                let text = body["data"].to_string();
                let is_meant = text.contains("image-1\"") || text.contains("image-2\"");
                if let Some(link) = body["data"]["taskUrls"][0].as_str().filter(|_| is_meant) {
                    let (host, path) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
                    media.get_or_init(|| host.to_owned());
                    body["data"]["taskUrls"] = json!([format!("{}/{path}", links.wait())]);
                }
            }))
        }
        _ => Act::Pass,
    });
    there.set(hostile.base_url()).unwrap();
    env.write("batch.csv", manifests::manifest("image", 6));
    let arguments = ["run", "batch.csv", "--base-url", &hostile.base_url(), "--log-level", "info"];
    env.run(arguments).exited(0).says("slow download suspended for another");
    let calls = hostile.calls(Route::Result);
    let calls: Vec<&Call> = calls.iter().filter(|call| call.nth > 0).collect();
    let resumed = calls.iter().filter_map(|call| call.range_from).collect::<Vec<_>>();
    assert!(resumed.iter().any(|from| *from > 0), "{resumed:?}");
    // Nothing of what came is asked for twice.
    for path in calls.iter().map(|call| &call.path) {
        let from = calls.iter().filter(|call| call.path == *path).map(|call| call.range_from.unwrap_or(0));
        assert!(from.clone().is_sorted(), "{path}: {:?}", from.collect::<Vec<_>>());
    }
    env.audit().each_paid_once(6);
    let outputs = Outputs::of(&env, "batch");
    outputs.is_complete(&manifests::ids("image", 6));
    outputs.agrees_with(&env.audit());
}

#[test]
fn a_catalog_of_a_byte_now_and_then_runs_out_of_time() {
    let env = TestEnv::new();
    env.configure_service("request_timeout = \"300ms\"", "");
    let hostile = ScriptedProxy::before(&env.base_url(), |call| match call.route {
        Route::Catalog => Act::Drip(JSON.to_owned()),
        _ => Act::Pass,
    });
    run(&env, &hostile, &manifests::manifest("image", 1)).exited(5).says("no answer in time");
    assert_eq!(env.audit().totals.tasks, 0);
}

// ---- bodies that are something else ----

#[test]
fn a_compressed_bomb_nobody_asked_for_stays_packed() {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        bomb().len()
    );
    recovers_from("bomb", [head.as_bytes(), &bomb()].concat());
}

#[test]
fn pages_and_wrong_types_are_no_answer() {
    let page = "<!doctype html><title>\x1b[31mWelcome</title>";
    for (name, reply) in [
        ("page", reply_of("200 OK", "text/html", page)),
        ("page called JSON", reply_of("200 OK", "application/json", page)),
        ("picture", reply_of("200 OK", "image/png", b"\x89PNG\r\n\x1a\n")),
        ("nothing", reply_of("200 OK", "application/json", "")),
        ("not UTF-8", reply_of("200 OK", "application/json", b"{\"data\":\"\xff\xfe\"}")),
        ("array", reply_of("200 OK", "application/json", "[]")),
        (
            "deep",
            reply_of(
                "200 OK",
                "application/json",
                format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
            ),
        ),
        ("deep objects", reply_of("200 OK", "application/json", "{\"data\":".repeat(100_000))),
        ("no HTTP", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        ("endless header", [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'x'; 1 << 20]].concat()),
        ("wrong length", b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\n{}".to_vec()),
    ] {
        recovers_from(name, reply);
    }
}

#[test]
fn a_catalog_that_is_a_page_is_named() {
    let env = TestEnv::new();
    let page = |call: &Call| match call.route {
        Route::Catalog => Act::Bytes(reply_of("200 OK", "text/html", "<h1>\x1b]0;Parked\x07 domain</h1>")),
        _ => Act::Pass,
    };
    let hostile = ScriptedProxy::before(&env.base_url(), page);
    let outcome = run(&env, &hostile, &manifests::manifest("image", 1)).exited(5);
    outcome.says("not an answer of the service: <h1>");
}

/// Catalogs that are none, although some of them say 200.
fn broken_catalogs() -> Vec<Vec<u8>> {
    let json = |body: &str| reply_of("200 OK", "application/json", body);
    let other = r#"{"models":[{"id":"other","modes":{}}],"voices":[{"id":"other"}]}"#;
    vec![
        reply_of("502 Bad Gateway", "text/html", "<h1>Bad Gateway</h1>"),
        json("{\"code\":0,\"data\":[{\"id\":"),
        Vec::new(),
        json(r#"{"code":-1,"message":"temporarily unavailable","data":{}}"#),
        json(&format!(r#"{{"code":-1,"message":"temporarily unavailable","data":{other}}}"#)),
        json(&format!(r#"{{"message":"no code at all","data":{other}}}"#)),
        json(r#"{"code":0,"message":"ok","data":{"models":[{"name":"without an id"}]}}"#),
        json(r#"{"code":0,"message":"ok","data":null}"#),
        json(r#"{"code":0,"message":"ok","data":{"models":[],"voices":[]}}"#),
    ]
}

#[test]
fn a_catalog_that_comes_at_the_third_time_of_asking_is_enough() {
    for (reply, part) in
        broken_catalogs().into_iter().zip(["image", "voices", "video", "music"].iter().cycle())
    {
        // The image catalog is what the row is validated by; of the others it is seen that they are asked for again.
        for part in ["image", part].into_iter().take(if *part == "image" { 1 } else { 2 }) {
            let (env, text) = (TestEnv::new(), String::from_utf8_lossy(&reply).into_owned());
            let reply = reply.clone();
            let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
                Route::Catalog if call.nth < 2 && call.path.ends_with(part) => Act::Bytes(reply.clone()),
                _ => Act::Pass,
            });
            let outcome = run(&env, &hostile, &manifests::manifest("image", 1));
            assert_eq!(outcome.code, Some(0), "{part}, {text}: {}", outcome.stderr);
            let calls = hostile.calls(Route::Catalog);
            // Twice in vain, once for the plan, and perhaps once more before the POST.
            let asked = calls.iter().filter(|call| call.path.ends_with(part)).count();
            assert!((3..=4).contains(&asked), "{asked} times: {part}, {text}");
            env.audit().each_paid_once(1);
        }
    }
}

/// An older one counts for plans. Jobs wait, once it is older than the service lets it be cached: its prices may be others.
#[test]
fn a_catalog_that_is_none_does_not_take_the_place_of_an_older_one() {
    for reply in broken_catalogs() {
        let (env, text) = (TestEnv::new(), String::from_utf8_lossy(&reply).into_owned());
        let is_broken = Arc::new(AtomicBool::new(false));
        let broken = is_broken.clone();
        let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
            Route::Catalog if broken.load(Ordering::Relaxed) && call.path.ends_with("image") => {
                Act::Bytes(reply.clone())
            }
            _ => Act::Pass,
        });
        run(&env, &hostile, &manifests::manifest("image", 1)).exited(0);
        is_broken.store(true, Ordering::Relaxed);
        let path = env.path("state/catalogs.json");
        let mut kept: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        kept["fetched"] = json!(kept["fetched"].as_i64().unwrap() - 2 * 3_600_000);
        kept.as_object_mut().unwrap().remove("older");
        env.write("state/catalogs.json", kept.to_string());
        env.write("batch.csv", manifests::manifest("image", 2));
        let running = env.start(["run", "batch.csv", "--base-url", &hostile.base_url()]);
        running.says("no catalog to price jobs of this kind by: they wait");
        running.signal(Signal::TERM);
        running.end().exited(130).says("using the catalogs of ");
        let after: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(after["data"]["image"] == kept["data"]["image"], "{text}");
        assert_eq!(
            after["older"],
            json!({"image": kept["fetched"]}),
            "{text}: only the broken one stays old"
        );
        env.audit().each_paid_once(1);
        is_broken.store(false, Ordering::Relaxed);
        run(&env, &hostile, &manifests::manifest("image", 2)).exited(0);
        env.audit().each_paid_once(2);
    }
}

#[test]
fn a_catalog_that_never_comes_is_asked_for_a_few_times_and_named_once() {
    let env = TestEnv::new();
    let away = |call: &Call| match call.route {
        Route::Catalog => Act::Bytes(reply_of("502 Bad Gateway", "text/html", "<h1>Bad Gateway</h1>")),
        _ => Act::Pass,
    };
    let hostile = ScriptedProxy::before(&env.base_url(), away);
    let outcome = run(&env, &hostile, &manifests::manifest("image", 1)).exited(5);
    assert_eq!(outcome.stderr.matches("http_502").count(), 1, "{}", outcome.stderr);
    for part in ["video", "image", "music", "voices"] {
        let calls = hostile.calls(Route::Catalog);
        assert_eq!(calls.iter().filter(|call| call.path.ends_with(part)).count(), 4, "{part}");
    }
    assert_eq!(env.audit().totals.tasks, 0);
}

#[test]
fn a_catalog_that_is_away_keeps_only_the_rows_waiting_that_need_it() {
    let env = TestEnv::new();
    let is_away = Arc::new(AtomicBool::new(true));
    let away = is_away.clone();
    let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Catalog if call.path.ends_with("voices") && away.load(Ordering::Relaxed) => {
            Act::Bytes(reply_of("500 Internal Server Error", "text/html", "<h1>no</h1>"))
        }
        _ => Act::Pass,
    });
    let manifest = "id,kind,model,prompt,text,voice_id\n\
                    a,image,gi-2,A compass,,\n\
                    b,speech,,,All aboard.,aria\n\
                    c,,gi-2,A map,,\n\
                    d,sound-effect,,A gull,,\n";
    let outcome = run(&env, &hostile, manifest).exited(5);
    outcome.says(":3:").says("the voice catalog is not available").says("submit the file again");
    env.audit().each_paid_once(3);
    let plan = env.run_raw(["plan", "batch.csv", "--base-url", &hostile.base_url()]).exited(5);
    assert!(plan.stdout.contains("the voice catalog is not available"), "{}", plan.stdout);
    let listed = |what| env.run([what, "--json", "--base-url", &hostile.base_url()]).exited(0).json();
    let (models, voices) = (listed("models"), listed("voices"));
    assert!(models["image"].as_array().unwrap().iter().any(|model| model["id"] == "gi-2"), "{models}");
    assert_eq!((&models["voices"], &voices["voices"]), (&Value::Null, &json!([])));
    is_away.store(false, Ordering::Relaxed);
    run(&env, &hostile, manifest).exited(0);
    env.audit().each_paid_once(4);
}

/// What a terminal obeys, or what turns its text around.
const ESCAPE: &str = "\x1b]0;owned\x07\x1b[2J\u{9b}2J\u{202e}";

/// Every text of an entry, and every key of its prices, carries an escape; of `gi-2` the id alone does not.
fn dress(entry: &mut Value) {
    let is_asked_for = entry["id"] == "gi-2";
    if entry["credits"].is_number() {
        entry["credits"] = json!({"60s": entry["credits"], "300s": 300});
    }
    for (name, value) in entry.as_object_mut().unwrap() {
        if !(is_asked_for && name == "id") {
            *value = dressed(value);
        }
    }
}

fn dressed(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(format!("{text}{ESCAPE}")),
        Value::Array(items) => items.iter().map(dressed).collect(),
        Value::Object(fields) => {
            let dress = |(name, value): (&String, &Value)| {
                let is_price = name.starts_with(|c: char| c.is_ascii_digit() || c.is_uppercase());
                let name = if is_price { format!("{name}{ESCAPE}") } else { name.clone() };
                (name, dressed(value))
            };
            Value::Object(fields.iter().map(dress).collect())
        }
        other => other.clone(),
    }
}

/// Text that a terminal obeys, in every place of a catalog and of a task that is shown somewhere.
#[test]
fn text_of_catalogs_and_tasks_is_never_said_raw() {
    let escaped = |text: &str| json!(format!("{text}{ESCAPE}"));
    let env = TestEnv::new();
    let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Catalog => Act::Change(Box::new(|body| {
            let lists = body["data"].as_object_mut().unwrap().values_mut().filter_map(Value::as_array_mut);
            lists.flatten().for_each(dress);
        })),
        Route::Create if call.body.contains("ni-2") => {
            let said = json!({"type": escaped("type"), "hint": escaped("hint")});
            let body = json!({"code": -1, "message": escaped("message"), "error": said});
            Act::Bytes(reply_of("400 Bad Request", "application/json", body.to_string()))
        }
        Route::Create | Route::Poll => Act::Change(Box::new(move |body| {
            body["data"]["model"] = escaped("gi-2");
            body["data"]["options"] = json!({"quality": escaped("1K"), "mode": escaped("m")});
        })),
        _ => Act::Pass,
    });
    let row = |id: &str, model: &str| {
        json!({"id": id, "kind": "image", "model": model, "prompt": "a harbour"}).to_string() + "\n"
    };
    let other = format!("ni-2{ESCAPE}");
    env.write("batch.jsonl", row("one", "gi-2") + &row("two", &other));
    let base_url = hostile.base_url();
    for (code, arguments) in [
        (0, vec!["models"]),
        (0, vec!["voices"]),
        (0, vec!["plan", "batch.jsonl"]),
        (0, vec!["plan", "batch.jsonl", "--rows"]),
        (1, vec!["run", "batch.jsonl"]),
        (0, vec!["explain", "one"]),
        (0, vec!["explain", "two"]),
        (0, vec!["jobs", "batch"]),
        (0, vec!["ledger"]),
        (0, vec!["status"]),
        (0, vec!["retry", "batch"]),
        (0, vec!["doctor"]),
    ] {
        let shown = arguments.join(" ");
        let outcome = env.run_raw(arguments.into_iter().chain(["--base-url", &base_url]));
        outcome.commands_no_terminal();
        assert_eq!(outcome.code, Some(code), "{shown}: {}{}", outcome.stderr, outcome.stdout);
        if shown.starts_with("models") || shown.starts_with("plan") || shown.starts_with("explain") {
            assert!(
                outcome.stdout.contains("\\u{1b}]0;owned"),
                "{shown} does not show it: {}",
                outcome.stdout
            );
        }
    }
}

// ---- tasks that cannot be ----

/// A 200 whose `code` is not the 0 of a success is no answer, and no refusal either: a task may stand behind it.
#[test]
fn a_success_without_the_code_of_one_is_no_answer() {
    for code in [json!(-1), json!(200), json!("0"), json!(null), json!({})] {
        let name = format!("code {code}");
        recovers(&name, "", move || {
            let code = code.clone();
            Act::Change(Box::new(move |body| {
                body["code"] = code;
                body["error"] = json!({"type": "invalid_request", "hint": "no"});
            }))
        });
    }
    recovers("no code", "", || {
        Act::Change(Box::new(|body| drop(body.as_object_mut().unwrap().remove("code"))))
    });
}

/// An account in the red can buy nothing: the queue waits for credits, as on an empty one.
#[test]
fn a_balance_below_zero_is_none() {
    let env = TestEnv::with_credits(0);
    let hostile = ScriptedProxy::before(&env.base_url(), |call| match call.path.as_str() {
        "/api/v1/credits" => Act::Change(Box::new(|body| body["data"]["remainingCredits"] = json!(-3))),
        _ => Act::Pass,
    });
    run(&env, &hostile, &manifests::manifest("image", 2)).exited(4).says("parked");
    let base_url = hostile.base_url();
    let asked = env.run(["credits", "--json", "--base-url", &base_url]).exited(0);
    assert_eq!(asked.json()["balance_credits"], 0);
    assert_eq!(env.audit().totals.tasks, 0);
    let broken = ScriptedProxy::before(&env.base_url(), |call| match call.path.as_str() {
        "/api/v1/credits" => Act::Change(Box::new(|body| body["code"] = json!(-1))),
        _ => Act::Pass,
    });
    env.run(["credits", "--base-url", &broken.base_url()]).exited(5).says("/api/v1/credits");
}

#[test]
fn a_charge_that_cannot_be_is_not_booked() {
    for cost in
        [json!(-5), json!(0.5), json!(1e30), json!(u64::MAX), json!("8"), json!([8]), json!(null), json!({})]
    {
        let name = format!("costCredits {cost}");
        recovers(&name, "", move || {
            let cost = cost.clone();
            Act::Change(Box::new(move |body| body["data"]["costCredits"] = cost))
        });
    }
}

#[test]
fn a_status_or_an_id_of_another_type_is_no_task() {
    for (field, value) in [
        ("status", json!(7)),
        ("status", json!(["success"])),
        ("status", json!(null)),
        ("id", json!(7)),
        ("id", json!("")),
        ("id", json!("..")),
        ("id", json!("x".repeat(10 << 20))),
        ("id", json!("x".repeat(1 << 20))),
    ] {
        let name = format!("{field} {}", value.to_string().chars().take(20).collect::<String>());
        recovers(&name, "", move || {
            let value = value.clone();
            Act::Change(Box::new(move |body| body["data"][field] = value))
        });
    }
}

#[test]
fn the_record_of_another_task_is_no_answer() {
    let env = TestEnv::new();
    // Each task is twice answered with a record of somebody else's, dear and already done.
    let hostile = ScriptedProxy::before(&env.base_url(), |call| match call.route {
        Route::Create => Act::Change(Box::new(unfinished)),
        Route::Poll if call.nth < 2 => Act::Change(Box::new(|body| {
            body["data"] = json!({
                "id": "00000000-0000-4000-8000-000000000000", "status": "success", "costCredits": 900,
                "taskUrls": ["http://127.0.0.1:1/theirs.png"],
            });
        })),
        _ => Act::Pass,
    });
    run(&env, &hostile, &manifests::manifest("image", 2)).exited(0);
    env.audit().each_paid_once(2);
    let outputs = Outputs::of(&env, "batch");
    outputs.is_complete(&manifests::ids("image", 2));
    outputs.agrees_with(&env.audit());
}

#[test]
fn an_id_is_one_segment_of_a_path_whatever_it_holds() {
    let hostile_id = "../../admin?x=1#\u{202e}\n\0\u{1f98a}";
    let env = TestEnv::new();
    let real = Arc::new(std::sync::Mutex::new(String::new()));
    let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Create => {
            let real = real.clone();
            Act::Change(Box::new(move |body| {
                *real.lock().unwrap() = body["data"]["id"].as_str().unwrap().to_owned();
                body["data"]["id"] = json!(hostile_id);
                unfinished(body);
            }))
        }
        // Its record can only be asked for under the name that the service gave it.
        Route::Poll => {
            let real = real.lock().unwrap().clone();
            Act::Bytes(reply_of(
                "200 OK",
                "application/json",
                json!({"code": 0, "data": {
                    "id": hostile_id, "status": "failed", "costCredits": 8,
                    "taskInfo": {"errorCode": "content_rejected", "errorMessage": format!("no \x1b[2J {real}")},
                }})
                .to_string(),
            ))
        }
        _ => Act::Pass,
    });
    run(&env, &hostile, &manifests::manifest("image", 1)).exited(1).says("content_rejected");
    let poll = &hostile.calls(Route::Poll)[0].path;
    assert!(poll.starts_with("/api/v1/tasks/%2E%2E%2F") && poll.matches('/').count() == 4, "{poll}");
}

// ---- results that lead elsewhere ----

/// The links of the first job lead to the hostile service, which does this with them.
fn results(env: &TestEnv, act: impl Fn(&Call) -> Act + Send + Sync + 'static) -> ScriptedProxy {
    let there = Arc::new(OnceLock::<String>::new());
    let links = there.clone();
    let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Result => act(call),
        // On a busy machine a task is done by the time that its creation is answered.
        Route::Create | Route::Poll => {
            let link = format!("{}/loot.png", links.wait());
            Act::Change(Box::new(move |body| lead(body, "image-1", &json!([link]))))
        }
        _ => Act::Pass,
    });
    there.set(hostile.base_url()).unwrap();
    hostile
}

/// Puts other links into a finished task that has `name` in its prompt.
fn lead(body: &mut Value, name: &str, links: &Value) {
    let is_meant = body["data"].to_string().contains(name);
    if is_meant && body["data"]["status"] == "success" {
        body["data"]["taskUrls"] = links.clone();
    }
}

/// The second of two jobs is done; the first was paid for, could not be fetched, and says why.
#[track_caller]
fn one_was_lost(env: &TestEnv, why: &str) {
    let outputs = Outputs::of(env, "batch");
    assert_eq!(outputs.column("state"), ["failed", "succeeded"], "{:#?}", outputs.lines);
    let error = outputs.lines[0]["error"].to_string();
    assert!(error.contains(why), "{error}");
    outputs.is_whole();
    env.audit().each_paid_once(2);
    outputs.agrees_with(&env.audit());
}

#[test]
fn a_task_with_ten_thousand_results_is_not_believed() {
    let env = TestEnv::new();
    let hostile = ScriptedProxy::before(&env.base_url(), |call| match call.route {
        Route::Create | Route::Poll => Act::Change(Box::new(|body| {
            let links: Vec<String> = (0..10_000).map(|n| format!("http://127.0.0.1:1/{n}.png")).collect();
            lead(body, "image-1", &json!(links));
        })),
        _ => Act::Pass,
    });
    run(&env, &hostile, &manifests::manifest("image", 2)).exited(1);
    one_was_lost(&env, "lists 10000 results, more than 256");
}

#[test]
fn a_result_that_is_no_media_is_not_kept() {
    for (content_type, body) in [
        ("image/png", b"<html>not found</html>".to_vec()),
        ("application/json", b"{}".to_vec()),
        ("image/png", bomb()),
        ("image/png", [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 64]].concat()),
        ("image/png", Vec::new()),
    ] {
        let env = TestEnv::new();
        let hostile = results(&env, move |_| Act::Bytes(reply_of("200 OK", content_type, &body)));
        run(&env, &hostile, &manifests::manifest("image", 2)).exited(1);
        one_was_lost(&env, "not an image");
    }
}

/// One job for each link, which its task shows as its result.
#[test]
fn links_to_files_and_to_places_within_are_refused() {
    const LINKS: [(&str, &str); 10] = [
        ("file:///etc/passwd", "not an http(s) address, but file:"),
        ("ftp://files.example/a.png", "not an http(s) address, but ftp:"),
        ("data:image/png;base64,iVBORw0KGgo=", "not an http(s) address, but data:"),
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254, a link-local address"),
        ("http://10.0.0.1/a.png", "10.0.0.1, a private address"),
        ("http://[::ffff:192.168.0.1]/a.png", "a private address"),
        ("http://[fd00:ec2::254]/a.png", "a private address"),
        ("http://0.0.0.0/a.png", "a reserved address"),
        ("http://3232235777/a.png", "192.168.1.1, a private address"),
        ("/media/a.png", "is not an http(s) address"),
    ];
    let env = TestEnv::new();
    let hostile = ScriptedProxy::before(&env.base_url(), |call| match call.route {
        Route::Create | Route::Poll => Act::Change(Box::new(|body| {
            for (n, (link, _)) in LINKS.iter().enumerate() {
                lead(body, &format!("image-{}\"", n + 1), &json!([link]));
            }
        })),
        _ => Act::Pass,
    });
    run(&env, &hostile, &manifests::manifest("image", LINKS.len() + 1)).exited(1);
    let outputs = Outputs::of(&env, "batch");
    for (line, (link, why)) in outputs.lines.iter().zip(LINKS) {
        let error = line["error"].to_string();
        assert!(line["state"] == "failed" && error.contains(why), "{link}: {error}");
        let can_be_listed = why.starts_with(char::is_numeric);
        assert!(!can_be_listed || error.contains("output.allow_hosts"), "{link}: {error}");
    }
    assert_eq!(outputs.lines[LINKS.len()]["state"], "succeeded");
    outputs.is_whole();
    env.audit().each_paid_once(LINKS.len() + 1);
}

#[test]
fn a_redirect_is_judged_like_a_link() {
    for (location, why) in [
        ("file:///etc/passwd", "the result host answered 302"),
        ("http://169.254.169.254/latest/", "169.254.169.254, a link-local address"),
        ("//10.0.0.1/a.png", "10.0.0.1, a private address"),
        ("/again.png", "too many redirects"),
    ] {
        let env = TestEnv::new();
        let reply = format!(
            "HTTP/1.1 302 Found\r\nlocation: {location}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        let hostile = results(&env, move |_| Act::Bytes(reply.clone().into_bytes()));
        let outcome = run(&env, &hostile, &manifests::manifest("image", 2));
        assert_eq!(outcome.code, Some(1), "{location}: {}\n{}", outcome.stderr, outcome.stdout);
        one_was_lost(&env, why);
    }
}

/// The service is on an address that is special in another way than the one its links lead to: the loopback
/// address, by number and by name. A person who allows it gets the files, and pays for nothing again.
#[test]
fn a_listed_host_is_fetched_from_without_another_charge() {
    for host in ["127.0.0.1", "localhost"] {
        let env = TestEnv::new();
        let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
            Route::Create | Route::Poll => Act::Change(Box::new(move |body| {
                let links = body["data"]["taskUrls"].to_string().replace("127.0.0.1", host);
                body["data"]["taskUrls"] = serde_json::from_str(&links).unwrap();
            })),
            _ => Act::Pass,
        });
        let elsewhere = hostile.at("0.0.0.0");
        env.write("batch.csv", manifests::manifest("image", 1));
        let outcome = env.run(["run", "batch.csv", "--base-url", &elsewhere]).exited(1);
        outcome.says(&format!("output.allow_hosts can list \"{host}\""));
        env.configure(&format!("[output]\nallow_hosts = [\"{host}\"]"));
        env.run(["download", "batch", "--base-url", &elsewhere]).exited(0);
        env.run(["run", "batch.csv", "--base-url", &elsewhere]).exited(0);
        env.audit().each_paid_once(1);
        Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 1));
    }
}

// ---- no TLS where TLS should be ----

#[test]
fn plain_text_where_tls_should_be_is_named() {
    let env = TestEnv::new();
    // It waits for the end of a head that never comes.
    env.configure_service("connect_timeout = \"1s\"", "");
    let hostile = ScriptedProxy::before(&env.base_url(), |_| Act::Pass);
    let https = hostile.base_url().replace("http:", "https:");
    env.write("batch.csv", manifests::manifest("image", 1));
    let outcome = env.run_raw(["run", "batch.csv", "--base-url", &https]);
    is_sober(&outcome);
    outcome.exited(5).says(&https);
    assert_eq!(env.audit().totals.tasks, 0);
}
