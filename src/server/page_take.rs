//! Another take of a row, from a browser: its price is shown first, and the form buys that take at that price.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::domain::credits::Credits;
use crate::engine::to_the_end;
use crate::ingest::another_take::AnotherTake;
use crate::pages::document::in_address;
use crate::pages::live_document::{Viewer, credits};
use crate::pages::live_forms::{ConfirmView, Field, confirm_page};
use crate::pages::live_review::review_address;
use crate::server::api_error::{ApiError, Path, Query};
use crate::server::app_state::{AppState, Shared};
use crate::server::live_page::LivePage;
use crate::server::page_forms::{Form, Who, lead_to, operator, reading_only, refused, viewer};
use crate::server::protocol::AnotherTakeRequest;
use crate::server::review_handlers;

/// The page that led here.
#[derive(Debug, Default, Deserialize)]
pub(super) struct TakeQuery {
    /// The page of the batch's review.
    #[serde(default)]
    review: bool,
}

pub(super) async fn ask(
    State(app): Shared,
    who: Who,
    Path(id): Path<String>,
    Query(query): Query<TakeQuery>,
) -> Response {
    let viewer = viewer(&app, who);
    match question(&app, &viewer, &id, &query).await {
        Ok(page) => LivePage(page).into_response(),
        Err(error) => refused(&viewer, error),
    }
}

/// The page that it belongs to, as address and name.
fn back(id: &str, take: &AnotherTake, is_review: bool) -> (String, String) {
    if is_review {
        let batch = &take.batch;
        (review_address(batch.as_str(), None, false), format!("Review of {batch}"))
    } else {
        (format!("/jobs/{}", in_address(id)), "The job".to_owned())
    }
}

async fn question(
    app: &Arc<AppState>,
    viewer: &Viewer,
    id: &str,
    query: &TakeQuery,
) -> Result<String, ApiError> {
    let Viewer::Operator { takes_manifests, .. } = viewer else { return Err(reading_only()) };
    if !takes_manifests {
        return Err(ApiError(StatusCode::CONFLICT, app.health.refuse_manifests()));
    }
    let request = AnotherTakeRequest { job: id.to_owned(), take: None, price_credits: None };
    let take = carry_out(app, request).await?;
    let price = Credits(take.price_credits.unwrap_or_default());
    let mut text = vec![format!(
        "It is take {} of its row, {}: a new job under a new key. What is there already stays as it is.",
        take.take, take.id
    )];
    if let Some(left) = take.budget_left_credits.map(Credits) {
        let waits = if left < price { ": it would wait until the budget is raised" } else { "" };
        text.push(format!("The budget of {} has {} left{waits}.", take.batch, credits(left)));
    }
    let mut fields = vec![Field::hidden("take", &take.take), Field::hidden("price", &price.0)];
    fields.extend(query.review.then(|| Field::hidden("review", &1)));
    let view = ConfirmView {
        title: format!("Another take: {}/{}", take.batch, take.id),
        text,
        price: Some(format!("It may spend {} at most.", credits(price))),
        fields,
        button: format!("Buy it for {}", credits(price)),
        is_grave: false,
        is_question: false,
        action: format!("/jobs/{}/take", in_address(id)),
        back: back(id, &take, query.review),
    };
    Ok(confirm_page(&view, viewer))
}

pub(super) async fn buy(State(app): Shared, who: Who, Path(id): Path<String>, form: Form) -> Response {
    let viewer = viewer(&app, who.clone());
    match bought(&app, who, id, &form).await {
        Ok(response) => response,
        Err(error) => refused(&viewer, error),
    }
}

async fn bought(app: &Arc<AppState>, who: Who, id: String, form: &Form) -> Result<Response, ApiError> {
    let Viewer::Operator { takes_manifests: true, .. } = operator(app, who, form)? else {
        return Err(ApiError(StatusCode::CONFLICT, app.health.refuse_manifests()));
    };
    let number = |name: &str, what: &str| {
        form.number(name)?.ok_or_else(|| ApiError::usage(format!("{name}: expected {what}")))
    };
    let take = number("take", "the number of a take")?;
    let take = u32::try_from(take).map_err(|_| ApiError::usage("take: the number is too large"))?;
    let price = number("price", "the price that was shown")?;
    let request = AnotherTakeRequest { job: id, take: Some(take), price_credits: Some(price) };
    let taken = carry_out(app, request).await?;
    let AnotherTake { batch, take, id, job, .. } = &taken;
    let said = if taken.already_there {
        format!("{batch}/{id}: take {take} is there already; nothing was bought.")
    } else {
        let price = credits(Credits(taken.price_credits.unwrap_or_default()));
        format!("{batch}/{id}: take {take} is accepted for {price} at most. It is shown once it is made.")
    };
    let (page, _) = back(&job.to_string(), &taken, form.get("review").is_some());
    Ok(lead_to(app, &page, said))
}

/// It runs to its end once it has begun, even if the browser goes away.
async fn carry_out(app: &Arc<AppState>, request: AnotherTakeRequest) -> Result<AnotherTake, ApiError> {
    let (app, alone) = (app.clone(), app.engine.reopening().await);
    let work = async move { review_handlers::another_take(&app.engine, &alone, &app.ingest, &request).await };
    to_the_end(work).await
}
