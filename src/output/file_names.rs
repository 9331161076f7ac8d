//! Names of output files: from a layout and a job to a path that is safe on any file system.

use std::fmt;

use crate::domain::ids::BatchName;
use crate::domain::job::JobSpec;
use crate::domain::text_prefix::text_prefix;
use crate::output::SidecarPlace;

/// The default layout.
pub const DEFAULT: &str = "{batch}/{job}{-n}.{ext}";
/// The folder of a batch's folder that sidecars are put into.
pub const SIDECAR_FOLDER: &str = "sidecars";
/// The folder of a batch's folder for outputs that came whole while others of their task did not.
pub const INCOMPLETE_FOLDER: &str = "incomplete";
/// Stems of files that the program writes into a batch's folder, whatever their extension.
const RESERVED_STEMS: [&str; 2] = ["results", "report"];
/// Other names that are kept for the program in a batch's folder.
const RESERVED_NAMES: [&str; 4] = ["index.html", "gallery", SIDECAR_FOLDER, INCOMPLETE_FOLDER];
/// Longest file or folder name, in bytes.
const NAME_MAX_BYTES: usize = 200;
/// Longest extension that is kept, in bytes.
const EXT_MAX_BYTES: usize = 10;

/// The layout of output files below the output folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// What follows `{batch}/`.
    within_batch: String,
}

/// Why a text is not a layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLayout {
    /// Every batch has a folder of its own.
    #[error("a layout begins with {{batch}}/, as in {DEFAULT}")]
    OutsideBatch,
    /// A placeholder that does not exist.
    #[error("{{{0}}} is not a placeholder; {{batch}}, {{job}}, {{kind}}, {{model}}, {{-n}} and {{ext}} are")]
    Placeholder(String),
    /// A path component without a name.
    #[error(
        "{0:?} is not a directory of a layout: `..`, `.`, an empty part and a path from the root are not accepted, \
         since outputs stay below the directory of their batch; name it, as in {{batch}}/{{kind}}/{{job}}{{-n}}.{{ext}}"
    )]
    Folder(String),
    /// Two jobs would have the same file name.
    #[error("the file name needs {{job}} and {{-n}}, and ends in .{{ext}}, as in {DEFAULT}")]
    Ambiguous,
}

impl Layout {
    /// Parses a layout.
    pub fn parse(text: &str) -> Result<Layout, BadLayout> {
        let within_batch = text.strip_prefix("{batch}/").ok_or(BadLayout::OutsideBatch)?;
        let mut rest = within_batch;
        while let Some((_, after)) = rest.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| BadLayout::Placeholder(after.to_owned()))?;
            if !matches!(name, "batch" | "job" | "kind" | "model" | "-n" | "ext") {
                return Err(BadLayout::Placeholder(name.to_owned()));
            }
            rest = after;
        }
        let mut folders = within_batch.split('/').rev().skip(1);
        if let Some(folder) = folders.find(|folder| matches!(folder.trim(), "" | "." | "..")) {
            return Err(BadLayout::Folder(folder.to_owned()));
        }
        let file_name = within_batch.rsplit('/').next().unwrap_or_default();
        let is_one_to_one = file_name.ends_with(".{ext}")
            && file_name.contains("{job}")
            && file_name.contains("{-n}")
            && !within_batch.contains("{ext}/");
        if is_one_to_one {
            Ok(Layout { within_batch: within_batch.to_owned() })
        } else {
            Err(BadLayout::Ambiguous)
        }
    }

    /// The layout of a batch, which was checked when the batch was accepted; the default where it has none.
    pub fn of_batch(own: Option<&str>, default: &Layout) -> Layout {
        own.and_then(|text| Layout::parse(text).ok()).unwrap_or_else(|| default.clone())
    }

    /// The path, relative to the batch's folder, of a job's output `n` (from 1). `job` is what the
    /// job is called on disk.
    pub fn path(&self, batch: &BatchName, spec: &JobSpec, job: &str, n: usize, ext: &str) -> String {
        let number = if n > 1 { format!("-{n}") } else { String::new() };
        self.fill(batch, spec, job, &number, ext)
    }

    /// The path, relative to the batch's folder, of a job's sidecar that is put at `place`.
    pub fn sidecar(&self, place: SidecarPlace, batch: &BatchName, spec: &JobSpec, job: &str) -> String {
        let beside = self.fill(batch, spec, job, "", "json");
        match place {
            SidecarPlace::Folder => format!("{SIDECAR_FOLDER}/{beside}"),
            SidecarPlace::Beside => beside,
        }
    }

    /// Every path, relative to the batch's folder, where a job's sidecar may be.
    pub fn sidecars(&self, batch: &BatchName, spec: &JobSpec, job: &str) -> [String; 2] {
        [SidecarPlace::Folder, SidecarPlace::Beside].map(|place| self.sidecar(place, batch, spec, job))
    }

    /// The paths of a sidecar under a name that is reserved now, and was not always: outputs that have it keep it. None
    /// where the job's name is not reserved.
    pub fn unreserved_sidecars(&self, batch: &BatchName, spec: &JobSpec) -> Vec<String> {
        let [name, ..] = job_names(spec);
        let path = self.fill_any(batch, spec, &name, "", "json");
        if is_reserved(&path) { vec![format!("{SIDECAR_FOLDER}/{path}"), path] } else { Vec::new() }
    }

    fn fill(&self, batch: &BatchName, spec: &JobSpec, job: &str, number: &str, ext: &str) -> String {
        let path = self.fill_any(batch, spec, job, number, ext);
        if is_reserved(&path) { format!("_{path}") } else { path }
    }

    /// The path, even where a reserved name comes of it.
    fn fill_any(&self, batch: &BatchName, spec: &JobSpec, job: &str, number: &str, ext: &str) -> String {
        let model = spec.order.model.as_deref().unwrap_or("none");
        let (folders, file) = self.within_batch.rsplit_once('/').unwrap_or(("", &self.within_batch));
        let fill = |template: &str, job: &str| {
            template
                .replace("{batch}", batch.as_str())
                .replace("{kind}", spec.order.kind.name())
                .replace("{model}", model)
                .replace("{-n}", number)
                .replace("{job}", job)
        };
        let ext = safe_ext(ext);
        let stem = file.strip_suffix(".{ext}").unwrap_or(file);
        // The job's name gives way, so that number and extension always fit.
        let around = fill(stem, "").len() + 1 + ext.len();
        let job = cut(&safe_name(job), NAME_MAX_BYTES.saturating_sub(around)).to_owned();
        let file_name = format!("{}.{ext}", safe_name(&fill(stem, &job)));
        let folders = folders.split('/').filter(|folder| !folder.is_empty());
        let mut path: String = folders
            .map(|folder| format!("{}/", cut(&safe_name(&fill(folder, &job)), NAME_MAX_BYTES)))
            .collect();
        path.push_str(&file_name);
        path
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { within_batch: "{job}{-n}.{ext}".to_owned() }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{batch}}/{}", self.within_batch)
    }
}

/// The names that a job may have on disk, in order of preference: its label, then its label with the beginning of its
/// identity, then with all of it. The later ones are for names that something else has already.
pub fn job_names(spec: &JobSpec) -> [String; 3] {
    let label = safe_name(&spec.label);
    // Room for the identity, so that cutting a long label never cuts that.
    let short = cut(&label, NAME_MAX_BYTES - 60).to_owned();
    let is_long = short.len() < label.len();
    let with_short_id = format!("{short}-{}", spec.id.short());
    let with_id = format!("{short}-{}", spec.id);
    if is_long { [with_short_id, with_id.clone(), with_id] } else { [label, with_short_id, with_id] }
}

/// Which of a job's names a path of one of its outputs has, whatever the layout was: the one that says most. None where it has
/// none of them, or was cut.
pub fn name_in(spec: &JobSpec, path: &str) -> Option<String> {
    let file = path.rsplit('/').next().unwrap_or(path);
    job_names(spec).into_iter().rev().find(|name| file.contains(name.as_str()))
}

/// Whether an output of a job has its plain name, whatever the layout was.
pub fn is_plain(spec: &JobSpec, path: &str) -> bool {
    let [plain, ..] = job_names(spec);
    name_in(spec, path).is_some_and(|name| name == plain)
}

/// The nearest name that every common file system takes: no separators, no control or invisible
/// direction characters, no leading dot, no trailing dot or space, no device name.
fn safe_name(text: &str) -> String {
    let replaced: String = text
        .chars()
        .map(|c| if c.is_control() || "/\\:*?\"<>|".contains(c) || is_invisible(c) { '_' } else { c })
        .collect();
    let trimmed = replaced.trim_matches(|c: char| c.is_whitespace()).trim_end_matches(['.', ' ']);
    let name = match trimmed.strip_prefix('.') {
        Some(rest) => format!("_{}", rest.replace("..", "__")),
        None => trimmed.to_owned(),
    };
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    if name.is_empty() {
        "_".to_owned()
    } else if is_device(&stem) {
        format!("_{name}")
    } else {
        name
    }
}

/// Whether a path in a batch's folder is one that the program keeps for itself, be the file system one that tells
/// capitals apart or not.
fn is_reserved(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default().to_lowercase();
    let stem = first.split('.').next().unwrap_or_default();
    RESERVED_NAMES.contains(&first.as_str()) || RESERVED_STEMS.contains(&stem)
}

/// Names that Windows keeps for devices, whatever the extension.
fn is_device(stem: &str) -> bool {
    let numbered = |prefix: &str| {
        stem.strip_prefix(prefix)
            .is_some_and(|rest| rest.len() == 1 && rest.chars().all(|c| c.is_ascii_digit()))
    };
    matches!(stem, "con" | "prn" | "aux" | "nul") || numbered("com") || numbered("lpt")
}

/// Characters that change how a name looks without being seen.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{E0000}'..='\u{E007F}' | '\u{FFF9}'..='\u{FFFB}')
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

fn safe_ext(ext: &str) -> String {
    let ext: String = ext.chars().filter(char::is_ascii_alphanumeric).take(EXT_MAX_BYTES).collect();
    if ext.is_empty() { "bin".to_owned() } else { ext.to_ascii_lowercase() }
}

/// The longest beginning of `text` that is at most `max` bytes long, and ends as a file name may.
fn cut(text: &str, max: usize) -> &str {
    text_prefix(text, max).trim_end_matches(['.', ' '])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::ids::{Fingerprint, JobId, Seq};
    use crate::domain::job::{Order, OrderTerms};
    use crate::domain::json_object::JsonObject;
    use crate::domain::request::Kind;

    fn spec(label: &str) -> JobSpec {
        let order = Order {
            line: 2,
            body: JsonObject::default(),
            inputs: Default::default(),
            files: Default::default(),
            written: None,
            meta: JsonObject::default(),
            terms: OrderTerms { model: Some("house-c1".into()), ..OrderTerms::of(Kind::Video) }.into(),
        };
        let (id, fingerprint) = (JobId([0xab; 16]), Fingerprint([0; 16]));
        JobSpec { seq: Seq(0), id, fingerprint, variation: 1, label: label.into(), apart: false, order }
    }

    fn path(layout: &str, label: &str, n: usize, ext: &str) -> String {
        let spec = spec(label);
        let [name, ..] = job_names(&spec);
        Layout::parse(layout).unwrap().path(&"b".parse().unwrap(), &spec, &name, n, ext)
    }

    #[test]
    fn outputs_are_called_after_their_job() {
        assert_eq!(path(DEFAULT, "hero", 1, "mp4"), "hero.mp4");
        assert_eq!(path(DEFAULT, "hero", 2, "mp4"), "hero-2.mp4");
        assert_eq!(
            path("{batch}/{kind}/{model}/{job}{-n}.{ext}", "hero", 1, "mp4"),
            "video/house-c1/hero.mp4"
        );
    }

    #[test]
    fn names_that_the_batch_needs_are_left_to_it() {
        for (label, expected) in [
            ("report", "_report.png"),
            ("Results", "_Results.png"),
            ("results.csv", "_results.csv.png"),
            ("index", "index.png"),
            ("gallery", "gallery.png"),
            ("reports", "reports.png"),
            ("sidecars", "sidecars.png"),
        ] {
            assert_eq!(path(DEFAULT, label, 1, "png"), expected);
        }
        assert_eq!(path("{batch}/{job}/{job}{-n}.{ext}", "Sidecars", 2, "png"), "_Sidecars/Sidecars-2.png");
        assert_eq!(
            path("{batch}/{job}/x{job}{-n}.{ext}", "index.html", 1, "png"),
            "_index.html/xindex.html.png"
        );
        assert_eq!(path("{batch}/{job}/{job}{-n}.{ext}", "Gallery", 2, "png"), "_Gallery/Gallery-2.png");
        assert_eq!(path("{batch}/{kind}/{job}{-n}.{ext}", "report", 1, "png"), "video/report.png");
        let sidecars = |label| {
            let (batch, spec) = ("b".parse().unwrap(), spec(label));
            let layout = Layout::default();
            (layout.sidecars(&batch, &spec, label), layout.unreserved_sidecars(&batch, &spec))
        };
        let paths = ["sidecars/_report.json", "_report.json"].map(str::to_owned);
        let unreserved = ["sidecars/report.json", "report.json"].map(str::to_owned).to_vec();
        assert_eq!(sidecars("report"), (paths, unreserved));
        assert_eq!(sidecars("hero"), (["sidecars/hero.json", "hero.json"].map(str::to_owned), Vec::new()));
    }

    #[test]
    fn a_hostile_label_stays_in_its_folder() {
        for (label, expected) in [
            ("../../etc/passwd", "_/_.._etc_passwd"),
            ("/etc/passwd", "_etc_passwd.mp4"),
            ("a\\b:c", "a_b_c.mp4"),
            ("..", "_.mp4"),
            (".hidden", "_hidden.mp4"),
            ("con", "_con.mp4"),
            ("COM1.old", "_COM1.old.mp4"),
            ("name. ", "name.mp4"),
            ("a\u{202E}4pm.exe", "a_4pm.exe.mp4"),
            ("tab\there\0", "tab_here_.mp4"),
            ("", "_.mp4"),
            ("🦊 fox", "🦊 fox.mp4"),
        ] {
            let name = path(DEFAULT, label, 1, "mp4");
            assert!(!name.contains('/') && !name.starts_with('.'), "{label:?} -> {name}");
            if !expected.contains('/') {
                assert_eq!(name, expected, "{label:?}");
            }
        }
    }

    #[test]
    fn long_labels_are_cut_and_stay_apart() {
        let name = path(DEFAULT, &"長".repeat(3000), 12, "mp4");
        assert!(name.len() <= NAME_MAX_BYTES, "{}", name.len());
        assert!(name.ends_with("-abababab-12.mp4"), "{name}");
    }

    #[test]
    fn a_bad_layout_is_refused() {
        assert_eq!(Layout::parse("{job}{-n}.{ext}"), Err(BadLayout::OutsideBatch));
        assert_eq!(Layout::parse("{batch}/{jbo}{-n}.{ext}"), Err(BadLayout::Placeholder("jbo".into())));
        assert_eq!(Layout::parse("{batch}/{kind}.{ext}"), Err(BadLayout::Ambiguous));
        assert_eq!(Layout::parse("{batch}/{job}.{ext}"), Err(BadLayout::Ambiguous));
        assert!(Layout::parse("{batch}/{job").is_err());
        for (text, folder) in [
            ("{batch}/../../esc-{job}{-n}.{ext}", ".."),
            ("{batch}/{kind}/../{job}{-n}.{ext}", ".."),
            ("{batch}/./{job}{-n}.{ext}", "."),
            ("{batch}//etc/{job}{-n}.{ext}", ""),
            ("{batch}/{kind}/ /{job}{-n}.{ext}", " "),
        ] {
            assert_eq!(Layout::parse(text), Err(BadLayout::Folder(folder.into())), "{text}");
        }
        assert_eq!(Layout::parse("/etc/{batch}/{job}{-n}.{ext}"), Err(BadLayout::OutsideBatch));
        assert!(Layout::parse("{batch}/..{kind}/{job}{-n}.{ext}").is_ok(), "a name that begins with dots");
    }

    proptest! {
        #[test]
        fn every_name_is_safe(label in any::<String>(), n in 1usize..2000, ext in any::<String>()) {
            let name = path("{batch}/{kind}/{job}{-n}.{ext}", &label, n, &ext);
            let (folder, file) = name.split_once('/').unwrap();
            prop_assert_eq!(folder, "video");
            prop_assert!(!file.contains('/') && !file.starts_with('.') && file.len() <= NAME_MAX_BYTES, "{}", file);
            prop_assert!(!file.chars().any(|c| c.is_control() || is_invisible(c)));
        }
    }
}
