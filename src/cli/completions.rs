//! `callsheet completions`: what a shell completes.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::arguments::{Arguments, CompletionsCommand, ShellName};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::written;

pub(super) fn run(command: &CompletionsCommand) -> Result<Exit, Failure> {
    let shell = match command.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    // Into memory first: the generator takes a reader that went away for the end of the world.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "callsheet", &mut script);
    written(std::io::stdout().lock().write_all(&script))?;
    Ok(Exit::Success)
}
