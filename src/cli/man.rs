//! `callsheet man`: the manual, made from the same texts as `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::Command;
use clap_mangen::Man;

use crate::cli::examples;
use crate::cli::failure::Failure;
use crate::cli::written;
use crate::domain::exit_code::Exit;

/// The pages hold the same texts as --help.
#[derive(Debug, Args)]
#[command(after_help = examples::MAN)]
pub(super) struct ManCommand {
    /// Directory for the pages of all commands [default: print the main page to stdout]
    #[arg(value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
}

/// A page: the name of its file, and what is in it.
type Page = (String, Vec<u8>);

/// `program` is the whole command line, as clap knows it.
pub(super) fn run(command: &ManCommand, program: Command) -> Result<Exit, Failure> {
    let mut root = program.disable_help_subcommand(true);
    root.build();
    match &command.dir {
        None => written(page(&root).and_then(|(_, text)| io::stdout().lock().write_all(&text)))?,
        Some(dir) => save(&root, dir).map_err(|error| {
            let message = format!("failed to write man pages into {}: {error}", dir.display());
            Failure::new(Exit::Disk, message)
        })?,
    }
    Ok(Exit::Success)
}

fn save(root: &Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut commands = vec![root];
    while let Some(command) = commands.pop() {
        let (name, text) = page(command)?;
        fs::write(dir.join(name), text)?;
        commands.extend(command.get_subcommands());
    }
    Ok(())
}

fn page(command: &Command) -> io::Result<Page> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let manual = concat!("callsheet ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name.to_uppercase()).manual("callsheet").source(manual);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    if let Some(after) = after {
        as_typed(&after.to_string(), &mut text)?;
    }
    Ok((format!("{name}.1"), text))
}

/// Text in which line ends and columns matter: `Exit codes:` and the like become headings, the rest stays
/// as it is.
fn as_typed(text: &str, out: &mut Vec<u8>) -> io::Result<()> {
    writeln!(out, ".nf")?;
    for line in text.lines() {
        match line.strip_suffix(':').filter(|heading| !heading.starts_with(' ')) {
            Some(heading) => writeln!(out, ".fi\n.SH \"{}\"\n.nf", escaped(&heading.to_uppercase()))?,
            // A character of no width: a line that begins with a dot is a request otherwise.
            None => writeln!(out, "\\&{}", escaped(line))?,
        }
    }
    writeln!(out, ".fi")
}

/// What roff would take for something else: quotation marks and minus signs are to be copied as they are.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '"' => out.push_str("\\(dq"),
            '`' => out.push_str("\\(ga"),
            '~' => out.push_str("\\(ti"),
            '^' => out.push_str("\\(ha"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_shown_as_it_is_typed() {
        let mut out = Vec::new();
        as_typed("Examples:\n  run 'a' \\\n.b --c", &mut out).unwrap();
        let expected = ".nf\n.fi\n.SH \"EXAMPLES\"\n.nf\n\\&  run \\(aqa\\(aq \\e\n\\&.b \\-\\-c\n.fi\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
