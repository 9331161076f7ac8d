//! Rows that keep their `id` and ask for something else.

use super::*;

#[test]
fn an_edited_manifest_runs_what_is_new_or_changed() {
    let door = door();
    door.check(
        "m.csv",
        &format!("{HEADER}a,image,flat,fox,,\nb,image,flat,owl,,\n"),
        "2 new 0 have 0 invalid 6 credits",
    );
    let edited = format!("{HEADER}b,image,flat,owl,3,\nc,image,flat,hen,,\na,image,flat,red fox,,\n");
    let receipt = door.accept("m.csv", &edited);
    assert_eq!((receipt.new, receipt.changed, receipt.waiting, receipt.done), (3, 1, 1, 0));
    assert_eq!((receipt.price.0, receipt.total_credits.0), (12, 15), "what waits is still to be paid");
    let notes: Vec<String> = receipt.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "4: prompt: a is in the batch with another request, and is bought again: was \"fox\", is \"red fox\""
        ]
    );
    assert_eq!(door.labels("m"), ["0 a", "1 b", "2 b-v2", "3 b-v3", "4 c", "5 a"]);
}

/// Case and inner spaces of a prompt, and a default that is spelled out, make another job: the field is named.
#[test]
fn a_row_that_keeps_its_id_says_in_what_it_changed() {
    let door = door();
    let header = "id,kind,model,prompt,quality\n";
    door.accept("m.csv", &format!("{header}a,image,flat,A red fox,\n"));
    let changed = |text: &str| {
        let receipt = door.accept("m.csv", &format!("{header}{text}\n"));
        let fields = receipt.notes.iter().filter(|note| note.message.contains("bought again"));
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
