//! Budgets of groups of rows.

use super::*;
use crate::domain::budget_group::{GroupKey, KeyLimits, ValueLimits};

const CLIENTS: [&str; 4] = ["acme", "acme", "zen", ""];

fn limits(total: Option<u64>, per_day: Option<u64>) -> GroupLimits {
    let values = |limit: Option<u64>| ValueLimits { default: limit.map(Credits), ..ValueLimits::default() };
    let limits = KeyLimits { total: values(total), per_day: values(per_day) };
    GroupLimits::from([(GroupKey::Meta("client".to_owned()), limits)])
}

/// Two rows of one client, one of another, one of nobody.
fn clients(group_limits: GroupLimits) -> Stage {
    let mut stage = Stage::with(4, Settings { group_limits, ..settings() });
    for (spec, client) in stage.specs.iter_mut().zip(CLIENTS) {
        let mut owned = (**spec).clone();
        owned.order.meta = serde_json::from_value(serde_json::json!({ "client": client })).unwrap();
        *spec = Arc::new(owned);
    }
    stage
}

fn end(stage: &mut Stage, seq: u32) {
    stage.posted(seq, task("success"));
    stage.step(vec![Input::Fetched(Stage::key(seq), AttemptNo(1), Ok(files()))]);
}

#[test]
fn a_client_past_its_limit_waits_and_stands_in_nobodys_way() {
    let mut stage = clients(limits(Some(PRICE), None));
    assert_eq!(stage.step(vec![]), "post 0#1, post 2#1, post 3#1", "rows without a client have no limit");
    [0, 2, 3].into_iter().for_each(|seq| end(&mut stage, seq));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::GroupBudget)));
    let shortage = stage.scheduler.overview()[0].shortage.clone().unwrap();
    let enough = 2 * PRICE;
    assert_eq!(
        shortage.to_string(),
        format!(
            "the next job of meta.client acme needs {PRICE}, 0 of {PRICE} credits are left: {PRICE} are missing; set \
             budget.by.\"meta.client\".values.acme to at least {enough}"
        )
    );
    stage.restart();
    assert_eq!(stage.step(vec![]), "", "what a client has spent outlives the process");
    let more = Settings { group_limits: limits(Some(2 * PRICE), None), ..settings() };
    stage.scheduler.execute(Command::Reload(Box::new(more)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "post 1#1");
}

#[test]
fn a_clients_day_begins_anew_at_midnight() {
    let mut stage = clients(limits(None, Some(PRICE)));
    assert_eq!(stage.step(vec![]), "post 0#1, post 2#1, post 3#1");
    [0, 2, 3].into_iter().for_each(|seq| end(&mut stage, seq));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::GroupDayBudget)));
    assert!(stage.scheduler.watches_the_calendar());
    stage.restart();
    assert_eq!(stage.pass(Millis(86_400_000)).step(vec![]), "post 1#1");
}

#[test]
fn what_is_given_back_can_be_spent_again() {
    let mut stage = clients(limits(Some(PRICE), None));
    stage.step(vec![]);
    let refused = PostAnswer::Refused(fault("invalid_request"));
    assert_eq!(stage.posted(0, refused), "post 1#1");
}
