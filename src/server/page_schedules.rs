//! Running a schedule now, from a browser: what the run would do and cost comes first, and the form starts that run.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::plural::counted;
use crate::domain::time::{Millis, Timestamp};
use crate::engine::to_the_end;
use crate::ingest::receipt::Receipt;
use crate::pages::document::in_address;
use crate::pages::live_document::{Viewer, credits};
use crate::pages::live_forms::{ConfirmView, Field, confirm_page};
use crate::server::api_error::{ApiError, Path};
use crate::server::app_state::{AppState, FireMode, Shared};
use crate::server::live_page::LivePage;
use crate::server::page_forms::{Form, Who, lead_to, operator, reading_only, refused, viewer};
use crate::server::protocol::Refusal;

/// How long a plan can be carried out after it was shown.
const PLAN_SPAN: Millis = Millis::from_secs(3600);

pub(super) async fn ask(State(app): Shared, who: Who, Path(name): Path<String>) -> Response {
    let viewer = viewer(&app, who);
    match question(&app, &viewer, name).await {
        Ok(page) => LivePage(page).into_response(),
        Err(error) => refused(&viewer, error),
    }
}

async fn question(app: &Arc<AppState>, viewer: &Viewer, name: String) -> Result<String, ApiError> {
    if !matches!(viewer, Viewer::Operator { .. }) {
        return Err(reading_only());
    }
    let now = app.pages.clock().now().wall;
    // Names of runs show seconds.
    let at = Timestamp(now.0.div_euclid(1000) * 1000);
    let plan = app.fire(name.clone(), FireMode::Plan(at)).await?;
    if plan.added() == 0 {
        let why = plan.problems.first().map_or_else(|| "it has no job".to_owned(), ToString::to_string);
        let refusal = Refusal::new(Exit::Usage, format!("a run of {name} would do nothing: {why}"));
        return Err(ApiError(StatusCode::CONFLICT, refusal));
    }
    let price = credits(plan.terms.budget.map_or(plan.price, |budget| budget.min(plan.price)));
    let view = ConfirmView {
        title: format!("Run {name} now"),
        text: planned(&plan),
        price: Some(format!("It may spend {price} at most.")),
        fields: vec![Field::hidden("at", &at.0), Field::hidden("most", &plan.price.0)],
        button: format!("Run it for {price} at most"),
        is_grave: false,
        is_question: false,
        action: format!("/schedules/{}/run", in_address(&name)),
        back: ("/".to_owned(), "Overview".to_owned()),
    };
    Ok(confirm_page(&view, viewer))
}

/// What a run would do.
fn planned(plan: &Receipt) -> Vec<String> {
    let jobs = counted(plan.added(), "job");
    let batch = plan.batch.as_ref().map(|batch| format!(" in the batch {batch}")).unwrap_or_default();
    let mut text = vec![format!("A run now has {jobs}{batch}, beside the runs that are due.")];
    if let Some(limit) = plan.terms.budget.filter(|limit| *limit < plan.price) {
        text.push(format!("Its budget is {}: the rest would wait.", credits(limit)));
    }
    if plan.invalid > 0 {
        let rows = counted(plan.invalid, "row");
        let first = plan.problems.first().map(|problem| format!(": {problem}")).unwrap_or_default();
        text.push(format!("{rows} of its manifest would be refused{first}"));
    }
    text
}

pub(super) async fn run(State(app): Shared, who: Who, Path(name): Path<String>, form: Form) -> Response {
    let viewer = viewer(&app, who.clone());
    match carry_out(&app, who, name, &form).await {
        Ok(response) => response,
        Err(error) => refused(&viewer, error),
    }
}

async fn carry_out(app: &Arc<AppState>, who: Who, name: String, form: &Form) -> Result<Response, ApiError> {
    operator(app, who, form)?;
    let number = |name: &str| form.number(name)?.ok_or_else(|| ApiError::usage(format!("{name}: missing")));
    let at = Timestamp(i64::try_from(number("at")?).map_err(|_| ApiError::usage("at: not a valid time"))?);
    let most = Credits(number("most")?);
    let now = app.pages.clock().now().wall;
    if at > now || now.since(at) > PLAN_SPAN || at.0 % 1000 != 0 {
        let refusal = Refusal::new(Exit::Usage, "this plan is too old");
        return Err(ApiError(StatusCode::CONFLICT, refusal.hint("ask again: its price may have changed")));
    }
    let own = app.clone();
    let started = to_the_end(async move { own.fire(name, FireMode::Planned(at, most)).await }).await?;
    let not_validated = started.why_not_validated();
    let Some(batch) = started.batch.filter(|_| !started.refused) else {
        let why = started.problems.first().map(ToString::to_string).unwrap_or_default();
        return Err(ApiError(
            StatusCode::CONFLICT,
            Refusal::new(Exit::Usage, format!("nothing was started: {why}")),
        ));
    };
    let said = match (started.new + started.changed, started.have) {
        (0, 0) => "Nothing was started.".to_owned(),
        (0, _) => format!("{batch} was started already."),
        (1, _) => format!("Started {batch} with 1 job."),
        (jobs, _) => format!("Started {batch} with {jobs} jobs."),
    };
    let said = match not_validated {
        Some(why) => format!("{said} {why}."),
        None => said,
    };
    Ok(lead_to(app, &format!("/batches/{}", in_address(batch.as_str())), said))
}
