//! Flags that variables of the environment set: what holds where such a flag and another exclude each other, and which
//! variable a wrong value comes from.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::cli::command_line::Arguments;

/// Flags that decide about the format of what is printed, each of which excludes `--json`.
const FORMATS: [&str; 2] = ["csv", "graph"];

/// Reads the arguments of this process. A flag of the command line takes the place of one that a variable sets.
///
/// # Errors
/// What cannot be read, and flags that exclude each other.
pub(super) fn parse() -> Result<Arguments, clap::Error> {
    parse_from(std::env::args_os())
}

fn parse_from(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let mut command = Arguments::command();
    let mut matches = command.try_get_matches_from_mut(words)?;
    let (json, service) = (json(&matches), service(&matches));
    let mut refused = |message: String| command.error(ErrorKind::ArgumentConflict, message);
    let takes_json = json.map_err(&mut refused)?;
    let takes_url = service.map_err(&mut refused)?;
    let mut arguments = Arguments::from_arg_matches_mut(&mut matches)?;
    arguments.global.json &= takes_json;
    if !takes_url {
        arguments.global.base_url = None;
    }
    Ok(arguments)
}

/// Whether `--json` holds beside another format.
fn json(matches: &ArgMatches) -> Result<bool, String> {
    let Some(format) = FORMATS.into_iter().find(|format| set_by(matches, format).is_some()) else {
        return Ok(true);
    };
    match set_by(matches, "json") {
        Some(ValueSource::CommandLine) => {
            Err(format!("the argument '--{format}' cannot be used with '--json'"))
        }
        Some(_) => Ok(false),
        None => Ok(true),
    }
}

/// Whether `--base-url` holds beside `--emulator`. A variable that keeps every command from the service is not passed over:
/// something could be bought that was meant to be tried out.
fn service(matches: &ArgMatches) -> Result<bool, String> {
    use ValueSource::CommandLine;
    match (set_by(matches, "emulator"), set_by(matches, "base_url")) {
        (Some(CommandLine), Some(CommandLine)) => {
            Err("the argument '--emulator' cannot be used with '--base-url <URL>'".to_owned())
        }
        (Some(CommandLine), Some(_)) => Ok(false),
        (Some(_), Some(url)) => {
            let url = if url == CommandLine { "'--base-url <URL>'" } else { "CALLSHEET_BASE_URL" };
            Err(format!(
                "CALLSHEET_EMULATOR cannot be used with {url}; to use the service, unset CALLSHEET_EMULATOR or set it to 0"
            ))
        }
        _ => Ok(true),
    }
}

/// What sets a flag; nothing where it is not set, or switched off.
fn set_by(matches: &ArgMatches, id: &str) -> Option<ValueSource> {
    let mut matches = matches;
    while let Some((_, of_command)) = matches.subcommand() {
        matches = of_command;
    }
    if !matches.try_contains_id(id).is_ok_and(|is_there| is_there) {
        return None;
    }
    let is_off = matches.try_get_one::<bool>(id).is_ok_and(|value| value == Some(&false));
    matches.value_source(id).filter(|_| !is_off)
}

/// The variable that a value comes from which cannot be read; nothing where it stands on the command line.
pub(super) fn variable_of(error: &clap::Error) -> Option<String> {
    variable_in(error, &std::env::args_os().collect::<Vec<_>>())
}

fn variable_in(error: &clap::Error, words: &[OsString]) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = argument.split_whitespace().next()?.strip_prefix("--")?;
    let (names, variable) = flag_with_variable(&Arguments::command(), flag)?;
    let is_given = |name: &String| {
        words.iter().filter_map(|word| word.to_str()?.strip_prefix("--")).any(|word| {
            word.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    };
    (!names.iter().any(is_given)).then_some(variable)
}

/// All names of a flag, and the variable that stands for it.
fn flag_with_variable(command: &Command, flag: &str) -> Option<(Vec<String>, String)> {
    let mut arguments = command.get_arguments();
    let found = arguments.find(|argument| argument.get_long() == Some(flag));
    let of_this = found.and_then(|argument| {
        let others = argument.get_all_aliases().unwrap_or_default().into_iter();
        let names = [flag].into_iter().chain(others).map(str::to_owned).collect();
        Some((names, argument.get_env()?.to_str()?.to_owned()))
    });
    of_this.or_else(|| command.get_subcommands().find_map(|command| flag_with_variable(command, flag)))
}
