//! What the live pages sell: another take of a row and a run of a schedule, each after its price; and the galleries that they
//! serve.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;

use serde_json::Value;

use crate::daemon::live_page::{Server, serve};
use crate::support::until;

const SPRING: &str = "id,kind,model,prompt,count,review\nposter,image,gi-2,A harbour,2,yes\n";

fn submit(server: &Server) {
    server.env.write("spring.csv", SPRING);
    server.env.run(["submit", "spring.csv", "--wait"]).exited(7);
}

fn job(server: &Server) -> String {
    let listed = server.env.run(["jobs", "spring", "--json"]).exited(0).stdout;
    let first: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    first["job"].as_str().unwrap().to_owned()
}

#[test]
fn another_take_is_bought_once_by_the_button_below_its_price() {
    let server = serve(true, "");
    submit(&server);
    let (cookie, job) = (server.login(), job(&server));
    let cookie = cookie.as_str();
    let review = server.ask("GET /batches/spring/review", &[cookie], "");
    let link = format!("/jobs/{job}/take?review=true");
    assert!(review.body.contains(&format!("href=\"{link}\"")), "{}", review.body);
    let page = server.ask(&format!("GET {link}"), &[cookie], "");
    assert_eq!(page.status, 200, "{}", page.body);
    for text in ["take 3 of its row, poster-v3", "It may spend 8 credits at most.", "Buy it for 8 credits"] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    let token = page.field("form_token");
    assert_eq!((page.field("take"), page.field("price")), ("3".to_owned(), "8".to_owned()));
    let buy = |headers: &[&str], form: &str| {
        server.ask(&format!("POST /jobs/{job}/take"), &[&[cookie], headers].concat(), form)
    };
    let form = |take: &str, price: &str| format!("form_token={token}&take={take}&price={price}&review=1");
    assert_eq!(buy(&[], "take=3&price=8").status, 403, "without the page's token");
    assert_eq!(buy(&["sec-fetch-site: cross-site"], &form("3", "8")).status, 403);
    assert_eq!(buy(&["origin: http://evil.example"], &form("3", "8")).status, 403);
    let dearer = buy(&[], &form("3", "7"));
    assert!(dearer.status == 409 && dearer.body.contains("ask for it again"), "{}", dearer.body);
    assert_eq!(buy(&[], &form("4", "8")).status, 409, "another take than the next one");
    for bad in [form("", "8"), form("3", ""), form("x", "8"), form("99999999999", "8"), form("0", "8")] {
        assert_eq!(buy(&[], &bad).status, 400, "{bad}");
    }
    server.env.audit().each_paid_once(2);

    let bought = buy(&[], &form("3", "8"));
    assert_eq!(bought.status, 303, "{}", bought.body);
    let location = bought.header("location").unwrap().to_owned();
    assert!(location.starts_with("/batches/spring/review?done="), "{location}");
    let said = server.ask(&format!("GET {location}"), &[cookie], "").body;
    assert!(said.contains("spring/poster-v3: take 3 is accepted for 8 credits at most."), "{said}");
    // The form again: a second click, or a browser that heard nothing.
    let again = buy(&[], &form("3", "8"));
    let said = server.ask(&format!("GET {}", again.header("location").unwrap()), &[cookie], "").body;
    assert!(said.contains("take 3 is there already; nothing was bought"), "{said}");
    until("the take", || server.env.path("output/spring/poster-v3.png").exists());
    server.env.run(["submit", "spring.csv", "--wait"]).exited(7).says("0 new (0 credits)");
    server.env.audit().each_paid_once(3);
    server.daemon.stop();
}

#[test]
fn without_a_token_nothing_is_sold() {
    let server = serve(false, "");
    submit(&server);
    let job = job(&server);
    let review = server.ask("GET /batches/spring/review", &[], "");
    assert!(!review.body.contains("/take"), "{}", review.body);
    for request in
        [format!("GET /jobs/{job}/take"), format!("POST /jobs/{job}/take"), "POST /v1/review/take".to_owned()]
    {
        let answer = server.ask(&request, &[], "{}");
        assert_eq!(answer.status, 403, "{request} {}", answer.body);
    }
    assert_eq!(server.ask("GET /schedules/nightly/run", &[], "").status, 403);
    server.env.audit().each_paid_once(2);
    server.daemon.stop();
}

#[test]
fn the_socket_sells_takes_to_programs() {
    let server = serve(true, "");
    submit(&server);
    let ask = |body: &str| {
        let headers = ["authorization: Bearer 0123456789abcdef", "content-type: application/json"];
        let answer = server.ask("POST /v1/review/take", &headers, body);
        (answer.status, serde_json::from_str::<Value>(&answer.body).unwrap())
    };
    let (status, plan) = ask(r#"{"job": "spring/poster"}"#);
    assert_eq!((status, &plan["take"], &plan["accepted"]), (200, &3.into(), &false.into()), "{plan:#}");
    for (body, expected) in [
        (r#"{"job": "spring/poster", "take": 3}"#, 400),
        (r#"{"job": "spring/poster", "price_credits": 8}"#, 400),
        (r#"{"job": "spring"}"#, 400),
        (r#"{"job": "spring/nothing"}"#, 404),
        (r#"{"job": "spring/poster", "take": 3, "price_credits": 1}"#, 409),
    ] {
        assert_eq!(ask(body).0, expected, "{body}");
    }
    let order = r#"{"job": "spring/poster", "take": 3, "price_credits": 8}"#;
    assert_eq!(ask(order).1["accepted"], true);
    assert_eq!(ask(order).1["already_there"], true);
    until("the take", || server.env.path("output/spring/poster-v3.png").exists());
    server.env.audit().each_paid_once(3);
    server.daemon.stop();
}

#[test]
fn a_schedule_is_run_once_after_its_price_was_shown() {
    let nightly = "[[schedule]]\nname = \"nightly\"\nmanifest = \"nightly.csv\"\ncron = \"0 3 * * *\"\n";
    let capped = format!("{}budget = 2\n", nightly.replace("\"nightly\"", "\"capped\""));
    let server = serve(true, &format!("{nightly}{capped}"));
    server.env.write("nightly.csv", "kind,prompt\nsound-effect,A night bird\nsound-effect,An owl\n");
    let cookie = server.login();
    let cookie = cookie.as_str();
    let overview = server.ask("GET /", &[cookie], "").body;
    assert!(overview.contains("href=\"/schedules/nightly/run\""), "{overview}");
    let page = server.ask("GET /schedules/nightly/run", &[cookie], "");
    assert!(page.body.contains("A run now has 2 jobs in the batch nightly-"), "{}", page.body);
    assert_eq!(server.ask("GET /schedules/daily/run", &[cookie], "").status, 404);
    let capped = server.ask("GET /schedules/capped/run", &[cookie], "").body;
    for text in ["Its budget is 2 credits: the rest would wait.", "It may spend 2 credits at most."] {
        assert!(capped.contains(text), "{capped}");
    }
    let (token, at, most) = (page.field("form_token"), page.field("at"), page.field("most"));
    assert!(page.body.contains(&format!("It may spend {most} credits at most.")), "{}", page.body);
    let run = |form: &str| server.ask("POST /schedules/nightly/run", &[cookie], form);
    assert_eq!(run(&format!("at={at}&most={most}")).status, 403, "without the page's token");
    assert_eq!(run(&format!("form_token={token}&at=1000&most={most}")).status, 409, "an old plan");
    assert_eq!(run(&format!("form_token={token}&at=99999999999000&most={most}")).status, 409);
    // The manifest has grown since: what was shown is the most that is spent.
    server.env.write(
        "nightly.csv",
        "kind,prompt\nsound-effect,A night bird\nsound-effect,An owl\nsound-effect,A fox\n",
    );
    let form = format!("form_token={token}&at={at}&most={most}");
    let started = run(&form);
    let batch = started.header("location").unwrap().split('?').next().unwrap().to_owned();
    assert!(batch.starts_with("/batches/nightly-"), "{batch}");
    assert_eq!(run(&form).header("location").unwrap().split('?').next(), Some(batch.as_str()));
    let name = batch.rsplit('/').next().unwrap();
    let status = || server.env.status(name);
    until("two jobs", || status()["succeeded"] == 2);
    let now = status();
    assert_eq!(
        (&now["parked_by"], now["budget_credits"].to_string()),
        (&"batch_budget".into(), most),
        "{now:#}"
    );
    server.env.audit().each_paid_once(2);
    server.daemon.stop();
}

#[test]
fn a_gallery_is_served_and_nothing_that_lies_beside_it_is_run() {
    let server = serve(false, "");
    submit(&server);
    let get = |path: &str| server.ask(&format!("GET {path}"), &["sec-fetch-site: same-origin"], "");
    assert!(get("/batches/spring").body.contains("href=\"/batches/spring/gallery\""));
    let entry = get("/batches/spring/gallery");
    assert_eq!((entry.status, entry.header("location")), (303, Some("/batches/spring/gallery/index.html")));
    let folder = server.env.path("output/spring/gallery");
    until("the gallery", || folder.join("data/0000.js").exists());
    for (name, content) in [("script.js", "alert(1)"), ("style.css", "x{}"), ("more.js", "alert(1)")] {
        fs::write(folder.join(name), content).unwrap();
    }
    for (name, content) in
        [("evil.js", "alert(1)"), ("evil.html", "<script>"), ("evil.svg", "<svg/>"), ("results.txt", "x")]
    {
        fs::write(server.env.path(&format!("output/spring/{name}")), content).unwrap();
    }
    let page = get("/batches/spring/gallery/index.html");
    assert!(page.status == 200 && page.body.contains("src=\"gallery/script.js\""), "{}", page.body);
    let script = get("/batches/spring/gallery/gallery/script.js");
    assert!(
        script.status == 200 && script.body.contains("callsheetPage") && !script.body.contains("alert"),
        "{}",
        script.head
    );
    let data = get("/batches/spring/gallery/gallery/data/0000.js?2");
    assert!(data.status == 200 && data.body.starts_with("callsheetPage(0,'"), "{}", data.body);
    assert!(get("/batches/spring/gallery/gallery/index.js").body.starts_with("callsheetBatch(0,'"));
    let (picture, bytes) =
        server.fetch("/batches/spring/gallery/poster.png", &["sec-fetch-site: same-origin"]);
    assert_eq!(picture.header("content-type"), Some("image/png"));
    assert!(picture.header("content-security-policy").unwrap().contains("sandbox"), "{}", picture.head);
    assert!(bytes == fs::read(server.env.path("output/spring/poster.png")).unwrap());
    fs::write(folder.join("data/0000.js"), "alert(1)").unwrap();
    fs::write(folder.join("data/0001.js"), "callsheetPage(1,'[]');alert(1);x('');\n").unwrap();
    let altered = get("/batches/spring/gallery/gallery/data/0001.js");
    assert_eq!(altered.body, "callsheetPage(1,'[]\\');alert(1);x(\\'');\n", "it stays inside its string");
    std::os::unix::fs::symlink(server.env.path("token"), server.env.path("output/spring/link.png")).unwrap();
    for path in [
        "spring/gallery/gallery/data/0000.js",
        "spring/gallery/gallery/more.js",
        "spring/gallery/evil.js",
        "spring/gallery/evil.html",
        "spring/gallery/evil.svg",
        "spring/gallery/results.txt",
        "spring/gallery/results.jsonl",
        "spring/gallery/link.png",
        "spring/gallery/..%2F..%2Ftoken.png",
        "nope/gallery/index.html",
    ] {
        assert_eq!(get(&format!("/batches/{path}")).status, 404, "{path}");
    }
    server.daemon.stop();
}
