//! What the service saw of its clients, so that any client can be judged: charges, refunds, keys sent twice,
//! foreign bodies under old keys, hasty polls, keys sent to the media origin.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::account::Pool;
use super::clock::{iso, utc_day};
use super::state::{ServiceState, TrackedTask};

/// The whole report. It is written straight from the state: with many tasks it is large.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    account: Value,
    now: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<Tasks<'a>>,
    totals: Value,
}

/// One entry per task, in the order of creation.
struct Tasks<'a> {
    state: &'a ServiceState,
    now_ms: i64,
}

impl Serialize for Tasks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.state.tracked_tasks().map(|tracked| entry(tracked, self.now_ms)))
    }
}

/// What was seen up to now, with or without an entry per task.
pub(crate) fn report(state: &ServiceState, now_ms: i64, with_tasks: bool) -> Report<'_> {
    let day = utc_day(now_ms);
    let allowance =
        |pool: Pool| json!({"used": state.account.used(pool, day), "daily": pool.daily(state.account.plan)});
    let mut totals = serde_json::to_value(&state.totals).unwrap_or_default();
    totals["balance"] = json!(state.account.credits);
    totals["keys"] = json!(state.key_count());
    Report {
        now: iso(now_ms),
        totals,
        account: json!({
            "plan": state.account.plan,
            "key_valid": !state.account.key_revoked,
            "allowances_today": {"images": allowance(Pool::Images), "house_seconds": allowance(Pool::HouseSeconds)},
        }),
        tasks: with_tasks.then_some(Tasks { state, now_ms }),
    }
}

fn entry(tracked: &TrackedTask, now_ms: i64) -> Value {
    let (task, usage) = (&tracked.task, &tracked.usage);
    json!({
        "id": task.id,
        "key": task.key,
        "kind": task.kind,
        "model": task.model,
        "prompt": task.prompt,
        "status": task.status(now_ms),
        "charges": u64::from(task.charged_credits > 0),
        "charged_credits": task.charged_credits,
        "waived_credits": task.waived_credits,
        "refunds": u64::from(tracked.refunded && task.charged_credits > 0),
        "posts": u64::from(usage.replays) + 1,
        "foreign_body_replays": usage.foreign,
        "polls": usage.polls,
        "polls_after_end": usage.polls_after_end,
        "min_poll_interval_ms": usage.min_poll_interval_ms,
        "downloads": usage.downloads,
    })
}
