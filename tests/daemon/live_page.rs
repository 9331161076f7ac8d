//! The live pages, as a browser and those who mean harm ask for them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::own_address::own_address;
use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

const TOKEN: &str = "0123456789abcdef";

pub(crate) struct Server {
    pub(crate) env: TestEnv,
    pub(crate) address: SocketAddr,
    pub(crate) daemon: Running,
}

pub(crate) fn serve(with_token: bool, more: &str) -> Server {
    let env = TestEnv::new();
    let address = own_address();
    let token = if with_token { "token_file = \"token\"\n" } else { "" };
    env.write("token", TOKEN);
    env.configure(&format!("[control]\nhttp = \"{address}\"\n{token}{more}"));
    let daemon = env.daemon("info");
    Server { env, address, daemon }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The value of a hidden field.
    pub(crate) fn field(&self, name: &str) -> String {
        let from = self.body.split(&format!("name=\"{name}\" value=\"")).nth(1);
        from.unwrap_or_else(|| panic!("no {name} in {}", self.body)).split('"').next().unwrap().to_owned()
    }
}

impl Server {
    fn connect(&self, request: &str, headers: &[&str], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let (address, length) = (self.address, body.len());
        let head = format!(
            "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
        stream
    }

    pub(crate) fn ask(&self, request: &str, headers: &[&str], body: &str) -> Answer {
        let mut text = String::new();
        self.connect(request, headers, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// What a route serves that is no text: its response, and its bytes.
    pub(crate) fn fetch(&self, path: &str, headers: &[&str]) -> (Answer, Vec<u8>) {
        let mut bytes = Vec::new();
        self.connect(&format!("GET {path}"), headers, "").read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (Answer { status, head, body: String::new() }, bytes[end + 4..].to_vec())
    }

    /// A stream of events whose response has begun. One whose request was not read yet may be closed for newer connections.
    fn listen(&self, path: &str) -> TcpStream {
        let mut stream = self.connect(&format!("GET {path}"), &[], "");
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head, *b"HTTP/1.1 200", "{path}");
        stream
    }

    /// The cookie of a new session.
    pub(crate) fn login(&self) -> String {
        let answer = self.ask("POST /login", &[], &format!("token={TOKEN}&next=%2F"));
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{}", answer.body);
        let cookie = answer.header("set-cookie").unwrap();
        for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains(TOKEN), "{cookie}");
        format!("cookie: {}", cookie.split(';').next().unwrap())
    }
}

#[test]
fn the_page_of_a_job_tells_the_facts_that_explain_tells() {
    let server = serve(false, "");
    server.env.faults(
        "[[rules]]\ncontains = 'boat'\neffect = { do = 'other-model', model = 'understudy' }\n\
         [[rules]]\ncontains = 'storm'\neffect = { do = 'task-fails', code = 'content_rejected' }",
    );
    server.env.write(
        "harbour.csv",
        "id,kind,model,prompt,meta.scene\nboat,image,gi-2,A boat,<dawn> 1\nstorm,image,gi-2,A storm,noon\n",
    );
    server.env.run(["submit", "harbour.csv", "--wait"]).exited(1);
    for (label, fact) in [("boat", "drift"), ("storm", "error")] {
        let explained = server.env.run(["explain", label]).exited(0).stdout;
        let told = explained.lines().take_while(|line| *line != "history").skip(1);
        let told: Vec<(&str, &str)> = told.map(|line| line.trim_start().split_once(' ').unwrap()).collect();
        for wanted in ["line", "what", "price", "credits", "identity", "attempt", "task", "column", fact] {
            assert!(told.iter().any(|(about, _)| *about == wanted), "{wanted}: {explained}");
        }
        let identity = told.iter().find(|(about, _)| *about == "identity").unwrap().1.trim();
        let page = server.ask(&format!("GET /jobs/{identity}"), &[], "").body;
        for (about, what) in told.iter().filter(|(about, _)| *about != "text") {
            let what = what.trim().replace('<', "&lt;").replace('>', "&gt;");
            let fact = |attribute| format!("<dt>{about}</dt><dd{attribute}>{what}</dd>");
            assert!(
                page.contains(&fact("")) || page.contains(&fact(" translate=\"no\"")),
                "{about} {what}: {page}"
            );
        }
    }
}

#[test]
fn without_a_token_there_is_only_reading() {
    let server = serve(false, "");
    server.env.write("batch.csv", manifests::manifest("image", 3));
    server.env.run(["submit", "batch.csv", "--wait"]).exited(0);
    let page = server.ask("GET /", &["sec-fetch-site: none"], "");
    assert_eq!(page.status, 200);
    assert!(
        page.body.contains("Reading only") && page.body.contains("href=\"/batches/batch\""),
        "{}",
        page.body
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert!(page.header("referrer-policy").is_some());
    let style = server.ask("GET /assets/live.css", &["sec-fetch-site: same-origin"], "");
    assert_eq!((style.status, style.header("content-type")), (200, Some("text/css; charset=utf-8")));
    let batch = server.ask("GET /batches/batch", &[], "");
    assert!(
        batch.body.contains("3</b> of 3 jobs succeeded") && batch.body.contains("/jobs/"),
        "{}",
        batch.body
    );
    let job = batch.body.split("href=\"/jobs/").nth(1).unwrap().split('"').next().unwrap();
    let job = server.ask(&format!("GET /jobs/{job}"), &[], "");
    assert!(job.status == 200 && job.body.contains("History") && job.body.contains("held"), "{}", job.body);
    for (path, status) in
        [("/batches/nope", 404), ("/jobs/nope", 404), ("/batches/batch/pause", 403), ("/submit", 403)]
    {
        let answer = server.ask(&format!("GET {path}"), &[], "");
        assert_eq!(answer.status, status, "{path} {}", answer.body);
        assert!(answer.body.contains("<!DOCTYPE html>"), "{path}");
    }
    // Nothing changes, by whichever route.
    for path in ["/v1/pause", "/v1/manifests?file=x.csv", "/batches/batch/pause", "/login", "/submit"] {
        let answer = server.ask(&format!("POST {path}"), &[], "{}");
        assert_eq!(answer.status, 403, "{path} {}", answer.body);
        assert!(answer.body.contains("only reading is allowed"), "{path} {}", answer.body);
    }
    // A page of another site reads nothing either, whatever name leads to this machine.
    assert_eq!(server.ask("GET /", &["sec-fetch-site: cross-site"], "").status, 401);
    assert_eq!(server.ask("GET /v1/status", &["origin: http://evil.example"], "").status, 401);
    let mut rebound = TcpStream::connect(server.address).unwrap();
    rebound.write_all(b"GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    rebound.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
    server.daemon.stop();
}

#[test]
fn a_login_opens_the_pages_and_a_form_needs_its_token() {
    let server = serve(true, "[limits]\nin_flight = 1");
    server.env.write("batch.csv", manifests::manifest("image", 2));
    server.env.run(["submit", "batch.csv", "--wait"]).exited(0);
    let away = server.ask("GET /batches/batch?state=failed", &[], "");
    let login = "/login?next=%2Fbatches%2Fbatch%3Fstate%3Dfailed";
    assert_eq!((away.status, away.header("location")), (303, Some(login)));
    assert_eq!(server.ask("GET /events", &[], "").status, 401);
    let wrong = server.ask("POST /login", &[], "token=wrong");
    assert!(
        wrong.status == 401 && wrong.header("set-cookie").is_none() && wrong.body.contains("not the token")
    );
    let cookie = server.login();
    let cookie = cookie.as_str();
    assert_eq!(server.ask("GET /", &[cookie], "").status, 200);
    assert_eq!(server.ask("GET /", &["cookie: callsheet-session=made-up"], "").status, 303);
    // The session is of the pages alone: programs bring the token.
    assert_eq!(server.ask("GET /v1/status", &[cookie], "").status, 401);
    assert_eq!(server.ask("POST /v1/pause", &[cookie], "{}").status, 401);
    let bearer = format!("authorization: Bearer {TOKEN}");
    assert_eq!(server.ask("GET /v1/status", &[&bearer], "").status, 200);
    assert_eq!(server.ask("POST /v1/pause", &[&bearer], "{}").status, 200);
    // A reverse proxy passes on what it asks for itself.
    let basic = "authorization: Basic dXNlcjpwYXNz";
    assert_eq!(server.ask("GET /", &[cookie, basic], "").status, 200);
    assert_eq!(server.ask("GET /", &[basic], "").status, 303);
    assert_eq!(server.ask("GET /v1/status", &[cookie, basic], "").status, 401);
    assert_eq!(server.ask("GET /", &[cookie, "authorization: Bearer wrong"], "").status, 401);
    // Other pages of the same site embed nothing of these, and lead to them.
    let path = "/batches/batch/gallery/gallery/data/0000.js";
    for (path, site, mode, expected) in [
        ("/batches/batch", "same-origin", "cors", 200),
        (path, "same-site", "no-cors", 403),
        (path, "cross-site", "no-cors", 403),
        ("/", "same-site", "cors", 403),
        ("/", "same-site", "navigate", 200),
    ] {
        let headers = [&format!("sec-fetch-site: {site}"), &format!("sec-fetch-mode: {mode}")];
        let answer = server.ask(&format!("GET {path}"), &[cookie, headers[0], headers[1]], "");
        assert_eq!(answer.status, expected, "{path} {site} {mode}: {}", answer.body);
        let policy = answer.header("cross-origin-resource-policy");
        assert!(expected == 403 || policy == Some("same-origin"), "{path}: {}", answer.head);
    }

    let asked = server.ask("GET /batches/batch/budget?budget=90", &[cookie], "");
    assert!(asked.body.contains("May then spend"), "{}", asked.body);
    let token = asked.field("form_token");
    let budget = |headers: &[&str], body: &str| {
        let headers = [&[cookie], headers].concat();
        server.ask("POST /batches/batch/budget", &headers, body)
    };
    let form = format!("form_token={token}&budget=90");
    assert_eq!(budget(&[], "budget=90").status, 403, "without the page's token");
    assert_eq!(budget(&[], "budget=90&form_token=00").status, 403);
    for from in [
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
        "origin: http://evil.example",
        "origin: null",
    ] {
        assert_eq!(budget(&[from], &form).status, 403, "{from}");
    }
    let other_session = server.login();
    assert_eq!(server.ask("POST /batches/batch/budget", &[&other_session], &form).status, 403);
    let status =
        || server.env.run(["status", "--json"]).exited(0).json()["batches"][0]["budget_credits"].clone();
    assert_ne!(status(), 90);
    let own = format!("origin: http://{}", server.address);
    let done = budget(&["sec-fetch-site: same-origin", &own], &form);
    assert_eq!(done.status, 303, "{}", done.body);
    assert_eq!(status(), 90);
    let page = server.ask(&format!("GET {}", done.header("location").unwrap()), &[cookie], "");
    assert!(page.body.contains("and is 90 credits now"), "{}", page.body);

    let out = server.ask("POST /logout", &[cookie], &format!("form_token={token}"));
    assert_eq!((out.status, out.header("location")), (303, Some("/login")));
    assert_eq!(server.ask("GET /", &[cookie], "").status, 303, "the session is over");
    server.daemon.stop();
}

#[test]
fn a_manifest_is_planned_before_it_is_submitted() {
    let server = serve(true, "");
    let cookie = server.login();
    let cookie = cookie.as_str();
    let token = server.ask("GET /submit", &[cookie], "").field("form_token");
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let rows = manifests::manifest("image", 2).replace('\n', "\r\n") + "image,,,,\r\n";
    let form = format!("form_token={token}&file=page.csv&manifest={}", encoded(&rows));
    let plan = server.ask("POST /submit/plan", &[cookie], &form);
    assert_eq!(plan.status, 200, "{}", plan.body);
    assert!(plan.body.contains("2 new") && plan.body.contains("It may cost"), "{}", plan.body);
    assert!(plan.body.contains("Problems"), "{}", plan.body);
    assert_eq!(server.env.audit().totals.tasks, 0);
    let key = plan.field("plan");
    let submit = format!("form_token={token}&plan={key}");
    assert_eq!(server.ask("POST /submit", &[cookie], &format!("plan={key}")).status, 403);
    let done = server.ask("POST /submit", &[cookie], &submit);
    assert_eq!(done.status, 303, "{}", done.body);
    assert!(done.header("location").unwrap().starts_with("/batches/page?done="));
    let again = server.ask("POST /submit", &[cookie], &submit);
    assert!(again.status == 400 && again.body.contains("submitted already"), "{}", again.body);
    // The same file from a shell has the same rows: they are there.
    server.env.write("page.csv", manifests::manifest("image", 2));
    server.env.run(["submit", "page.csv", "--wait"]).exited(0).says("2 already there");
    server.daemon.stop();
    server.env.audit().each_paid_once(2);
}

#[test]
fn a_button_submits_what_waits_after_a_pilot_and_says_its_price_first() {
    let server = serve(true, "");
    let cookie = server.login();
    let cookie = cookie.as_str();
    server.env.write("batch.csv", manifests::manifest("image", 3));
    server.env.run(["submit", "batch.csv", "--pilot", "1"]).exited(0);
    let page = || server.ask("GET /batches/batch", &[cookie], "").body;
    until("the button", || page().contains("/batches/batch/continue"));
    let asked = server.ask("GET /batches/batch/continue", &[cookie], "");
    let told = "The 2 jobs that wait after its pilot are submitted.";
    assert!(asked.body.contains(told) && asked.body.contains("They were accepted at 16"), "{}", asked.body);
    server.env.audit().each_paid_once(1);
    let form = format!("form_token={}&most={}", asked.field("form_token"), asked.field("most"));
    let done = server.ask("POST /batches/batch/continue", &[cookie], &form);
    assert_eq!(done.status, 303, "{}", done.body);
    server.env.run(["submit", "batch.csv", "--wait"]).exited(0);
    server.daemon.stop();
    server.env.audit().each_paid_once(3);
}

#[test]
fn a_retry_may_leave_out_what_was_canceled() {
    let server = serve(true, "");
    server.env.faults(
        "[[rules]]\ncontains = 'once'\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }\n\
         [[rules]]\ncontains = 'rude'\neffect = { do = 'task-fails', code = 'content_rejected' }\n",
    );
    let cookie = server.login();
    let cookie = cookie.as_str();
    let jobs = r#"[{"id": "a", "kind": "sound-effect", "prompt": "once"}, {"id": "b", "kind": "image", "model": "gi-2", "prompt": "unwanted"},
                   {"id": "c", "kind": "sound-effect", "prompt": "rude"}]"#;
    server.env.write("w.json", format!(r#"{{"policy": {{"attempts": 1}}, "jobs": {jobs}}}"#));
    server.env.run(["submit", "w.json", "--budget", "0"]).exited(0);
    server.env.run(["cancel", "w/b"]).exited(0);
    let asked = || server.ask("GET /batches/w/retry", &[cookie], "");
    assert!(!asked().body.contains("Only the failed ones"), "{}", asked().body);
    server.env.run(["budget", "w", "100"]).exited(0);
    let failed = || server.env.status("w")["failed"].clone();
    until("both to fail", || failed() == 2);
    // Of the failed ones a retry takes up the one that may succeed.
    assert!(
        asked().body.contains("2 failed, canceled and expired jobs are queued again"),
        "{}",
        asked().body
    );
    assert!(asked().body.contains("Only the failed ones"), "{}", asked().body);
    let page = asked();
    let hidden = ["form_token", "most", "seen"].map(|name| format!("{name}={}", page.field(name)));
    let form = format!("{}&failed=true", hidden.join("&"));
    let done = server.ask("POST /batches/w/retry", &[cookie], &form);
    assert_eq!(done.status, 303, "{}", done.body);
    let told = server.ask(&format!("GET {}", done.header("location").unwrap()), &[cookie], "").body;
    assert!(told.contains("Queued again: 1 job, each under a new key."), "{told}");
    assert!(told.contains("1 would be rejected again unchanged"), "{told}");
    until("the second attempt", || server.env.audit().tasks.iter().any(|task| task.status == "success"));
    server.env.run(["submit", "w.json", "--wait"]).exited(1);
    server.daemon.stop();
    let audit = server.env.audit();
    assert!(audit.tasks.iter().all(|task| task.prompt != "unwanted"), "{:#?}", audit.tasks);
}

/// Ids of the next events of a stream.
fn ids(stream: TcpStream, most: usize) -> Vec<u64> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let ids = lines.filter_map(|line| line.strip_prefix("id: ").map(|id| id.parse().unwrap()));
    ids.take(most).collect()
}

#[test]
fn fifty_open_pages_are_served_by_one_look_a_second() {
    let server = serve(false, "[limits]\nin_flight = 1");
    server.env.write("batch.csv", manifests::manifest("image", 60));
    server.env.run(["submit", "batch.csv"]).exited(0);
    let began = std::time::Instant::now();
    let pages: Vec<TcpStream> =
        (0..100).map(|n| server.listen(if n % 2 == 0 { "/events" } else { "/events?batch=batch" })).collect();
    // More than there are connections: others are served all the same.
    assert_eq!(server.ask("GET /v1/status", &[], "").status, 200);
    let listening: Vec<_> = pages.into_iter().map(|page| std::thread::spawn(move || ids(page, 2))).collect();
    let seen: BTreeSet<u64> = listening.into_iter().flat_map(|page| page.join().unwrap()).collect();
    let looks = began.elapsed().as_secs() + 1;
    let last = *seen.last().unwrap();
    assert!(last >= 2 && last <= looks, "{last} looks in {looks} s for a hundred pages");
    server.daemon.stop();
}

#[test]
fn event_streams_have_a_limit_of_their_own() {
    let server = serve(false, "");
    let pages: Vec<TcpStream> = (0..256).map(|_| server.listen("/events")).collect();
    assert_eq!(server.ask("GET /events", &[], "").status, 503, "that is one too many");
    assert_eq!(server.ask("GET /", &[], "").status, 200);
    drop(pages);
    until("the streams of closed pages to be free", || {
        let mut one_more = server.connect("GET /events", &[], "");
        let mut head = [0; 12];
        one_more.read_exact(&mut head).unwrap();
        head == *b"HTTP/1.1 200"
    });
    server.daemon.stop();
}

/// A run serves its pages as long as it lasts.
#[test]
fn a_run_serves_its_pages_and_says_where() {
    let env = TestEnv::new();
    env.configure("[limits]\nin_flight = 1");
    env.write("batch.csv", manifests::manifest("image", 40));
    let run = env.start(["run", "batch.csv", "--page"]);
    let line = crate::support::eventually("the address", || {
        run.peek()
            .lines()
            .chain(run.said().lines())
            .find_map(|line| line.split_once("page: http://")?.1.split_once('/').map(|(at, _)| at.to_owned()))
    });
    let address = line.parse().unwrap();
    let server = Server { env, address, daemon: run };
    let page = server.ask("GET /", &[], "");
    assert!(page.status == 200 && page.body.contains("/batches/batch"), "{}", page.body);
    assert_eq!(server.ask("POST /v1/cancel", &[], "{\"name\":\"batch\"}").status, 403);
    assert_eq!(server.ask("GET /submit", &[], "").status, 403);
    server.daemon.end().exited(0);
    assert!(TcpStream::connect(address).is_err(), "it ends with the run");
    server.env.audit().each_paid_once(40);
}

#[test]
fn a_stream_of_events_ends_with_the_token_that_opened_it() {
    let server = serve(true, "");
    let bearer = format!("authorization: Bearer {TOKEN}");
    let mut stream = server.connect("GET /events", &[&bearer], "");
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head, *b"HTTP/1.1 200");
    server.env.write("token", "fedcba9876543210");
    server.daemon.signal(rustix::process::Signal::HUP);
    server.daemon.says("the token of control.token_file was replaced");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(server.ask("GET /events", &[&bearer], "").status, 401);
    server.daemon.stop();
}

/// A command that is copied from a page and lacks a flag would change another state: that of the service, where the page is
/// of the emulator's.
#[test]
fn commands_on_a_page_are_typed_for_the_state_that_it_shows() {
    let mut server = serve(false, "");
    server.daemon.stop();
    server.daemon = server.env.start(["daemon", "--log-level", "info", "--state", "other state"]);
    server.daemon.says("ready");
    let rows = "A callsheet jobs a,image,gi-2,A boat\nB,image,gi-2,A callsheet jobs b\n";
    server.env.write("b.csv", format!("id,kind,model,prompt\n{rows}"));
    let submitted = ["submit", "b.csv", "--budget", "8", "--wait", "--state", "other state"];
    server.env.run(submitted).exited(4);
    let page = server.ask("GET /batches/b", &[], "").body;
    let wanted = "callsheet budget --state &#39;other state&#39; b N";
    let is_there = |page: &str| page.replace("&#x27;", "&#39;").replace('\'', "&#39;").contains(wanted);
    assert!(is_there(&page), "{page}");
    assert!(page.contains("callsheet open --state"), "{page}");
    // The words of a person stay as they are.
    assert!(page.contains(">A callsheet jobs a<") && page.contains(">A callsheet jobs b<"), "{page}");
    // What is updated since is typed in the same way.
    let mut events = BufReader::new(server.listen("/events?batch=b"));
    let mut line = String::new();
    while !line.starts_with("data:") {
        line.clear();
        assert_ne!(events.read_line(&mut line).unwrap(), 0, "no event came");
    }
    assert!(is_there(&line), "{line}");
    server.daemon.stop();
}
