//! Rows that keep their `id` and ask for something else.

use super::*;
use crate::domain::absent_rows::AbsentRow;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::row_selection::RowSelection;

#[test]
fn an_edited_manifest_runs_what_is_new_or_changed() {
    let ingest = ingest();
    ingest.check(
        "m.csv",
        &format!("{HEADER}a,image,flat,fox,,\nb,image,flat,owl,,\n"),
        "2 new 0 have 0 invalid 6 credits",
    );
    let edited = format!("{HEADER}b,image,flat,owl,3,\nc,image,flat,hen,,\na,image,flat,red fox,,\n");
    let receipt = ingest.accept("m.csv", &edited);
    assert_eq!((receipt.new, receipt.changed, receipt.waiting, receipt.done), (3, 1, 1, 0));
    assert_eq!((receipt.price.0, receipt.total_credits.0), (12, 15), "what waits is still to be paid");
    let notes: Vec<String> = receipt.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "4: prompt: a is in the batch with another request, which is not submitted yet and is replaced free of charge: \
             was \"fox\", is \"red fox\""
        ]
    );
    assert_eq!(ingest.labels("m"), ["0 a", "1 b", "2 b-v2", "3 b-v3", "4 c", "5 a"]);
}

/// Case and inner spaces of a prompt, and a default that is spelled out, make another job: the field is named.
#[test]
fn a_row_that_keeps_its_id_says_in_what_it_changed() {
    let ingest = ingest();
    let header = "id,kind,model,prompt,quality\n";
    ingest.accept("m.csv", &format!("{header}a,image,flat,A red fox,\n"));
    let changed = |text: &str| {
        let receipt = ingest.accept("m.csv", &format!("{header}{text}\n"));
        let fields = receipt.notes.iter().filter(|note| note.message.contains("with another request"));
        let fields: Vec<String> = fields.map(|note| note.field.clone().unwrap_or_default()).collect();
        (receipt.new, receipt.changed, receipt.have, fields.join(" "))
    };
    assert_eq!(changed("a,image,flat,a red  fox,"), (0, 1, 0, "prompt".to_owned()));
    // What the batch had before that is there, and is not bought a second time.
    assert_eq!(changed("a,image,flat,A red fox,"), (0, 0, 1, String::new()));
    assert_eq!(changed("b,image,flat,a red  fox,"), (1, 0, 0, String::new()));
    // Without an `id` nothing can be known of an earlier row.
    assert_eq!(changed(",image,flat,A RED FOX,"), (1, 0, 0, String::new()));
}

#[test]
fn a_row_that_goes_back_says_what_becomes_of_the_one_that_was_wanted() {
    let ingest = ingest();
    let accept = |prompt: &str| {
        let receipt = ingest.accept("m.csv", &format!("id,kind,model,prompt\na,image,flat,{prompt}\n"));
        let back = |note: &Diagnostic| {
            let (what, _) = note.message.split_once(": was ")?;
            what.starts_with("a goes back").then(|| (note.field.clone().unwrap_or_default(), what.to_owned()))
        };
        receipt.notes.iter().filter_map(back).collect::<Vec<_>>()
    };
    assert!(accept("a fox").is_empty());
    assert!(accept("a red fox").is_empty());
    let what = "a goes back to a request that the batch had before; the one that was wanted until now is not submitted \
                yet and is replaced free of charge";
    assert_eq!(accept("a fox"), [("prompt".to_owned(), what.to_owned())]);
    assert!(accept("a fox").is_empty());
}

/// One variation may be made and another not.
#[test]
fn variations_that_go_back_are_told_together() {
    let ingest = ingest();
    let accept = |prompt: &str| {
        let receipt =
            ingest.accept("m.csv", &format!("id,kind,model,prompt,count\na,image,flat,{prompt},2\n"));
        receipt.notes.iter().map(|note| note.message.clone()).collect::<Vec<_>>()
    };
    accept("a fox");
    accept("a red fox");
    let back = accept("a fox");
    let what = "a and its further variations go back to a request that the batch had before; of those that were wanted until \
                now, what is not submitted yet is replaced free of charge, and the others stay in the batch";
    assert!(back.iter().any(|note| note.starts_with(what)), "{back:?}");
}

/// A limit and a review are no part of the request: what waits keeps those that it was accepted with, and that is said.
#[test]
fn a_row_that_waits_says_which_of_its_terms_a_manifest_does_not_change() {
    let ingest = ingest();
    let notes = |rows: &str| {
        let receipt = ingest.accept("m.csv", &format!("id,kind,model,prompt,max_credits,review\n{rows}"));
        assert_eq!(receipt.invalid, 0);
        let notes =
            receipt.notes.iter().map(|note| (note.field_message(), note.hint.clone().unwrap_or_default()));
        notes.collect::<Vec<_>>()
    };
    let note = |text: &str, hint: &str| vec![(text.to_owned(), hint.to_owned())];
    assert_eq!(notes("a,image,flat,fox,10,\n"), []);
    assert_eq!(notes("a,image,flat,fox,10,\n"), []);
    assert_eq!(
        notes("a,image,flat,fox,9,\n"),
        note(
            "max_credits: a waits in the batch with a limit of 10 credits, which a manifest does not change",
            "to change it: callsheet retry m/a --max-credits 9",
        )
    );
    assert_eq!(
        notes("a,image,flat,fox,10,yes\n"),
        note("review: a waits in the batch without a review, which a manifest does not change", "")
    );
    let priority = "id,kind,model,prompt,max_credits,priority\na,image,flat,fox,10,7\n";
    let noted: Vec<_> =
        ingest.accept("m.csv", priority).notes.iter().map(|note| note.field_message()).collect();
    assert_eq!(noted, ["priority: a waits in the batch with priority 0, which a manifest does not change"]);
    // As it is now, it would not be accepted.
    assert_eq!(
        notes("a,image,flat,fox,2,\n"),
        note(
            "max_credits: is 2, but the row costs 3: fixed: 3; a waits in the batch with a limit of 10 credits, which a \
             manifest does not change",
            "to change it: callsheet retry m/a --max-credits N",
        )
    );
}

impl Ingest {
    /// What a later manifest says of rows that it does not have: `count credits: id verdict credits, ...`.
    fn absent(&self, text: &str, selection: RowSelection) -> Option<String> {
        let receipt = self.said("", "m.csv", text, |options| IngestOptions { selection, ..options });
        let absent = receipt.absent?;
        let row = |row: &AbsentRow| {
            let AbsentRow { id, verdict, unspent_credits, not_valid, command } = row;
            assert_eq!(command.as_deref(), Some(format!("callsheet cancel m/{id}").as_str()));
            let not_valid = if *not_valid { ", not valid" } else { "" };
            format!("{id} {} {}{not_valid}", verdict.name(), unspent_credits.0)
        };
        let rows: Vec<String> = absent.rows.iter().map(row).collect();
        Some(format!("{} {}: {}", absent.jobs, absent.unspent_credits.0, rows.join(", ")))
    }
}

#[test]
fn rows_that_a_later_manifest_does_not_have_are_listed_with_what_they_may_still_cost() {
    let ingest = ingest();
    let rows = "a,image,flat,fox,,\nb,image,flat,owl,3,\nc,image,flat,hen,,\n,image,flat,gnu,2,\n";
    let whole = RowSelection::default;
    let all = format!("{HEADER}{rows}");
    assert_eq!(ingest.absent(&all, whole()), None, "a batch that is new");
    assert_eq!(ingest.absent(&all, whole()), None, "nothing is missing");
    let gnus =
        ingest.labels("m").into_iter().filter_map(|label| Some(label.split_once(" gnu")?.1.to_owned()));
    let gnus: Vec<String> = gnus.map(|rest| format!("gnu{rest} waiting 3")).collect();
    // One is edited, which is no absence, of one the count is less, and two are gone.
    let edited = format!("{HEADER}a,image,flat,red fox,,\nb,image,flat,owl,2,\n");
    let expected = format!("4 12: b-v3 waiting 3, c waiting 3, {}", gnus.join(", "));
    assert_eq!(ingest.absent(&edited, whole()).as_deref(), Some(&*expected));
    assert_eq!(
        ingest.absent(&edited, whole()).as_deref(),
        Some(&*expected),
        "the older version is not listed"
    );
    // What is left out of a part of a manifest is not absent.
    let part = RowSelection { first: Some(1), ..whole() };
    assert_eq!(ingest.absent(&edited, part), None);
    // Of a row that cannot be read further its id tells which one it is.
    let unread = format!("{edited}c,nothing,flat,hen,,\n");
    let expected = expected.replace("c waiting 3", "c waiting 3, not valid");
    assert_eq!(ingest.absent(&unread, whole()).as_deref(), Some(&*expected));
    // So it does of one that has no price: it takes the place of nothing.
    let unpriced = format!("{edited}c,image,gone,hen,,\n");
    assert_eq!(ingest.absent(&unpriced, whole()).as_deref(), Some(&*expected));
    // One without an id may be any of them.
    let unread = format!("{edited},nothing,flat,hen,,\n");
    assert_eq!(ingest.absent(&unread, whole()), None);
    // An invalid row is there.
    let invalid = format!("{edited}c,image,flat,hen,,\n,image,flat,gnu,1,\n");
    assert_eq!(
        ingest.absent(&invalid, whole()).as_deref(),
        Some(&*format!("2 6: b-v3 waiting 3, {}", gnus[1]))
    );
}

#[test]
fn of_many_absent_rows_five_are_listed() {
    let ingest = ingest();
    let rows: String = (0..40).map(|n| format!("r{n},image,flat,fox {n},,\n")).collect();
    ingest.accept("m.csv", &format!("{HEADER}{rows}"));
    let expected = "39 117: r1 waiting 3, r2 waiting 3, r3 waiting 3, r4 waiting 3, r5 waiting 3";
    let found = ingest.absent(&format!("{HEADER}r0,image,flat,fox 0,,\n"), RowSelection::default());
    assert_eq!(found.as_deref(), Some(expected));
}
