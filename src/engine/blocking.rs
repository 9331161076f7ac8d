//! Work that waits for a device, off the runtime's own threads.

use std::pin::Pin;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Work of any kind: what the runtime does with a task is compiled once, and not for each kind of it.
type AnyWork = Box<dyn FnOnce() + Send>;
type AnyTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Does `work` where it holds up nobody else. A panic in it goes on here. When the runtime is shut down, the
/// caller is dropped.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = oneshot::channel();
    // Nobody waits for it any more where the caller was dropped.
    let work: AnyWork = Box::new(move || drop(sender.send(work())));
    result_of(tokio::task::spawn_blocking(work)).await;
    sent(done).await
}

/// What a task sent that came to its end.
async fn sent<T>(done: oneshot::Receiver<T>) -> T {
    match done.await {
        Ok(done) => done,
        // It did not come to its end: the runtime is shut down.
        Err(_) => std::future::pending().await,
    }
}

/// The result of a task that nobody aborts. A panic in it goes on here; when the runtime is shut down, the caller is dropped.
pub(super) async fn result_of<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shut down.
            Err(_canceled) => std::future::pending().await,
        },
    }
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
    let (sender, done) = oneshot::channel();
    let work: AnyTask = Box::pin(async move { drop(sender.send(work.await)) });
    result_of(tokio::spawn(work)).await;
    sent(done).await
}
