//! `callsheet cancel`: drops what is not sent yet.

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::name_arguments::NameArgument;
use crate::cli::terminal::say;
use crate::cli::{batch_outcomes, client, printable};
use crate::domain::exit_code::Exit;
use crate::server::protocol::CancelRequest;

pub(super) async fn run(command: &NameArgument, global: &Global) -> Result<Exit, Failure> {
    let request = CancelRequest { name: command.name.clone() };
    let outcomes = batch_outcomes::print(client::call(global, &request).await?, global)?;
    for outcome in outcomes.iter().filter(|outcome| outcome.result.refused.is_none()) {
        let result = &outcome.result;
        if result.jobs + result.in_flight + result.may_have_been_sent == 0 {
            say!("{}: nothing to cancel: it was canceled or has ended already", printable(&command.name));
        } else {
            say!("{}: {} canceled before they were sent", outcome.batch, result.jobs);
        }
        if result.in_flight > 0 {
            say!("{} already submitted: they cannot be canceled and will be downloaded", result.in_flight);
        }
        if result.may_have_been_sent > 0 {
            say!(
                "{} may have been sent before the state was rebuilt or imported and cannot be canceled; nothing is \
                 sent while the batch is paused. To look up their tasks under the same keys: callsheet resume {}; \
                 if the service does not know a key, the job is bought. To end one: callsheet resolve JOB \
                 --charged N or --not-charged, as the account shows",
                result.may_have_been_sent,
                outcome.batch
            );
        }
    }
    batch_outcomes::exit(&outcomes, &command.name)
}
