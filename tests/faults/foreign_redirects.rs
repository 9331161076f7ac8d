//! Redirects to other hosts: a download may follow one, without the key; nothing else does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::support::api_key::KEY;
use crate::support::collect_outputs::Outputs;
use crate::support::proxy::{head_of, message};
use crate::support::{TestEnv, fault_matrix, manifests};

/// A host of somebody else's, which hands out one picture whatever it is asked, and remembers who asked.
struct Foreign {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Foreign {
    fn open() -> Foreign {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = heads.clone();
        // It listens until the test's process ends.
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let Ok(Some(request)) = message(&mut client) else { continue };
                seen.lock().unwrap().push(head_of(&request));
                let picture = picture();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    picture.len()
                );
                // Whoever hung up has been seen all the same.
                let _ = client.write_all(&[head.as_bytes(), &picture].concat());
            }
        });
        Foreign { port, heads }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// A red dot.
fn picture() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header().unwrap().write_image_data(&[255, 0, 0]).unwrap();
    bytes
}

#[test]
fn a_result_on_another_host_is_fetched_without_the_key() {
    let (env, foreign) = (TestEnv::new(), Foreign::open());
    let there = foreign.url("/elsewhere.png");
    env.faults(&format!(
        "[[rules]]\non = 'download'\neffect = {{ do = 'redirected-download', location = '{there}' }}"
    ));
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(["run", "batch.csv"]).exited(0);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 3));
    let heads = foreign.heads();
    assert_eq!(heads.len(), 3);
    for head in heads {
        assert!(head.starts_with("get /elsewhere.png"), "{head}");
        for secret in ["authorization", "idempotency-key", "referer", KEY] {
            assert!(!head.contains(secret), "{secret} was shown to another host: {head}");
        }
    }
    assert_eq!(env.audit().totals.media_requests_with_key, 0);
}

/// A result host that sends the client back to the API: the key is not sent even there.
#[test]
fn a_result_that_points_at_the_service_itself_is_asked_for_without_the_key() {
    let env = TestEnv::new();
    let there = format!("{}/api/v1/credits", env.base_url());
    env.faults(&format!(
        "[[rules]]\non = 'download'\ntimes = 1\neffect = {{ do = 'redirected-download', location = '{there}' }}"
    ));
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    let audit = env.audit();
    assert_eq!(audit.totals.unauthorized, 1, "it asked there, and had no key to show");
    audit.each_paid_once(1);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 1));
}

/// Every creating call is told once to go elsewhere; with a key it is sent again to the service, and a
/// short, which has none, waits for a person.
fn posts_that_are_sent_elsewhere(status: u16, when: &str, there: &str) -> TestEnv {
    let env = TestEnv::new();
    let rule = |kind| {
        format!(
            "[[rules]]\non = 'create'\nkind = '{kind}'\ntimes = 1\neffect = {{ do = 'answer', status = {status}, \
             body = 'empty', location = '{there}', when = '{when}' }}\n"
        )
    };
    env.faults(&fault_matrix::KINDS.map(rule).concat());
    env.write("batch.jsonl", fault_matrix::ROWS);
    env.run(["run", "batch.jsonl"]).exited(7);
    let states = Outputs::of(&env, "batch").column("state");
    let (short, keyed) = states.split_last().unwrap();
    assert_eq!(
        (short.as_str(), keyed),
        ("in_doubt", &vec!["succeeded".to_owned(); 5][..]),
        "{status} {when}"
    );
    env
}

#[test]
fn a_post_is_never_sent_to_another_host() {
    let foreign = Foreign::open();
    for status in [301, 302, 303, 307, 308] {
        let env = posts_that_are_sent_elsewhere(status, "before", &foreign.url("/api/v1/images"));
        assert_eq!(foreign.heads(), [""; 0], "{status}: nobody followed");
        let audit = env.audit();
        assert_eq!(
            (audit.totals.tasks, audit.totals.replays),
            (5, 0),
            "{status}: the service made none before"
        );
    }
}

#[test]
fn a_post_that_was_taken_and_redirected_is_not_paid_for_twice() {
    let foreign = Foreign::open();
    for status in [307, 308] {
        let env = posts_that_are_sent_elsewhere(status, "after", &foreign.url("/api/v1/images"));
        assert_eq!(foreign.heads(), [""; 0], "{status}: nobody followed");
        let audit = env.audit();
        // One of every kind; those with a key were asked for again, the short was not.
        assert_eq!((audit.totals.tasks, audit.totals.replays), (6, 5), "{status}");
        assert_eq!((audit.totals.charges, audit.totals.refunds), (6, 0), "{status}");
    }
}

/// A redirect within the service is none the better: a client that followed it would post twice.
#[test]
fn a_post_follows_no_redirect_within_the_service() {
    let env = TestEnv::new();
    let there = format!("{}/api/v1/images", env.base_url());
    env.faults(&format!(
        "[[rules]]\non = 'create'\ntimes = 1\n\
         effect = {{ do = 'answer', status = 307, body = 'empty', location = '{there}', when = 'after' }}"
    ));
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    let audit = env.audit();
    audit.each_paid_once(1);
    assert_eq!(audit.posts(), 2, "the call that was redirected, and the same again");
}

#[test]
fn a_poll_is_never_sent_to_another_host() {
    let (env, foreign) = (TestEnv::new(), Foreign::open());
    let there = foreign.url("/api/v1/tasks");
    env.faults(&format!(
        "[[rules]]\non = 'poll'\nper = 'task'\ntimes = 2\n\
         effect = {{ do = 'answer', status = 302, body = 'empty', location = '{there}' }}"
    ));
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    assert_eq!(foreign.heads(), [""; 0]);
    env.audit().each_paid_once(2);
}

/// The base address has moved, or lacks its `https`: a person is told where the service is instead.
#[test]
fn a_service_that_has_moved_is_named() {
    let (env, foreign) = (TestEnv::new(), Foreign::open());
    let there = foreign.url("/api/v1/models?type=image");
    env.faults(&format!(
        "[[rules]]\non = 'catalog'\neffect = {{ do = 'answer', status = 301, body = 'html', location = '{there}' }}"
    ));
    env.write("batch.csv", manifests::manifest("image", 1));
    let target = foreign.url("/api/v1/models");
    env.run(["run", "batch.csv"]).exited(5).says(&format!(
        "the service redirects to {target}; set service.base_url to the address it should be reached at"
    ));
    assert_eq!(foreign.heads(), [""; 0], "nobody followed");
}
