//! The page of a review: what it shows and serves, and who decides by it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::daemon::live_page::{Server, serve};

const HOSTILE: &str = "x</script><script>alert(1)</script><img src=x onerror=alert(2)>";

/// A batch of which the two takes of one row wait, one output of a hostile name, and one that no decision is asked for.
fn submit(server: &Server) {
    let manifest = format!(
        "id,kind,model,prompt,count,review\n\
         poster,image,gi-2,A harbour,2,yes\n\
         {HOSTILE},sound-effect,,{HOSTILE},,yes\n\
         wind,sound-effect,,Wind,,\n"
    );
    server.env.write("spring.csv", manifest);
    server.env.write("other.csv", "id,kind,prompt,review\nbell,sound-effect,A bell,yes\n");
    server.env.run(["submit", "spring.csv", "--wait"]).exited(7);
    server.env.run(["submit", "other.csv", "--wait"]).exited(7);
}

/// `id` and everything else of the outputs of a batch that ask for a decision or have one.
fn listed(server: &Server, batch: &str) -> Vec<Value> {
    let listed = server.env.run(["review", batch, "--all", "--json"]).exited(0).stdout;
    let lines = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["review"].is_object()).collect()
}

fn decisions(server: &Server) -> Vec<String> {
    let told = |line: Value| {
        format!("{} {}", line["id"].as_str().unwrap(), line["review"]["decision"].as_str().unwrap())
    };
    listed(server, "spring").into_iter().map(told).filter(|line| line.starts_with("poster")).collect()
}

fn job(server: &Server, batch: &str, at: usize) -> String {
    listed(server, batch)[at]["job"].as_str().unwrap().to_owned()
}

#[test]
fn without_a_token_the_review_is_only_looked_at() {
    let server = serve(false, "");
    submit(&server);
    let page = server.ask("GET /batches/spring/review", &["sec-fetch-site: same-origin"], "");
    assert_eq!(page.status, 200, "{}", page.body);
    for text in ["3</b> waiting for review", "A harbour", "image gi-2 · 2 takes", "8 credits", ">waiting<"] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    for hostile in ["<script>alert", "<img src=x"] {
        assert!(!page.body.contains(hostile), "{}", page.body);
    }
    assert!(!page.body.contains("<form") && !page.body.contains(">wind<"), "{}", page.body);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("img-src 'self' data:; media-src 'self'"), "{policy}");
    assert_eq!(server.ask("POST /batches/spring/review", &[], "job=00&decision=approve").status, 403);
    assert_eq!(server.ask("GET /batches/nope/review", &[], "").status, 404);
    assert_eq!(server.ask("GET /batches/spring/review?after=x", &[], "").status, 400);

    let link = "href=\"/batches/spring/review\">3 waiting for review</a>";
    for path in ["/", "/batches/spring"] {
        let page = server.ask(&format!("GET {path}"), &[], "");
        assert!(page.body.contains(link), "{path}: {}", page.body);
    }

    // The output, as it lies on disk.
    let src = page.body.split("<img src=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let on_disk = fs::read(server.env.path("output/spring/poster.png")).unwrap();
    let (head, bytes) = server.fetch(&src, &["sec-fetch-site: same-origin"]);
    assert_eq!((head.status, head.header("content-type")), (200, Some("image/png")), "{}", head.head);
    assert_eq!(head.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(head.header("cross-origin-resource-policy"), Some("same-origin"));
    assert!(head.header("content-security-policy").unwrap().contains("sandbox"), "{}", head.head);
    assert!(bytes == on_disk, "{} bytes of {}", bytes.len(), on_disk.len());
    let (part, bytes) = server.fetch(&src, &["range: bytes=2-5"]);
    let range = format!("bytes 2-5/{}", on_disk.len());
    assert_eq!((part.status, part.header("content-range")), (206, Some(range.as_str())));
    assert_eq!(bytes, on_disk[2..=5]);
    let (none, bytes) = server.fetch(&src, &["range: bytes=99999999-"]);
    assert_eq!((none.status, bytes.len()), (416, 0));
    let known = format!("if-none-match: {}", head.header("etag").unwrap());
    assert_eq!(server.fetch(&src, &[&known]).0.status, 304);
    let stale = ["range: bytes=2-5", "if-range: \"other\""];
    assert_eq!(server.fetch(&src, &stale).0.status, 200, "of other bytes there is no part");
    assert_eq!(server.fetch(&src, &["sec-fetch-site: cross-site"]).0.status, 401);

    // Nothing else is served: other numbers, other batches, other files, and what is not as it was recorded.
    let own = job(&server, "spring", 0);
    let foreign = job(&server, "other", 0);
    for path in [
        format!("spring/outputs/{own}/0"),
        format!("spring/outputs/{own}/2"),
        format!("spring/outputs/{own}/-1"),
        format!("spring/outputs/{foreign}/1"),
        format!("other/outputs/{own}/1"),
        format!("nope/outputs/{own}/1"),
        format!("spring/outputs/{}/1", &own[..8]),
        "spring/outputs/poster/1".to_owned(),
        "spring/outputs/..%2F..%2Ftoken/1".to_owned(),
        "..%2F..%2Foutput/outputs/results.csv/1".to_owned(),
    ] {
        let status = server.ask(&format!("GET /batches/{path}"), &[], "").status;
        assert_eq!(status, 404, "{path}");
    }
    let path = server.env.path("output/spring/poster.png");
    fs::write(&path, "edited").unwrap();
    assert_eq!(server.fetch(&src, &[]).0.status, 404);
    fs::remove_file(&path).unwrap();
    fs::write(server.env.path("secret"), &on_disk).unwrap();
    symlink(server.env.path("secret"), &path).unwrap();
    assert_eq!(server.fetch(&src, &[]).0.status, 404, "a link leads anywhere");
    server.daemon.stop();
}

#[test]
fn decisions_are_made_by_forms_of_the_page_alone() {
    let server = serve(true, "");
    submit(&server);
    assert_eq!(server.ask("GET /batches/spring/review", &[], "").status, 303, "a login comes first");
    let outputs = format!("/batches/spring/outputs/{}/1", job(&server, "spring", 0));
    assert_eq!(server.ask(&format!("GET {outputs}"), &[], "").status, 303);
    let cookie = server.login();
    let cookie = cookie.as_str();
    let page = server.ask("GET /batches/spring/review", &[cookie], "");
    assert!(page.body.contains("value=\"approve\"") && page.body.contains("value=\"pick\""), "{}", page.body);
    assert_eq!(server.fetch(&outputs, &[cookie]).0.status, 200);
    let (token, first, sum) = (page.field("form_token"), page.field("job"), page.field("sha256"));
    let decide = |headers: &[&str], form: &str| {
        server.ask("POST /batches/spring/review", &[&[cookie], headers].concat(), form)
    };
    let about =
        |job: &str, decision: &str| format!("job={job}&sha256={sum}&decision={decision}&note=too+dark");
    let whole = format!("form_token={token}&{}", about(&first, "reject"));
    assert_eq!(decide(&[], &about(&first, "reject")).status, 403, "without the page's token");
    assert_eq!(decide(&["sec-fetch-site: cross-site"], &whole).status, 403);
    assert_eq!(decide(&["origin: http://evil.example"], &whole).status, 403);
    let other_session = server.login();
    assert_eq!(server.ask("POST /batches/spring/review", &[&other_session], &whole).status, 403);
    let foreign = job(&server, "other", 0);
    let with = |form: String| decide(&[], &format!("form_token={token}&{form}")).status;
    assert_eq!(with(about(&foreign, "approve")), 409, "a job of another batch");
    assert_eq!(with(about("poster", "approve")), 400);
    assert_eq!(with(about(&first, "delete")), 400);
    assert_eq!(with(format!("job={first}&sha256=00&decision=approve")), 409, "other bytes");
    assert_eq!(with(format!("job={first}&decision=approve")), 409, "nothing was looked at");
    let note = "x".repeat(1_001);
    assert_eq!(with(format!("job={first}&sha256={sum}&decision=approve&note={note}")), 400);
    assert_eq!(decisions(&server), ["poster waiting", "poster-v2 waiting"]);

    let done = decide(&["sec-fetch-site: same-origin"], &whole);
    assert_eq!(done.status, 303, "{}", done.body);
    let led = server.ask(&format!("GET {}", done.header("location").unwrap()), &[cookie], "");
    assert!(led.body.contains("spring/poster: rejected.") && led.body.contains("too dark"), "{}", led.body);
    assert_eq!(decisions(&server), ["poster rejected", "poster-v2 waiting"]);
    let review = &listed(&server, "spring")[0]["review"];
    assert_eq!((&review["by"], &review["note"]), (&"live page".into(), &"too dark".into()));

    // The page's script is told the same as JSON.
    let json = ["accept: application/json"];
    let second = &listed(&server, "spring")[1];
    let (second, its_sum) = (second["job"].as_str().unwrap(), second["files"][0]["sha256"].as_str().unwrap());
    let pick = format!("form_token={token}&job={second}&sha256={its_sum}&decision=pick");
    let told: Value = serde_json::from_str(&decide(&json, &pick).body).unwrap();
    assert_eq!((&told["said"], &told["waiting"]), (&"spring/poster-v2: picked.".into(), &1.into()), "{told}");
    let refused = decide(&json, &format!("form_token=00&{}", about(&first, "approve")));
    assert!(refused.status == 403 && refused.body.starts_with("{\"error\""), "{}", refused.body);
    // What is decided is shown on demand, and can be taken back there.
    let waiting = server.ask("GET /batches/spring/review", &[cookie], "");
    assert!(!waiting.body.contains("A harbour"), "{}", waiting.body);
    let all = server.ask("GET /batches/spring/review?all=true", &[cookie], "");
    assert!(all.body.contains("A harbour") && all.body.contains("value=\"withdraw\""), "{}", all.body);
    assert_eq!(with(format!("job={second}&sha256={its_sum}&decision=withdraw")), 303);
    assert_eq!(decisions(&server), ["poster rejected", "poster-v2 waiting"]);
    server.daemon.stop();
    server.env.audit().each_paid_once(5);
}
