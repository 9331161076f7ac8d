//! `callsheet init`: a commented configuration and a sample manifest, to begin with.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use url::Url;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::{printable, printable_path, written};
use crate::domain::exit_code::Exit;
use crate::domain::shell_word::shell_word;

/// What `init` takes.
#[derive(Debug, Args)]
pub(super) struct InitCommand {
    /// Directory for the files; it is created if it does not exist
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
}

/// The configuration of the package: every key with its default.
const PACKAGED: &str = include_str!("../../systemd/callsheet.toml");
/// What of it is otherwise in a directory of one's own.
const CHANGES: [(&str, &str); 11] = [
    (
        "# After a change: systemctl reload callsheet. `callsheet doctor` reports errors.",
        "# `callsheet doctor` reports errors. A running daemon reads it again on SIGHUP.",
    ),
    (
        " The systemd unit uses a credential (/etc/callsheet/api-key) instead. CALLSHEET_API_KEY overrides\n# both.",
        " CALLSHEET_API_KEY overrides it.",
    ),
    (
        "# Defaults without the package: jobs, state, output, and callsheet.sock in the state directory.",
        "# Relative to the directory in which a command is called.",
    ),
    ("\njobs = \"/var/lib/callsheet/jobs\"", "\n#jobs = \"jobs\""),
    ("\nstate = \"/var/lib/callsheet/state\"", "\n#state = \"state\""),
    ("\noutput = \"/var/lib/callsheet/output\"", "\n#output = \"output\""),
    ("\nsocket = \"/run/callsheet/callsheet.sock\"", "\n#socket = \"state/callsheet.sock\""),
    (
        " With ProtectSystem=strict a directory outside /var/lib/callsheet needs\n# ReadWritePaths= in a drop-in of the unit.",
        "",
    ),
    ("#path = \"/var/lib/callsheet/clients/a\"", "#path = \"clients/a\""),
    (
        "#manifest = \"/var/lib/callsheet/jobs/scheduled/nightly.csv\"",
        "#manifest = \"jobs/scheduled/nightly.csv\"",
    ),
    (" It runs in the unit's\n# sandbox: it can write below /var/lib/callsheet and use the network.", ""),
];
/// Where the address of the service stands in it.
const BASE_URL: &str = "#base_url = \"https://media.example\"";
/// Rows that need no id of a catalog: every service takes them.
const SAMPLE: &str = "\
id,kind,prompt,duration_seconds,instrumental,meta.client
gull,sound-effect,A single gull calls twice over small waves,4,,harbour
rain,sound-effect,Soft rain on a tin roof,6,,harbour
theme,music,\"Slow piano over soft rain, hopeful, no drums\",20,true,harbour
";

pub(super) fn run(command: &InitCommand, global: &Global) -> Result<Exit, Failure> {
    let directory = &command.directory;
    let [configuration, sample] = ["callsheet.toml", "jobs/sample.csv"].map(|name| directory.join(name));
    let texts = [(&configuration, local(global.base_url.as_ref())), (&sample, SAMPLE.to_owned())];
    let mut kept = Vec::new();
    for (path, text) in &texts {
        if !write_new(path, text)? {
            kept.push(path.as_path());
        }
    }
    let mut out = anstream::stdout().lock();
    if global.json {
        let shown = |path: &&Path| path.display().to_string();
        let new = texts.iter().map(|(path, _)| path.as_path()).filter(|path| !kept.contains(path));
        let new: Vec<String> = new.map(|path| shown(&path)).collect();
        let kept: Vec<String> = kept.iter().map(shown).collect();
        return written(writeln!(out, "{:#}", json!({ "written": new, "kept": kept })))
            .map(|()| Exit::Success);
    }
    let mut text = String::new();
    for (path, _) in &texts {
        let what = if kept.contains(&path.as_path()) { "exists, not changed" } else { "written" };
        text.push_str(&format!("{}: {what}\n", printable_path(path)));
    }
    let is_configured = !kept.contains(&configuration.as_path());
    if let (Some(url), false) = (&global.base_url, is_configured) {
        text.push_str(&format!("service.base_url was not set to {url}: the file already exists\n"));
    }
    text.push_str(&next_steps(directory, is_configured && global.base_url.is_some()));
    written(write!(out, "{text}")).map(|()| Exit::Success)
}

/// What to do with them, as commands to copy.
fn next_steps(directory: &Path, has_address: bool) -> String {
    let enter = match directory == Path::new(".") {
        true => String::new(),
        false => {
            let name = shell_word(&directory.display().to_string());
            let end_of_flags = if name.starts_with('-') { "-- " } else { "" };
            format!("    cd {end_of_flags}{}\n", printable(&name))
        }
    };
    let set = if has_address { "api_key_file" } else { "base_url and api_key_file" };
    format!(
        "\nTry it offline, with an imaginary account:\n{enter}    callsheet run jobs/sample.csv --emulator\n    callsheet \
         open --emulator\n\nThen with the service: set {set} in callsheet.toml, and\n    callsheet doctor\n    callsheet \
         plan jobs/sample.csv      # what it costs\n    callsheet run jobs/sample.csv --budget 100\n    callsheet models   \
                       # ids for video, image and music; for speech: callsheet voices\n"
    )
}

/// The configuration for a directory of one's own.
fn local(base_url: Option<&Url>) -> String {
    let text = CHANGES.iter().fold(PACKAGED.to_owned(), |text, (from, to)| text.replace(from, to));
    match base_url {
        Some(url) => text.replace(BASE_URL, &format!("base_url = {:?}", url.as_str())),
        None => text,
    }
}

/// Writes a file that does not exist. False where it does: nothing is overwritten.
fn write_new(path: &Path, text: &str) -> Result<bool, Failure> {
    let refused = |error: &std::io::Error| {
        Failure::new(Exit::Disk, format!("cannot write {}: {error}", printable_path(path)))
            .hint("name a directory that you may write to: callsheet init DIRECTORY")
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| refused(&error))?;
    }
    match std::fs::File::create_new(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true).map_err(|error| refused(&error)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(refused(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_change_of_the_packaged_configuration_has_its_place() {
        for (from, _) in CHANGES.iter().chain(&[(BASE_URL, "")]) {
            assert_eq!(PACKAGED.matches(from).count(), 1, "{from}");
        }
        let text = local(None);
        assert!(
            !text.contains("\njobs = ") && !text.contains("/var/lib/") && !text.contains("/run/"),
            "{text}"
        );
    }

    #[test]
    fn the_configuration_says_what_holds_without_it() {
        let path = Path::new("callsheet.toml");
        let parsed = Config::parse(&local(None), path).unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Config::parse("", path).unwrap()));
        let url = Url::parse("https://media.example/a").unwrap();
        let with_url = Config::parse(&local(Some(&url)), path).unwrap();
        assert_eq!(with_url.service.base_url, Some(url));
    }
}
