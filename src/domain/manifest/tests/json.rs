//! JSON documents, read as transcripts.

use crate::domain::credits::Credits;
use crate::domain::diagnostic::Position;
use crate::domain::manifest::row::{Deadline, Header, OnDeadline, OnDrift, Policy, ReadRow};
use crate::domain::time::Millis;

use super::{limits, open};

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    super::check("a.json", text, expected);
}

fn header(text: &str) -> Header {
    open("a.json", text.as_bytes(), &limits()).unwrap().header().clone()
}

#[test]
fn an_array_of_jobs() {
    check(
        "\u{feff}[\n  {\"id\": 1, \"prompt\": \" a \", \"options\": {\"seed\": 7}, \"audio\": true, \"meta\": {\"k\": [1]}},\n  {\"text\": \"hi\", \"voice_id\": \"v\", \"speed\": 1.5}\n]\n",
        &[
            r#"2:3 {"id":"1","meta":{"k":[1]},"options":{"audio":true,"seed":7},"prompt":"a"}"#,
            r#"3:3 {"options":{"speed":1.5},"text":"hi","voice_id":"v"}"#,
        ],
    );
}

#[test]
fn an_object_with_batch_policy_and_jobs() {
    let text = r#"{"batch": " spring ", "policy": {"budget": 500, "priority": -3, "deadline": "30m",
        "on_deadline": "resubmit", "expires": "2d", "attempts": 2, "strict": true, "allow_unknown_options": true,
        "on_drift": "pause", "review": true,
        "layout": "{batch}/{job}.{ext}"}, "jobs": [{"prompt": "a"}]}"#;
    let policy = Policy {
        budget: Some(Credits(500)),
        priority: Some(-3),
        deadline: Some(Deadline::After(Millis::from_secs(1800))),
        on_deadline: Some(OnDeadline::Resubmit),
        expires: Some(Deadline::After(Millis::from_secs(172_800))),
        attempts: Some(2),
        strict: Some(true),
        allow_unknown_options: Some(true),
        on_drift: Some(OnDrift::Pause),
        review: Some(true),
        layout: Some("{batch}/{job}.{ext}".to_owned()),
    };
    assert_eq!(header(text), Header { batch: Some("spring".to_owned()), policy });
    assert_eq!(header(r#"{"batch": " ", "policy": {"budget": null}, "jobs": []}"#), Header::default());
}

#[test]
fn rows_win_over_defaults_key_by_key() {
    check(
        r#"{"jobs": [
  {"prompt": "a"},
  {"prompt": "b", "model": "m2", "options": {"duration": 8}, "meta": {"sku": 1}},
  {"prompt": "c", "model": null, "resolution": null, "image_urls": [], "count": null},
  {"prompt": " "}
], "defaults": {"model": "m1", "prompt": "d", "count": 2, "duration": "5s", "options": {"resolution": "720p"}, "image_urls": "u v", "meta": {"sku": 0, "k": 1}}}"#,
        &[
            r#"2:3 {"count":2,"image_urls":["u","v"],"meta":{"k":1,"sku":0},"model":"m1","options":{"duration":"5s","resolution":"720p"},"prompt":"a"}"#,
            r#"3:3 {"count":2,"image_urls":["u","v"],"meta":{"k":1,"sku":1},"model":"m2","options":{"duration":8,"resolution":"720p"},"prompt":"b"}"#,
            r#"4:3 {"meta":{"k":1,"sku":0},"options":{"duration":"5s"},"prompt":"c"}"#,
            r#"5:3 {"count":2,"image_urls":["u","v"],"meta":{"k":1,"sku":0},"model":"m1","options":{"duration":"5s","resolution":"720p"},"prompt":"d"}"#,
        ],
    );
}

#[test]
fn every_problem_of_the_heading_is_told() {
    check(
        r#"{"bach": 1, "batch": 2,
 "policy": {"buget": 1, "budget": 1.5, "on_deadline": "wach", "attempts": 0, "strict": "yes", "expires": 3, "layout": 1, "strict": true},
 "defaults": {"id": "x", "count": 0},
 "jobs": {}}"#,
        &[
            r#"refused 1:2: bach: unknown key; did you mean "batch"?"#,
            "refused 1:22: batch: found 2, expected text",
            r#"refused 2:13: policy.buget: unknown key; did you mean "budget"?"#,
            "refused 2:35: policy.budget: found 1.5, expected a whole number of credits, 0 or more",
            r#"refused 2:55: policy.on_deadline: found "wach", did you mean "watch"? one of watch, resubmit"#,
            "refused 2:75: policy.attempts: found 0, expected a whole number from 1 to 100",
            r#"refused 2:88: policy.strict: found "yes", expected true or false"#,
            r#"refused 2:106: policy.expires: found "3", expected a span such as 30m or 2h 30m, or an instant such as 2026-12-01T08:00:00Z (hint: add the unit: s, m, h or days)"#,
            "refused 2:119: policy.layout: found 1, expected text",
            "refused 2:122: policy.strict: given twice, first at 2:78; keep one",
            "refused 3:35: defaults.count: found 0, expected a whole number from 1 to 1000",
            "refused 4:10: jobs: found {}, expected an array of jobs",
        ],
    );
    check(
        r#"{"defaults": {"id": "x"}, "jobs": []}"#,
        &["refused 1:21: defaults.id: an id names one job; give it in the job itself"],
    );
    check(
        r#"{"policy": [], "defaults": 7, "jobs": []}"#,
        &[
            "refused 1:12: policy: found [], expected an object",
            r#"refused 1:28: defaults: found 7, expected a job: an object such as {"prompt": "..."}"#,
        ],
    );
}

#[test]
fn documents_that_are_no_manifest() {
    check(
        r#"{"prompt": "a"}"#,
        &[
            r#"refused 1:1: there is no "jobs", the array of what is to be made (hint: a single job is written [{...}])"#,
            "refused 1:2: prompt: unknown key, expected one of batch, defaults, policy, matrix, matrix_max, tables, jobs",
        ],
    );
    check("7", &[r#"refused 1:1: found 7, expected an array of jobs or an object with "jobs""#]);
    check(
        "{}",
        &[
            r#"refused 1:1: there is no "jobs", the array of what is to be made (hint: a single job is written [{...}])"#,
        ],
    );
    check("[{\"prompt\": \"a\"},\n {\"prompt\": }]", &["refused 2:13: not JSON: expected value"]);
    check("[{\"prompt\": \"a\"}]\n x", &["refused 2:2: not JSON: trailing characters"]);
    check("[{\"prompt\": \"ü\"}", &["refused 1:16: not JSON: the text ends while parsing a list"]);
    check(
        "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}",
        &[
            "refused 2:1: not JSON: trailing characters (hint: one job a line is JSON Lines: name the file .jsonl)",
        ],
    );
    check(
        &format!("[{}]", " ".repeat(2000)),
        &[
            "refused 1: the document is larger than 2000 bytes (hint: write it as JSON Lines, one job a line, in a file named .jsonl: that is read as a stream)",
        ],
    );
    let found = super::transcript("a.json", b"[{\"prompt\":\n\"\xFC\"}]");
    assert!(found.len() == 1 && found[0].starts_with("refused 2:2: found the byte 0xFC"), "{found:?}");
}

#[test]
fn a_bad_job_is_bad_alone() {
    check(
        r#"[{"prompt": "a"}, 7, ["x"], null, {"prompt": "b"}]"#,
        &[
            r#"1:2 {"prompt":"a"}"#,
            r#"bad 1:19: found 7, expected a job: an object such as {"prompt": "..."}"#,
            r#"bad 1:22: found ["x"], expected a job: an object such as {"prompt": "..."}"#,
            r#"bad 1:29: found null, expected a job: an object such as {"prompt": "..."}"#,
            r#"1:35 {"prompt":"b"}"#,
        ],
    );
}

#[test]
fn every_problem_of_a_job_is_told_at_its_place() {
    check(
        r#"[{"durration": 5, "prompt": 7,
  "count": "three", "optoins": {}, "options": {"duration": true, "audio": "true", "seed": 1, "seed": 2},
  "duration": 5, "meta": {"a": {"b": 1, "b": 2}}, "meta": {}, "prompt": "x"},
 {"options": [], "meta": 1, "options.seed": 1},
 {"prompt": "\ud800"},
 {"options": {" ": 1}, "meta": {"": 1}}]"#,
        &[
            r#"bad 1:3: durration: unknown key; did you mean "duration"? (hint: to send "durration" to the service put it inside "options", to keep it for the results inside "meta")"#,
            "bad 1:29: prompt: found 7, expected text",
            r#"bad 2:12: count: found "three", expected a whole number from 1 to 1000"#,
            r#"bad 2:21: optoins: unknown key; did you mean "options"? (hint: to send "optoins" to the service put it inside "options", to keep it for the results inside "meta")"#,
            r#"bad 2:60: options.duration: found true, expected text such as "8s" or a whole number of seconds"#,
            r#"bad 2:75: options.audio: found "true", expected true or false"#,
            "bad 2:94: options.seed: given twice, first at 2:83; keep one",
            "bad 3:3: duration: given twice, first at 2:48; keep one",
            r#"bad 3:43: meta.a: the key "b" is given twice"#,
            "bad 3:51: meta: given twice, first at 3:18; keep one",
            "bad 3:63: prompt: given twice, first at 1:19; keep one",
            "bad 4:14: options: found [], expected an object",
            "bad 4:26: meta: found 1, expected an object",
            r#"bad 4:29: options.seed: unknown key; did you mean "speed"? (hint: to send "options.seed" to the service put it inside "options", to keep it for the results inside "meta")"#,
            "bad 5:13: prompt: has half of a character: a surrogate, such as \\ud83d, is followed by the other half, such as \\ude00; write both, or the character itself",
            "bad 6:15: options: found an empty name",
            "bad 6:33: meta: found an empty name",
        ],
    );
}

#[test]
fn nesting_is_bounded() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    check(
        &format!("[{{\"options\": {{\"a\": {deep}}}}}, {{\"prompt\": \"b\"}}]"),
        &["bad 1:147: options.a: not JSON: recursion limit exceeded", r#"1:424 {"prompt":"b"}"#],
    );
}

#[test]
fn places_point_at_values_and_defaults_keep_theirs() {
    let text = "{\"defaults\": {\"model\": \"m\"}, \"jobs\": [\n {\"prompt\": \"ü\",\t\"options\":\n{\"seed\": 1}}]}";
    let rows: Vec<_> = open("a.json", text.as_bytes(), &limits()).unwrap().collect();
    let [ReadRow::Good(row)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row.position, Position::at(2, 2));
    assert_eq!(row.place("prompt"), Position::at(2, 13));
    assert_eq!(row.place("options.seed"), Position::at(3, 10));
    assert_eq!(row.place("model"), Position::at(1, 24));
}

/// Reading is linear: a document of a million jobs on one line would never end otherwise.
#[test]
fn a_long_document_on_one_line_is_read_in_linear_time() {
    let text = format!("[{}{{\"prompt\":\"ü\"}}]", "{\"prompt\":\"ü\"},".repeat(100_000));
    let default = crate::domain::manifest::Limits::default();
    let last = open("a.json", text.as_bytes(), &default).unwrap().last();
    let Some(ReadRow::Good(row)) = last else { panic!("{last:?}") };
    assert_eq!(row.position, Position::at(1, 1_500_002));
}
