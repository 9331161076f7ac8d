//! `callsheet jobs`: the jobs of a batch, or of all.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::cli::arguments::{Global, JobsCommand};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::{printable, state, written};
use crate::domain::job::State;
use crate::engine::walk::Walk;
use crate::output::results::ResultLine;

pub(super) fn run(command: &JobsCommand, global: &Global) -> Result<Exit, Failure> {
    // The flag is the folder's everywhere; here a state's name means the jobs in it.
    let wanted = global.state.as_deref().and_then(Path::to_str).filter(|name| State::NAMES.contains(name));
    let store = match wanted {
        None => state::open(global)?,
        Some(_) => {
            let folder = std::env::var_os("CALLSHEET_STATE").map(PathBuf::from);
            state::open(&Global { state: folder, ..global.clone() })?
        }
    };
    let mut out = BufWriter::new(anstream::stdout().lock());
    for batch in state::batches(&store, command.batch.as_ref())? {
        let mut walk = Walk::begin(&store, &batch)?;
        while let Some((spec, record)) = walk.next_job()? {
            if wanted.is_some_and(|state| state != record.job.state.name()) {
                continue;
            }
            let line = ResultLine::new(&batch.name, &spec, &record.job);
            let print = if global.json {
                serde_json::to_writer(&mut out, &line)
                    .map_err(std::io::Error::from)
                    .and_then(|()| writeln!(out))
            } else {
                let charged = record.job.all_books().charged.0;
                let label = printable(&spec.label);
                let why = line.error().map(|fault| printable(&fault.to_string())).unwrap_or_default();
                writeln!(
                    out,
                    "{:<11} {:<13} {charged:>7}  {}/{label}  {why}",
                    record.job.state.name(),
                    spec.order.kind.name(),
                    batch.name,
                )
            };
            written(print)?;
        }
    }
    written(out.flush())?;
    Ok(Exit::Success)
}
