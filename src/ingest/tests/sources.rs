//! Whose batch a manifest joins, and what its batch is called.

use super::*;

fn one(id: &str) -> String {
    format!("{HEADER}{id},image,flat,fox,,\n")
}

#[test]
fn a_file_of_another_folder_does_not_join_a_batch_that_it_has_no_row_of() {
    let ingest = ingest();
    assert_eq!(ingest.from("ca", "jobs.csv", &one("a")).new, 1);
    let refused = ingest.from("cb", "jobs.csv", &one("b"));
    assert!(refused.refused && refused.file_refused && !refused.is_taken_in());
    assert_eq!((refused.new, refused.have, refused.price), (0, 0, Credits::ZERO));
    let said = refused.problems[0].to_string();
    assert!(
        said.contains(&format!(
            "the batch jobs belongs to {}/ca (jobs)",
            ingest.dir.path().canonicalize().unwrap().display()
        )),
        "{said}"
    );
    assert!(said.contains("cb/jobs.csv --batch cb-jobs;"), "{said}");
    assert_eq!(ingest.batches(), ["jobs 1"]);
    // The way out, both ways.
    for batch in ["cb-jobs", "jobs"] {
        let batch = Some(batch.parse().unwrap());
        assert_eq!(
            ingest.said("cb", "jobs.csv", &one("b"), |options| IngestOptions { batch, ..options }).new,
            1
        );
    }
    assert_eq!(ingest.batches(), ["jobs 2", "cb-jobs 1"]);
}

#[test]
fn an_edited_file_of_the_same_folder_and_a_copy_with_a_row_in_common_belong_to_it() {
    let ingest = ingest();
    ingest.from("ca", "jobs.csv", &one("a"));
    assert_eq!(
        ingest.from("ca", "jobs.csv", &one("b")).new,
        1,
        "nothing of it is left, but it is the same file"
    );
    let copy = format!("{}c,image,flat,fox,,\n", one("b"));
    let receipt = ingest.from("cb", "jobs.csv", &copy);
    assert_eq!((receipt.new, receipt.have), (1, 1));
    assert!(ingest.from("cb", "jobs.csv", &one("d")).refused, "it stays the first directory's");
    assert_eq!(ingest.from("ca", "jobs.csv", &one("e")).new, 1);
}

#[test]
fn two_file_names_that_are_mapped_to_one_batch_are_told_apart() {
    let ingest = ingest();
    assert_eq!(ingest.from("ca", "$(x y).csv", &one("a")).new, 1);
    let refused = ingest.from("ca", ";x y;.csv", &one("b"));
    assert!(refused.refused, "{refused:?}");
    let said = refused.problems[0].to_string();
    assert!(said.contains("the batch x-y belongs to") && said.contains("ca ($(x y))"), "{said}");
    assert!(said.contains("/ca/;x y;.csv' --batch x-y-2"), "{said}");
    assert_eq!(ingest.from("ca", ";x y;.csv", &one("a")).have, 1, "a row in common");
    assert_eq!(ingest.batches(), ["x-y 1"]);
}

#[test]
fn a_batch_without_a_source_is_taken_up_by_the_first_that_comes() {
    let ingest = ingest();
    ingest.from("ca", "jobs.csv", &one("a"));
    ingest.forget_origin("jobs");
    assert_eq!(ingest.from("cb", "jobs.csv", &one("b")).new, 1);
    assert!(ingest.from("ca", "jobs.csv", &one("c")).refused);
}

#[test]
fn what_comes_by_the_socket_is_one_source() {
    let ingest = ingest();
    let hand_in = |text: &str| {
        ingest
            .said("tmp", "jobs.csv", text, |options| IngestOptions { place: SourcePlace::Socket, ..options })
    };
    assert_eq!(hand_in(&one("a")).new, 1);
    assert_eq!(hand_in(&one("b")).new, 1);
    assert!(
        ingest.from("ca", "jobs.csv", &one("c")).problems[0]
            .to_string()
            .contains("belongs to the control socket")
    );
}

#[test]
fn inboxes_have_batches_of_their_own() {
    let ingest = ingest();
    assert_eq!(ingest.in_inbox("acme", "spring.csv", &one("a")).new, 1);
    assert_eq!(ingest.in_inbox("beta", "spring.csv", &one("a")).new, 1);
    let named =
        r#"{"batch": "sale", "jobs": [{"id": "a", "kind": "image", "model": "flat", "prompt": "fox"}]}"#;
    assert_eq!(ingest.in_inbox("beta", "any.json", named).new, 1);
    assert_eq!(ingest.in_inbox("acme", "spring.csv", &one("b")).new, 1);
    assert_eq!(ingest.batches(), ["acme--spring 2", "beta--spring 1", "beta--sale 1"]);
    assert!(
        ingest.from("ca", "acme--spring.csv", &one("c")).problems[0]
            .message
            .contains("belongs to the inbox acme")
    );
}

#[test]
fn a_batch_that_an_inbox_made_under_the_plain_name_keeps_it() {
    let ingest = ingest();
    ingest.from("clients/acme", "spring.csv", &one("a"));
    ingest.forget_origin("spring");
    // Beta has none of its rows.
    assert_eq!(ingest.in_inbox("beta", "spring.csv", &one("z")).batch.unwrap().as_str(), "beta--spring");
    let two = format!("{}b,image,flat,fox,,\n", one("a"));
    let receipt = ingest.in_inbox("acme", "spring.csv", &two);
    assert_eq!((receipt.batch.unwrap().as_str(), receipt.new, receipt.have), ("spring", 1, 1));
    assert_eq!(
        ingest.in_inbox("acme", "spring.csv", &one("c")).batch.unwrap().as_str(),
        "spring",
        "it is acme's now"
    );
    assert_eq!(ingest.in_inbox("beta", "spring.csv", &one("a")).batch.unwrap().as_str(), "beta--spring");
    assert_eq!(ingest.batches(), ["spring 3", "beta--spring 2"]);
}

#[test]
fn the_inbox_of_the_jobs_folder_may_get_a_name_later() {
    let ingest = ingest();
    ingest.from("clients/acme", "spring.csv", &one("a"));
    assert_eq!(ingest.in_inbox("acme", "spring.csv", &one("a")).have, 1);
    assert_eq!(ingest.in_inbox("acme", "other.csv", &one("a")).batch.unwrap().as_str(), "acme--other");
}

#[test]
fn a_finished_batch_of_the_plain_name_is_looked_at_and_left_as_it_is() {
    let ingest = ingest();
    ingest.from("clients/acme", "spring.csv", &one("a"));
    ingest.forget_origin("spring");
    let ended = crate::store::Ended { canceled: 1, ..Default::default() };
    let done = BatchRecord { ended, announced: true, ..ingest.record("spring") };
    ingest.store.commit(&[Change::Batch(Box::new(done))]).unwrap();
    assert_eq!(ingest.in_inbox("acme", "spring.csv", &one("z")).batch.unwrap().as_str(), "acme--spring");
    assert_eq!((ingest.store.finished_count(), ingest.batches()), (1, vec!["acme--spring 1".to_owned()]));
    assert_eq!(ingest.in_inbox("acme", "spring.csv", &one("a")).batch.unwrap().as_str(), "spring");
    assert_eq!(ingest.store.finished_count(), 1, "nothing of it is new");
}

#[test]
fn the_name_of_the_list_of_batches_names_no_new_batch() {
    let ingest = ingest();
    let text = format!("{HEADER}a,image,flat,fox,,\n");
    let path = ingest.dir.path().join("index.html.csv");
    fs::write(&path, &text).unwrap();
    let accept_as = |batch: Option<&str>| {
        let options = IngestOptions { batch: batch.map(|name| name.parse().unwrap()), ..ingest.options() };
        accept(&ingest.store, &path, &ingest.context(options), Timestamp(0)).unwrap()
    };
    let name = |accepted: &Accepted| accepted.receipt.batch.as_ref().map(ToString::to_string).unwrap();
    let refused = accept_as(Some("Index.html"));
    assert!(refused.batch.is_none());
    let said = refused.receipt.problems[0].to_string();
    assert!(said.contains("Index.html cannot name a batch: the list of batches has that name"), "{said}");
    let plain = accept_as(None);
    assert_eq!(name(&plain), "index.html_");
    // One of an older version keeps its name, under which its rows were bought.
    let older = BatchRecord { name: "index.html".parse().unwrap(), ..plain.batch.unwrap() };
    drop(plain.lock);
    ingest.store.commit(&[Change::Batch(Box::new(older))]).unwrap();
    assert_eq!(name(&accept_as(None)), "index.html");
    assert!(accept_as(Some("index.html")).receipt.problems.is_empty());
}
