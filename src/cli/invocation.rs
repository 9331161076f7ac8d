//! How commands are typed that reach the same state and service as this one.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use maud::html;

use crate::cli::global_flags::Global;
use crate::cli::printable;
use crate::domain::shell_word::shell_word;
use crate::server::protocol::Submission;

/// What standard input is called in everything shown.
pub(super) const STDIN: &str = "standard input";

/// How a command is typed that reaches the same state and service as this one.
#[derive(Debug, Clone, Default)]
pub(super) struct Invocation {
    /// `run` or `submit`.
    pub(super) verb: &'static str,
    /// Flags of every command.
    pub(super) flags: Vec<String>,
    /// `--output`, of commands that look into the outputs or write beside them.
    pub(super) output_flags: Vec<String>,
    /// `--base-url`, of commands that speak to the service.
    pub(super) service_flags: Vec<String>,
    /// Terms that no batch keeps: the manifest again needs them again, or rows are bought that they refused.
    pub(super) terms: Vec<String>,
    /// `--pilot`, where the manifest was handed in with it: without it, rows that are new or changed wait with the rest.
    pub(super) pilot: Vec<String>,
    /// What gives the budget each time that the manifest is handed in, if anything does: a larger one that was set since is
    /// lowered again.
    pub(super) budget: Option<BudgetSource>,
}

/// Where the budget of a command comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetSource {
    Flag,
    Environment,
}

impl Invocation {
    /// As this command was called; `verb` is `run` or `submit`.
    pub(super) fn of(verb: &'static str, global: &Global) -> Invocation {
        let path = |name, path: &Option<PathBuf>| {
            path.as_ref().map(|path| flag(name, &path.display().to_string())).unwrap_or_default()
        };
        let Global { config, state, socket, output, base_url, .. } = global;
        let emulator = if global.emulator { vec!["--emulator".to_owned()] } else { Vec::new() };
        let flags =
            [path("--config", config), path("--state", state), path("--socket", socket), emulator].concat();
        let url = base_url.as_ref().map(|url| flag("--base-url", url.as_str())).unwrap_or_default();
        let output_flags = path("--output", output);
        Invocation { verb, flags, output_flags, service_flags: url, ..Invocation::default() }
    }

    /// The same for manifests that were handed in on these terms.
    pub(super) fn on_terms(mut self, handed_in: Option<&Submission>) -> Invocation {
        let Some(Submission { budget, max_credits, strict, allow_unknown_options, review, pilot, .. }) =
            handed_in
        else {
            return self;
        };
        let is_in_environment = std::env::var_os("CALLSHEET_BUDGET").is_some();
        let source = if is_in_environment { BudgetSource::Environment } else { BudgetSource::Flag };
        self.budget = budget.map(|_| source);
        self.pilot = pilot.map(|rows| flag("--pilot", &rows.to_string())).unwrap_or_default();
        self.terms = max_credits.map(|most| flag("--max-credits", &most.to_string())).unwrap_or_default();
        let switches = [
            (*strict, "--strict"),
            (*allow_unknown_options, "--allow-unknown-options"),
            (*review, "--review"),
        ];
        self.terms.extend(switches.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| (*name).to_owned()));
        self
    }

    /// Whether commands need no flags.
    pub(super) fn is_plain(&self) -> bool {
        self.flags.is_empty() && self.output_flags.is_empty() && self.service_flags.is_empty()
    }

    /// The flags of a command, each with its value.
    pub(super) fn flags_of(&self, verb: &str) -> Vec<String> {
        let (output, service) = match verb {
            "run" | "submit" | "download" | "daemon" | "plan" => (true, true),
            "open" | "outputs" | "review" | "doctor" => (true, false),
            "models" | "voices" => (false, true),
            _ => (false, false),
        };
        let output = self.output_flags.iter().filter(|_| output);
        let service = self.service_flags.iter().filter(|_| service);
        let mut flags: Vec<String> = Vec::new();
        for word in self.flags.iter().chain(output).chain(service) {
            match flags.last_mut().filter(|_| !word.starts_with("--")) {
                Some(flag) => *flag = format!("{flag} {word}"),
                None => flags.push(word.clone()),
            }
        }
        flags
    }

    /// The same with flags as HTML writes them.
    fn in_html(mut self) -> Invocation {
        for flags in [&mut self.flags, &mut self.output_flags, &mut self.service_flags] {
            flags.iter_mut().for_each(|flag| *flag = html! { (flag) }.into_string());
        }
        self
    }

    /// A command on the state, as it is typed for this state.
    pub(super) fn with_flags(&self, command: &str) -> String {
        [command].into_iter().chain(self.flags.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    /// A command on the state, whose first word is its verb, with the flags that it needs.
    pub(super) fn command(&self, words: &[&str]) -> String {
        let flags = self.flags_of(words.first().copied().unwrap_or_default());
        let flags = flags.iter().map(String::as_str);
        ["callsheet"].into_iter().chain(words.iter().copied()).chain(flags).collect::<Vec<_>>().join(" ")
    }

    /// The same for rows that are part of the pilot of their batch.
    pub(super) fn as_pilot(&self) -> Invocation {
        Invocation { terms: [self.terms.clone(), self.pilot.clone()].concat(), ..self.clone() }
    }

    /// The manifest of a batch again.
    pub(super) fn again(&self, batch: &str, manifest: Option<&Path>) -> String {
        let typed =
            |path: &Path| if path == Path::new(STDIN) { "-".into() } else { path.display().to_string() };
        let file = manifest.map_or("MANIFEST".to_owned(), |path| shell_word(&typed(path)));
        // A name that is not the file's came from elsewhere; of a file that is not known neither is its name.
        let is_of_file = manifest.and_then(Path::file_stem).is_some_and(|stem| stem == batch);
        let name = if is_of_file { Vec::new() } else { flag("--batch", batch) };
        let more = name.iter().chain(&self.terms).map(String::as_str);
        self.command(&[self.verb, &file].into_iter().chain(more).collect::<Vec<_>>())
    }

    pub(super) fn download(&self, batch: &str) -> String {
        self.command(&["download", batch])
    }
}

fn flag(name: &str, value: &str) -> Vec<String> {
    vec![name.to_owned(), shell_word(value)]
}

/// Tells the names of all commands.
type CommandNames = fn() -> Vec<String>;

/// How this command was called.
static THIS: OnceLock<(Invocation, CommandNames)> = OnceLock::new();

/// Notes how this command was called, and what tells the names of all commands.
pub(super) fn note(global: &Global, commands: CommandNames) {
    // The first one stays.
    let _ = THIS.set((Invocation::of("run", global), commands));
}

/// Set once this command uses the emulator's state without `--emulator`, as the only one here.
static FOUND_EMULATED: OnceLock<()> = OnceLock::new();

/// Notes that this command uses the emulator's state without having been given `--emulator`.
pub(super) fn note_emulated_state() {
    let _ = FOUND_EMULATED.set(());
}

/// The service of the state that this command uses, where nothing names one.
static STATE_SERVICE: OnceLock<String> = OnceLock::new();

/// Notes the address of the service that the state belongs to, where neither a flag nor the configuration names one: a
/// command that is copied needs it.
pub(super) fn note_service_of_state(address: String) {
    let _ = STATE_SERVICE.set(address);
}

/// Whether this command uses the emulator's state, named or found.
pub(super) fn uses_emulated_state(global: &Global) -> bool {
    global.emulator || FOUND_EMULATED.get().is_some()
}

/// The flags that every command needs so that it works on this state, as they are typed.
pub(super) fn state_flags() -> String {
    let Some((this, _)) = THIS.get() else { return String::new() };
    let emulated = FOUND_EMULATED.get().map(|()| "--emulator");
    this.flags.iter().map(String::as_str).chain(emulated).collect::<Vec<_>>().join(" ")
}

/// A text in which every command has the flags that this one was given. Without `--emulator` a command that is copied
/// would look for another state, or buy from the service.
pub(super) fn with_typed_commands(text: &str) -> String {
    this_one().map_or_else(|| text.to_owned(), |(this, commands)| completed(text, &this, commands))
}

/// The same of HTML: in its text, and not in values of attributes, fields, and what is marked with `translate="no"`. Those
/// are somebody's own words: a manifest that comes back in a form must come back as it was.
pub(super) fn with_typed_commands_in_html(html: &str) -> String {
    let complete =
        |this: &Invocation, commands: CommandNames| in_text_of(html, |text| completed(text, this, commands));
    this_one().map_or_else(|| html.to_owned(), |(this, commands)| complete(&this.in_html(), commands))
}

/// HTML whose text was changed, as above. It is our own: every `>` in a text or a value is escaped.
fn in_text_of(html: &str, change: impl Fn(&str) -> String) -> String {
    let mut changed = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(begins) = rest.find('<') {
        let (text, tag) = rest.split_at(begins);
        changed.push_str(&change(text));
        let end = tag.find('>').map_or(tag.len(), |at| at + 1);
        let name = tag[1..end].split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let is_verbatim = name == "textarea" || tag[..end].contains("translate=\"no\"");
        let to = match is_verbatim {
            true => tag.find(&format!("</{name}>")).unwrap_or(tag.len()),
            false => end,
        };
        changed.push_str(&tag[..to]);
        rest = &tag[to..];
    }
    changed.push_str(&change(rest));
    changed
}

/// How this command was called, with what it found out since.
fn this_one() -> Option<(Invocation, CommandNames)> {
    let (mut this, commands) = THIS.get().cloned()?;
    this.flags.extend(FOUND_EMULATED.get().map(|()| "--emulator".to_owned()));
    if this.service_flags.is_empty() {
        this.service_flags = STATE_SERVICE.get().map(|url| flag("--base-url", url)).unwrap_or_default();
    }
    Some((this, commands))
}

fn completed(text: &str, invocation: &Invocation, commands: impl FnOnce() -> Vec<String>) -> String {
    const PROGRAM: &str = "callsheet ";
    if invocation.is_plain() || !text.contains(PROGRAM) {
        return text.to_owned();
    }
    let commands = commands();
    let is_command = |word: &str| commands.iter().any(|command| command == word);
    let mut completed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PROGRAM) {
        completed.push_str(before);
        completed.push_str(PROGRAM);
        rest = after;
        let word = after.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next().unwrap_or_default();
        let begins = before.chars().next_back().is_none_or(|c| !(c.is_alphanumeric() || "/._-".contains(c)));
        // To the end of the command, as far as that can be told.
        let ends = after.find([';', '\n']).unwrap_or(after.len());
        if begins && is_command(word) {
            let flags = invocation.flags_of(word);
            completed.push_str(word);
            for flag in flags.iter().filter(|flags| !after[..ends].contains(flags.as_str())) {
                completed.push(' ');
                completed.push_str(&printable(flag));
            }
            rest = &after[word.len()..];
        }
    }
    completed.push_str(rest);
    completed
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        global: Global,
    }

    fn said(flags: &[&str], text: &str) -> String {
        let flags = Flags::try_parse_from(["callsheet"].iter().chain(flags)).unwrap();
        let commands = || ["budget", "daemon", "jobs", "retry", "review", "run"].map(str::to_owned).to_vec();
        completed(text, &Invocation::of("run", &flags.global), commands)
    }

    #[test]
    fn a_command_has_the_flags_of_this_one() {
        let emulator = |text| said(&["--emulator"], text);
        assert_eq!(
            emulator("to continue: callsheet run MANIFEST, or callsheet daemon"),
            "to continue: callsheet run --emulator MANIFEST, or callsheet daemon --emulator"
        );
        assert_eq!(
            emulator("callsheet review r --import d.csv"),
            "callsheet review --emulator r --import d.csv"
        );
        assert_eq!(said(&[], "callsheet review r"), "callsheet review r");
        assert_eq!(
            said(&["--state", "other state"], "see `callsheet jobs r`; callsheet retry r"),
            "see `callsheet jobs --state 'other state' r`; callsheet retry --state 'other state' r"
        );
    }

    #[test]
    fn flags_on_a_page_are_text_and_no_markup() {
        let flags = Flags::try_parse_from(["callsheet", "--state", "<b>&x"]).unwrap();
        let this = Invocation::of("run", &flags.global).in_html();
        let page = completed("<code>callsheet budget b N</code>", &this, || vec!["budget".to_owned()]);
        assert_eq!(page, "<code>callsheet budget --state '&lt;b&gt;&amp;x' b N</code>");
    }

    #[test]
    fn on_a_page_no_word_of_a_person_is_changed() {
        let changed =
            |html: &str| in_text_of(html, |text| text.replace("callsheet open", "callsheet open --emulator"));
        let own = "<textarea name=\"manifest\">a callsheet open on a desk</textarea>\
                   <input value=\"callsheet open.csv\">\
                   <p class=\"text\" translate=\"no\">callsheet open</p>";
        assert_eq!(changed(own), own);
        let shown = format!("<p>{own}</p><code>callsheet open b</code> or callsheet open c");
        assert_eq!(
            changed(&shown),
            format!("<p>{own}</p><code>callsheet open --emulator b</code> or callsheet open --emulator c")
        );
        assert_eq!(changed("callsheet open"), "callsheet open --emulator");
        assert_eq!(changed("<br"), "<br");
    }

    #[test]
    fn what_decides_about_the_service_is_given_to_what_speaks_to_it() {
        let flags = ["--base-url", "http://h.example/", "--output", "out"];
        assert_eq!(
            said(&flags, "callsheet run m.csv; callsheet jobs m; callsheet review m"),
            "callsheet run --output out --base-url http://h.example/ m.csv; callsheet jobs m; callsheet review --output \
             out m"
        );
    }

    #[test]
    fn a_flag_that_is_there_is_not_given_twice_and_other_texts_stay() {
        for text in [
            "callsheet budget m 20 --emulator",
            "callsheet.toml",
            "a callsheet is a list",
            "/usr/bin/callsheet run",
        ] {
            assert_eq!(said(&["--emulator"], text), text);
        }
    }
}
