//! Clips that are as long as a voice: priced as a range, measured when the voice is there, and bought once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use callsheet::failpoint;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::{Outcome, Running};
use crate::support::s3::S3Server;
use crate::support::{TestEnv, case_share, until};

/// The emulator speaks some 14 characters a second: 60 of them take 4.29 s.
const TEXT: &str = "The red boat leaves the harbour, and nobody looks after her.";

/// A voice, and a clip that is to be as long; the clip stands first.
fn story(env: &TestEnv, text: &str) {
    let jobs = serde_json::json!({"jobs": [
        {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the boat", "duration": "job:voice"},
        {"id": "voice", "kind": "speech", "voice_id": "aria", "text": text},
    ]});
    env.write("story.json", jobs.to_string());
}

/// What a command says, on either stream.
#[track_caller]
fn tells(outcome: &Outcome, texts: &[&str]) {
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    texts.iter().for_each(|text| assert!(said.contains(text), "{text}: {said}"));
}

fn explained(env: &TestEnv, job: &str) -> Value {
    env.run(["explain", job, "--json"]).exited(0).json()
}

/// What the service was asked for and took for the only video.
fn clip_made(env: &TestEnv) -> (String, u64) {
    let ran = explained(env, "story/clip")["job"]["ran_options"]["duration"].as_str().unwrap().to_owned();
    let tasks = env.audit().tasks;
    let clips: Vec<_> = tasks.iter().filter(|task| task.kind == "video").collect();
    assert_eq!(clips.len(), 1, "{tasks:#?}");
    (ran, clips[0].charged_credits)
}

#[test]
fn a_clip_is_as_long_as_its_voice_rounded_up_and_costs_what_that_costs() {
    let env = TestEnv::new();
    story(&env, TEXT);
    let plan = env.run(["plan", "story.json"]).exited(0);
    let by_length = "by length: one of them costs 2 to 30 credits";
    tells(&plan, &["2 to 30", "by the length of job:voice", "total: 33 credits", by_length]);
    let plan = env.run(["plan", "story.json", "--json"]).exited(0).json();
    let clip = &plan["rows"][0];
    assert_eq!(
        (&clip["price_credits"], &clip["price_from_credits"], &clip["price_to_credits"]),
        (&Value::Null, &2.into(), &30.into())
    );
    assert_eq!((&plan["total_credits"], &plan["by_length"]["to_credits"]), (&33.into(), &30.into()));
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(clip_made(&env), ("5s".to_owned(), 10));
    let clip = explained(&env, "story/clip");
    let input = &clip["inputs"][0];
    assert_eq!(
        (&input["field"], &input["address"], &input["measured_ms"]),
        (&"duration".into(), &"5s".into(), &4290.into()),
        "{clip:#}"
    );
    assert!(clip.get("drift").is_none(), "{clip:#}");
    tells(
        &env.run(["explain", "story/clip"]),
        &["price 10 credits", "its length is known: it costs 10 credits"],
    );
    tells(&env.run(["explain", "story/clip"]), &["5s, since that is 4.29 s long"]);
    tells(&env.run(["jobs", "story"]), &["(takes voice; 5s)"]);
    let results = std::fs::read_to_string(env.path("output/story/results.jsonl")).unwrap();
    assert!(results.contains(r#""sent_length":"5s""#), "{results}");
    let sidecar = std::fs::read_to_string(env.path("output/story/sidecars/clip.json")).unwrap();
    let sidecar: Value = serde_json::from_str(&sidecar).unwrap();
    assert_eq!(sidecar["request"]["options"]["duration"], "5s");
    assert_eq!((&sidecar["price_credits"], &sidecar["charged_credits"]), (&10.into(), &10.into()));
    // Nothing is bought again, however the file of the voice has changed since.
    std::fs::write(env.path("output/story/voice.wav"), "edited").unwrap();
    env.run(["run", "story.json"]).exited(0).says("0 new (0 credits), 2 already there");
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.audit().each_paid_once(2);
}

#[test]
fn the_budget_is_held_against_the_most_that_a_clip_may_cost() {
    let env = TestEnv::new();
    story(&env, TEXT);
    env.run(["run", "story.json", "--budget", "32"]).exited(4);
    assert_eq!(env.audit().tasks.len(), 1, "the voice alone");
    env.run(["run", "story.json", "--budget", "33"]).exited(0);
    assert_eq!(clip_made(&env), ("5s".to_owned(), 10));
    let status = env.run(["status", "story", "--json"]).exited(0).json().to_string();
    assert!(status.contains(r#""charged_credits":13"#), "{status}");
    // Nor may a row cost more than its own limit allows.
    let text = std::fs::read_to_string(env.path("story.json")).unwrap();
    env.write("short.json", text.replace(r#""duration""#, r#""max_credits":29,"duration""#));
    tells(&env.run(["plan", "short.json"]).exited(2), &["it may cost up to 30 credits"]);
    env.write("enough.json", text.replace(r#""duration""#, r#""max_credits":30,"duration""#));
    tells(&env.run(["plan", "enough.json"]).exited(0), &["2 to 30"]);
}

#[test]
fn a_clip_whose_prices_rose_above_its_limit_while_it_waited_is_refused_with_the_limit_that_suffices() {
    let env = TestEnv::new();
    story(&env, TEXT);
    let text = std::fs::read_to_string(env.path("story.json")).unwrap();
    env.write("story.json", text.replace(r#""duration""#, r#""max_credits":30,"duration""#));
    env.run(["run", "story.json", "--budget", "0"]).exited(4);
    env.prices(&serde_json::json!({"multiply": 2}));
    let retry = "callsheet retry story/clip --max-credits 60";
    let refused = env.run(["run", "story.json", "--budget", "1000"]).exited(1);
    let why =
        "by its length it may cost up to 60 credits now, and its max_credits is 30; to send it all the same:";
    tells(&refused, &[why, retry]);
    assert_eq!(explained(&env, "story/clip")["job"]["fault"]["code"], "above_max_credits");
    assert_eq!(env.audit().tasks.len(), 1, "the voice alone");
    env.run(retry.split(' ').skip(1)).exited(0);
    env.run(["run", "story.json", "--budget", "1000"]).exited(0);
    assert_eq!(clip_made(&env), ("5s".to_owned(), 20));
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_voice_that_is_too_long_stops_its_clip_free_of_charge() {
    let env = TestEnv::new();
    story(&env, &TEXT.repeat(5));
    env.run(["run", "story.json"]).exited(1);
    let said = env.run(["explain", "story/clip"]).exited(0);
    let retry = ["retry", "story/clip", "--set", "duration=15s"];
    let why = "voice is 21.43 s long, and house-c1 takes 15s at most; nothing was charged";
    tells(&said, &[why, &format!("callsheet {}", retry.join(" "))]);
    assert_eq!(explained(&env, "story/clip")["job"]["fault"]["code"], "input_too_long");
    assert_eq!(env.audit().tasks.len(), 1, "the voice alone");
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.run(retry).exited(0);
    // The manifest still asks for the length of the voice.
    env.run(["resume", "story"]);
    let text = std::fs::read_to_string(env.path("story.json")).unwrap();
    env.write("story.json", text.replace("job:voice", "15s"));
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(clip_made(&env), ("15s".to_owned(), 30));
    env.audit().each_paid_once(2);
}

#[test]
fn another_text_of_the_voice_makes_the_clip_new_and_another_spelling_does_not() {
    let env = TestEnv::new();
    story(&env, TEXT);
    env.run(["run", "story.json"]).exited(0);
    let verdict = |verdict: &str| {
        let plan = env.run(["plan", "story.json", "--json"]).exited(0).json();
        assert_eq!(plan["rows"][0]["verdict"], verdict, "{plan:#}");
    };
    let text = std::fs::read_to_string(env.path("story.json")).unwrap();
    env.write("story.json", text.replace("job:voice", "job:voice-v1"));
    verdict("changed");
    env.write("story.json", text.replace("job:voice", "job:story/voice"));
    verdict("done");
    // As long as before, and another voice all the same.
    story(&env, &TEXT.replace("red", "old"));
    verdict("changed");
}

#[test]
fn a_length_that_options_tell_is_priced_exactly() {
    let env = TestEnv::new();
    env.write(
        "story.json",
        r#"{"jobs": [
  {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the boat", "duration": "job:bells"},
  {"id": "bells", "kind": "sound-effect", "prompt": "bells", "duration_seconds": 3.2},
  {"id": "tune", "kind": "music", "prompt": "a waltz", "duration_seconds": "job:clip"}
]}"#,
    );
    let plan = env.run(["plan", "story.json"]).exited(0);
    tells(&plan, &["is 4s: bells is 3.2 s long", "is 4: clip is 4 s long", "total: 73 credits"]);
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(clip_made(&env), ("4s".to_owned(), 8));
    assert_eq!(explained(&env, "story/tune")["job"]["ran_options"]["duration_seconds"], 4);
    env.run(["run", "story.json"]).exited(0).says("0 new");
    env.audit().each_paid_once(3);
    env.write(
        "long.csv",
        "id,kind,model,prompt,duration,duration_seconds\n\
         clip,video,house-c1,the boat,job:tune,\n\
         tune,music,,a waltz,,16\n\
         bells,sound-effect,,bells,,job:still\n\
         still,image,gi-2,a boat,,\n\
         ring,sound-effect,,bells,,job:rung\n\
         rung,sound-effect,,bells,,job:ring\n\
         none,video,house-c1,the boat,job:nobody,\n",
    );
    let told = env.run(["plan", "long.csv"]).exited(2);
    let too_long = "tune is 16 s long, and house-c1 takes 15s at most";
    let no_length = "; duration_seconds takes the length of a video or of a sound";
    tells(&told, &["long.csv:2:", too_long, "long.csv:4:", no_length, "ring -> rung -> ring"]);
    tells(&told, &["names no row of this manifest"]);
}

#[test]
fn a_chain_of_lengths_goes_by_what_was_sent() {
    let env = TestEnv::new();
    story(&env, TEXT);
    let text = std::fs::read_to_string(env.path("story.json")).unwrap();
    let tune = r#"{"id": "tune", "kind": "music", "prompt": "a waltz", "duration_seconds": "job:clip"}]"#;
    env.write("story.json", text.replace("}]", &format!("}}, {tune}")));
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(clip_made(&env), ("5s".to_owned(), 10));
    assert_eq!(explained(&env, "story/tune")["job"]["ran_options"]["duration_seconds"], 5);
}

/// A voice, a clip that is as long, and one from that clip, whose seconds are billed as well.
fn longer_story(env: &TestEnv, more: &str) {
    story(env, TEXT);
    let text = std::fs::read_to_string(env.path("story.json")).unwrap();
    let long = format!(
        r#"{{"id": "long", "kind": "video", "model": "model-s-2-0", "mode": "reference-to-video", "prompt": "on",
            "image_urls": ["https://pictures.example/boat.png"], "video_urls": ["job:clip"], "duration": "5s"{more}}}]"#
    );
    env.write("story.json", text.replace("}]", &format!("}}, {long}")));
}

/// What the service was asked for and took for the longer clip.
fn long_made(env: &TestEnv) -> (Value, u64) {
    let ran = explained(env, "story/long")["job"]["ran_options"]["source_video_duration_seconds"].clone();
    let tasks = env.audit().tasks;
    let long: Vec<_> = tasks.iter().filter(|task| task.prompt == "on").collect();
    assert_eq!(long.len(), 1, "{tasks:#?}");
    (ran, long[0].charged_credits)
}

#[test]
fn the_seconds_of_a_source_video_are_known_when_it_was_sent() {
    let env = TestEnv::new();
    longer_story(&env, r#", "source_video_duration_seconds": 5"#);
    let exactly =
        env.run(["plan", "story.json", "--json"]).exited(0).json()["rows"][2]["price_credits"].clone();
    let exactly = exactly.as_u64().unwrap();
    longer_story(&env, "");
    let plan = env.run(["plan", "story.json"]).exited(0);
    tells(&plan, &["is the length of clip, which is not made yet", "by the length of job:clip"]);
    let plan = env.run(["plan", "story.json", "--json"]).exited(0).json();
    let long = &plan["rows"][2];
    let (least, most) = (&long["price_from_credits"], &long["price_to_credits"]);
    let (least, most) = (least.as_u64().unwrap(), most.as_u64().unwrap());
    assert!(least < exactly && exactly < most, "{long:#}");
    assert_eq!(long["inputs"], serde_json::json!(["clip"]));
    let graph = env.run(["plan", "story.json", "--graph"]).exited(0).stdout;
    assert_eq!(graph.matches("\"story/clip\" -> \"story/long\"").count(), 1, "{graph}");
    // The budget is held against the most.
    let enough = 3 + 10 + most;
    env.run(["run", "story.json", "--budget", &(enough - 1).to_string()]).exited(4);
    assert_eq!(env.audit().tasks.len(), 2, "the voice and the clip");
    env.run(["run", "story.json", "--budget", &enough.to_string()]).exited(0);
    assert_eq!(long_made(&env), (5.into(), exactly));
    tells(&env.run(["explain", "story/long"]), &[&format!("price {exactly} credits")]);
    env.run(["run", "story.json"]).exited(0).says("0 new (0 credits), 3 already there");
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.audit().each_paid_once(3);
    // Written out, it is the length of a row that is named, and another request.
    longer_story(&env, r#", "source_video_duration_seconds": "job:clip""#);
    let plan = env.run(["plan", "story.json", "--json"]).exited(0).json();
    assert_eq!(plan["rows"][2]["verdict"], "changed", "{plan:#}");
    env.run(["run", "story.json", "--budget", "5000"]).exited(0);
    env.run(["run", "story.json"]).exited(0).says("0 new");
}

#[test]
fn a_source_video_that_is_too_long_stops_its_row_free_of_charge() {
    let env = TestEnv::new();
    longer_story(&env, "");
    let text = std::fs::read_to_string(env.path("story.json")).unwrap();
    let text = text.replace(TEXT, &TEXT.repeat(3)).replace("model-s-2-0", "model-g-omni");
    let text = text.replace("\"mode\": \"reference-to-video\"", "\"mode\": \"video-to-video\"");
    let text = text.replace(r#", "duration": "5s""#, "");
    let text = text.replace(r#""image_urls": ["https://pictures.example/boat.png"], "#, "");
    env.write("story.json", &text);
    env.run(["run", "story.json"]).exited(1);
    let why = "clip is 13 s long, and model-g-omni takes 10 at most as a source video; nothing was charged";
    tells(&env.run(["explain", "story/long"]), &[why, "callsheet retry story/long --set model=MODEL"]);
    assert_eq!(explained(&env, "story/long")["job"]["fault"]["code"], "input_too_long");
    assert_eq!(env.audit().tasks.len(), 2);
    env.run(["state", "verify"]).exited(0).says("all fits");
    // With another model it is the row that the manifest would ask for.
    env.run(["retry", "story/long", "--set", "model=model-f-3"]).exited(0);
    env.write("story.json", text.replace("model-g-omni", "model-f-3"));
    env.run(["run", "story.json", "--budget", "5000"]).exited(0).says("0 new");
    assert_eq!(env.audit().tasks.len(), 3);
}

#[test]
fn a_source_video_whose_row_says_nothing_of_its_length_is_measured() {
    let env = TestEnv::new();
    let jobs = serde_json::json!({"jobs": [
        {"id": "clip", "kind": "video", "model": "model-v-3-1", "prompt": "the boat"},
        {"id": "long", "kind": "video", "model": "model-s-2-5", "prompt": "on", "video_urls": ["job:clip"], "duration": "5s"},
    ]});
    env.write("story.json", jobs.to_string());
    env.run(["run", "story.json"]).exited(0);
    let long = explained(&env, "story/long");
    let measured = long["inputs"][1]["measured_ms"].as_u64().unwrap();
    let (ran, _) = long_made(&env);
    assert!(measured > 0 && ran.as_f64().unwrap() * 1000.0 == measured as f64, "{long:#}");
    assert_eq!(long["inputs"][1]["field"], "source_video_duration_seconds");
}

#[test]
fn a_voice_that_was_changed_on_this_disk_is_measured_at_the_service() {
    let env = TestEnv::new();
    story(&env, TEXT);
    env.run(["run", "story.json", "--budget", "10"]).exited(4);
    // One of the same length is another file, too.
    let path = env.path("output/story/voice.wav");
    let length = std::fs::read(&path).unwrap().len();
    std::fs::write(&path, vec![0; length]).unwrap();
    let downloads = env.audit().totals.downloads;
    env.run(["run", "story.json", "--budget", "40"]).exited(0);
    assert_eq!(clip_made(&env), ("5s".to_owned(), 10));
    assert!(env.audit().totals.downloads > downloads + 1, "the clip, and the voice again");
}

#[test]
fn a_voice_that_is_only_in_the_object_store_is_measured_there() {
    let env = TestEnv::new();
    env.configure("[output]\nstore = \"s3://media/out\"\n");
    story(&env, TEXT);
    let store = S3Server::start();
    let run = |budget: &str| {
        let mut command = env.command(["run", "story.json", "--budget", budget]);
        store.give_to(&mut command);
        Running::start(command).end()
    };
    run("10").exited(4);
    std::fs::remove_file(env.path("output/story/voice.wav")).unwrap();
    let downloads = env.audit().totals.downloads;
    run("40").exited(0);
    assert_eq!(clip_made(&env), ("5s".to_owned(), 10));
    assert_eq!(env.audit().totals.downloads, downloads + 1, "the clip alone");
}

#[test]
fn the_chosen_take_is_measured() {
    let env = TestEnv::new();
    let take = serde_json::json!({"jobs": [
        {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the boat", "duration": "job:voice"},
        {"id": "voice", "kind": "speech", "voice_id": "aria", "text": TEXT, "count": 2, "review": true},
    ]});
    env.write("story.json", take.to_string());
    env.run(["run", "story.json"]).exited(7).says("waiting for review");
    env.run(["review", "pick", "story/voice-v2"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(clip_made(&env), ("5s".to_owned(), 10));
    env.audit().each_paid_once(3);
}

#[test]
fn a_clip_is_bought_once_however_its_run_is_killed() {
    let steps = failpoint::OF_A_RUN.map(|step| (step, 1)).into_iter().chain([
        ("finding-inputs", 1),
        ("admitted", 2),
        ("posted", 2),
    ]);
    for (step, nth) in case_share::of_this_run(steps, 3) {
        let env = TestEnv::new();
        story(&env, TEXT);
        let mut dying = env.command(["run", "story.json"]);
        dying.env("CALLSHEET_FAILPOINT", format!("{step}:{nth}"));
        Running::start(dying).end().was_killed(step);
        if nth == 2 {
            // What was measured is durable: whatever becomes of the file, the request stays the same.
            let measured = explained(&env, "story/clip")["inputs"][0]["measured_ms"].clone();
            assert_eq!(measured, 4290, "{step}");
            std::fs::remove_file(env.path("output/story/voice.wav")).unwrap();
        }
        env.run(["run", "story.json"]).exited(0);
        assert_eq!(clip_made(&env), ("5s".to_owned(), 10), "{step}");
        env.audit().each_paid_once(2);
        if nth == 1 {
            Outputs::of(&env, "story").is_complete(&["clip", "voice"].map(str::to_owned));
        }
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
}

#[test]
fn a_daemon_makes_many_clips_as_long_as_their_voices_under_faults() {
    let env = TestEnv::with_faults(include_str!("../../emulator/src/faults/flaky-network.toml"));
    let text = |n: usize| TEXT.repeat(1 + n % 3);
    let voices: Vec<Value> = (0..8)
        .map(|n| serde_json::json!({"id": format!("voice-{n}"), "kind": "speech", "voice_id": "aria", "text": text(n)}))
        .collect();
    let clips: Vec<Value> = (0..8)
        .map(|n| {
            let length = format!("job:voices/voice-{n}");
            serde_json::json!({"id": format!("clip-{n}"), "kind": "video", "model": "house-c1", "prompt": format!("boat {n}"),
                "duration": length})
        })
        .collect();
    for (name, jobs) in [("voices", voices), ("clips", clips)] {
        let draft = env.write(&format!("jobs/{name}.tmp"), serde_json::json!({"jobs": jobs}).to_string());
        std::fs::create_dir_all(env.path("jobs/inbox")).unwrap();
        let daemon = env.daemon("info");
        std::fs::rename(draft, env.path(&format!("jobs/inbox/{name}.json"))).unwrap();
        until("its results", || env.path(&format!("output/{name}/report.json")).exists());
        daemon.stop();
    }
    env.audit().each_paid_once(16);
    for n in 0..8 {
        let clip = explained(&env, &format!("clips/clip-{n}"));
        let seconds = [5, 9, 13][n % 3];
        assert_eq!(clip["job"]["ran_options"]["duration"], format!("{seconds}s"), "{clip:#}");
        assert_eq!(clip["job"]["books"]["charged"], 2 * seconds, "{clip:#}");
    }
}
