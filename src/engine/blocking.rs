//! Work that waits for a device, off the runtime's own threads.

/// Does `work` where it holds up nobody else. A panic in it goes on here.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Runs blocking work to its end, even if its caller goes away.
///
/// # Panics
/// When it panics.
pub async fn to_the_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    tokio::spawn(work).await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
