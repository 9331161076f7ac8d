//! `callsheet schema`: the JSON Schema of manifests, for editors and pipelines.

use std::io::Write;

use crate::cli::failure::Failure;
use crate::cli::written;
use crate::domain::exit_code::Exit;
use crate::domain::manifest::schema;

pub(super) fn run() -> Result<Exit, Failure> {
    let mut out = anstream::stdout().lock();
    written(writeln!(out, "{:#}", schema::manifest()))?;
    Ok(Exit::Success)
}
