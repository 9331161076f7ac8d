//! What becomes of options and addresses that are not as the service documents them.

use super::*;

#[test]
fn a_misspelt_option_is_refused_unless_it_is_allowed() {
    let mut ingest = ingest();
    let text = |option: &str| format!("id,kind,model,prompt,options.{option}\na,image,flat,fox,4K\n");
    for (option, meant) in
        [("qualtiy", "quality"), ("Quality", "quality"), ("aspectRatio", "aspect_ratio"), ("sizes", "size")]
    {
        let receipt = ingest.accept("m.csv", &text(option));
        assert_eq!((receipt.new, receipt.invalid), (0, 1), "{option}");
        let problem = &receipt.problems[0];
        assert_eq!(problem.field, Some(format!("options.{option}")));
        assert!(problem.message.ends_with(&format!("did you mean {meant}?")), "{}", problem.message);
        assert!(problem.hint.as_deref().unwrap().contains("--allow-unknown-options"));
    }
    // Nobody's, or of other kinds, or a common one: forwarded.
    for option in ["seed", "duration", "style", "negative_prompt", "x"] {
        ingest.check(&format!("{option}.csv"), &text(option), "1 new 0 have 0 invalid 3 credits");
    }
    ingest.allow_unknown_options = true;
    ingest.check("m.csv", &text("qualtiy"), "1 new 0 have 0 invalid 3 credits");
    // What the batch has, it keeps.
    ingest.allow_unknown_options = false;
    ingest.check("m.csv", &text("qualtiy"), "0 new 1 have 0 invalid 0 credits");
}

#[test]
fn the_type_of_an_option_is_that_of_the_kind_that_the_model_says() {
    let ingest = ingest();
    let job =
        |options: &str| format!(r#"[{{"id": "a", "model": "flat", "prompt": "fox", "options": {options}}}]"#);
    ingest.check("m.json", &job(r#"{"style": {"id": 3}}"#), "1 new 0 have 0 invalid 3 credits");
    let receipt = ingest.accept("n.json", &job(r#"{"aspect_ratio": {"id": 3}, "style": {"id": 3}}"#));
    assert_eq!((receipt.new, receipt.invalid), (0, 1));
    let said: Vec<String> = receipt.problems.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["1:76: options.aspect_ratio: found an object, expected text"]);
}

#[test]
fn addresses_that_the_service_cannot_fetch_are_said() {
    let mut ingest = ingest();
    let modes =
        json!({"image-to-image": {"aspect_ratios": [], "qualities": [], "credits_per_generation": 3}});
    ingest.catalog =
        Catalog::of(&json!([]), &json!([{"id": "flat", "modes": modes}]), &json!([]), &Value::Null);
    let row = |address: &str| format!("kind,model,prompt,image_urls\nimage,flat,fox,{address}\n");
    for (address, said) in [
        ("http://127.0.0.1/a.png", "127.0.0.1 is a loopback address"),
        ("http://[::1]:80/a.png", "::1 is a loopback address"),
        ("http://localhost/a.png", "localhost is a name of this network only"),
        ("http://nas.local/a.png", "nas.local is a name of this network only"),
        ("https://192.168.1.5/a.png", "192.168.1.5 is a private address"),
        (
            "https://me:hunter2@img.example/a.png",
            "the address on img.example carries a user name or password",
        ),
    ] {
        let receipt = ingest.accept("m.csv", &row(address));
        let [note] = receipt.notes.as_slice() else { panic!("{address}: {:?}", receipt.notes) };
        assert!(note.message.starts_with(said) && !note.message.contains("hunter2"), "{}", note.message);
    }
    assert!(ingest.accept("m.csv", &row("https://img.example/a.png")).notes.is_empty());
    let both = ingest.accept("n.csv", &row("https://img.example/a.png|https://img.example/b.png"));
    assert!(both.problems[0].message.contains("is more than one address"), "{:?}", both.problems);
}

/// What its fields suggest may be another kind than the one that is meant.
#[test]
fn a_misspelt_kind_is_said_and_no_field_is_missed_for_another() {
    let ingest = ingest();
    let receipt = ingest.accept("m.csv", "kind,prompt,duration\nsfx,wind,1.5\n");
    let problems: Vec<String> = receipt.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("did you mean \"sound-effect\"?"), "{problems:?}");
}

/// The identity of a row does not include what a person decides about its outputs.
#[test]
fn a_wish_for_a_review_changes_no_job() {
    let ingest = ingest();
    let of = |name: &str, text: &str| {
        let receipt = ingest.accept(name, text);
        format!("{} new {} have {} invalid", receipt.new, receipt.have, receipt.invalid)
    };
    assert_eq!(
        of("m.csv", "id,kind,model,prompt\na,image,flat,fox\n,image,flat,gull\n"),
        "2 new 0 have 0 invalid"
    );
    for cell in ["yes", "TRUE", "no", "Ja", "0", ""] {
        let text = format!("id,kind,model,prompt,Review\na,image,flat,fox,{cell}\n,image,flat,gull,{cell}\n");
        assert_eq!(of("m.csv", &text), "0 new 2 have 0 invalid", "{cell}");
    }
    let rows = r#"[{"id": "a", "kind": "image", "model": "flat", "prompt": "fox", "review": true}]"#;
    assert_eq!(of("m.json", rows), "0 new 1 have 0 invalid");
    let policy = format!(r#"{{"policy": {{"review": true}}, "jobs": {rows}}}"#);
    assert_eq!(of("m.json", &policy), "0 new 1 have 0 invalid");
    assert_eq!(
        of("m.csv", "id,kind,model,prompt,review\na,image,flat,fox,maybe\n"),
        "0 new 0 have 1 invalid"
    );
}

#[test]
fn a_row_says_over_its_policy_whether_its_outputs_are_reviewed() {
    let ingest = ingest();
    let job = |id: &str, review: &str| {
        format!(r#"{{"id": "{id}", "kind": "image", "model": "flat", "prompt": "fox"{review}}}"#)
    };
    let jobs = [job("a", ""), job("b", r#", "review": false"#), job("c", r#", "review": true"#)].join(",");
    for (policy, expected) in [(r#"{"review": true}"#, [true, false, true]), ("{}", [false, false, true])] {
        let name = format!("m{}.json", policy.len());
        ingest.accept(&name, &format!(r#"{{"policy": {policy}, "jobs": [{jobs}]}}"#));
        let batch =
            ingest.store.batches().unwrap().into_iter().find(|batch| format!("{}.json", batch.name) == name);
        let batch = batch.unwrap();
        let mut rows = ingest.store.spool(batch.no).rows(0, batch.spool_bytes).unwrap();
        let mut reviews = Vec::new();
        while let Some((_, spec)) = rows.next_line::<JobSpec>().unwrap() {
            reviews.push((spec.label, spec.order.review));
        }
        reviews.sort();
        let expected = ["a", "b", "c"].map(str::to_owned).into_iter().zip(expected);
        assert_eq!(reviews, expected.collect::<Vec<_>>(), "{policy}");
    }
}
