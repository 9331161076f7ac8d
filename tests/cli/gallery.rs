//! The gallery that a batch leaves, and `callsheet open`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};

use callsheet::pages::script_data::json_of;
use serde_json::Value;

use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

/// The data in a script file: the line after its stamp, where it has one.
fn data(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    let call = if text.starts_with("//") { text.split_once('\n').unwrap().1 } else { &text };
    serde_json::from_str(&json_of(call).unwrap()).unwrap()
}

fn gallery(env: &TestEnv, batch: &str) -> PathBuf {
    env.path("output").join(batch).join("gallery")
}

fn index(env: &TestEnv, batch: &str) -> Value {
    data(&gallery(env, batch).join("index.js"))
}

fn page(env: &TestEnv, batch: &str, number: usize) -> Value {
    data(&gallery(env, batch).join(format!("data/{number:04}.js")))
}

const MANIFEST: &str = "id,kind,model,prompt,count,meta.client\n\
                        poster,image,gi-2,A harbour,2,acme\n\
                        wind,sound-effect,,Wind,,beta\n";

#[test]
fn a_batch_leaves_a_page_that_is_made_again_from_the_state() {
    let env = TestEnv::new();
    env.write("spring.csv", MANIFEST);
    env.run(["run", "spring.csv"]).exited(0);
    let html = env.path("output/spring/index.html");
    let list = fs::read_to_string(env.path("output/index.html")).unwrap();
    assert!(list.contains("href=\"./spring/index.html\""), "{list}");
    assert!(fs::read_to_string(&html).unwrap().contains("<h1>spring</h1>"));
    let (found, jobs) = (index(&env, "spring"), page(&env, "spring", 0));
    assert_eq!(
        (&found["done"], &found["states"]["succeeded"], &found["pages"]),
        (&true.into(), &3.into(), &1.into())
    );
    assert_eq!(found["charged"], env.audit().totals.charged_credits);
    let jobs = jobs.as_array().unwrap();
    let of = |id: &str| jobs.iter().find(|job| job["id"] == id).unwrap();
    assert_eq!(of("poster")["row"], of("poster-v2")["row"], "takes of one row");
    assert_eq!((&of("poster-v2")["take"], &of("poster-v2")["meta"]["client"]), (&2.into(), &"acme".into()));
    let path = of("wind")["files"][0]["path"].as_str().unwrap();
    assert!(env.path("output/spring").join(path).is_file());
    assert!(of("wind")["ended"].as_i64() >= of("wind")["sent"].as_i64());

    // Whatever of it is lost or wrong is written again, the same.
    let folder = gallery(&env, "spring");
    let read = || fs::read(folder.join("data/0000.js")).unwrap();
    let before = read();
    for damage in [
        &|| fs::remove_dir_all(&folder).unwrap(),
        &|| fs::write(folder.join("index.js"), "").unwrap(),
        &|| fs::remove_file(folder.join("data/0000.js")).unwrap(),
        &|| fs::write(&html, &fs::read(&html).unwrap()[..200]).unwrap(),
    ] as [&dyn Fn(); 4]
    {
        damage();
        let printed = env.run(["open", "spring", "--print"]).exited(0).stdout;
        assert_eq!(Path::new(printed.trim()), fs::canonicalize(&html).unwrap());
        assert_eq!(read(), before);
        assert_eq!(index(&env, "spring")["states"], found["states"]);
        assert!(fs::read_to_string(&html).unwrap().contains("<h1>spring</h1>"));
    }

    // A file that somebody deleted is not shown as if it were there.
    fs::remove_file(env.path("output/spring").join(path)).unwrap();
    env.run(["open", "spring", "--print"]).exited(0);
    assert_eq!(index(&env, "spring")["missing"], serde_json::json!([of("wind")["files"][0]["key"]]));
    env.run(["download", "spring"]).exited(0);
    env.run(["open", "spring", "--print"]).exited(0);
    assert_eq!(index(&env, "spring")["missing"], serde_json::json!([]));
    env.run(["open", "nothing", "--print"]).exited(2);
}

#[test]
fn pictures_get_thumbnails_and_sounds_a_length() {
    let env = TestEnv::new();
    env.write("b.csv", "id,kind,model,prompt\np,image,gi-2,A harbour\nw,sound-effect,,Wind\n");
    env.run(["run", "b.csv"]).exited(0);
    env.run(["open", "b", "--print"]).exited(0);
    let folder = gallery(&env, "b");
    let facts = || data(&folder.join("data/0000.media.js"));
    let key = |id: &str| {
        let jobs = page(&env, "b", 0);
        let job = jobs.as_array().unwrap().iter().find(|job| job["id"] == id).unwrap();
        job["files"][0]["key"].as_str().unwrap().to_owned()
    };
    let (picture, sound) = (key("p"), key("w"));
    let thumbnail = folder.join("thumbs").join(&picture[..1]).join(format!("{picture}.jpg"));
    assert!(fs::read(&thumbnail).unwrap().starts_with(b"\xff\xd8\xff"));
    assert_eq!(facts()[&picture]["thumb"], true);
    assert!(facts()[&sound]["seconds"].as_f64().unwrap() > 0.0 && facts()[&sound]["peaks"].is_array());
    assert_eq!(index(&env, "b")["media"], serde_json::json!([2]));
    // A file that is not what was bought is not looked into, and the thumbnail of one that is gone stays.
    let made_again = || {
        fs::remove_dir_all(&folder).unwrap();
        env.run(["open", "b", "--print"]).exited(0);
    };
    made_again();
    assert!(thumbnail.is_file());
    fs::remove_file(env.path("output/b/p.png")).unwrap();
    env.run(["open", "b", "--print"]).exited(0);
    assert!(thumbnail.is_file());
    env.write("output/b/p.png", "another picture");
    made_again();
    assert!(!thumbnail.exists());
    assert_eq!(
        (&facts()[&picture], &index(&env, "b")["media"]),
        (&serde_json::json!({}), &serde_json::json!([2]))
    );
}

#[test]
fn hostile_texts_stay_text() {
    const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u{2028}'\\";
    let env = TestEnv::new();
    let row = serde_json::json!({
        "id": HOSTILE, "kind": "sound-effect", "prompt": HOSTILE, "meta": { "__proto__": HOSTILE, "a": HOSTILE },
    });
    env.write("b.jsonl", format!("{row}\n"));
    env.run(["run", "b.jsonl"]).exited(0);
    for entry in fs::read_dir(gallery(&env, "b").join("data"))
        .unwrap()
        .chain(fs::read_dir(gallery(&env, "b")).unwrap())
    {
        let path = entry.unwrap().path();
        if path.is_file() && !["style.css", "script.js"].iter().any(|name| path.ends_with(name)) {
            let text = fs::read_to_string(&path).unwrap();
            assert!(!text.contains(['<', '\u{2028}']), "{}: {text}", path.display());
        }
    }
    let job = &page(&env, "b", 0)[0];
    assert_eq!((&job["id"], &job["prompt"]), (&HOSTILE.into(), &HOSTILE.into()));
    assert_eq!(job["meta"]["__proto__"], HOSTILE);
    assert_eq!(job["name"], job["job"], "no shell is given such a label");
    let html = fs::read_to_string(env.path("output/b/index.html")).unwrap();
    assert!(html.contains("Content-Security-Policy") && !html.contains("unsafe-inline"), "{html}");
}

#[test]
fn a_full_page_never_changes() {
    let env = TestEnv::new();
    let manifest = |rows: usize| {
        let rows = (0..rows).map(|row| format!("s{row},sound-effect,Wind {row}\n"));
        format!("id,kind,prompt\n{}", rows.collect::<String>())
    };
    env.write("many.csv", manifest(510));
    env.run(["run", "many.csv"]).exited(0);
    let full = gallery(&env, "many").join("data/0000.js");
    let before = (fs::read(&full).unwrap(), fs::metadata(&full).unwrap().modified().unwrap());
    assert_eq!(page(&env, "many", 0).as_array().unwrap().len(), 500);
    assert_eq!(page(&env, "many", 1).as_array().unwrap().len(), 10);
    env.write("many.csv", manifest(530));
    env.run(["run", "many.csv"]).exited(0);
    assert_eq!(page(&env, "many", 1).as_array().unwrap().len(), 30);
    let now = || (fs::read(&full).unwrap(), fs::metadata(&full).unwrap().modified().unwrap());
    assert_eq!(now(), before, "it is not even written again");
    let found = index(&env, "many");
    assert_eq!((&found["pages"], &found["last"], &found["jobs"]), (&2.into(), &30.into(), &530.into()));
    fs::write(&full, "cut").unwrap();
    env.run(["open", "many", "--print"]).exited(0);
    assert_eq!(now().0, before.0);
}

#[test]
fn a_failure_is_shown_with_its_reason_and_the_next_step() {
    let env = TestEnv::with_faults("[[rules]]\ncontains = 'Wind'\neffect = { do = 'content-rejected' }");
    env.write("b.csv", "id,kind,prompt\nw,sound-effect,Wind\nr,sound-effect,Rain\n");
    env.run(["run", "b.csv"]).exited(1);
    let jobs = page(&env, "b", 0);
    let failed = jobs.as_array().unwrap().iter().rfind(|job| job["id"] == "w").unwrap();
    assert_eq!(failed["state"], "failed");
    assert_eq!(failed["error"]["code"], "content_rejected");
    assert!(failed["next"]["text"].as_str().unwrap().contains("Change its row"), "{failed}");
}

#[test]
fn what_a_budget_parks_is_said_until_it_is_lifted() {
    let env = TestEnv::new();
    env.write("b.csv", "id,kind,model,prompt\np,image,gi-2,A harbour\nq,image,gi-2,A boat\n");
    env.run(["run", "b.csv", "--budget", "10"]).exited(4);
    let found = index(&env, "b");
    assert_eq!((&found["done"], &found["states"]["queued"]), (&Value::Bool(false), &1.into()), "{found:#}");
    let parked = found["parked"]["text"].as_str().unwrap();
    assert!(
        parked.contains("budget") && found["parked"].to_string().contains("callsheet budget b"),
        "{found:#}"
    );
    env.run(["run", "b.csv", "--budget", "20"]).exited(0);
    let found = index(&env, "b");
    assert_eq!((&found["done"], &found["parked"]), (&Value::Bool(true), &Value::Null));
}

#[test]
fn what_is_in_doubt_is_marked_with_the_command_that_settles_it() {
    let env = TestEnv::new();
    let job =
        r#"{"id": "short", "kind": "shorts-studio", "options": {"topic": "a boat"}, "max_credits": 20}"#;
    env.write("b.jsonl", job);
    let mut command = env.command(["run", "b.jsonl"]);
    command.env("CALLSHEET_FAILPOINT", "posted");
    Running::start(command).end().was_killed("posted");
    env.run(["run", "b.jsonl"]).exited(7);
    let jobs = page(&env, "b", 0);
    let doubt = jobs.as_array().unwrap().last().unwrap();
    assert_eq!(doubt["state"], "in_doubt");
    assert_eq!(doubt["next"]["command"], "callsheet resolve b/short --charged N");
    env.run(["status"]).exited(0).says("b: 1 job in doubt").says("to list the jobs: callsheet jobs b;");
    // The command is one that works, with the flags of this one.
    let state = env.path("state").display().to_string();
    env.run(["status", "--state", &state]).exited(0).says(&format!("callsheet jobs --state {state} b;"));
    env.run(["jobs", "--state", &state, "b"]).exited(0);
    env.run(["resolve", "b/short", "--charged", "0"]).exited(0).says("callsheet retry b/short");
    env.run(["open", "b", "--print"]).exited(0);
    let jobs = page(&env, "b", 0);
    assert_eq!(jobs.as_array().unwrap().last().unwrap()["state"], "failed", "{jobs:#}");
}

#[test]
fn what_comes_after_its_deadline_is_marked_late() {
    let env = TestEnv::with_faults("[[rules]]\non = 'create'\neffect = { do = 'task-late', ms = 2000 }\n");
    env.configure("[deadlines]\noverdue_poll = \"50ms\"\n");
    let job = r#"[{"id": "boat", "kind": "video", "model": "house-turbo", "prompt": "a boat", "duration": 5, "deadline": "1s"}]"#;
    env.write("b.json", job);
    env.run(["run", "b.json"]).exited(7);
    let found = index(&env, "b");
    let open = &found["open"].as_array().unwrap()[0];
    assert_eq!((&open["id"], &open["late"]), (&"boat".into(), &Value::Bool(true)), "overdue: {found:#}");
    until("the task ends", || env.audit().tasks.iter().all(|task| task.status == "success"));
    env.run(["run", "b.json"]).exited(0);
    let jobs = page(&env, "b", 0);
    let late = jobs.as_array().unwrap().last().unwrap();
    assert_eq!((&late["state"], &late["late"]), (&"succeeded".into(), &Value::Bool(true)), "{late:#}");
}

#[test]
fn a_daemon_keeps_the_gallery_current() {
    let env = TestEnv::new();
    env.write("b.csv", MANIFEST);
    let daemon = env.daemon("info");
    env.run(["submit", "b.csv"]).exited(0);
    let shown = || index(&env, "b")["states"]["succeeded"].as_u64().unwrap_or_default();
    until("the page of the batch", || gallery(&env, "b").join("index.js").exists());
    until("all of it to be shown", || shown() == 3);
    env.write("b.csv", format!("{MANIFEST}rain,sound-effect,,Rain,,beta\n"));
    env.run(["submit", "b.csv"]).exited(0);
    until("the new row to be shown", || shown() == 4);
    assert!(fs::read_to_string(env.path("output/index.html")).unwrap().contains("./b/index.html"));
    daemon.stop();
}

#[test]
fn galleries_can_be_switched_off() {
    let env = TestEnv::new();
    env.configure("[output]\ngallery = false");
    env.write("b.csv", "id,kind,prompt\nw,sound-effect,Wind\n");
    env.run(["run", "b.csv"]).exited(0);
    assert!(!env.path("output/b/index.html").exists() && !env.path("output/index.html").exists());
    env.run(["open", "b"]).exited(2).says("galleries are switched off");
}

#[test]
fn a_folder_that_cannot_be_written_fails_no_job() {
    let env = TestEnv::new();
    fs::create_dir_all(env.path("output/b")).unwrap();
    env.write("output/b/gallery", "in the way");
    env.write("b.csv", "id,kind,prompt\nw,sound-effect,Wind\nr,sound-effect,Rain\n");
    let run = env.run(["run", "b.csv"]).exited(0);
    assert_eq!(run.stderr.matches("could not be written").count(), 1, "{}", run.stderr);
    assert!(env.path("output/b/w.wav").is_file());
    env.run(["open", "b", "--print"]).exited(6);
    fs::remove_file(env.path("output/b/gallery")).unwrap();
    env.run(["open", "b", "--print"]).exited(0);
    assert_eq!(index(&env, "b")["states"]["succeeded"], 2);
}

#[test]
fn a_page_or_results_of_somebody_else_are_left_whole() {
    let env = TestEnv::new();
    env.write("spring.csv", MANIFEST);
    let site = "<!doctype html><title>My garden</title>";
    fs::create_dir_all(env.path("output/spring")).unwrap();
    for page in ["output/index.html", "output/spring/index.html"] {
        env.write(page, site);
    }
    env.write("output/spring/results.csv", "name,score\nada,7\n");
    let ran = env.run(["run", "spring.csv"]).exited(0);
    assert!(ran.stderr.contains("index.html was not written by callsheet"), "{}", ran.stderr);
    assert!(ran.stderr.contains("results.kept.csv"), "{}", ran.stderr);
    let read = |name: &str| fs::read_to_string(env.path(name)).unwrap();
    assert_eq!((read("output/index.html"), read("output/spring/index.html")), (site.into(), site.into()));
    assert!(!gallery(&env, "spring").exists(), "no gallery for a page that does not show it");
    assert_eq!(read("output/spring/results.kept.csv"), "name,score\nada,7\n");
    assert!(read("output/spring/results.csv").starts_with("id,batch,state"));
    let refused = env.run(["open", "spring", "--print"]).exited(6);
    assert!(refused.stderr.contains("set output.gallery = false"), "{}", refused.stderr);
    // Once they are moved away, the next run writes its own.
    for page in ["output/index.html", "output/spring/index.html"] {
        fs::rename(env.path(page), env.path(page).with_extension("old")).unwrap();
    }
    env.run(["run", "spring.csv"]).exited(0);
    assert!(read("output/spring/index.html").contains("<h1>spring</h1>"));
    assert!(!env.path("output/spring/results.kept-2.csv").exists(), "our own is replaced");
}

#[test]
fn a_gallery_that_cannot_be_written_keeps_no_other_one_from_being_written() {
    let env = TestEnv::new();
    fs::create_dir_all(env.path("output/a")).unwrap();
    env.write("output/a/gallery", "in the way");
    let manifest = "id,kind,model,prompt\np,image,gi-2,A harbour\nq,image,gi-2,A boat\n";
    for batch in ["a", "b"] {
        env.write(&format!("{batch}.csv"), manifest);
    }
    let daemon = env.daemon("info");
    env.run(["submit", "a.csv", "--budget", "10"]).exited(0);
    daemon.says("the gallery could not be written; trying again later");
    // Neither is done: their budgets keep a job of each.
    env.run(["submit", "b.csv", "--budget", "10"]).exited(0);
    let thumbnails = gallery(&env, "b").join("thumbs");
    until("a thumbnail of the other batch", || thumbnails.is_dir());
    assert_eq!(index(&env, "b")["states"]["succeeded"], 1);
    let outcome = daemon.stop();
    assert_eq!(outcome.stderr.matches("could not be written").count(), 1, "{}", outcome.stderr);
}

#[test]
fn the_desktop_opens_the_page() {
    use std::os::unix::fs::PermissionsExt;
    let env = TestEnv::new();
    env.write("b.csv", "id,kind,prompt\nw,sound-effect,Wind\n");
    env.run(["run", "b.csv"]).exited(0);
    let browser = env.write("browser", "#!/bin/sh\necho \"$@\" >>opened\n");
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let opened_by = |setting: &str, batch: &str| {
        let mut command = env.command(["open", batch]);
        let done = command
            .env("BROWSER", setting.replace("BROWSER", &browser.display().to_string()))
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    opened_by("/does/not/exist:BROWSER", "b");
    opened_by("BROWSER --new %s", "b");
    let url = format!("file://{}", fs::canonicalize(env.path("output/b/index.html")).unwrap().display());
    assert_eq!(fs::read_to_string(env.path("opened")).unwrap(), format!("{url}\n--new {url}\n"));
    // Without any, the address is printed.
    let printed = env.run(["open"]).exited(0).stdout;
    assert!(printed.starts_with("file://") && printed.ends_with("/output/index.html\n"), "{printed}");
    let json = env.run(["open", "b", "--json"]).exited(0).json();
    assert_eq!(json["url"], url);
}

#[test]
fn a_decision_is_in_the_gallery() {
    let env = TestEnv::new();
    env.write(
        "b.csv",
        "id,kind,model,prompt,count,review\nposter,image,gi-2,A harbour,2,yes\nwind,sound-effect,,Wind,,\n",
    );
    env.run(["run", "b.csv"]).exited(7);
    // The last entry of a job counts.
    let decisions = || {
        let mut last = std::collections::BTreeMap::new();
        for job in page(&env, "b", 0).as_array().unwrap() {
            last.insert(job["id"].as_str().unwrap().to_owned(), job["review"]["decision"].clone());
        }
        last.into_values().map(|decision| decision.as_str().unwrap_or("none").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(decisions(), ["waiting", "waiting", "none"]);
    assert_eq!((&index(&env, "b")["done"], &index(&env, "b")["parked"]), (&false.into(), &Value::Null));
    env.run(["review", "pick", "b/poster-v2", "--note", "the light"]).exited(0);
    env.run(["open", "b", "--print"]).exited(0);
    assert_eq!(decisions(), ["not_picked", "picked", "none"]);
    let daemon = env.daemon("info");
    env.run(["review", "reject", "b/poster-v2"]).exited(0);
    until("the decision in the gallery", || decisions() == ["waiting", "rejected", "none"]);
    daemon.stop();
    env.audit().each_paid_once(3);
}

#[test]
fn commands_of_a_gallery_have_the_flags_that_lead_to_its_state() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv", "--emulator", "--emulator-speed", "inf"]).exited(0);
    let flags = |folder: &str| data(&env.path(folder).join("gallery/index.js"))["flags"].clone();
    assert_eq!(flags("output/emulator/batch"), "--emulator");
    env.run(["run", "batch.csv", "--state", "other"]).exited(0);
    assert_eq!(flags("output/batch"), "--state other");
}
