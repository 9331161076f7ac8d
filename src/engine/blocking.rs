//! Work that waits for a device, off the runtime's own threads.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does `work` where it holds up nobody else. A panic in it goes on here.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Does work that may wait for a device on this very thread, and has another one go on with the runtime's tasks meanwhile.
/// What this thread has just received is still in the cache of its processor, which costs less than to hand it over.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // Of one thread no other can take tasks up.
        _ => work(),
    }
}

/// Runs blocking work to its end, even if its caller goes away.
///
/// # Panics
/// When it panics.
pub async fn to_the_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    tokio::spawn(work).await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
