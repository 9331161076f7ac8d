//! Outputs with their sidecars, on real files.

use std::time::UNIX_EPOCH;

use super::*;
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, Fingerprint, Seq, TaskId};
use crate::domain::job::{Job, Order, OrderTerms, State};
use crate::domain::json_object::JsonObject;
use crate::domain::request::Kind;
use crate::output::SidecarPlace;

struct Bench {
    dir: tempfile::TempDir,
    output_dir: OutputDir,
    batch: BatchName,
    layout: Layout,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let (output_dir, batch) = (OutputDir::new(dir.path(), OutputOptions::default()), "b".parse().unwrap());
    output_dir.prepare(&batch).unwrap();
    Bench { dir, output_dir, batch, layout: Layout::default() }
}

/// One whose batch was prepared by another process: what lies there is looked at before a name is tried.
fn found_bench() -> Bench {
    let made = bench();
    let output_dir = OutputDir::new(made.dir.path(), OutputOptions::default());
    output_dir.prepare(&made.batch).unwrap();
    Bench { output_dir, ..made }
}

fn spec(id: u8, label: &str) -> JobSpec {
    let order = Order {
        line: 2,
        body: JsonObject::default(),
        inputs: Default::default(),
        files: Default::default(),
        written: None,
        meta: JsonObject::default(),
        terms: OrderTerms { price: Some(Credits(4)), ..OrderTerms::of(Kind::Image) }.into(),
    };
    let (id, fingerprint) = (JobId([id; 16]), Fingerprint([id; 16]));
    JobSpec { seq: Seq(0), id, fingerprint, variation: 1, label: label.into(), apart: false, order }
}

impl Bench {
    fn job(&self) -> Job {
        let urls = vec!["http://x/1.png".to_owned()];
        Job::at(
            AttemptNo::FIRST,
            State::Fetching { task: TaskId("t1".into()), urls: urls.into(), files: Default::default() },
        )
    }

    fn part(&self, job: JobId, n: usize, content: &str) -> Part {
        let path = self.output_dir.part_path(&self.batch, job, n);
        fs::write(&path, content).unwrap();
        let sha256 = hash_file(&path).unwrap();
        // Every second one is small.
        let unwritten = n.is_multiple_of(2).then(|| {
            fs::remove_file(&path).unwrap();
            content.as_bytes().to_owned()
        });
        let media = Media { content_type: "image/png".into(), ext: "png".into() };
        Part { path, unwritten, bytes: content.len() as u64, sha256, media }
    }

    fn publish(&self, spec: &JobSpec, contents: &[&str]) -> Vec<String> {
        let parts: Vec<Part> =
            contents.iter().enumerate().map(|(n, text)| self.part(spec.id, n + 1, text)).collect();
        let job = self.job();
        let output_spec = OutputSpec { batch: &self.batch, layout: &self.layout, spec, job: &job };
        let files = self.output_dir.publish(output_spec, &parts, Timestamp(5_000)).unwrap();
        assert_eq!(self.output_dir.published(output_spec), Some(files.clone()));
        files.into_iter().map(|file| file.path).collect()
    }

    /// Every file in the batch's folder and in the folders in it.
    fn names(&self) -> Vec<String> {
        let (root, mut names) = (self.dir.path().join("b"), Vec::new());
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => names.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()),
                }
            }
        }
        names.sort();
        names
    }

    /// Whether the outputs of a job are found, whole.
    fn finds(&self, spec: &JobSpec) -> bool {
        let job = self.job();
        let output_spec = OutputSpec { batch: &self.batch, layout: &self.layout, spec, job: &job };
        let sidecar = self.output_dir.sidecar_of(output_spec, &[]);
        let found = self.output_dir.published(output_spec).is_some();
        assert_eq!(found, self.output_dir.published_outputs(&self.batch, &self.layout, spec).is_some());
        assert!(!found || sidecar.is_some());
        found
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join("b").join(name)).unwrap()
    }
}

#[test]
fn parts_become_files_with_a_sidecar() {
    let bench = bench();
    assert_eq!(bench.publish(&spec(1, "hero"), &["one", "two"]), ["hero.png", "hero-2.png"]);
    assert_eq!(bench.names(), ["hero-2.png", "hero.png", "sidecars/hero.json"]);
}

#[test]
fn sidecars_lie_beside_their_outputs_where_they_are_to() {
    let mut bench = bench();
    bench.output_dir.options.sidecars = SidecarPlace::Beside;
    assert_eq!(bench.publish(&spec(1, "hero"), &["one"]), ["hero.png"]);
    assert_eq!(bench.names(), ["hero.json", "hero.png"]);
    assert_eq!(bench.publish(&spec(2, "hero"), &["two"]), ["hero-02020202.png"]);
}

/// Older versions put every sidecar beside its outputs.
#[test]
fn a_sidecar_stays_where_it_is_and_its_name_is_taken() {
    let mut bench = found_bench();
    bench.output_dir.options.sidecars = SidecarPlace::Beside;
    bench.publish(&spec(1, "hero"), &["one"]);
    bench.output_dir.options.sidecars = SidecarPlace::Folder;
    assert!(bench.finds(&spec(1, "hero")));
    assert_eq!(bench.publish(&spec(2, "hero"), &["two"]), ["hero-02020202.png"]);
    fs::remove_file(bench.dir.path().join("b/hero.png")).unwrap();
    assert!(!bench.finds(&spec(1, "hero")), "the file is gone");
    assert_eq!(bench.publish(&spec(2, "hero"), &["two"]), ["hero-02020202.png"], "it is called as it was");
    assert_eq!(bench.publish(&spec(1, "hero"), &["one"]), ["hero.png"]);
    assert_eq!(bench.names(), ["hero-02020202.png", "hero.json", "hero.png", "sidecars/hero-02020202.json"]);
    // Likewise the other way.
    bench.output_dir.options.sidecars = SidecarPlace::Beside;
    assert!(bench.finds(&spec(2, "hero")));
    assert_eq!(bench.publish(&spec(2, "hero"), &["two"]), ["hero-02020202.png"]);
    assert_eq!(bench.names().len(), 4);
}

#[test]
fn a_job_leaves_the_names_of_the_batch_to_it_and_is_found_where_it_once_had_one() {
    let bench = bench();
    assert_eq!(bench.publish(&spec(1, "report"), &["one"]), ["_report.png"]);
    // As an older version left it.
    bench.publish(&spec(2, "results"), &["two"]);
    let path = |name: &str| bench.dir.path().join("b").join(name);
    fs::rename(path("_results.png"), path("results.png")).unwrap();
    let sidecar = fs::read_to_string(path("sidecars/_results.json")).unwrap();
    fs::write(path("results.json"), sidecar.replace("_results.png", "results.png")).unwrap();
    fs::remove_file(path("sidecars/_results.json")).unwrap();
    assert!(bench.finds(&spec(2, "results")));
    assert_eq!(bench.names(), ["_report.png", "results.json", "results.png", "sidecars/_report.json"]);
}

#[test]
fn a_folder_for_sidecars_that_is_a_link_is_found_out_before_anything_is_bought() {
    let bench = bench();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), bench.dir.path().join("b/sidecars")).unwrap();
    let refused = bench.output_dir.prepare(&bench.batch).unwrap_err().to_string();
    assert!(refused.ends_with("b/sidecars is a link; a directory is required"), "{refused}");
}

#[test]
fn an_output_folder_that_is_gone_is_made_anew_by_nobody_but_a_person() {
    let bench = bench();
    let root = bench.dir.path();
    fs::remove_dir_all(root).unwrap();
    let output_dir = &bench.output_dir;
    for made in [
        output_dir.prepare(&bench.batch),
        output_dir.make_batch_dir(&bench.batch),
        output_dir.make_folder_in(&bench.batch, "_gallery"),
        output_dir.make_folder_beside_batches("_gallery").map(drop),
    ] {
        assert!(made.unwrap_err().to_string().contains(" is gone; mount its disk again"));
    }
    assert!(!root.exists());
    // Settings that are read anew change nothing about that.
    let reloaded = OutputDir::new(root, OutputOptions::default()).in_place_of(output_dir);
    assert!(reloaded.prepare(&bench.batch).is_err() && !root.exists());
    fs::create_dir(root).unwrap();
    output_dir.prepare(&bench.batch).unwrap();
    reloaded.prepare(&bench.batch).unwrap();
}

#[test]
fn a_file_system_that_sets_no_room_aside_is_asked_how_much_is_free() {
    let bench = bench();
    let check = |bytes| {
        let mut file = tempfile::tempfile_in(bench.dir.path()).unwrap();
        bench.output_dir.check_space_by_writing(&mut file, bytes)
    };
    check(1).unwrap();
    let free_bytes = bench.output_dir.free_bytes().unwrap();
    assert!(is_disk_full(&check(2 * free_bytes).unwrap_err()));
}

/// The folder of an output may depend on its number.
#[test]
fn each_output_may_have_a_folder_of_its_own() {
    let mut bench = bench();
    bench.layout = Layout::parse("{batch}/take{-n}/{job}{-n}.{ext}").unwrap();
    assert_eq!(bench.publish(&spec(1, "hero"), &["one", "two"]), ["take/hero.png", "take-2/hero-2.png"]);
    assert_eq!(bench.names(), ["sidecars/take/hero.json", "take-2/hero-2.png", "take/hero.png"]);
}

#[test]
fn two_jobs_with_one_name_both_land() {
    for bench in [bench(), found_bench()] {
        assert_eq!(bench.publish(&spec(1, "hero"), &["one"]), ["hero.png"]);
        assert_eq!(bench.publish(&spec(2, "hero"), &["two"]), ["hero-02020202.png"]);
        assert_eq!(bench.read("hero.png"), "one");
    }
}

/// The names are free when both look: the sidecar that comes first has the name, and keeps it.
#[test]
fn many_jobs_with_one_name_that_land_at_once_keep_their_sidecars() {
    for _ in 0..20 {
        let bench = bench();
        std::thread::scope(|scope| {
            for id in 1..=6 {
                let bench = &bench;
                scope.spawn(move || bench.publish(&spec(id, "hero"), &["one", "two"]));
            }
        });
        assert_eq!(bench.names().len(), 6 * 3, "{:?}", bench.names());
    }
}

#[test]
fn a_foreign_file_is_never_overwritten() {
    for bench in [bench(), found_bench()] {
        fs::write(bench.dir.path().join("b/hero-2.png"), "mine").unwrap();
        assert_eq!(
            bench.publish(&spec(1, "hero"), &["one", "two"]),
            ["hero-01010101.png", "hero-01010101-2.png"]
        );
        assert_eq!(bench.read("hero-2.png"), "mine");
    }
}

#[test]
fn a_dangling_link_in_the_way_is_not_followed() {
    for bench in [bench(), found_bench()] {
        let outside = bench.dir.path().join("outside");
        std::os::unix::fs::symlink(&outside, bench.dir.path().join("b/hero.png")).unwrap();
        assert_eq!(bench.publish(&spec(1, "hero"), &["one"]), ["hero-01010101.png"]);
        assert!(!outside.exists());
    }
}

#[test]
fn publishing_again_after_a_crash_takes_the_same_name() {
    for bench in [bench(), found_bench()] {
        bench.publish(&spec(1, "hero"), &["one"]);
        fs::remove_file(bench.dir.path().join("b/hero.png")).unwrap();
        assert_eq!(bench.publish(&spec(1, "hero"), &["one again"]), ["hero.png"]);
        assert_eq!(bench.names(), ["hero.png", "sidecars/hero.json"]);
    }
}

#[test]
fn what_a_killed_process_left_of_its_sidecar_keeps_no_name_and_all_else_does() {
    let own = spec(1, "hero");
    let whole = {
        let bench = bench();
        bench.publish(&own, &["one"]);
        bench.read("sidecars/hero.json")
    };
    let zeros = "\0".repeat(whole.len());
    let others = whole.replacen(&own.id.to_string(), &spec(2, "hero").id.to_string(), 1);
    for (left, name) in [
        ("", "hero.png"),
        (&zeros, "hero.png"),
        (&whole[..whole.len() / 2], "hero.png"),
        (&whole, "hero.png"),
        (&whole[..5], "hero.png"),
        (&format!("{}\0\0", &whole[..whole.len() / 2]), "hero.png"),
        // Cut off, it belongs to nobody.
        (&others[..whole.len() / 2], "hero.png"),
        // As a person may leave it.
        (&whole.replacen("\"id\":", "id:", 1), "hero-01010101.png"),
        (&whole.replacen("\"attempt\": 1", "\"attempt\": \"\"", 1), "hero-01010101.png"),
        (&others, "hero-01010101.png"),
        ("notes", "hero-01010101.png"),
    ] {
        let bench = found_bench();
        let path = bench.dir.path().join("b/sidecars/hero.json");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, left).unwrap();
        // Earlier than the output came: see `Bench::publish`.
        File::open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(bench.publish(&own, &["one"]), [name], "{left}");
        let is_own = name == "hero.png";
        assert_eq!(bench.read("sidecars/hero.json") == left, !is_own || left == whole, "{left}");
    }
}

#[test]
fn a_sidecar_that_another_process_may_be_writing_keeps_its_name() {
    let bench = found_bench();
    fs::create_dir(bench.dir.path().join("b/sidecars")).unwrap();
    fs::write(bench.dir.path().join("b/sidecars/hero.json"), "").unwrap();
    assert_eq!(bench.publish(&spec(1, "hero"), &["one"]), ["hero-01010101.png"]);
}

#[test]
fn a_changed_file_is_not_taken_for_a_result() {
    let bench = bench();
    let spec = spec(1, "hero");
    bench.publish(&spec, &["one"]);
    fs::write(bench.dir.path().join("b/hero.png"), "eno").unwrap();
    let job = bench.job();
    let output_spec = OutputSpec { batch: &bench.batch, layout: &bench.layout, spec: &spec, job: &job };
    assert_eq!(bench.output_dir.published(output_spec), None);
}

#[test]
fn what_a_person_edited_stays_and_the_output_lands_beside_it() {
    for bench in [bench(), found_bench()] {
        let spec = spec(1, "hero");
        bench.publish(&spec, &["one", "two"]);
        let edit = |name: &str, text: &str| fs::write(bench.dir.path().join("b").join(name), text).unwrap();
        edit("hero-2.png", "cut");
        let job = bench.job();
        let output_spec = OutputSpec { batch: &bench.batch, layout: &bench.layout, spec: &spec, job: &job };
        assert_eq!(bench.output_dir.edited(output_spec), ["hero-2.png"]);
        assert_eq!(bench.publish(&spec, &["one", "two"]), ["hero.png", "hero-01010101-2.png"]);
        assert_eq!(bench.output_dir.edited(output_spec), [""; 0]);
        let files = bench.output_dir.published(output_spec).unwrap();
        let edited: Vec<Option<&str>> = files.iter().map(|file| file.edited.as_deref()).collect();
        assert_eq!(edited, [None, Some("hero-2.png")]);
        assert_eq!(
            (bench.read("hero-2.png"), bench.read("hero-01010101-2.png")),
            ("cut".into(), "two".into())
        );
        // The copy is edited, too.
        edit("hero-01010101-2.png", "cut again");
        let long = format!("hero-{}-2.png", spec.id);
        assert_eq!(bench.publish(&spec, &["one", "two"]), ["hero.png".to_owned(), long]);
        assert_eq!(bench.read("hero-01010101-2.png"), "cut again");
    }
}

#[test]
fn a_folder_or_a_link_in_an_outputs_place_stays() {
    let bench = bench();
    let spec = spec(1, "hero");
    bench.publish(&spec, &["one"]);
    fs::remove_file(bench.dir.path().join("b/hero.png")).unwrap();
    fs::create_dir(bench.dir.path().join("b/hero.png")).unwrap();
    assert_eq!(bench.publish(&spec, &["one"]), ["hero-01010101.png"]);
}

#[test]
fn a_job_that_is_to_be_kept_apart_carries_its_identity_from_the_start() {
    let bench = bench();
    bench.publish(&spec(1, "hero"), &["one"]);
    let other = JobSpec { apart: true, ..spec(2, "HERO") };
    assert_eq!(bench.publish(&other, &["two"]), ["HERO-02020202.png"]);
    // One that was published under its plain name keeps it.
    bench.publish(&spec(3, "Owl"), &["three"]);
    fs::remove_file(bench.dir.path().join("b/Owl.png")).unwrap();
    assert_eq!(bench.publish(&JobSpec { apart: true, ..spec(3, "Owl") }, &["three"]), ["Owl.png"]);
}

#[test]
fn leftover_parts_are_swept_and_nothing_else() {
    let bench = bench();
    bench.part(JobId([1; 16]), 1, "half");
    for name in [".keep.part", "b.part", ".0101-1.part"] {
        fs::write(bench.dir.path().join("b").join(name), "").unwrap();
    }
    bench.output_dir.begin_part_sweep([&bench.batch]).run();
    assert_eq!(bench.names(), [".0101-1.part", ".keep.part", "b.part"]);
}

#[test]
fn jobs_that_land_together_have_names_of_their_own_and_one_that_cannot_land_keeps_no_other_back() {
    for bench in [bench(), found_bench()] {
        let specs: Vec<JobSpec> = (1..=12).map(|id| spec(id, "hero")).collect();
        let job = bench.job();
        let mut parts: Vec<Vec<Part>> = (specs.iter())
            .map(|spec| (1..=2).map(|n| bench.part(spec.id, n, &format!("{} {n}", spec.id))).collect())
            .collect();
        // The part of one is gone, and was not kept in memory.
        fs::remove_file(&parts[4][0].path).unwrap();
        assert_eq!(parts[4][0].unwritten, None);
        // That of another is written already.
        parts[5][1].write_out().unwrap();
        let publications: Vec<Publication<'_>> = (specs.iter().zip(&parts))
            .map(|(spec, parts)| {
                let output_spec = OutputSpec { batch: &bench.batch, layout: &bench.layout, spec, job: &job };
                Publication { output_spec, parts, now: Timestamp(5_000) }
            })
            .collect();
        let outcomes = bench.output_dir.publish_all(&publications, || {});
        for ((publication, outcome), spec) in publications.iter().zip(outcomes).zip(&specs) {
            if spec.id == specs[4].id {
                assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::NotFound);
                continue;
            }
            let files = outcome.unwrap();
            assert_eq!(bench.output_dir.published(publication.output_spec), Some(files.clone()));
            assert_eq!(bench.read(&files[1].path), format!("{} 2", spec.id));
        }
        let names = bench.names();
        let (parts, published): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| name.ends_with(".part"));
        assert_eq!(published.iter().filter(|name| name.ends_with(".png")).count(), 22);
        assert_eq!(parts.len(), 1, "{parts:?}: what could be written of the one that could not be published");
    }
}

#[test]
fn a_group_that_is_published_while_another_waits_for_the_device_takes_none_of_its_names() {
    for bench in [bench(), found_bench()] {
        let specs: Vec<JobSpec> = (1..=24).map(|id| spec(id, "hero")).collect();
        let job = bench.job();
        let parts: Vec<Vec<Part>> =
            specs.iter().map(|spec| vec![bench.part(spec.id, 1, &spec.id.to_string())]).collect();
        let publications: Vec<Publication<'_>> = (specs.iter().zip(&parts))
            .map(|(spec, parts)| {
                let output_spec = OutputSpec { batch: &bench.batch, layout: &bench.layout, spec, job: &job };
                Publication { output_spec, parts, now: Timestamp(5_000) }
            })
            .collect();
        let (first, second) = publications.split_at(12);
        let mut meanwhile = None;
        let outcomes = bench.output_dir.publish_all(first, || {
            meanwhile.get_or_insert_with(|| bench.output_dir.publish_all(second, || {}));
        });
        let outcomes = outcomes.into_iter().chain(meanwhile.unwrap());
        for (publication, outcome) in publications.iter().zip(outcomes) {
            let files = outcome.unwrap();
            assert_eq!(bench.output_dir.published(publication.output_spec), Some(files.clone()));
            assert_eq!(bench.read(&files[0].path), publication.output_spec.spec.id.to_string());
        }
        assert_eq!(bench.names().iter().filter(|name| name.ends_with(".png")).count(), 24);
    }
}

#[test]
fn a_batch_is_new_to_the_process_that_made_its_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let batch: BatchName = "b".parse().unwrap();
    let output_dir = OutputDir::new(dir.path(), OutputOptions::default());
    assert!(!output_dir.is_new(&batch), "nothing is known of it");
    output_dir.prepare(&batch).unwrap();
    output_dir.prepare(&batch).unwrap();
    assert!(output_dir.is_new(&batch));
    let next = OutputDir::new(dir.path(), OutputOptions::default());
    next.prepare(&batch).unwrap();
    assert!(!next.is_new(&batch), "something may have been published in it");
}

#[test]
fn a_version_that_is_not_wanted_gives_the_plain_name_up() {
    let bench = bench();
    let older = spec(1, "hero");
    bench.publish(&older, &["one", "two"]);
    let job = bench.job();
    let output_spec = OutputSpec { batch: &bench.batch, layout: &bench.layout, spec: &older, job: &job };
    bench.output_dir.set_aside(output_spec).unwrap();
    let names = ["hero-01010101-2.png", "hero-01010101.png", "sidecars/hero-01010101.json"];
    assert_eq!(bench.names(), names);
    let files = bench.output_dir.named_outputs(output_spec).unwrap();
    assert_eq!(files[0].path, "hero-01010101.png");
    // Again, and after the newer one has moved it.
    bench.output_dir.set_aside(output_spec).unwrap();
    assert_eq!(bench.names(), names);
    assert!(bench.finds(&older));
}
