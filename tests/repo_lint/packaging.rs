//! What a package carries: the configuration file that shows every key, the units, the manual, completions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use callsheet::config::{Config, OutputConfig};

const FILE: &str = include_str!("../../systemd/callsheet.toml");

fn program(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
    command.args(arguments).env_clear().output().unwrap()
}

/// The file as it is when every key in it is uncommented: `#key` is one, `# text` is not.
fn uncommented() -> String {
    let line = |line: &'static str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest,
        Some(_) => "",
        None => line,
    };
    FILE.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn load(text: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("callsheet.toml");
    fs::write(&path, text).unwrap();
    Config::load(Some(&path)).map_err(|error| error.to_string())
}

#[test]
fn the_configuration_file_is_valid_as_it_is_and_with_every_key_uncommented() {
    let as_it_is = load(FILE).unwrap();
    assert_eq!(as_it_is.paths.state.as_deref(), Some(Path::new("/var/lib/callsheet/state")));
    assert!(as_it_is.service.base_url.is_none(), "the service is never guessed");
    let all = load(&uncommented()).unwrap();
    assert!(all.service.base_url.is_some() && all.inbox.len() == 1 && all.schedule.len() == 1);
}

/// What a section with an unknown key says that it would accept.
fn keys_of(section: &str) -> BTreeSet<String> {
    // Keys that have no default come first, or their absence would be the error.
    let error = load(section).unwrap_err();
    let (_, listed) = error.split_once("expected ").unwrap_or_else(|| panic!("{section}: {error}"));
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The keys that stand in a table of the file.
fn keys_in(file: &toml::Table, path: &[&str]) -> BTreeSet<String> {
    let mut table = file;
    for part in path {
        table = match &table[*part] {
            toml::Value::Array(items) => items[0].as_table().unwrap(),
            value => value.as_table().unwrap(),
        };
    }
    table.keys().cloned().collect()
}

#[test]
fn no_key_is_missing_from_it() {
    let file: toml::Table = toml::from_str(&uncommented()).unwrap();
    let unknown = "zzz = 1";
    assert_eq!(keys_in(&file, &[]), keys_of(unknown), "sections");
    let plain = [
        "service",
        "paths",
        "limits",
        "poll",
        "deadlines",
        "retry",
        "budget",
        "output",
        "hooks",
        "control",
        "log",
        "rules",
    ];
    for section in plain {
        assert_eq!(keys_in(&file, &[section]), keys_of(&format!("[{section}]\n{unknown}")), "[{section}]");
    }
    let model = "vendor/real-1";
    let of_model = ["rules", "models", model];
    let table = format!("rules.models.\"{model}\"");
    for (path, section) in [
        (&["inbox"][..], format!("[[inbox]]\n{unknown}")),
        (&["inbox", "policy"], format!("[[inbox]]\npath = \"a\"\npolicy = {{ {unknown} }}")),
        (&["budget", "by", "meta.client"], format!("[budget.by.\"meta.client\"]\n{unknown}")),
        (
            &["budget", "by", "meta.client", "per_day"],
            format!("[budget.by.\"meta.client\"]\nper_day = {{ {unknown} }}"),
        ),
        (&["schedule"], format!("[[schedule]]\n{unknown}")),
        (&of_model, format!("[{table}]\n{unknown}")),
        (&[&of_model[..], &["inputs", "image-to-video"]].concat(), format!("[{table}.inputs.x]\n{unknown}")),
        (&[&of_model[..], &["exact_pixels"]].concat(), format!("[{table}.exact_pixels]\n{unknown}")),
        (&[&of_model[..], &["allowance"]].concat(), format!("[{table}.allowance]\n{unknown}")),
    ] {
        assert_eq!(keys_in(&file, path), keys_of(&section), "{section}");
    }
}

#[test]
fn what_it_shows_as_a_default_is_the_default() {
    let (shown, default) = (load(&uncommented()).unwrap(), Config::default());
    let same = |what: &str, shown: &dyn std::fmt::Debug, default: &dyn std::fmt::Debug| {
        assert_eq!(format!("{shown:?}"), format!("{default:?}"), "{what}");
    };
    let (service, limits) = (&shown.service, &shown.limits);
    same("service.key_namespace", &service.key_namespace, &default.service.key_namespace);
    same("service.connect_timeout", &service.connect_timeout, &default.service.connect_timeout);
    same("service.request_timeout", &service.request_timeout, &default.service.request_timeout);
    same("service.render_timeout", &service.render_timeout, &default.service.render_timeout);
    same("limits.in_flight", &limits.in_flight, &default.limits.in_flight);
    same("limits.downloads", &limits.downloads, &default.limits.downloads);
    same("limits.min_download_rate", &limits.min_download_rate, &default.limits.min_download_rate);
    same("limits.slow_window", &limits.slow_window, &default.limits.slow_window);
    same("limits.adaptive", &limits.adaptive, &default.limits.adaptive);
    same(
        "limits.pause_after_rejections",
        &limits.pause_after_rejections,
        &default.limits.pause_after_rejections,
    );
    same("poll", &shown.poll, &default.poll);
    same("deadlines", &shown.deadlines, &default.deadlines);
    same("retry", &shown.retry, &default.retry);
    same("limits.uploads", &limits.uploads, &default.limits.uploads);
    // A store is an example.
    same("output", &OutputConfig { store: None, ..shown.output }, &default.output);
    same("log.format", &shown.log.format, &default.log.format);
}

#[test]
fn units_and_configuration_name_the_same_places() {
    let unit = include_str!("../../systemd/callsheet.service");
    let folders = include_str!("../../systemd/callsheet.tmpfiles");
    assert!(unit.contains("\nStateDirectory=callsheet\n") && unit.contains("\nRuntimeDirectory=callsheet\n"));
    assert!(unit.contains("\nLoadCredential=api-key:/etc/callsheet/api-key\n"));
    for place in ["/var/lib/callsheet/state", "/var/lib/callsheet/output", "/run/callsheet/callsheet.sock"] {
        assert!(FILE.contains(&format!("= \"{place}\"\n")), "{place}");
    }
    assert!(FILE.contains("\njobs = \"/var/lib/callsheet/jobs\"\n"));
    assert!(folders.contains("d /var/lib/callsheet/jobs/inbox "));
    let cargo: toml::Table = toml::from_str(include_str!("../../Cargo.toml")).unwrap();
    for asset in cargo["package"]["metadata"]["deb"]["assets"].as_array().unwrap() {
        let path = asset[0].as_str().unwrap();
        let is_made = path.starts_with("target/") || path.contains('*');
        assert!(is_made || Path::new(env!("CARGO_MANIFEST_DIR")).join(path).is_file(), "{path}");
    }
}

#[test]
fn the_package_is_configured_where_systemd_is_missing_or_makes_no_folders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let configure = |programs: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        for (name, script) in programs.iter().chain(&[("cat", "exec /bin/cat"), ("systemctl", "exit 0")]) {
            let path = dir.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new("/bin/sh");
        command.arg(root.join("systemd/debian/postinst")).arg("configure");
        command.env_clear().env("PATH", dir.path()).output().unwrap()
    };
    let made = configure(&[("systemd-sysusers", "exit 0"), ("systemd-tmpfiles", "exit 73")]);
    for done in [configure(&[]), made] {
        assert!(done.status.success(), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).starts_with("callsheet: next steps"), "{done:?}");
    }
    // A user that cannot be made is an error.
    assert!(!configure(&[("systemd-sysusers", "exit 1")]).status.success());
}

#[test]
fn a_unit_that_submits_a_manifest_takes_its_name_as_it_is() {
    // Unescaped, `acme-nightly` would be `acme/nightly`.
    for unit in [
        include_str!("../../systemd/callsheet-submit@.service"),
        include_str!("../../systemd/callsheet-submit@.timer"),
    ] {
        assert!(unit.contains("%i") && !unit.contains("%I"), "{unit}");
    }
}

/// Commands and the commands below them, as `--help` lists them.
fn commands(of: &[&str], found: &mut BTreeSet<String>) {
    found.insert([&["callsheet"], of].concat().join("-"));
    let help = String::from_utf8(program(&[of, &["-h"]].concat()).stdout).unwrap();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What a long description goes on with stands further in.
    for line in listed.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" {
            commands(&[of, &[name]].concat(), found);
        }
    }
}

#[test]
fn every_command_has_a_page_and_every_page_its_examples() {
    let dir = tempfile::tempdir().unwrap();
    let made = program(&["man", dir.path().to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    let page = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let pages: BTreeSet<String> =
        fs::read_dir(dir.path()).unwrap().map(|entry| page(&entry.unwrap().path())).collect();
    let mut all = BTreeSet::new();
    commands(&[], &mut all);
    assert!(all.len() > 20, "{all:?}");
    assert_eq!(pages, all);
    for name in ["run", "plan", "daemon", "submit", "doctor"] {
        let text = fs::read_to_string(dir.path().join(format!("callsheet-{name}.1"))).unwrap();
        let examples = text.find(".SH \"EXAMPLES\"").unwrap();
        assert!(
            text[examples..].contains(&format!("callsheet {name} ")) || text.contains("systemctl"),
            "{name}"
        );
        assert!(text.contains(".SH \"EXIT CODES\""), "{name}");
    }
    let one = String::from_utf8(program(&["man"]).stdout).unwrap();
    assert!(one.contains("CALLSHEET_CONFIG"), "variables of the environment are named");
    assert_eq!(one, fs::read_to_string(dir.path().join("callsheet.1")).unwrap());
}

#[test]
fn shells_complete_every_command() {
    for (shell, mark) in
        [("bash", "complete -F"), ("zsh", "#compdef callsheet"), ("fish", "complete -c callsheet")]
    {
        let script = String::from_utf8(program(&["completions", shell]).stdout).unwrap();
        assert!(script.contains(mark) && script.contains("doctor"), "{shell}");
    }
    assert_eq!(program(&["completions", "tcsh"]).status.code(), Some(2));
}
