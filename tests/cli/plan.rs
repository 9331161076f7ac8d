//! `callsheet plan`, `models`, `voices`, `credits` and `schema` as processes: what they print, what they
//! exit with, and what they leave alone.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use callsheet_emulator as emulator;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::api_key::{KEY, key_is_nowhere};

/// A folder with a cleared environment around it.
struct Folder {
    dir: TempDir,
}

struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

impl Folder {
    fn new() -> Folder {
        Folder { dir: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn run(&self, arguments: &str) -> Said {
        self.run_with(arguments, &[])
    }

    fn run_with(&self, arguments: &str, environment: &[(&str, &str)]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_callsheet"))
            .args(arguments.split_whitespace())
            .current_dir(self.dir.path())
            .env_clear()
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        key_is_nowhere(self.dir.path(), &[&output.stdout, &output.stderr]);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Every file below the folder with its bytes, but for the kept catalogs.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else if path.file_name().is_some_and(|name| name != "catalogs.json") {
                    let bytes = fs::read(&path).unwrap();
                    found.insert(path, bytes);
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(self.dir.path(), &mut found);
        found
    }
}

const HEADER: &str = "id,kind,model,prompt,duration,count,max_credits\n";

fn small() -> String {
    format!(
        "{HEADER}opening,video,house-c1,A paper boat,5s,2,\n\
         logo,image,gi-2,A compass,,,\n\
         dear,video,house-turbo,A lighthouse,5s,,20\n\
         wrong,video,house-c1,A gull,7m,,\n"
    )
}

/// The counts of a plan; verdicts that are not named have no job.
fn counts(named: &[(&str, u64)]) -> Value {
    let verdicts = ["new", "changed", "waiting", "running", "in_doubt", "failed", "done", "invalid"];
    let count = |verdict| named.iter().find(|(name, _)| *name == verdict).map_or(0, |(_, count)| *count);
    verdicts.into_iter().map(|verdict| (verdict.to_owned(), json!(count(verdict)))).collect()
}

fn verdicts(plan: &Value) -> Vec<&str> {
    plan["rows"].as_array().unwrap().iter().map(|row| row["verdict"].as_str().unwrap()).collect()
}

/// What a budget parked is not paid yet: the plan says what it will cost, and so does the receipt.
#[test]
fn a_plan_counts_what_waits_and_tells_what_failed() {
    let folder = Folder::new();
    let rows = "a,image,gi-2,A compass,,,\nb,image,gi-2,A map,,,\nc,image,gi-2,A key,,,\n";
    folder.write("promo.csv", &format!("{HEADER}{rows}"));
    let ran = folder.run("run promo.csv --emulator --emulator-speed 200 --budget 16");
    assert_eq!(ran.code, 4, "{}", ran.err);
    let before = folder.files();
    let plan = folder.run("plan promo.csv --emulator --json").json();
    assert_eq!(plan["jobs"], counts(&[("waiting", 1), ("done", 2)]), "{plan:#}");
    assert_eq!((&plan["total_credits"], &plan["sent_is_known"]), (&json!(8), &json!(true)));
    assert_eq!(folder.files(), before, "looking changes nothing");
    let said = folder.run("plan promo.csv --emulator");
    assert!(said.out.contains("total: 8 credits for 0 new jobs, 1 waiting\n"), "{}", said.out);
    assert!(said.out.contains("done: 2 jobs, no further cost"), "{}", said.out);
    // Another process holds the state: what it has sent is not known, and the plan says so.
    let lock = File::options().write(true).open(folder.dir.path().join("state/emulator/lock")).unwrap();
    lock.try_lock().unwrap();
    let beside = folder.run("plan promo.csv --emulator");
    assert!(
        beside.out.contains("unknown: how many of the waiting jobs (1 job) are submitted"),
        "{}",
        beside.out
    );
    assert_eq!(folder.run("plan promo.csv --emulator --json").json()["sent_is_known"], false);
    // Not by closing it: a process that another test starts at this moment has the file, too.
    lock.unlock().unwrap();
    let receipt = folder.run("run promo.csv --emulator --budget 16");
    assert!(receipt.err.contains("3 already there: 1 waiting (8 credits), 2 done"), "{}", receipt.err);
    let short = folder.run("plan promo.csv --emulator --budget 20");
    let budget =
        "budget: promo may spend 20 credits, of which 16 are spent or held: 4 short, so jobs will wait";
    assert!(short.out.contains(budget), "{}", short.out);
    let enough = folder.run("plan promo.csv --emulator --budget 24");
    assert!(enough.out.contains("24 credits, of which 16 are spent or held: enough"), "{}", enough.out);
    let beside = folder.run("plan promo.csv --emulator --budget 24 --json").json();
    assert_eq!(beside["batches"][0]["committed_credits"], 16, "{beside:#}");
    // Its operator drops it: nothing is to be paid, unless it is asked for again.
    assert_eq!(folder.run("cancel promo --state state/emulator").code, 0);
    let plan = folder.run("plan promo.csv --emulator --json").json();
    assert_eq!(plan["jobs"], counts(&[("failed", 1), ("done", 2)]));
    assert_eq!((&plan["total_credits"], &plan["retry_credits"]), (&json!(0), &json!(8)));
    // Queued again, it waits, although its outcome stands in the spool.
    assert_eq!(folder.run("retry promo --state state/emulator").code, 0);
    let plan = folder.run("plan promo.csv --emulator --json").json();
    assert_eq!((&plan["jobs"], &plan["total_credits"]), (&counts(&[("waiting", 1), ("done", 2)]), &json!(8)));
}

#[test]
fn a_plan_says_what_the_limits_of_the_whole_state_are_short_of() {
    let folder = Folder::new();
    let limits = |text: &str| folder.write("callsheet.toml", &format!("[budget]\n{text}\n"));
    let rows = "a,image,gi-2,A compass,,,\nb,image,gi-2,A map,,,\n";
    folder.write("promo.csv", &format!("{HEADER}{rows}"));
    limits("total = 20");
    assert_eq!(folder.run("run promo.csv --emulator --emulator-speed 200").code, 0);
    folder.write("more.csv", &format!("{HEADER}c,image,gi-2,A key,,,\nd,image,gi-2,A door,,,\n"));
    let said = || folder.run("plan more.csv --emulator").out;
    let total = "budget: all batches may spend 20 in total, 4 are left: 12 short, so jobs will wait for a larger limit \
                 (budget.total)\n";
    assert!(said().contains(total), "{}", said());
    let plan = folder.run("plan more.csv --emulator --json").json();
    let short = &plan["account_budgets"][0];
    assert_eq!((&short["setting"], &short["left_credits"]), (&json!("budget.total"), &json!(4)), "{plan:#}");
    limits("per_day = 30");
    let day = "budget: all batches may spend 30 a day, 14 are left today: 2 short, so jobs will wait for the next UTC day \
               (budget.per_day)\n";
    assert!(said().contains(day), "{}", said());
    limits("per_day = 7");
    let day = "budget: a job costs 8 credits, more than 7 a day: it will wait for a larger limit (budget.per_day)\n";
    assert!(said().contains(day), "{}", said());
    limits("min_balance = 999999974");
    let balance = "balance: 999999984 credits, of which 999999974 must stay (budget.min_balance): 6 short\n";
    assert!(said().contains(balance), "{}", said());
    assert_eq!(folder.run("plan more.csv --emulator --json").json()["min_balance_credits"], 999_999_974);
    limits("total = 32\nper_day = 32\nmin_balance = 100");
    assert!(!said().contains("short"), "{}", said());
}

/// A row that keeps its `id` and asks for something else is bought, and said to be.
#[test]
fn a_changed_row_is_told_apart_from_a_new_one() {
    let folder = Folder::new();
    folder.write("promo.csv", &format!("{HEADER}a,video,house-c1,A red fox,,,\nb,image,gi-2,A map,,,\n"));
    assert_eq!(folder.run("run promo.csv --emulator --emulator-speed 200").code, 0);
    let edited = "a,video,house-c1,A red fox,5s,,\nb,image,gi-2,A  MAP,,,\nc,image,gi-2,A key,,,\n";
    folder.write("promo.csv", &format!("{HEADER}{edited}"));
    let plan = folder.run("plan promo.csv --emulator --json").json();
    assert_eq!(verdicts(&plan), ["changed", "changed", "new"]);
    assert_eq!(plan["total_credits"], 10 + 8 + 8);
    let fields = |row: usize| plan["rows"][row]["changed"][0]["field"].as_str().unwrap();
    assert_eq!((fields(0), fields(1)), ("options", "prompt"), "{plan:#}");
    let said = folder.run("plan promo.csv --emulator").out;
    assert!(said.contains("total: 26 credits for 1 new job, 2 changed\n"), "{said}");
    assert!(said.contains("prompt: differs in case or spaces alone"), "{said}");
    assert!(said.contains("a default is spelled out"), "{said}");
    let ran = folder.run("run promo.csv --emulator --emulator-speed 200");
    assert!(ran.err.contains("3 new (26 credits), 2 of them changed"), "{}", ran.err);
}

#[test]
fn a_plan_is_a_table_that_a_person_reads() {
    let folder = Folder::new();
    folder.write("promo.csv", &small());
    let said = folder.run("plan promo.csv --emulator --budget 20");
    insta::assert_snapshot!(said.out, @r##"
    row          job         verdict  credits  formula
    promo.csv:2  opening     new           10  5 s x 2/s = 10
    promo.csv:2  opening-v2  new           10  5 s x 2/s = 10
    promo.csv:3  logo        new            8  1K: 8
    promo.csv:4  dear        invalid        -  max_credits: is 20, but the row costs 50: 5 s x 10/s = 50
    promo.csv:5  wrong       invalid        -  options.duration: found "7m"; house-c1 takes 1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 9s, 10s, 11s, 12s, 13s, 14s or 15s in text-to-video

    batch  kind   model     new  changed  waiting  other  credits
    promo  video  house-c1    2        0        0      0       20
    promo  image  gi-2        1        0        0      0        8

    total: 28 credits for 3 new jobs, 2 not valid
    allowance: an Ultra plan's daily allowance could cover up to 28 credits of it; how much of it is left is unknown
    budget: promo may spend 20 credits: 8 short, so jobs will wait for a larger budget
    balance: 1000000000 credits: enough
    "##);
    insta::assert_snapshot!(said.err, @r##"
    promo.csv:4:41: max_credits: is 20, but the row costs 50: 5 s x 10/s = 50 (hint: raise max_credits, or ask for less)
    promo.csv:5:29: options.duration: found "7m"; house-c1 takes 1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 9s, 10s, 11s, 12s, 13s, 14s or 15s in text-to-video
    "##);
    assert_eq!(said.code, 2);
}

#[test]
fn its_json_adds_up() {
    let folder = Folder::new();
    folder.write("promo.csv", &small());
    let said = folder.run("plan promo.csv --emulator --json");
    assert_eq!(said.code, 2, "{}", said.err);
    let plan = said.json();
    let rows = plan["rows"].as_array().unwrap();
    let of = |verdict: &str| rows.iter().filter(|row| row["verdict"] == verdict).count();
    assert_eq!(plan["jobs"], counts(&[("new", of("new") as u64), ("invalid", of("invalid") as u64)]));
    assert_eq!(plan["jobs"], counts(&[("new", 3), ("invalid", 2)]));
    let new = rows.iter().filter(|row| row["verdict"] == "new");
    let sum: u64 = new.map(|row| row["price_credits"].as_u64().unwrap()).sum();
    assert_eq!(plan["total_credits"], sum);
    assert_eq!(rows[0]["file"], "promo.csv");
    assert_eq!((&rows[1]["line"], &rows[1]["id"]), (&json!(2), &json!("opening-v2")));
    assert_eq!(rows[0]["formula"], "5 s x 2/s = 10");
    assert_eq!(rows[3]["problems"][0]["field"], "max_credits");
    assert_eq!(rows[4]["problems"][0]["field"], "options.duration");
    assert_eq!(plan["balance_credits"], 1_000_000_000);
}

#[test]
fn what_a_batch_has_costs_nothing_again_and_looking_changes_nothing() {
    let folder = Folder::new();
    folder.write("promo.csv", &format!("{HEADER}logo,image,gi-2,A compass,,2,\n"));
    let ran = folder.run("run promo.csv --emulator --emulator-speed 200");
    assert_eq!(ran.code, 0, "{}", ran.err);
    folder.write("promo.csv", &format!("{HEADER}logo,image,gi-2,A compass,,3,\n,image,gi-2,A map,,,\n"));
    let before = folder.files();
    let plan = folder.run("plan promo.csv --emulator --json").json();
    assert_eq!(plan["jobs"], counts(&[("new", 2), ("done", 2)]));
    assert_eq!(verdicts(&plan), ["done", "done", "new", "new"]);
    assert_eq!(folder.files(), before);
    // Another process holds the state.
    let lock = File::options().write(true).open(folder.dir.path().join("state/emulator/lock")).unwrap();
    lock.try_lock().unwrap();
    let beside = folder.run("plan promo.csv --emulator --json").json();
    assert_eq!(beside["jobs"], plan["jobs"]);
    assert_eq!(folder.files(), before);
}

#[test]
fn manifests_of_one_plan_see_each_other() {
    let folder = Folder::new();
    folder.write("a.csv", &format!("{HEADER}logo,image,gi-2,A compass,,,\n"));
    folder.write("b.csv", &format!("{HEADER}logo,image,gi-2,A compass,,,\nmap,image,gi-2,A map,,,\n"));
    let apart = folder.run("plan a.csv b.csv --emulator --json").json();
    assert_eq!(apart["jobs"], counts(&[("new", 3)]));
    let together = folder.run("plan a.csv b.csv --emulator --json --batch one").json();
    // What the first of them adds waits when the second comes, and is paid for once.
    assert_eq!(together["jobs"], counts(&[("new", 2), ("waiting", 1)]));
    assert_eq!(
        (&together["total_credits"], &together["rows"][1]["counted_earlier"]),
        (&json!(16), &json!(true))
    );
}

#[test]
fn max_credits_refuses_what_costs_more_or_has_no_price() {
    let folder = Folder::new();
    folder.write("m.csv", &small());
    let plan = folder.run("plan m.csv --emulator --json --max-credits 9").json();
    let refused =
        plan["rows"].as_array().unwrap().iter().filter(|row| row["problems"][0]["field"] == "max_credits");
    assert_eq!(refused.count(), 2);
    folder.write("s.json", r#"[{"kind": "shorts-studio", "max_credits": 5, "options": {"a": 1}}]"#);
    assert_eq!(folder.run("plan s.json --emulator").code, 0);
    assert_eq!(folder.run_with("plan s.json --emulator", &[("CALLSHEET_MAX_CREDITS", "9")]).code, 2);
    let run = folder.run("run s.json --emulator --max-credits 9");
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("max_credits"), "{}", run.err);
}

#[test]
fn a_row_whose_request_cannot_be_read_is_told_with_its_id() {
    let folder = Folder::new();
    folder.write("m.csv", "id,kind,prompt,image_urls\nclip,video,a boat,job:still\n,picture,a gull,\n");
    let plan = folder.run("plan m.csv --emulator --json").json();
    assert_eq!((&plan["rows"][0]["id"], &plan["rows"][0]["verdict"]), (&json!("clip"), &json!("invalid")));
    assert_eq!(plan["rows"][1]["id"], Value::Null);
}

#[test]
fn a_file_that_cannot_be_read_is_a_row_of_its_own() {
    let folder = Folder::new();
    folder.write("m.csv", "id,promt\na,b\n");
    let said = folder.run("plan m.csv --emulator --json");
    let plan = said.json();
    assert_eq!((said.code, &plan["rows"][0]["verdict"]), (2, &json!("invalid")));
    assert_eq!(plan["rows"][0]["problems"][0]["field"], "promt");
    assert_eq!(plan["files"][0]["refused"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_service_a_plan_works_from_what_was_kept() {
    let folder = Folder::new();
    folder.write("m.csv", &format!("{HEADER}logo,image,gi-2,A compass,,,\n"));
    let nothing = folder.run("plan m.csv");
    assert_eq!(nothing.code, 2);
    assert!(nothing.err.contains("no service is configured"), "{}", nothing.err);
    let options = emulator::Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        api_key: KEY.to_owned(),
        ..emulator::Options::default()
    };
    let service = emulator::start(options).await.unwrap();
    let there = format!("plan m.csv --json --base-url {}", service.base_url());
    let said = folder.run(&there);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.json()["balance_credits"], Value::Null);
    let key = [("CALLSHEET_API_KEY", KEY)];
    assert!(folder.run_with(&there, &key).json()["balance_credits"].is_u64());
    let wrong = folder.run_with(&there, &[("CALLSHEET_API_KEY", "wrong")]);
    assert_eq!((wrong.code, &wrong.json()["balance_credits"]), (0, &Value::Null));
    service.stop().await;
    // Made old: three days before now.
    let path = folder.dir.path().join("state/catalogs.json");
    let mut kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    kept["fetched"] = json!(kept["fetched"].as_i64().unwrap() - 3 * 86_400_000);
    fs::write(&path, kept.to_string()).unwrap();
    for arguments in [there.as_str(), "plan m.csv --json"] {
        let away = folder.run(arguments);
        assert_eq!(away.code, 0, "{}", away.err);
        assert!(away.err.contains("which are 3 days old"), "{}", away.err);
        assert_eq!(away.json()["total_credits"], 8);
        assert!(away.json()["catalog"]["stale_because"].is_string());
    }
    let elsewhere = folder.run("plan m.csv --base-url http://127.0.0.1:9");
    assert_eq!(elsewhere.code, 5, "catalogs of one service say nothing of another: {}", elsewhere.err);
}

#[test]
fn the_accounts_plan_decides_what_an_allowance_could_cover() {
    let folder = Folder::new();
    let image = "image,gi-2,A compass";
    folder.write("m.csv", &format!("{HEADER}boat,video,house-c1,A boat,5s,,\nlogo,{image},,30,\n"));
    let waivable = |plan: &str| {
        folder.write("callsheet.toml", &format!("[service]\n{plan}\n"));
        folder.run("plan m.csv --emulator --json").json()["waivable_credits"].as_u64().unwrap()
    };
    assert_eq!(waivable("plan = \"none\""), 0);
    assert_eq!(waivable("plan = \"pro\""), 25 * 8, "a day's allowance on Pro is 25 images");
    assert_eq!(waivable("plan = \"ultra\""), 10 + 30 * 8);
    assert_eq!(waivable(""), 10 + 30 * 8, "not told: the most there could be");
}

#[test]
fn real_model_ids_borrow_rules_through_the_configuration() {
    let folder = Folder::new();
    let row = r#"[{"kind": "video", "model": "house-c1", "mode": "image-to-video", "prompt": "x",
        "image_urls": ["http://a/1", "http://a/2"]}]"#;
    folder.write("m.json", row);
    assert_eq!(folder.run("plan m.json --emulator").code, 2);
    folder.write("callsheet.toml", "[rules.models.house-c1.inputs.image-to-video]\nimages = [1, 2]\n");
    assert_eq!(folder.run("plan m.json --emulator").code, 0);
    folder.write("callsheet.toml", "[rules.models.house-c1]\ninherit = \"nobody\"\n");
    let said = folder.run("plan m.json --emulator");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("rules.models.house-c1.inherit"), "{}", said.err);
}

#[test]
fn every_sample_plans_cleanly() {
    let folder = Folder::new();
    let jobs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("jobs");
    let mut kinds = std::collections::BTreeSet::new();
    for entry in fs::read_dir(jobs).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() || path.extension().is_some_and(|ext| ext == "md") {
            continue;
        }
        let said = folder.run(&format!("plan {} --emulator --json", path.display()));
        assert_eq!(said.code, 0, "{}: {}{}", path.display(), said.err, said.out);
        let plan = said.json();
        let rows = plan["rows"].as_array().unwrap().iter();
        kinds.extend(rows.map(|row| row["kind"].as_str().unwrap().to_owned()));
    }
    let expected = ["image", "music", "shorts-studio", "sound-effect", "speech", "video"];
    assert!(kinds.iter().eq(expected), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_models_are_a_catalog_that_the_emulator_serves() {
    let folder = Folder::new();
    let said = folder.run("models --emulator --json");
    assert_eq!(said.code, 0, "{}", said.err);
    let catalog = folder.dir.path().join("recorded.json");
    fs::write(&catalog, &said.out).unwrap();
    let options = emulator::Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        catalog: Some(catalog),
        ..emulator::Options::default()
    };
    let service = emulator::start(options).await.unwrap();
    let again = folder.run(&format!("models --json --state other --base-url {}", service.base_url()));
    service.stop().await;
    assert_eq!(again.json(), said.json());
    assert_eq!(said.json()["video"].as_array().unwrap().len(), 23);
}

#[test]
fn models_show_what_a_row_needs() {
    let folder = Folder::new();
    let said = folder.run("models --emulator --type video model-v-3-1-lite");
    insta::assert_snapshot!(said.out, @r##"
    video model       mode                inputs      duration  resolution      aspect_ratio  audio  credits
    model-v-3-1-lite  frames-to-video     2 images    -         720p* 1080p 4k  16:9* 9:16    -      15 for 720p, 30 for 1080p, 75 for 4k
    model-v-3-1-lite  image-to-video      1 image     -         720p* 1080p 4k  16:9* 9:16    -      15 for 720p, 30 for 1080p, 75 for 4k
    model-v-3-1-lite  reference-to-video  1-3 images  -         720p* 1080p 4k  16:9* 9:16    -      15 for 720p, 30 for 1080p, 75 for 4k
    model-v-3-1-lite  text-to-video       text only   -         720p* 1080p 4k  16:9* 9:16    -      15 for 720p, 30 for 1080p, 75 for 4k

    * is the default, used and billed if the option is omitted; - means that there is no such option
    "##);
    let filtered = folder.run("models --emulator --type image --json gi-2-5").json();
    let ids: Vec<&str> =
        filtered["image"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["gi-2-5", "gi-2-5-alt"]);
    assert_eq!(filtered.as_object().unwrap().len(), 1);
}

#[test]
fn voices_are_found_by_language_and_by_words() {
    let folder = Folder::new();
    let ids = |arguments: &str| -> Vec<String> {
        let said = folder.run(&format!("voices --emulator --json {arguments}"));
        let list = said.json()["voices"].as_array().unwrap().clone();
        list.iter().map(|voice| voice["id"].as_str().unwrap().to_owned()).collect()
    };
    assert!(ids("").len() > ids("--language dutch").len());
    assert!(ids("--language dutch").contains(&"bram".to_owned()));
    assert_eq!(ids("aria"), ["aria"]);
    let table = folder.run("voices --emulator aria");
    insta::assert_snapshot!(table.out, @r##"
    voice_id  name  gender  language  accent    use case   model
    aria      Aria  female  English   American  narration  voice-multilingual-2

    1 credit for 20 characters, rounded up
    "##);
}

#[test]
fn credits_need_a_key() {
    let folder = Folder::new();
    assert_eq!(folder.run("credits --emulator").out, "1000000000 credits\n");
    assert_eq!(folder.run("credits --emulator --json").json(), json!({"balance_credits": 1_000_000_000}));
    assert_eq!(folder.run("credits").code, 2);
    assert_eq!(folder.run("credits --base-url http://127.0.0.1:9").code, 3);
    let key = [("CALLSHEET_API_KEY", "k")];
    assert_eq!(folder.run_with("credits --base-url http://127.0.0.1:9", &key).code, 5);
}

#[test]
fn the_schema_is_printed_as_json() {
    let said = Folder::new().run("schema");
    assert_eq!(said.code, 0);
    assert_eq!(said.json()["title"], "callsheet manifest");
}
