//! What people hand in by mistake: each mistake is named with its place and its exit code, nothing is
//! charged for it, and good rows are kept where there are any.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs::File;
use std::io::{BufWriter, Write};

use insta::assert_snapshot;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Outcome;
use crate::support::{TestEnv, case_share, manifests};

/// The most memory that a run of a debug build may take, whatever it is handed. A run of one row takes
/// some 20 MB, of which the database's cache is most.
const MEMORY_MAX_BYTES: u64 = 96 * 1024 * 1024;
/// The most that may be said about one manifest.
const REPORT_MAX_BYTES: usize = 16 * 1024;

/// Hands a manifest in; it must be refused, with nothing sent.
#[track_caller]
fn refused(name: &str, content: impl AsRef<[u8]>) -> String {
    let env = TestEnv::new();
    env.write(name, content);
    let outcome = env.run(["run", name]).exited(2);
    is_unheard_of(&env);
    env.plain(&outcome.stderr)
}

#[track_caller]
fn is_unheard_of(env: &TestEnv) {
    let totals = env.audit().totals;
    assert_eq!((totals.tasks, totals.refused_400), (0, 0), "no POST left");
}

// ---- files that are no manifest ----

#[test]
fn a_missing_file() {
    let env = TestEnv::new();
    let outcome = env.run(["run", "batch.csv"]).exited(2);
    assert_snapshot!(outcome.stderr, @r"
    error: failed to read batch.csv: No such file or directory (os error 2)
    ");
    is_unheard_of(&env);
}

#[test]
fn a_folder() {
    let env = TestEnv::new();
    std::fs::create_dir(env.path("batch.csv")).unwrap();
    let outcome = env.run(["run", "batch.csv"]).exited(2);
    assert_snapshot!(outcome.stderr, @r"error: batch.csv is not a file");
    is_unheard_of(&env);
}

#[test]
fn an_empty_file() {
    assert_snapshot!(refused("batch.csv", ""), @r"
    batch.csv:1: the file is empty, expected a CSV, JSON or JSON Lines list of jobs
    batch.csv: nothing was accepted
    ");
}

#[test]
fn a_header_without_rows() {
    assert_snapshot!(refused("batch.csv", "id,kind,prompt\n"), @r"
    batch.csv:1: there is no job in the file, expected at least one
    batch.csv: batch batch: 0 new (0 credits), 1 not valid
    ");
}

#[test]
fn a_spreadsheet_in_utf_16() {
    let text = manifests::manifest("image", 2);
    let utf16: Vec<u8> =
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_snapshot!(refused("batch.csv", utf16), @r#"
    batch.csv:1: the file is UTF-16 text, expected UTF-8 text: CSV, JSON or JSON Lines (hint: save the file as UTF-8; a spreadsheet calls it "CSV UTF-8")
    batch.csv: nothing was accepted
    "#);
}

#[test]
fn a_workbook() {
    assert_snapshot!(refused("batch.xlsx", b"PK\x03\x04\x14\0\x06\0\x08\0"), @r#"
    batch.xlsx:1: the file is a workbook (.xlsx, .ods) or a ZIP archive, expected UTF-8 text: CSV, JSON or JSON Lines (hint: export the sheet: in Excel File > Save As > "CSV UTF-8"; in LibreOffice File > Save As > "Text CSV" with the character set UTF-8; in Google Sheets File > Download > "Comma-separated values")
    batch.xlsx: nothing was accepted
    "#);
}

#[test]
fn duplicate_headers() {
    assert_snapshot!(refused("batch.csv", "kind,prompt,Prompt,prompt\nimage,a,b,c\n"), @r#"
    batch.csv:1:13: Prompt: the column "prompt" sets the same field; keep one
    batch.csv:1:20: prompt: the column appears twice; keep one
    batch.csv: nothing was accepted
    "#);
}

#[test]
fn a_column_that_nobody_knows() {
    assert_snapshot!(refused("batch.csv", "kind,promt,durration\nvideo,a boat,5\n"), @r#"
    batch.csv:1:6: promt: unknown column; did you mean "prompt"? (hint: "options.promt" would be sent to the service, "meta.promt" kept for the results)
    batch.csv:1:12: durration: unknown column; did you mean "duration"? (hint: "options.durration" would be sent to the service, "meta.durration" kept for the results)
    batch.csv: nothing was accepted
    "#);
}

#[test]
fn a_quote_that_is_never_closed() {
    let text = "id,kind,model,prompt\none,image,gi-2,\"a boat\ntwo,image,gi-2,a gull\n";
    assert_snapshot!(refused("batch.csv", text), @r#"
    batch.csv:2:16: the quote that opens this cell is never closed (hint: close it with "; inside a quoted cell a quote is written twice)
    batch.csv: batch batch: 0 new (0 credits), 1 not valid
    "#);
}

#[test]
fn json_that_breaks_off() {
    let text = r#"[{"kind": "image", "model": "gi-2", "prompt": "a boat"}, {"kind": "#;
    assert_snapshot!(refused("batch.json", text), @r"
    batch.json:1:66: not JSON: the text ends while parsing a value
    batch.json: nothing was accepted
    ");
}

#[test]
fn a_file_name_that_is_no_batch_name() {
    assert_snapshot!(refused("...csv", manifests::manifest("image", 1)), @r#"
    error: ".." cannot name a batch; 1 to 100 letters, digits, dots, dashes and underscores are accepted, beginning with a letter or a digit
    hint: name the batch with --batch
    "#);
}

#[test]
fn a_batch_name_in_a_file_that_is_none_keeps_no_other_file_from_being_done() {
    let text = r#"{"batch": "bad name!", "jobs": [{"kind": "image", "model": "gi-2", "prompt": "a boat"}]}"#;
    assert_snapshot!(refused("batch.json", text), @r#"
    batch.json:1: batch: "bad name!" cannot name a batch; 1 to 100 letters, digits, dots, dashes and underscores are accepted, beginning with a letter or a digit
    batch.json: nothing was accepted
    "#);
    let env = TestEnv::new();
    env.write("bad.json", text);
    env.write("good.csv", manifests::manifest("image", 1));
    env.run(["run", "bad.json", "good.csv"]).exited(2);
    env.audit().each_paid_once(1);
}

// ---- bad rows among good ones ----

#[test]
fn ragged_rows_take_no_good_one_down() {
    let env = TestEnv::new();
    let text = "id,kind,model,prompt\n\
                good-1,image,gi-2,a boat\n\
                long,image,gi-2,a gull,over,and,out\n\
                short,image\n\
                dear,image,gi-9,a whale\n\
                good-2,image,gi-2,a harbour\n";
    env.write("batch.csv", text);
    let outcome = env.run(["run", "batch.csv"]).exited(2);
    assert_snapshot!(env.plain(&outcome.stderr), @r#"
    batch.csv:3:24: found 7 cells, expected 4, one for each column (hint: put a cell that contains the separator in double quotes)
    batch.csv:4:1: found 2 cells, expected 4, one for each column (hint: an empty cell needs its separator too)
    batch.csv:5:12: model: "gi-9" is not in the image catalog, which lists 8 (hint: did you mean gi-2?)
    batch.csv: batch batch: 2 new (16 credits), 3 not valid
    elapsed: TIME
    "#);
    let ids = ["good-1", "good-2"].map(str::to_owned);
    env.audit().each_paid_once(2);
    Outputs::of(&env, "batch").is_complete(&ids);
}

#[test]
fn a_mended_row_is_all_that_is_paid_for_the_second_time() {
    let env = TestEnv::new();
    let text = manifests::manifest("image", 3);
    env.write("batch.csv", text.replace("image-2,image,gi-2", "image-2,image,gi-9"));
    env.run(["run", "batch.csv"]).exited(2);
    env.audit().each_paid_once(2);
    env.write("batch.csv", text);
    env.run(["run", "batch.csv"]).exited(0).says("1 new (8 credits), 2 already there");
    env.audit().each_paid_once(3);
}

#[test]
fn strict_makes_it_all_or_nothing() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2) + "image-3,image,gi-2,,,,,\n");
    let outcome = env.run(["run", "batch.csv", "--strict"]).exited(2);
    assert_snapshot!(env.plain(&outcome.stderr), @r"
    batch.csv:4:1: prompt: is missing, and the service needs one
    batch.csv: batch batch: 2 new (16 credits), 1 not valid; nothing was accepted: the manifest is strict (--strict, policy.strict), so one invalid row rejects all
    ");
    is_unheard_of(&env);
}

#[test]
fn one_missing_manifest_keeps_the_others_from_being_sent() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv", "other.csv"]).exited(2).says("other.csv");
    is_unheard_of(&env);
}

// ---- far too much ----

/// Runs a manifest that `write` makes too large for anyone's memory.
#[track_caller]
fn survives(env: &TestEnv, write: impl FnOnce(&mut BufWriter<File>)) -> Outcome {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(env.path("batch.csv")).unwrap());
    write(&mut file);
    file.flush().unwrap();
    let outcome = env.run(["run", "batch.csv"]).exited(2);
    let peak = outcome.peak_bytes;
    assert!(peak > 1024 * 1024, "memory was measured: {peak}");
    assert!(peak < MEMORY_MAX_BYTES, "{} MB of memory", peak >> 20);
    assert!(outcome.stderr.len() < REPORT_MAX_BYTES, "{} bytes were said", outcome.stderr.len());
    outcome
}

#[test]
fn a_line_that_is_longer_than_memory_may_be_is_one_bad_row() {
    let env = TestEnv::new();
    let outcome = survives(&env, |file| {
        file.write_all(manifests::manifest("image", 1).as_bytes()).unwrap();
        file.write_all(b"huge,image,gi-2,").unwrap();
        let piece = [b'x'; 1 << 20];
        (0..MEMORY_MAX_BYTES * 5 / 4).step_by(piece.len()).for_each(|_| file.write_all(&piece).unwrap());
        file.write_all(b",,,,\nimage-2,image,gi-2,a harbour image-2,,,,\n").unwrap();
    });
    assert_snapshot!(env.plain(&outcome.stderr), @r"
    batch.csv:3:1: the row is longer than 1 MiB (hint: an unclosed quote joins rows)
    batch.csv: batch batch: 2 new (16 credits), 1 not valid
    elapsed: TIME
    ");
    env.audit().each_paid_once(2);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 2));
}

#[test]
fn a_row_is_named_by_its_first_line_though_its_problem_is_below() {
    let env = TestEnv::new();
    let rows = "a,image,gi-2,\"one\r\ntwo\r\nthree\",x\r\na,image,gi-2,C,\r\n";
    env.write("batch.csv", format!("id,kind,model,prompt,max_credits\r\n{rows}"));
    let outcome = env.run(["plan", "batch.csv", "--rows"]).exited(2);
    let outcome = outcome.says("batch.csv:5: id: is already used at line 2; an id names one row");
    assert!(outcome.stdout.contains("batch.csv:2 "), "{}", outcome.stdout);
}

#[test]
fn very_many_errors_are_counted_and_a_few_are_told() {
    let env = TestEnv::new();
    let errors = 1_000_000 / case_share::one_of();
    let outcome = survives(&env, |file| {
        file.write_all(manifests::manifest("image", 1).as_bytes()).unwrap();
        (0..errors).for_each(|_| file.write_all(b"x,image\n").unwrap());
    });
    outcome
        .says(&format!("and {} more problems", errors - 20))
        .says(&format!("1 new (8 credits), {errors} not valid"));
    env.audit().each_paid_once(1);
}

// ---- folders that will not do ----

/// Runs one image with other folders; it must be refused with `code`, and nothing sent.
#[track_caller]
fn refused_folder(env: &TestEnv, arguments: &[&str], code: i32) -> String {
    env.write("batch.csv", manifests::manifest("image", 1));
    let arguments = ["run", "batch.csv"].iter().chain(arguments).copied();
    let outcome = env.run(arguments).exited(code);
    is_unheard_of(env);
    env.plain(&outcome.stderr)
}

#[test]
fn an_output_folder_that_is_a_file() {
    let env = TestEnv::new();
    env.write("output", "not a folder");
    assert_snapshot!(refused_folder(&env, &[], 6), @r"
    batch.csv: batch batch: 1 new (8 credits)
    error: failed to write to output/batch: Not a directory (os error 20)
    hint: free disk space, grant the rights, or choose another directory with --output, then repeat the command to resume
    ");
}

#[test]
fn a_batch_folder_that_is_a_file() {
    let env = TestEnv::new();
    env.write("output/batch", "not a folder");
    assert_snapshot!(refused_folder(&env, &[], 6), @r"
    batch.csv: batch batch: 1 new (8 credits)
    error: failed to write to output/batch: File exists (os error 17)
    hint: free disk space, grant the rights, or choose another directory with --output, then repeat the command to resume
    ");
}

#[test]
fn an_output_folder_that_cannot_be_written_to() {
    let env = TestEnv::new();
    // Nobody makes files there, not even root.
    assert_snapshot!(refused_folder(&env, &["--output", "/proc/self"], 6), @r"
    batch.csv: batch batch: 1 new (8 credits)
    error: failed to write to /proc/self/batch: No such file or directory (os error 2)
    hint: free disk space, grant the rights, or choose another directory with --output, then repeat the command to resume
    ");
}

#[test]
fn a_state_folder_that_cannot_be_written_to() {
    let env = TestEnv::new();
    assert_snapshot!(refused_folder(&env, &["--state", "/proc/self/state"], 6), @r"
    error: failed to use /proc/self/state: No such file or directory (os error 2)
    ");
}

#[test]
fn a_state_folder_that_is_a_file() {
    let env = TestEnv::new();
    env.write("state", "not a folder");
    assert_snapshot!(refused_folder(&env, &[], 6), @r"
    error: failed to use state: Not a directory (os error 20)
    hint: free disk space or grant the rights, then repeat the command to resume
    ");
}

#[test]
fn a_state_folder_that_holds_something_else() {
    let env = TestEnv::new();
    env.write("state/thesis.txt", "years of work");
    assert_snapshot!(refused_folder(&env, &[], 2), @r"
    error: state is not a state of callsheet: it holds thesis.txt
    hint: give an empty or missing directory with --state
    ");
    assert_eq!(std::fs::read_dir(env.path("state")).unwrap().count(), 1, "nothing was put beside it");
}

#[test]
fn a_state_of_another_version() {
    let env = TestEnv::new();
    env.write("state/callsheet-state.json", r#"{"format": 7, "service": "SERVICE"}"#);
    assert_snapshot!(refused_folder(&env, &[], 2), @r"
    error: state has state format 7; this version reads formats up to 2
    hint: use the version that wrote it, or choose another state with --state
    ");
}

#[test]
fn a_state_of_another_service() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    let other = TestEnv::new();
    let state = env.path("state").display().to_string();
    let said = refused_folder(&other, &["--state", &state], 2);
    assert_snapshot!(env.plain(&said.replace("SERVICE", "OTHER")), @r"
    error: DIR/state belongs to SERVICE, not to OTHER
    hint: keys and tasks are valid for one service only; choose another state with --state, or use this one from now on with callsheet run --state DIR/state --adopt-state MANIFEST, or callsheet daemon --state DIR/state --adopt-state
    ");
    // A plan has no such option.
    let suggested = format!("callsheet run --state {state} --adopt-state MANIFEST");
    other.run(["plan", "batch.csv", "--state", &state]).exited(2).says(&suggested);

    // A service that is not there gets nothing.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mistyped = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let adopts = ["--adopt-state", "--batch=adopted", "--state", &state];
    for command in [&["run", "batch.csv"][..], &["daemon"]] {
        let arguments = command
            .iter()
            .chain(&adopts)
            .copied()
            .filter(|flag| command[0] == "run" || !flag.starts_with("--batch"));
        other.run(arguments.chain(["--base-url", &mistyped])).exited(5);
    }
    // Nor does one whose state cannot be opened.
    let (database, kept) = (env.path("state/db"), env.path("kept"));
    std::fs::rename(&database, &kept).unwrap();
    other.run(["run", "batch.csv"].into_iter().chain(adopts)).exited(6);
    std::fs::rename(&kept, &database).unwrap();
    env.run(["run", "batch.csv"]).exited(0);

    other.run(["run", "batch.csv"].into_iter().chain(adopts)).exited(0);
    env.run(["run", "batch.csv"]).exited(2).says("belongs to");
}

#[test]
fn a_state_that_lacks_the_file_that_says_whose_it_is() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    let marker = env.path("state/callsheet-state.json");
    let text = std::fs::read(&marker).unwrap();
    let database = env.path("state/db");
    for is_database_lost in [false, true] {
        let _ = std::fs::remove_file(&marker);
        if is_database_lost {
            std::fs::remove_dir_all(&database).unwrap();
        }
        for command in [&["run", "batch.csv"][..], &["status"], &["state", "verify"], &["state", "rebuild"]] {
            env.run(command.iter().copied())
                .exited(6)
                .says("state/callsheet-state.json is damaged: it is missing")
                .says("the service.base_url that the state was begun with. Write it again: echo");
        }
    }
    std::fs::write(&marker, text).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    env.run(["run", "batch.csv"]).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn a_state_whose_database_was_cut_off() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    let before = env.audit().totals;
    let db = File::options().write(true).open(env.path("state/db/db")).unwrap();
    db.set_len(db.metadata().unwrap().len() / 3).unwrap();
    let outcome = env.run(["run", "batch.csv"]);
    assert!(outcome.code == Some(6), "{outcome:?}");
    assert_eq!(env.audit().totals, before, "nothing was sent");
    std::fs::rename(env.path("state"), env.path("state-aside")).unwrap();
    env.run(["run", "batch.csv"]).exited(0);
    env.audit().each_paid_once(2);
}

// ---- a configuration that will not do ----

#[test]
fn a_key_of_the_configuration_that_nobody_knows() {
    let env = TestEnv::new();
    env.configure("[limits]\nin_fligth = 3");
    assert_snapshot!(refused_folder(&env, &[], 2), @r"
    error: callsheet.toml:11: unknown key `in_fligth`: did you mean `in_flight`?
    ");
}

#[test]
fn a_manifest_that_is_missing_keeps_the_others_from_being_accepted() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    let refused = env.run(["run", "batch.csv", "typo.csv"]).exited(2);
    assert_snapshot!(env.plain(&refused.stderr), @r"
    error: failed to read typo.csv: No such file or directory (os error 2)
    hint: nothing of the other manifests was accepted; correct the name and repeat the command
    ");
    env.run(["jobs", "batch"]).exited(2);
    assert_eq!(env.audit().totals.tasks, 0);
}

#[test]
fn an_export_that_cannot_be_read_is_named() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    env.write("old.jsonl", "{\"callsheet_dump\":1}\n");
    for (words, told) in [
        (&["state", "rebuild", "--export", "gone.jsonl"][..], "error: gone.jsonl: failed to read"),
        (&["state", "rebuild", "--export", "old.jsonl"], "error: old.jsonl: line 1 of the export: "),
        (&["state", "import", "old.jsonl", "--state", "new"], "error: old.jsonl: line 1 of the export: "),
    ] {
        let refused = env.run(words.iter().copied());
        refused.exited(2).says(told);
    }
    env.run(["jobs", "batch"]).exited(0);
}

#[test]
fn a_page_that_cannot_be_served_keeps_the_manifest_from_being_accepted() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let page = format!("--page={}", taken.local_addr().unwrap());
    env.run(["run", "batch.csv", &page]).exited(2).says("error: failed to serve the page on 127.0.0.1:");
    env.run(["status"]).exited(2).says("there is no state in state");
    drop(taken);
    env.run(["run", "batch.csv", &page]).exited(0).says("page: http://127.0.0.1:");
}

#[test]
fn a_manifest_that_is_missing_is_said_though_the_service_does_not_answer() {
    let env = TestEnv::new();
    env.configure_for("http://127.0.0.1:1", "", "");
    for command in ["run", "plan"] {
        env.run([command, "typo.csv"]).exited(2).says("error: failed to read typo.csv: No such file");
    }
}
