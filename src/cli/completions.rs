//! `callsheet completions`: what a shell completes.

use std::io::Write;

use clap::Args;
use clap::ValueEnum;
use clap_complete::Shell;

use crate::cli::examples;
use crate::cli::failure::Failure;
use crate::cli::written;
use crate::domain::exit_code::Exit;

/// Completes commands, options, their values and file names.
#[derive(Debug, Args)]
#[command(after_help = examples::COMPLETIONS)]
pub(super) struct CompletionsCommand {
    /// Shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(super) shell: ShellName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// `program` is the whole command line, as clap knows it.
pub(super) fn run(command: &CompletionsCommand, mut program: clap::Command) -> Result<Exit, Failure> {
    let shell = match command.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    // Into memory first: the generator takes a reader that went away for the end of the world.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "callsheet", &mut script);
    written(std::io::stdout().lock().write_all(&script))?;
    Ok(Exit::Success)
}
