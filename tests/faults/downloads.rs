//! Result hosts that misbehave: the right file is published in the end, and nothing else ever is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::{Arc, OnceLock};

use serde_json::json;

use crate::support::collect_outputs::{OF_THE_BATCH, Outputs};
use crate::support::process::Running;
use crate::support::scripted_proxy::{Act, Call, Route, ScriptedProxy, reply_of};
use crate::support::{TestEnv, manifests};

const RUN: [&str; 2] = ["run", "batch.csv"];

/// One job of each kind, whose first downloads go wrong in this way.
fn lands_in_spite_of(trouble: &str) -> TestEnv {
    let (manifest, ids) = manifests::of_all_kinds(1);
    let env = TestEnv::new();
    env.faults(&format!("[[rules]]\non = 'download'\nper = 'task'\n{trouble}"));
    env.write("batch.csv", manifest);
    env.run(RUN).exited(0);
    let (audit, outputs) = (env.audit(), Outputs::of(&env, "batch"));
    assert!(audit.totals.faults_struck >= 5, "every job met it: {:?}", audit.totals);
    audit.each_paid_once(ids.len());
    outputs.is_complete(&ids);
    env
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
fn a_transfer_that_breaks_off_again_and_again_goes_on_as_long_as_it_gets_further() {
    let env = lands_in_spite_of("times = 9\neffect = { do = 'truncated-download', keep_percent = 30 }");
    assert!(env.audit().totals.downloads > 5, "{:#?}", env.audit().totals);
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
    let env = lands_in_spite_of("times = 1\neffect = { do = 'redirected-download' }");
    assert_eq!(env.audit().totals.media_requests_with_key, 0);
}

#[test]
fn links_that_expire_are_read_anew() {
    let env = TestEnv::new();
    let late = "[[rules]]\neffect = { do = 'urls-expire', ms = 300 }\n\
                [[rules]]\non = 'download'\nper = 'task'\ntimes = 1\neffect = { do = 'delay', ms = 400 }";
    env.faults(late);
    let (manifest, ids) = manifests::of_all_kinds(1);
    env.write("batch.csv", manifest);
    env.run(RUN.into_iter().chain(["--log-level", "info"])).exited(0).says("answered 403");
    env.audit().each_paid_once(ids.len());
    Outputs::of(&env, "batch").is_complete(&ids);
}

/// A host that never gets it right: the job fails, its charge is told, its results are never a page.
#[test]
fn a_host_that_serves_nothing_but_pages_leaves_no_file() {
    let env = TestEnv::new();
    env.faults("[[rules]]\non = 'download'\neffect = { do = 'html-download' }");
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(RUN).exited(1);
    let outputs = Outputs::of(&env, "batch");
    assert_eq!(outputs.names(), OF_THE_BATCH);
    assert_eq!(outputs.column("state"), ["failed", "failed"]);
    for line in &outputs.lines {
        assert_eq!(line["error"]["code"], "download_failed");
        assert_eq!(line["charged_credits"], 8, "it was paid for, and stays so");
    }
    assert_eq!(env.audit().totals.tasks, 2, "and nothing was bought again");
}

#[test]
fn a_strangers_file_in_the_way_is_left_alone() {
    let env = TestEnv::new();
    env.write("output/batch/image-1.png", "mine");
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(RUN).exited(0);
    assert_eq!(std::fs::read_to_string(env.path("output/batch/image-1.png")).unwrap(), "mine");
    let file = Outputs::of(&env, "batch").lines[0]["files"][0]["path"].as_str().unwrap().to_owned();
    assert_ne!(file, "image-1.png");
    assert!(env.path("output/batch").join(file).is_file());
}

/// A picture of one shade of grey, of the same length whatever the shade.
fn picture(shade: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 64, 64);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::NoCompression);
    encoder.write_header().unwrap().write_image_data(&[shade; 64 * 64 * 3]).unwrap();
    bytes
}

/// A host that breaks a file off in the middle, and whatever it is asked for then with a range goes on from there
/// with the file as it is by now. What is published is returned, with how often the host was asked.
fn broken_off_and_changed(first: &'static str, later: &'static str, then: u8) -> (Vec<u8>, usize) {
    let env = TestEnv::new();
    let there = Arc::new(OnceLock::<String>::new());
    let links = there.clone();
    let (old, new) = (picture(1), picture(then));
    let half = old.len() / 2;
    assert_eq!(old.len(), new.len(), "length alone tells nothing");
    let script = move |call: &Call| {
        let reply = |status: &str, headers: &str, length: usize, body: &[u8]| {
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: image/png\r\n{headers}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            Act::Bytes([head.as_bytes(), body].concat())
        };
        match (call.route, call.range_from) {
            (Route::Result, None) if call.nth == 0 => reply("200 OK", first, old.len(), &old[..half]),
            (Route::Result, None) => reply("200 OK", later, new.len(), &new),
            (Route::Result, Some(from)) => {
                let rest = &new[usize::try_from(from).unwrap()..];
                let range = format!("{later}\r\ncontent-range: bytes {from}-{}/{}", new.len() - 1, new.len());
                reply("206 Partial Content", &range, rest.len(), rest)
            }
            (Route::Create | Route::Poll, _) => {
                let link = format!("{}/changes.png", links.wait());
                Act::Change(Box::new(move |body| {
                    if body["data"]["status"] == "success" {
                        body["data"]["taskUrls"] = json!([link]);
                    }
                }))
            }
            _ => Act::Pass,
        }
    };
    let hostile = ScriptedProxy::before(&env.base_url(), script);
    there.set(hostile.base_url()).unwrap();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv", "--base-url", &hostile.base_url()]).exited(0);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 1));
    (std::fs::read(env.path("output/batch/image-1.png")).unwrap(), hostile.calls(Route::Result).len())
}

#[test]
fn the_rest_of_another_version_is_not_put_to_the_beginning_of_the_first() {
    let by_date = (
        "etag: \"1\"\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT",
        "last-modified: Mon, 07 Nov 1994 08:49:37 GMT",
    );
    // Of a rest without a tag nobody knows which version it is of.
    let untold = ("etag: \"1\"", "x-none: 1");
    let by_date_alone = ("etag: \"1\"", "last-modified: Mon, 07 Nov 1994 08:49:37 GMT");
    for (first, later) in [("etag: \"1\"", "etag: \"2\""), by_date, untold, by_date_alone] {
        let (published, asked) = broken_off_and_changed(first, later, 2);
        assert!(published == picture(2), "{later}: the version that there is now, whole");
        assert_eq!(asked, 3, "{later}: the beginning, the rest of another, and that from its beginning");
    }
}

#[test]
fn a_tag_that_was_weakened_on_the_way_is_still_the_same() {
    let (published, asked) = broken_off_and_changed("etag: \"1\"", "etag: W/\"1\"", 1);
    assert!(published == picture(1));
    assert_eq!(asked, 2, "the beginning and the rest");
}

#[test]
fn outputs_whose_layout_names_the_folder_of_incomplete_ones_stay() {
    let env = TestEnv::new();
    env.configure("[output]\nlayout = \"{batch}/incomplete/{job}{-n}.{ext}\"");
    env.faults("[[rules]]\neffect = { do = 'urls', count = 3 }");
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(RUN).exited(0);
    for line in Outputs::of(&env, "batch").lines {
        for file in line["files"].as_array().unwrap() {
            let path = env.path("output/batch").join(file["path"].as_str().unwrap());
            assert!(path.exists(), "{}", path.display());
        }
    }
}

/// Each result is paid for. What came of the others is where a person finds it, and is not downloaded again.
#[test]
fn one_result_of_several_that_cannot_be_had_costs_no_other() {
    let env = TestEnv::new();
    env.faults(
        "[[rules]]\neffect = { do = 'urls', count = 3 }\n\
         [[rules]]\non = 'download'\nskip = 1\ntimes = 1\neffect = { do = 'html-download' }\n\
         [[rules]]\non = 'download'\nskip = 3\neffect = { do = 'html-download' }",
    );
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(RUN).exited(1);
    let outputs = Outputs::of(&env, "batch");
    assert_eq!(outputs.lines[0]["error"]["code"], "download_failed");
    let message = outputs.lines[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("result 2 of 3 is missing"), "{message}");
    assert!(message.contains("what came is in ") && message.contains("output/batch/incomplete"), "{message}");
    let kept = env.path("output/batch/incomplete");
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["image-1-3.png", "image-1.png"]);
    assert_eq!(outputs.lines[0]["charged_credits"], 8, "it stays paid for");
    // Once the host has mended, the job is completed free of charge, and nothing lies around.
    env.faults("[[rules]]\non = 'download'\nskip = 2\ntimes = 1\neffect = { do = 'html-download' }");
    env.run(["download", "batch"]).exited(0);
    let files = Outputs::of(&env, "batch").lines[0]["files"].as_array().unwrap().len();
    assert_eq!((files, kept.exists()), (3, false));
    env.audit().each_paid_once(1);
}

/// Bytes of a song whose structure is not looked into, so that its length alone tells whether it is whole.
fn song() -> Vec<u8> {
    [&[0xff, 0xfb, 0x90, 0x00][..], &[0x55; 413]].concat().repeat(100)
}

/// A song of 41,700 bytes whose host breaks the first answer off after 20,000, and answers later ones like this.
fn breaks_off_and_then(
    tags: &'static str,
    later: impl Fn(&Call) -> Vec<u8> + Send + Sync + 'static,
) -> (TestEnv, ScriptedProxy) {
    let env = TestEnv::new();
    let there = Arc::new(OnceLock::<String>::new());
    let links = there.clone();
    let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Result if call.nth == 0 => {
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\n{tags}content-length: 41700\r\n\r\n");
            Act::Bytes([head.as_bytes(), &song()[..20_000]].concat())
        }
        Route::Result => Act::Bytes(later(call)),
        Route::Create | Route::Poll => {
            let link = format!("{}/song.mp3", links.wait());
            Act::Change(Box::new(move |body| {
                if body["data"]["status"] == "success" {
                    body["data"]["taskUrls"] = json!([link]);
                }
            }))
        }
        _ => Act::Pass,
    });
    there.set(hostile.base_url()).unwrap();
    env.write("batch.csv", manifests::manifest("music", 1));
    (env, hostile)
}

/// An answer that says nothing of the length of what it brings.
fn without_length(body: &[u8]) -> Vec<u8> {
    [b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\nconnection: close\r\n\r\n", body].concat()
}

#[test]
fn the_length_that_was_said_once_holds_for_the_rest_of_the_file() {
    let (env, hostile) = breaks_off_and_then("etag: \"a\"\r\n", |call| {
        let from = usize::try_from(call.range_from.unwrap()).unwrap();
        let to = (from + 10_000).min(song().len());
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\ncontent-type: audio/mpeg\r\netag: \"a\"\r\ncontent-range: bytes \
             {from}-{}/*\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            to - 1,
            to - from
        );
        [head.as_bytes(), &song()[from..to]].concat()
    });
    env.run(["run", "batch.csv", "--base-url", &hostile.base_url()]).exited(0);
    assert!(std::fs::read(env.path("output/batch/music-1.mp3")).unwrap() == song(), "all of it");
    env.audit().each_paid_once(1);
}

#[test]
fn a_file_without_versions_that_comes_shorter_than_was_said_is_asked_for_again() {
    let (env, hostile) = breaks_off_and_then("", |call| match call.nth {
        1 => without_length(&song()[..25_000]),
        _ => without_length(&song()),
    });
    env.run(["run", "batch.csv", "--base-url", &hostile.base_url()]).exited(0);
    assert!(std::fs::read(env.path("output/batch/music-1.mp3")).unwrap() == song(), "all of it");
}

/// It is paid for: what is known to be a piece of it is no output, however often the host sends it.
#[test]
fn a_file_that_always_comes_shorter_than_was_said_is_no_output() {
    let (env, hostile) = breaks_off_and_then("", |_| without_length(&song()[..25_000]));
    env.run(["run", "batch.csv", "--base-url", &hostile.base_url()]).exited(1);
    let outputs = Outputs::of(&env, "batch");
    assert_eq!(outputs.names(), OF_THE_BATCH);
    assert_eq!(outputs.lines[0]["error"]["code"], "download_failed");
    let message = outputs.lines[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("25000 of 41700 bytes came"), "{message}");
}

/// The service is out there, and the way to it is a proxy on this machine, which no link could lead to.
#[test]
fn a_proxy_may_be_where_links_may_not_lead() {
    const RESULT: &str = "http://results.example/1.png";
    let env = TestEnv::new();
    let proxy = ScriptedProxy::before(&env.base_url(), |call| {
        if call.path.starts_with(RESULT) {
            return Act::Bytes(reply_of("200 OK", "image/png", picture(1)));
        }
        if call.route != Route::Create && !call.path.contains("/api/v1/tasks/") {
            return Act::Pass;
        }
        Act::Change(Box::new(|body| {
            if body["data"]["status"] == "success" {
                body["data"]["taskUrls"] = json!([RESULT]);
            }
        }))
    });
    env.write("batch.csv", manifests::manifest("image", 1));
    let mut command = env.command(["run", "batch.csv", "--base-url", "http://service.example"]);
    command.env("http_proxy", proxy.at("localhost"));
    Running::start(command).end().exited(0);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 1));
    assert!(proxy.calls(Route::Result).iter().any(|call| call.path == RESULT));
}

/// Longer than a link that leads nowhere is tried: the outputs are paid for.
#[test]
fn a_result_host_that_is_down_for_long_is_waited_for_and_asked_when_it_says() {
    let env = TestEnv::new();
    let there = Arc::new(OnceLock::<String>::new());
    let links = there.clone();
    let hostile = ScriptedProxy::before(&env.base_url(), move |call: &Call| match call.route {
        Route::Result if call.nth < 20 => {
            Act::Bytes(reply_of("503 Service Unavailable", "text/html", "later"))
        }
        Route::Result if call.nth == 20 => Act::Bytes(
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n".to_vec(),
        ),
        Route::Result => Act::Bytes(reply_of("200 OK", "image/png", picture(3))),
        Route::Create | Route::Poll => {
            let link = format!("{}/down.png", links.wait());
            Act::Change(Box::new(move |body| {
                if body["data"]["status"] == "success" {
                    body["data"]["taskUrls"] = json!([link]);
                }
            }))
        }
        _ => Act::Pass,
    });
    there.set(hostile.base_url()).unwrap();
    env.write("batch.csv", manifests::manifest("image", 1));
    let began = std::time::Instant::now();
    env.run(["run", "batch.csv", "--base-url", &hostile.base_url()])
        .exited(0)
        .says("the result host is not available");
    assert!(began.elapsed() >= std::time::Duration::from_secs(1), "the host asked for a second");
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 1));
    env.audit().each_paid_once(1);
}
