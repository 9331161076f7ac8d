//! Manifests that are taken in, as transcripts of their receipts.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::domain::batch_origin::SourcePlace;
use crate::domain::credits::Credits;
use crate::domain::ids::Seq;
use crate::domain::job::JobSpec;
use crate::domain::manifest::row::Policy;
use crate::domain::quote::{Catalog, Rules};
use crate::domain::schedule::Schedule;
use crate::domain::schedule::placeholders::ScheduledRun;
use crate::store::Change;

mod changed;
mod large;
mod options;
mod scheduled;
mod sources;

struct Ingest {
    dir: TempDir,
    store: Store,
    catalog: Catalog,
    rules: Rules,
    strict: bool,
    allow_unknown_options: bool,
    occasion: Option<ScheduledRun>,
    budget: Option<Credits>,
}

fn ingest() -> Ingest {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state"), "s", false).unwrap();
    let (catalog, rules) = (catalog(), Rules::builtin());
    Ingest {
        dir,
        store,
        catalog,
        rules,
        strict: false,
        allow_unknown_options: false,
        occasion: None,
        budget: None,
    }
}

/// One image model, at 3 credits.
pub(super) fn catalog() -> Catalog {
    let image = json!([{"id": "flat", "modes": {"text-to-image": {"aspect_ratios": [], "qualities": [], "credits_per_generation": 3}}}]);
    Catalog::of(&json!([]), &image, &json!([]), &Value::Null)
}

impl Ingest {
    fn accept(&self, name: &str, text: &str) -> Receipt {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        let accepted = accept(&self.store, &path, &self.context(self.options()), Timestamp(0)).unwrap();
        if let Some(batch) = accepted.batch {
            self.store.commit(&[Change::Batch(Box::new(batch))]).unwrap();
        }
        accepted.receipt
    }

    fn options(&self) -> IngestOptions {
        IngestOptions {
            policy: Policy {
                strict: Some(self.strict),
                allow_unknown_options: Some(self.allow_unknown_options),
                budget: self.budget.filter(|_| self.occasion.is_none()),
                ..Policy::default()
            },
            occasion: self.occasion.clone(),
            ceiling: self.budget.filter(|_| self.occasion.is_some()),
            ..IngestOptions::default()
        }
    }

    fn context(&self, options: IngestOptions) -> IngestContext<'_> {
        IngestContext::new(&self.catalog, &self.rules, options)
    }

    /// `2 new 1 have 0 invalid 6 credits`
    fn check(&self, name: &str, text: &str, expected: &str) {
        let receipt = self.accept(name, text);
        let said = format!(
            "{} new {} have {} invalid {}",
            receipt.added(),
            receipt.have,
            receipt.invalid,
            receipt.price
        );
        assert_eq!(said, expected, "{:#?}", receipt.problems);
    }

    fn labels(&self, batch: &str) -> Vec<String> {
        let batch = self.store.batches().unwrap().into_iter().find(|b| b.name.as_str() == batch).unwrap();
        let mut rows = self.store.spool(batch.no).rows(0, batch.spool_bytes).unwrap();
        let mut labels = Vec::new();
        while let Some((_, spec)) = rows.next_line::<JobSpec>().unwrap() {
            labels.push(format!("{} {}", spec.seq.0, spec.label));
        }
        labels
    }
}

const HEADER: &str = "id,kind,model,prompt,count,priority\n";

#[test]
fn the_same_manifest_again_adds_nothing() {
    let ingest = ingest();
    let text = format!("{HEADER}a,image,flat,fox,,\nb,image,flat,owl,2,\n,image,flat,hen,,\n");
    ingest.check("m.csv", &text, "4 new 0 have 0 invalid 12 credits");
    ingest.check("m.csv", &text, "0 new 4 have 0 invalid 0 credits");
}

#[test]
fn row_order_format_and_spelling_make_no_new_job() {
    let ingest = ingest();
    ingest.check(
        "m.csv",
        &format!("{HEADER}a,image,flat,fox,,\n,image,flat,owl,,\n"),
        "2 new 0 have 0 invalid 6 credits",
    );
    let lines = "{\"prompt\": \" owl \", \"model\": \"flat\"}\n{\"model\": \"flat\", \"prompt\": \"fox\", \"id\": \"a\", \"kind\": \"image\"}\n";
    ingest.check("m.jsonl", lines, "0 new 2 have 0 invalid 0 credits");
}

#[test]
fn another_batch_is_a_deliberate_new_run() {
    let ingest = ingest();
    let text = format!("{HEADER}a,image,flat,fox,,\n");
    ingest.check("m.csv", &text, "1 new 0 have 0 invalid 3 credits");
    ingest.check("n.csv", &text, "1 new 0 have 0 invalid 3 credits");
    ingest.check(
        "o.json",
        r#"{"batch": "m", "jobs": [{"id": "a", "kind": "image", "model": "flat", "prompt": "fox"}]}"#,
        "0 new 1 have 0 invalid 0 credits",
    );
}

#[test]
fn bad_rows_take_no_good_rows_down() {
    let ingest = ingest();
    let text =
        format!("{HEADER}a,image,flat,fox,,\nb,image,nope,owl,,\nc,image,flat,,,\na,image,flat,hen,,\n");
    let receipt = ingest.accept("m.csv", &text);
    let said: Vec<String> = receipt
        .problems
        .iter()
        .map(|p| format!("{} {}", p.line(), p.field.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!((receipt.new, receipt.invalid), (1, 3));
    assert_eq!(said, ["3 model", "4 prompt", "5 id"]);
}

#[test]
fn the_id_of_a_row_that_cannot_be_read_is_used() {
    let ingest = ingest();
    let row = |count: u32, prompt: &str| {
        format!("{{\"id\":\"a\",\"kind\":\"sound-effect\",\"prompt\":\"{prompt}\",\"count\":{count}}}\n")
    };
    let slip = row(0, "wind") + &row(1, "rain");
    let receipt = ingest.accept("spring.jsonl", &slip);
    let problems: Vec<String> = receipt.problems.iter().map(ToString::to_string).collect();
    assert_eq!((receipt.new, receipt.invalid), (0, 2), "{problems:?}");
    assert!(problems[1].starts_with("2: id: is already used at line 1"), "{problems:?}");
    // The row that is meant is bought once.
    ingest.check("spring.jsonl", &row(1, "wind"), "1 new 0 have 0 invalid 5 credits");
}

#[test]
fn strict_is_all_or_nothing() {
    let ingest = Ingest { strict: true, ..ingest() };
    let receipt = ingest.accept("m.csv", &format!("{HEADER}a,image,flat,fox,,\nb,image,nope,owl,,\n"));
    assert!(receipt.refused);
    assert!(ingest.store.batches().unwrap().is_empty());
}

#[test]
fn priorities_go_first_and_places_follow_the_manifest() {
    let ingest = ingest();
    ingest.accept("m.csv", &format!("{HEADER}a,image,flat,fox,,\nb,image,flat,owl,,5\nc,image,flat,hen,,\n"));
    assert_eq!(ingest.labels("m"), ["1 b", "0 a", "2 c"]);
    let batch = &ingest.store.batches().unwrap()[0];
    assert_eq!(batch.segments.iter().map(|segment| segment.priority).collect::<Vec<_>>(), [5, 0]);
}

#[test]
fn rows_that_need_the_same_lie_together_whatever_their_number() {
    let ingest = Ingest { catalog: catalog_of_two(), ..ingest() };
    // More than what is kept in memory of each.
    let row =
        |n: u32| format!("r{n},image,{},{} {n},,\n", ["flat", "dear"][n as usize % 2], "fox ".repeat(50));
    let rows: String = (0..400).map(row).collect();
    ingest.accept("m.csv", &format!("{HEADER}{rows}"));
    let labels = ingest.labels("m");
    let places: Vec<u32> =
        labels.iter().map(|label| label.split(' ').next().unwrap().parse().unwrap()).collect();
    let expected: Vec<u32> = (0..400).step_by(2).chain((1..400).step_by(2)).collect();
    assert_eq!(places, expected, "in the order of the manifest, class by class");
    let batch = &ingest.store.batches().unwrap()[0];
    assert_eq!(batch.segments.len(), 2);
    assert_ne!(batch.segments[0].class, batch.segments[1].class);
    assert_eq!((batch.rows, batch.planned), (400, Credits(200 * 3 + 200 * 7)));
    assert_eq!(batch.segments[1].end, batch.spool_bytes);
    let mut jobs = crate::engine::job_iter::JobIter::open(&ingest.store, batch).unwrap();
    for seq in 0..400 {
        assert_eq!(jobs.next_job().unwrap().unwrap().0.seq, Seq(seq), "results follow the manifest");
    }
    // More of the same comes in, and what has begun is no longer told apart.
    let mut batch = batch.clone();
    batch.segments.iter_mut().for_each(|segment| segment.cursor = segment.end);
    ingest.store.commit(&[Change::Batch(Box::new(batch))]).unwrap();
    ingest.accept("m.csv", &format!("{HEADER}{rows}x,image,flat,hen,,\n"));
    let batch = &ingest.store.batches().unwrap()[0];
    assert_eq!((batch.segments.len(), batch.rows), (2, 401));
    assert!(batch.segments[0].is_through() && !batch.segments[1].is_through());
}

fn catalog_of_two() -> Catalog {
    let model = |id: &str, price: u32| json!({"id": id, "modes": {"text-to-image": {"aspect_ratios": [], "qualities": [], "credits_per_generation": price}}});
    let image = json!([model("flat", 3), model("dear", 7)]);
    Catalog::of(&json!([]), &image, &json!([]), &Value::Null)
}

#[test]
fn a_withdrawn_model_does_not_take_back_what_was_accepted() {
    let mut ingest = ingest();
    let text = format!("{HEADER}a,image,flat,fox,,\n");
    ingest.check("m.csv", &text, "1 new 0 have 0 invalid 3 credits");
    let other = json!([{"id": "other", "modes": {}}]);
    ingest.catalog = Catalog::of(&json!([]), &other, &json!([]), &Value::Null);
    ingest.check("m.csv", &text, "0 new 1 have 0 invalid 0 credits");
    ingest.check("n.csv", &text, "0 new 0 have 1 invalid 0 credits");
}

#[test]
fn what_cannot_be_priced_needs_a_limit_of_its_own() {
    let ingest = ingest();
    let header = "id,kind,options.anything,max_credits\n";
    ingest.check("m.csv", &format!("{header}a,shorts-studio,1,\n"), "0 new 0 have 1 invalid 0 credits");
    ingest.check("m.csv", &format!("{header}a,shorts-studio,1,40\n"), "1 new 0 have 0 invalid 40 credits");
}

#[test]
fn a_row_without_an_exact_price_must_allow_the_dearest_that_the_catalog_can_reach_and_is_held_at_it() {
    let mut ingest = ingest();
    let prices = json!({"1K": {"1:1": {"Max": 20}}, "4K": {"1:1": {"Max": 80}, "16:9": {"Max": 84}}});
    let exact = json!([{"id": "exact", "modes": {"text-to-image": {"aspect_ratios": ["1:1", "16:9"],
        "qualities": ["Max"], "credits_by_resolution_and_aspect_ratio": prices}}}]);
    ingest.catalog = Catalog::of(&json!([]), &exact, &json!([]), &Value::Null);
    let row = |max: &str| {
        format!(
            "id,kind,model,prompt,options.size,options.quality,max_credits\n\
             a,image,exact,fox,3840x2160,Max,{max}\n"
        )
    };
    for short in ["1", "83", ""] {
        let receipt = ingest.accept("m.csv", &row(short));
        assert_eq!((receipt.new, receipt.invalid), (0, 1));
        let problem = &receipt.problems[0];
        assert!(problem.message.ends_with("it may cost up to 84 credits"), "{}", problem.message);
        assert_eq!(problem.hint.as_deref(), Some("set max_credits to 84 or more"));
    }
    ingest.check("m.csv", &row("100"), "1 new 0 have 0 invalid 84 credits");
    let batch = ingest.store.batches().unwrap().remove(0);
    assert_eq!(batch.budget(), Credits(84), "without a budget it may spend what its plan showed");
}

#[test]
fn the_most_that_a_command_allows_a_row_is_kept_with_its_jobs() {
    let ingest = ingest();
    let path = ingest.dir.path().join("m.csv");
    fs::write(&path, format!("{HEADER}a,image,flat,fox,,\n")).unwrap();
    let context = ingest.context(IngestOptions { max_credits: Some(Credits(5)), ..ingest.options() });
    let locks = BatchLocks::default();
    let mut batches = Stored::new(&ingest.store, Timestamp(0), &locks, None);
    let draft = ingest.store.begin_staging().unwrap();
    let validated = validate(draft, &path, &context, Timestamp(0), &mut batches).unwrap();
    let row = validated.rows().unwrap().next_row().unwrap().unwrap();
    let Outcome::Jobs(jobs) = row.outcome else { panic!("{:?}", row.outcome) };
    assert_eq!(jobs.order.max_credits, Some(Credits(5)));
}

#[test]
fn a_crash_before_the_commit_leaves_nothing_behind() {
    let ingest = ingest();
    let path = ingest.dir.path().join("m.csv");
    fs::write(&path, format!("{HEADER}a,image,flat,fox,,\n")).unwrap();
    let lost = accept(&ingest.store, &path, &ingest.context(IngestOptions::default()), Timestamp(0)).unwrap();
    assert!(lost.batch.is_some());
    // Never committed: the next accept writes over it.
    ingest.check("m.csv", &format!("{HEADER}b,image,flat,owl,,\n"), "1 new 0 have 0 invalid 3 credits");
    assert_eq!(ingest.labels("m"), ["0 b"]);
}

#[test]
fn what_becomes_of_overdue_jobs_is_kept_with_the_batch() {
    let ingest = ingest();
    let text = r#"{"policy": {"on_deadline": "resubmit"}, "jobs": [{"id": "a", "kind": "image", "model": "flat", "prompt": "fox"}]}"#;
    assert!(!ingest.accept("m.json", text).refused);
    let batches = ingest.store.batches().unwrap();
    assert_eq!(batches[0].policy.on_deadline, Some(crate::domain::manifest::row::OnDeadline::Resubmit));
}

/// What a manifest comes to that somebody adds to after it was opened and before it was read.
fn written_to_meanwhile(text: &str, more: &str) -> Result<Validated, ManifestError> {
    let ingest = ingest();
    let path = ingest.dir.path().join("m.json");
    fs::write(&path, text).unwrap();
    let opened = manifest_file::open(&path).unwrap();
    if !more.is_empty() {
        let mut writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut writer, more.as_bytes()).unwrap();
    }
    let locks = BatchLocks::default();
    let mut batches = Stored::new(&ingest.store, Timestamp(0), &locks, None);
    let draft = ingest.store.begin_staging().unwrap();
    validate::validate_opened(
        draft,
        &path,
        opened,
        &ingest.context(ingest.options()),
        Timestamp(0),
        &mut batches,
    )
}

#[test]
fn a_file_that_is_half_written_is_not_refused_for_it() {
    let half = r#"[{"kind":"image","model":"flat","#;
    assert!(written_to_meanwhile(half, "").unwrap().receipt.file_refused, "that is all there is");
    let error = written_to_meanwhile(half, r#""prompt":"#).unwrap_err();
    assert!(matches!(error, ManifestError::Changed { .. }), "{error}");
}

#[test]
fn what_is_no_file_is_refused_without_waiting_for_it() {
    let ingest = ingest();
    let pipe = ingest.dir.path().join("m.csv");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let socket = ingest.dir.path().join("m.json");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [pipe.as_path(), &socket, ingest.dir.path(), std::path::Path::new("/dev/zero")] {
        let error = manifest_file::open(path).unwrap_err();
        assert!(matches!(error, ManifestError::NotAFile { .. }), "{}: {error}", path.display());
    }
}

// ---- manifests of other folders, of inboxes and of the socket ----

impl Ingest {
    /// Hands a manifest in from a folder.
    fn from(&self, folder: &str, name: &str, text: &str) -> Receipt {
        self.said(folder, name, text, |options| options)
    }

    fn said(
        &self,
        folder: &str,
        name: &str,
        text: &str,
        on: impl FnOnce(IngestOptions) -> IngestOptions,
    ) -> Receipt {
        let dir = self.dir.path().join(folder);
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        let options = on(IngestOptions { place: manifest_file::place_of(&path).unwrap(), ..self.options() });
        let accepted = accept(&self.store, &path, &self.context(options), Timestamp(1_000)).unwrap();
        if let Some(batch) = accepted.batch {
            self.store.commit(&[Change::Batch(Box::new(batch))]).unwrap();
        }
        accepted.receipt
    }

    fn in_inbox(&self, inbox: &str, name: &str, text: &str) -> Receipt {
        let place = SourcePlace::Inbox(inbox.to_owned());
        self.said(&format!("clients/{inbox}"), name, text, |options| IngestOptions { place, ..options })
    }

    /// `name rows`, of every batch.
    fn batches(&self) -> Vec<String> {
        let batches = self.store.batches().unwrap();
        batches.iter().map(|batch| format!("{} {}", batch.name, batch.rows)).collect()
    }

    fn record(&self, name: &str) -> BatchRecord {
        self.store.batches().unwrap().into_iter().find(|batch| batch.name.as_str() == name).unwrap()
    }

    /// Makes a batch what an earlier version left: without a source, and what was said of its terms.
    fn forget_origin(&self, name: &str) {
        let old = BatchRecord { origin: None, said: None, ..self.record(name) };
        self.store.commit(&[Change::Batch(Box::new(old))]).unwrap();
    }
}

// ---- terms that stay ----

#[test]
fn a_budget_that_is_left_out_later_stays_and_the_receipt_says_what_changed() {
    let mut ingest = ingest();
    let text = format!("{HEADER}a,image,flat,fox,,\nb,image,flat,owl,,\n");
    ingest.budget = Some(Credits(3));
    let first = ingest.accept("w.csv", &text);
    assert_eq!((first.budget, first.changes.len()), (Some(Credits(3)), 0));
    ingest.budget = None;
    let again = ingest.accept("w.csv", &text);
    assert_eq!(
        (again.budget, again.terms.budget, again.changes.len()),
        (Some(Credits(3)), Some(Credits(3)), 0)
    );
    ingest.budget = Some(Credits(5));
    let more = ingest.accept("w.csv", &text);
    assert_eq!(
        serde_json::to_value(&more.changes).unwrap(),
        json!([{"term": "budget", "before": 3, "now": 5}])
    );
    let none = ingest.said("", "w.csv", &text, |options| IngestOptions {
        policy: Policy::default(),
        is_default_budget: true,
        place: SourcePlace::Socket,
        ..options
    });
    assert_eq!(
        serde_json::to_value(&none.changes).unwrap(),
        json!([{"term": "budget", "before": 5, "now": null}])
    );
    assert_eq!(none.budget, Some(Credits(6)), "what its plans come to, never unlimited");
    assert_eq!(ingest.record("w").budget(), Credits(6));
}

#[test]
fn a_key_that_is_removed_from_the_manifest_stays_in_force() {
    let ingest = ingest();
    let text = |policy: &str| {
        format!(
            r#"{{"policy": {{{policy}}}, "jobs": [{{"id": "a", "kind": "image", "model": "flat", "prompt": "fox"}}]}}"#
        )
    };
    ingest.accept("m.json", &text(r#""budget": 2, "on_drift": "pause", "attempts": 1"#));
    let policy = ingest.record("m").policy;
    ingest.accept("m.json", &text(""));
    assert_eq!(ingest.record("m").policy, policy);
    ingest.accept("m.json", &text(r#""budget": 9"#));
    assert_eq!(ingest.record("m").policy, Policy { budget: Some(Credits(9)), ..policy });
}

#[test]
fn an_inboxs_budget_is_a_ceiling() {
    let ingest = ingest();
    let text = |policy: &str| {
        format!(
            r#"{{"policy": {{{policy}}}, "jobs": [{{"id": "a", "kind": "image", "model": "flat", "prompt": "fox"}}]}}"#
        )
    };
    let drop_in = |name: &str, policy: &str| {
        let own = Policy { budget: Some(Credits(12)), ..Policy::default() };
        ingest.said("in", name, &text(policy), |options| IngestOptions {
            ceiling: own.budget,
            default_policy: own,
            place: SourcePlace::Inbox("in".into()),
            ..options
        })
    };
    assert_eq!(drop_in("a.json", r#""budget": 50"#).budget, Some(Credits(12)));
    assert_eq!(drop_in("b.json", r#""budget": 9"#).budget, Some(Credits(9)));
    assert_eq!(drop_in("c.json", "").budget, Some(Credits(12)));
}

#[test]
fn rows_that_would_expire_at_once_are_refused_and_a_finished_manifest_is_not() {
    let ingest = ingest();
    let text = |expires: &str, more: &str| {
        format!(
            r#"{{"policy": {{"expires": "{expires}"}}, "jobs": [{{"id": "a", "kind": "image", "model": "flat", "prompt": "fox"}}{more}]}}"#
        )
    };
    let more = r#", {"id": "b", "kind": "image", "model": "flat", "prompt": "owl"}"#;
    // The manifest is handed in one second into 1970.
    let past = ingest.from("x", "m.json", &text("1970-01-01T00:00:00Z", ""));
    assert_eq!((past.new, past.invalid), (0, 1));
    let said = past.problems[0].to_string();
    assert!(said.contains("policy.expires: is 1970-01-01T00:00:00.000Z, which has passed"), "{said}");
    assert!(ingest.store.batches().unwrap().is_empty());
    assert_eq!(ingest.from("x", "m.json", &text("1970-01-02T00:00:00Z", "")).new, 1);
    let slip = ingest.from("x", "m.json", &text("1970-01-01T00:00:00Z", more));
    assert_eq!((slip.new, slip.have, slip.invalid), (0, 1, 1), "what is there is not refused");
    let day = Timestamp(86_400_000);
    assert_eq!(ingest.record("m").expires(), Some(day), "what waits is not dropped for it");
}

#[test]
fn an_inbox_decides_meta_and_no_key() {
    let ingest = ingest();
    let text = "id,kind,prompt,meta.client,meta.sku\na,sound-effect,wind,beta,7\nb,sound-effect,rain,,8\n";
    let place = SourcePlace::Inbox("acme".to_owned());
    let meta = std::collections::BTreeMap::from([("client".to_owned(), "acme".to_owned())]);
    let said = ingest.said("clients/acme", "jobs.csv", text, |options| IngestOptions {
        place: place.clone(),
        meta,
        ..options
    });
    assert_eq!(said.new, 2);
    let notes: Vec<String> = said.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["2:21: meta.client: is set to \"acme\" by the inbox; what the row says is not used"]);
    let mut export = Vec::new();
    ingest.store.export(&mut export).unwrap();
    let export = String::from_utf8(export).unwrap();
    assert_eq!(export.matches(r#""client":"acme""#).count(), 2, "{export}");
    assert!(!export.contains("beta") && export.contains(r#""sku":"8""#), "{export}");
    // In another case it is the same column.
    let same = text.replace("meta.client", "meta.Client");
    let meta = std::collections::BTreeMap::from([("client".to_owned(), "acme".to_owned())]);
    let said = ingest.said("clients/acme", "same.csv", &same, |options| IngestOptions {
        place: place.clone(),
        meta,
        ..options
    });
    let notes: Vec<String> = said.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["2:21: meta.Client: is set to \"acme\" by the inbox; what the row says is not used"]);
    let mut export = Vec::new();
    ingest.store.export(&mut export).unwrap();
    let export = String::from_utf8(export).unwrap();
    assert_eq!(export.matches(r#""client":"acme""#).count(), 4, "{export}");
    assert!(!export.contains("beta") && !export.contains("Client"), "{export}");
    // Without it the rows are the same jobs.
    assert_eq!(
        ingest.said("clients/acme", "jobs.csv", text, |options| IngestOptions { place, ..options }).have,
        2
    );
}
