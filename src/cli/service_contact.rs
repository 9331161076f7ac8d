//! Asking a service whether it answers: before a run begins, and before a state is handed over to it.

use crate::api::{Service, ServiceError};
use crate::cli::failure::Failure;
use crate::domain::retry_delay::Backoff;
use crate::store::Store;

/// How often the service is looked for before a run is given up.
const REACH_TRIES: u32 = 3;

/// Asks for the balance before anything is sent. Once a run is under way it outlasts any outage; one that
/// cannot even begin tells the waiting caller at once.
pub(super) async fn reach(service: &Service, backoff: Backoff) -> Result<(), ServiceError> {
    let mut tried = 0;
    loop {
        match service.credits().await {
            Ok(_) => return Ok(()),
            Err(ServiceError::Unreachable { .. }) if tried + 1 < REACH_TRIES => {
                let wait = backoff.wait(tried, fastrand::f64(), None);
                tokio::time::sleep(std::time::Duration::from_millis(wait.0)).await;
                tried += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Hands a state over to the service that is named, where it belongs to another one. One that does not answer, because its
/// address is mistyped, for one, gets nothing.
pub(super) async fn adopt(
    store: &Store,
    (service, identity): (&Service, &str),
    backoff: Backoff,
) -> Result<(), Failure> {
    if store.is_of_another(identity)? {
        reach(service, backoff).await?;
        store.adopt(identity)?;
    }
    Ok(())
}
