//! Addresses that a request gives as inputs: the provider fetches them, and it can fetch of this emulator's own results only
//! those that are there.

use serde_json::Value;
use uuid::Uuid;

use crate::state::ServiceState;
use crate::tasks::Status;
use crate::validation::ProviderRejection;

/// How a provider ends a task whose input it cannot fetch: the first such address that leads to a result of this emulator.
/// Addresses elsewhere are not looked at.
pub(crate) fn unreadable(
    state: &ServiceState,
    media_url: &str,
    body: &Value,
    now_ms: i64,
) -> Option<ProviderRejection> {
    let lists = ["image_urls", "video_urls"].into_iter().filter_map(|name| body.get(name)?.as_array());
    let addresses = lists.flatten().filter_map(Value::as_str);
    let missing = |address: &&str| {
        let own = address.strip_prefix(media_url).and_then(|path| path.strip_prefix("/media/"));
        own.is_some_and(|path| !is_there(state, path, now_ms))
    };
    let address = addresses.into_iter().find(missing)?;
    Some(ProviderRejection::WhileRendering(format!("the input {address} could not be fetched")))
}

/// `TASK/0.mp4?expires=MS` leads to a result that is there now.
fn is_there(state: &ServiceState, path: &str, now_ms: i64) -> bool {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let found = || {
        let (id, file) = path.split_once('/')?;
        let task = state.task(Uuid::parse_str(id).ok()?)?;
        let (index, extension) = file.split_once('.')?;
        let is_result = task.status(now_ms) == Status::Success
            && index.parse::<u16>().ok()? < task.results.count
            && extension == task.kind.extension();
        let expires_ms = query.split('&').find_map(|word| word.strip_prefix("expires=")?.parse::<i64>().ok());
        let is_expired =
            task.results.expire_ms.is_some() && expires_ms.is_none_or(|expires_ms| now_ms > expires_ms);
        Some(is_result && !is_expired)
    };
    found().unwrap_or(false)
}
