//! Cells and values becoming fields.

use serde_json::json;

use super::transcript;

/// What a CSV column `name` makes of `cell`: the row, or the problem.
fn csv(name: &str, cell: &str) -> String {
    let text = format!("{name}\n\"{}\"\n", cell.replace('"', "\"\""));
    transcript("a.csv", text.as_bytes()).join("\n")
}

/// What a JSON job with `name` makes of `value`.
fn json(name: &str, value: &serde_json::Value) -> String {
    let text = json!([{ name: value }]).to_string();
    transcript("a.json", text.as_bytes()).join("\n")
}

#[track_caller]
fn cell(name: &str, cell: &str, expected: &str) {
    let found = csv(name, cell);
    assert!(found.ends_with(expected), "{name} = {cell}: {found}");
}

#[track_caller]
fn value(name: &str, value: impl std::borrow::Borrow<serde_json::Value>, expected: &str) {
    let value = value.borrow();
    let found = json(name, value);
    assert!(found.ends_with(expected), "{name} = {value}: {found}");
}

#[test]
fn kinds() {
    cell("kind", "sound-effect", r#" {"kind":"sound-effect"}"#);
    for (written, kind) in [
        ("Video", "video"),
        ("IMAGE", "image"),
        ("sound_effect", "sound-effect"),
        ("Shorts Studio", "shorts-studio"),
    ] {
        cell("kind", written, &format!(r#" {{"kind":"{kind}"}}"#));
    }
    for (written, suggested) in [
        ("sfx", r#""sound-effect""#),
        ("TTS", r#""speech""#),
        ("audio", r#""speech", "music" or "sound-effect""#),
        ("vidoe", r#""video""#),
    ] {
        cell(
            "kind",
            written,
            &format!(
                "found \"{written}\", did you mean {suggested}? one of video, image, music, speech, sound-effect, \
                 shorts-studio"
            ),
        );
    }
    value(
        "kind",
        json!("Video"),
        r#"found "Video", did you mean "video"? one of video, image, music, speech, sound-effect, shorts-studio"#,
    );
    cell(
        "kind",
        "poem",
        r#"found "poem", expected one of video, image, music, speech, sound-effect, shorts-studio"#,
    );
    value("kind", json!(3), "kind: found 3, expected text");
}

#[test]
fn ids() {
    cell("id", "Häuser 7/b", r#" {"id":"Häuser 7/b"}"#);
    cell("id", &"ü".repeat(200), &format!(r#" {{"id":"{}"}}"#, "ü".repeat(200)));
    value("id", json!("x".repeat(201)), "id: found 201 characters, expected an id of at most 200 characters");
    cell("id", "a\nb", r#"id: found "a\nb", expected an id on one line, without control characters"#);
    value(
        "id",
        json!("a\u{7}b"),
        r#"id: found "a\u{7}b", expected an id on one line, without control characters"#,
    );
    value("id", json!(7), r#" {"id":"7"}"#);
    value("id", json!(7.5), "id: found 7.5, expected text");
    value("id", json!("  "), "1:2 {}");
}

#[test]
fn counts_priorities_and_credits() {
    cell("count", "3", r#" {"count":3}"#);
    cell("count", "3.0", r#" {"count":3}"#);
    value("count", json!(3.0), r#" {"count":3}"#);
    for (text, shown) in
        [("0", "0"), ("1001", "1001"), ("-1", "-1"), ("2.5", "2.5"), ("+3", "+3"), ("3x", "3x")]
    {
        cell("count", text, &format!("count: found \"{shown}\", expected a whole number from 1 to 1000"));
    }
    cell("priority", "-128", r#" {"priority":-128}"#);
    cell("priority", "128", r#"priority: found "128", expected a whole number from -128 to 127"#);
    cell("max_credits", "0", "{\"max_credits\":0}");
    cell("max_credits", "18446744073709551615", r#" {"max_credits":18446744073709551615}"#);
    cell("max_credits", "18446744073709551616", "expected a whole number of credits, 0 or more");
    value(
        "max_credits",
        json!("5"),
        r#"max_credits: found "5", expected a whole number of credits, 0 or more"#,
    );
}

#[test]
fn deadlines() {
    cell("deadline", "1h 30m", r#" {"deadline":{"after":5400000}}"#);
    cell("deadline", "1970-01-02T00:00:00Z", r#" {"deadline":{"at":86400000}}"#);
    cell("deadline", "90", "(hint: add the unit: s, m, h or days)");
    value("deadline", json!(90), "(hint: add the unit: s, m, h or days)");
}

#[test]
fn documented_options() {
    cell("duration", "8", r#" {"options":{"duration":8}}"#);
    cell("duration", "8.0", r#" {"options":{"duration":8}}"#);
    cell("options.duration", "8s", r#" {"options":{"duration":"8s"}}"#);
    value("duration", json!("8"), r#" {"options":{"duration":"8"}}"#);
    value(
        "duration",
        json!([8]),
        r#"duration: found a list, expected text such as "8s" or a whole number of seconds"#,
    );
    cell("audio", "true", r#" {"options":{"audio":true}}"#);
    cell("audio", "FALSE", r#" {"options":{"audio":false}}"#);
    cell("audio", "yes", r#"audio: found "yes", expected true or false"#);
    value("instrumental", json!(1), "instrumental: found 1, expected true or false");
    cell("speed", "1.25", r#" {"options":{"speed":1.25}}"#);
    cell("duration_seconds", "30.0", r#" {"options":{"duration_seconds":30}}"#);
    cell("speed", "1,25", r#"speed: found "1,25", expected a number such as 5 or 0.5"#);
    value("speed", json!("1"), r#"speed: found "1", expected a number such as 5 or 0.5"#);
    cell("title", "1984", r#" {"options":{"title":"1984"}}"#);
    cell("aspect_ratio", "16:9", r#" {"options":{"aspect_ratio":"16:9"}}"#);
}

#[test]
fn other_options() {
    let typed = |text: &str, expected: serde_json::Value| {
        cell("options.x", text, &format!(" {{\"options\":{{\"x\":{expected}}}}}"));
    };
    typed("true", json!(true));
    typed("7", json!(7));
    typed("-0.5", json!(-0.5));
    typed("007", json!("007"));
    typed("True", json!("True"));
    typed("null", json!("null"));
    typed("a cat", json!("a cat"));
    typed("\"7\"", json!("7"));
    typed("[1, \"a\"]", json!([1, "a"]));
    typed("{\"a\": {}}", json!({"a": {}}));
    typed("123456789012345678901234567890", json!("123456789012345678901234567890"));
    cell(
        "options.x",
        "[chorus] la",
        r#"options.x: "[chorus] la": not JSON: expected value (hint: text that begins so is written as a JSON string)"#,
    );
    cell(
        "options.x",
        "{\"a\":1,\"a\":2}",
        r#"the key "a" is given twice (hint: text that begins so is written as a JSON string)"#,
    );
}

#[test]
fn meta_in_cells_is_text() {
    cell("meta.sku", "007", r#" {"meta":{"sku":"007"}}"#);
    cell("meta.price", "1.10", r#" {"meta":{"price":"1.10"}}"#);
    cell("meta.flag", "true", r#" {"meta":{"flag":"true"}}"#);
}

#[test]
fn lists() {
    let listed = r#" {"image_urls":["https://a/1.png","https://a/2.png"]}"#;
    cell("image_urls", "https://a/1.png\n https://a/2.png", listed);
    cell("image_urls", r#"["https://a/1.png", " https://a/2.png"]"#, listed);
    value("image_urls", json!(["https://a/1.png", "https://a/2.png"]), listed);
    value("image_urls", json!("https://a/1.png https://a/2.png"), listed);
    for separated in [
        "https://a/1.png, https://a/2.png",
        "https://a/1.png;https://a/2.png",
        "https://a/1.png,https://a/2.png",
        "https://a/1.png | https://a/2.png;",
    ] {
        cell("image_urls", separated, listed);
        value("image_urls", json!(separated), listed);
    }
    // In an array nothing is a separator.
    let one = r#" {"image_urls":["https://a/1.png;https://a/2.png"]}"#;
    value("image_urls", json!(["https://a/1.png;https://a/2.png"]), one);
    let accepted = "expected addresses separated by white space or \";\", or a JSON array of texts";
    value(
        "image_urls",
        json!(["https://a,https://b"]),
        format!(r#"found "https://a,https://b", {accepted}"#).as_str(),
    );
    value("video_urls", json!(["https://a", 7]), "video_urls: found 7 in a list, expected a list of texts");
    value(
        "video_urls",
        json!(["https://a", ""]),
        r#"video_urls: found "" in a list, expected a list of texts"#,
    );
    value("video_urls", json!({}), "video_urls: found an object, expected a list of texts");
    cell("image_urls", "[1", "image_urls: \"[1\": not JSON: the text ends while parsing a list");
}

#[test]
fn texts() {
    cell("prompt", " \u{a0} ", "there is no job in the file, expected at least one");
    value("prompt", json!(" \n a cat\t"), r#" {"prompt":"a cat"}"#);
    value("prompt", json!("a\u{0}b"), r#"prompt: found "a\u{0}b", expected text without NUL characters"#);
    value("prompt", json!(null), "1:2 {}");
    value("model", json!(["a"]), "model: found a list, expected text");
    value("model", json!({ "a": 1 }), "model: found an object, expected text");
}

#[test]
fn types_are_those_of_the_kind() {
    let job = |kind: &str, options: serde_json::Value| {
        let job = json!([{"kind": kind, "options": options}]).to_string();
        transcript("a.json", job.as_bytes()).join("\n")
    };
    let free = [
        ("video", json!({"style": {"id": 3}})),
        ("video", json!({"quality": 2})),
        ("image", json!({"duration": {"seconds": 8}, "audio": "loud"})),
        ("shorts-studio", json!({"duration": {"min": 3}, "style": [1], "quality": 2, "speed": "fast"})),
    ];
    for (kind, options) in free {
        assert_eq!(
            job(kind, options.clone()),
            format!(r#"1:2 {}"#, json!({"kind": kind, "options": options}))
        );
    }
    let refused = job("music", json!({"style": {"id": 3}}));
    assert!(refused.ends_with("options.style: found an object, expected text"), "{refused}");
    // In cells, too; whatever stands first.
    let csv = |text: &str| transcript("a.csv", text.as_bytes()).join("\n");
    assert_eq!(csv("audio,kind\nloud,image\n"), r#"2:1 {"kind":"image","options":{"audio":"loud"}}"#);
    assert_eq!(csv("audio,kind\nloud,video\n"), r#"bad 2:1: audio: found "loud", expected true or false"#);
    // A job may correct what its defaults say.
    let corrected = r#"{"defaults": {"audio": "loud"}, "jobs": [{"audio": true}, {"audio": null}, {}]}"#;
    let told = transcript("a.json", corrected.as_bytes());
    assert!(told[0].ends_with(r#"{"options":{"audio":true}}"#), "{told:?}");
    assert!(told[1].ends_with(" {}"), "{told:?}");
    assert!(told[2].ends_with(r#"defaults.audio: found "loud", expected true or false"#), "{told:?}");
}

#[test]
fn what_a_kind_can_only_mean_in_one_way_is_read_for_that_kind() {
    let check = |kind: &str, name: &str, cell: &str, expected: &str| {
        let text = format!("kind,{name}\n{kind},\"{cell}\"\n");
        let found = transcript("a.csv", text.as_bytes()).join("\n");
        assert!(found.contains(expected), "{kind} {name} = {cell}: {found}");
    };
    check("speech", "speed", "1,5", r#"{"kind":"speech","options":{"speed":1.5}}"#);
    check("sound-effect", "duration_seconds", "5 s", r#""options":{"duration_seconds":5}"#);
    check("video", "audio", "WAHR", r#""options":{"audio":true}"#);
    check("music", "instrumental", "no", r#""options":{"instrumental":false}"#);
    check(
        "speech",
        "speed",
        "1,500",
        "found \"1,500\", expected a number such as 5 or 0.5 (hint: write 1.500 or 1500)",
    );
    check("speech", "speed", "fast", "found \"fast\", expected a number such as 5 or 0.5");
    // Of a kind that does not document the option, what was accepted before is forwarded as it was.
    check("video", "speed", "1,5", r#""options":{"speed":"1,5"}"#);
    check("image", "audio", "yes", r#""options":{"audio":"yes"}"#);
    // A count of jobs and a limit of credits are whole numbers, without a comma.
    check("video", "count", "1,0", "count: found \"1,0\", expected a whole number");
    check("video", "max_credits", "1,5", "max_credits: found \"1,5\", expected a whole number of credits");
}

#[test]
fn how_a_value_was_read_is_noted() {
    let text = "kind,speed,text\nspeech,\"1,5\",Hello\n";
    let rows: Vec<_> = super::open("a.csv", text.as_bytes(), &super::limits()).unwrap().collect();
    let [super::ReadRow::Good(row)] = &rows[..] else { panic!("{rows:?}") };
    let notes: Vec<String> = row.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["2:8: speed: \"1,5\" is read as 1.5"]);
}
