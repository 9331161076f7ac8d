//! The page of a batch's review: what waits for a decision, and the forms that decide.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::domain::exit_code::Exit;
use crate::domain::review::ReviewAction;
use crate::engine::review_page::review_page;
use crate::engine::{blocking, to_the_end};
use crate::output::decisions_csv::ReviewLine;
use crate::pages::document::in_address;
use crate::pages::live_document::{Frame, Viewer, live_page};
use crate::pages::live_review::{
    ReviewOutput, ReviewRow, ReviewTake, ReviewView, review_address, review_body, review_summary,
};
use crate::server::api_error::{ApiError, Path, Query};
use crate::server::app_state::{AppState, Shared};
use crate::server::handlers::{self, HandlerError};
use crate::server::live_page::LivePage;
use crate::server::page_forms::{Form, Who, batch_name, lead_to, operator, refused, viewer, wants_json};
use crate::server::protocol::{DecideRequest, DecisionRequest, Refusal};
use crate::server::review_handlers;

/// Rows of one page.
const PAGE_ROWS: usize = 20;
/// Who decides on the page, as decisions name it.
const BY: &str = "live page";

/// Which part of the review is shown.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ReviewQuery {
    after: Option<u32>,
    #[serde(default)]
    all: bool,
    /// The number of what the last form came to.
    done: Option<String>,
}

/// What the page's script is told of a decision. The names are those that `live_review.js` reads.
#[derive(Debug, Serialize)]
struct Decided {
    /// What came of it, in words.
    said: String,
    /// Outputs of the batch that wait.
    waiting: u32,
}

pub(super) async fn page(
    State(app): Shared,
    who: Who,
    Path(name): Path<String>,
    Query(query): Query<ReviewQuery>,
) -> Response {
    let viewer = viewer(&app, who);
    match show(&app, &viewer, &name, &query).await {
        Ok(page) => LivePage(page).into_response(),
        Err(error) => refused(&viewer, error),
    }
}

async fn show(app: &AppState, viewer: &Viewer, name: &str, query: &ReviewQuery) -> Result<String, ApiError> {
    let name = batch_name(name)?;
    let record = handlers::find_batch(&app.engine, &name).await?;
    let (store, waiting) = (app.engine.store().clone(), record.unreviewed);
    let (after, is_all) = (query.after, query.all);
    let found = blocking(move || review_page(&store, &record, after, is_all, PAGE_ROWS)).await;
    let found = found.map_err(HandlerError::from)?;
    let view = ReviewView {
        batch: name.to_string(),
        waiting,
        is_all,
        after,
        next: found.next,
        rows: found.rows.into_iter().map(row).collect(),
    };
    let frame = Frame {
        title: &format!("Review of {name}"),
        up: Some((format!("/batches/{}", in_address(name.as_str())), name.to_string())),
        events: None,
        viewer,
        notice: app.pages.notice(query.done.as_deref()),
    };
    Ok(live_page(&frame, &review_summary(&view), &review_body(&view, viewer)))
}

fn row(takes: Vec<ReviewLine>) -> ReviewRow {
    let first = takes.first();
    let prompt = first.map(|take| take.prompt.clone()).unwrap_or_default();
    let what = first.map(|take| format!("{} {}", take.kind, take.model.as_deref().unwrap_or_default()));
    let what = what.unwrap_or_default().trim_end().to_owned();
    ReviewRow { prompt, what, takes: takes.into_iter().map(take).collect() }
}

fn take(line: ReviewLine) -> ReviewTake {
    let review = line.review.as_ref();
    let decision = review.map_or("undecided", |review| review.decision.as_str()).to_owned();
    let said = review.and_then(|review| {
        let by = review.by.as_ref()?;
        let note = review.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        Some(format!("by {by}{note}"))
    });
    let outputs = line.files.into_iter().map(|file| ReviewOutput {
        path: file.path,
        content_type: file.content_type,
        sha256: file.sha256,
    });
    ReviewTake {
        job: line.job,
        label: line.id,
        seq: line.seq,
        take: line.take,
        credits: line.charged_credits.0,
        decision,
        said,
        outputs: outputs.collect(),
    }
}

pub(super) async fn decide(
    State(app): Shared,
    who: Who,
    Path(name): Path<String>,
    Query(query): Query<ReviewQuery>,
    headers: HeaderMap,
    form: Form,
) -> Response {
    let wants_json = wants_json(&headers);
    let viewer = viewer(&app, who.clone());
    match carry_out(&app, who, &name, &form).await {
        Ok(decided) if wants_json => axum::Json(decided).into_response(),
        Ok(decided) => lead_to(&app, &review_address(&name, query.after, query.all), decided.said),
        Err(error) if wants_json => error.into_response(),
        Err(error) => refused(&viewer, error),
    }
}

async fn carry_out(app: &Arc<AppState>, who: Who, name: &str, form: &Form) -> Result<Decided, ApiError> {
    operator(app, who, form)?;
    let batch = batch_name(name)?;
    let asked = form.get("decision").unwrap_or_default();
    let action = ReviewAction::ALL.into_iter().find(|action| action.name() == asked);
    let action =
        action.ok_or_else(|| ApiError::usage("decision: expected approve, reject, pick or withdraw"))?;
    let job = form.get("job").unwrap_or_default();
    if job.is_empty() || !job.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ApiError::usage("job: expected the identity of a job of the batch"));
    }
    let sums = form.get("sha256").map(|sums| sums.split(' ').map(str::to_owned).collect());
    let decision = DecisionRequest {
        job: format!("{batch}/{job}"),
        decision: action,
        note: form.get("note").map(str::to_owned),
        sha256: Some(sums.unwrap_or_default()),
    };
    let request = DecideRequest { decisions: vec![decision], by: Some(BY.to_owned()) };
    request.check().map_err(ApiError::usage)?;
    let (engine, output_dir) = (app.engine.clone(), app.output_dir());
    let alone = engine.reopening().await;
    // It runs to its end, even if the browser goes away.
    let work = async move { review_handlers::decide(&engine, &alone, &output_dir, request).await };
    let decided = to_the_end(work).await?;
    let waiting = decided.batches.first().map_or(0, |batch| batch.waiting_for_review);
    let Some(outcome) = decided.decisions.into_iter().next() else {
        return Err(ApiError::usage("nothing was decided"));
    };
    if let Some(why) = outcome.refused {
        let refusal = Refusal::new(Exit::Usage, format!("nothing was decided: {why}"));
        return Err(ApiError(StatusCode::CONFLICT, refusal.hint("reload the page to see what there is now")));
    }
    let name = outcome.name.unwrap_or(outcome.job);
    let verdict = action.verdict().name();
    let said = match (outcome.changed, outcome.others) {
        (false, _) => format!("{name} was {verdict} already."),
        (true, 0) => format!("{name}: {verdict}."),
        (true, 1) => format!("{name}: {verdict}. Another take of its row was decided with it."),
        (true, others) => format!("{name}: {verdict}. {others} other takes of its row were decided with it."),
    };
    Ok(Decided { said, waiting })
}
