//! The live pages: the same answers as those of the control API, to look at.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use maud::html;
use serde::Deserialize;

use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::job_state::JobState;
use crate::domain::utc_day::UtcDay;
use crate::engine::blocking;
use crate::engine::job_page::job_page;
use crate::pages::document::in_address;
use crate::pages::live_batch::{JobList, batch_fragments, job_body, job_list};
use crate::pages::live_document::{
    DayCredits, Fragments, Frame, LIVE_ASSETS, LIVE_POLICY, Viewer, live_page, sections,
};
use crate::pages::live_overview::overview_fragments;
use crate::server::access::TcpAccess;
use crate::server::api_error::{ApiError, Path, Query};
use crate::server::app_state::{AppState, Shared};
use crate::server::event_stream::{STREAMS_MAX, Topic};
use crate::server::explain_answer;
use crate::server::handlers::{self, HandlerError};
use crate::server::live_page::{LivePage, TypedCommands, type_commands};
use crate::server::page_forms::{Who, batch_name, refused, status_of, viewer};
use crate::server::page_submit;
use crate::server::protocol::{BatchStatus, Refusal, Schedules, Status, StatusRequest};
use crate::server::status_list;
use crate::server::{
    page_actions, page_forms, page_gallery, page_output_files, page_review, page_schedules, page_take,
    page_views,
};
use crate::store::StoreError;

/// Jobs of a page of a batch's jobs.
const PAGE_JOBS: usize = 100;
/// UTC days of the plot.
const PLOT_DAYS: i32 = 30;

/// Every route of the pages.
pub(super) fn routes(typed: TypedCommands) -> Router<Arc<AppState>> {
    Router::new()
        .route("/", get(overview))
        .route("/batches/{name}", get(batch))
        .route("/batches/{name}/review", get(page_review::page).post(page_review::decide))
        .route("/batches/{name}/outputs/{job}/{number}", get(page_output_files::output))
        .route("/batches/{name}/gallery", get(page_gallery::enter))
        .route("/batches/{name}/gallery/{*path}", get(page_gallery::file))
        .route("/batches/{name}/index.html", get(page_gallery::list))
        .route("/schedules/{name}/run", get(page_schedules::ask).post(page_schedules::run))
        .route("/jobs/{id}", get(job))
        .route("/events", get(events))
        .route("/assets/{name}", get(asset))
        .route("/batches/{name}/{action}", get(page_actions::ask_for_batch).post(page_actions::do_to_batch))
        .route("/jobs/{id}/take", get(page_take::ask).post(page_take::buy))
        .route("/jobs/{id}/{action}", get(page_actions::ask_for_job).post(page_actions::do_to_job))
        .route("/login", get(page_forms::login_form).post(page_forms::login))
        .route("/logout", post(page_forms::logout))
        .route("/submit", get(page_submit::form).post(page_submit::submit))
        .route(
            "/submit/plan",
            post(page_submit::plan).layer(DefaultBodyLimit::max(page_submit::FORM_MAX_BYTES)),
        )
        .layer(middleware::from_fn(move |request, next| type_commands(typed, request, next)))
        .layer(middleware::from_fn(secure))
}

/// What a browser is told about every page.
pub(super) async fn secure(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    // That of an output is stricter.
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(LIVE_POLICY));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // `no-referrer` would hide where a form comes from from this server as well.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // No page of another origin embeds data, pictures or scripts of these.
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The query of every page.
#[derive(Debug, Default, Deserialize)]
struct PageQuery {
    state: Option<String>,
    from: Option<u64>,
    /// The number of what the last form came to.
    done: Option<String>,
}

async fn overview(State(app): Shared, who: Who, Query(query): Query<PageQuery>) -> Response {
    let viewer = viewer(&app, who);
    let fragments = match overview_now(&app, &[]).await {
        Ok((fragments, _)) => fragments,
        Err(error) => return refused(&viewer, error),
    };
    let health = &app.health;
    let frame = Frame {
        title: "callsheet",
        up: None,
        events: Some("/events".to_owned()),
        viewer: &viewer,
        notice: app.pages.notice(query.done.as_deref()),
    };
    let summary = html! { (health.process.name()) " works with " (health.service) };
    LivePage(live_page(&frame, &summary, &sections(fragments))).into_response()
}

/// The overview, and the pages of some batches, at this moment.
async fn overview_now(
    app: &AppState,
    batches: &[BatchName],
) -> Result<(Fragments, BTreeMap<BatchName, Fragments>), HandlerError> {
    let Status { batches: found, not_listed, .. } =
        status_list::status(&app.engine, &StatusRequest::default()).await?;
    let account = app.engine.account().await?;
    let now = app.pages.clock().now().wall;
    let days = days(app, now.utc_day()).await?;
    let schedules =
        app.schedules.as_ref().map_or_else(Schedules::default, |all| all.in_force.borrow().clone());
    let schedules = page_views::schedules(&schedules, now);
    let of_batches = batches.iter().filter_map(|name| {
        let status = found.iter().find(|status| status.name == *name)?;
        Some((name.clone(), fragments_of(status)))
    });
    let of_batches = of_batches.collect();
    let view = page_views::overview(&found, not_listed, &account, days, schedules);
    Ok((overview_fragments(&view), of_batches))
}

fn fragments_of(status: &BatchStatus) -> Fragments {
    batch_fragments(&page_views::batch_view(status), page_views::parked(status))
}

/// The credits of the last days, from the totals that the state keeps of each.
async fn days(app: &AppState, today: UtcDay) -> Result<Vec<DayCredits>, HandlerError> {
    let store = app.engine.store().clone();
    let read = move || {
        let of = |day: i32| {
            let totals = store.day(UtcDay(day))?;
            Ok(DayCredits { day: UtcDay(day), held: totals.held.0, spent: totals.spent.0 })
        };
        (today.0 - PLOT_DAYS + 1..=today.0).map(of).collect::<Result<_, StoreError>>()
    };
    Ok(blocking(read).await?)
}

async fn batch(
    State(app): Shared,
    who: Who,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Response {
    let viewer = viewer(&app, who);
    match batch_page(&app, &viewer, &name, &query).await {
        Ok(page) => LivePage(page).into_response(),
        Err(error) => refused(&viewer, error),
    }
}

async fn batch_page(
    app: &AppState,
    viewer: &Viewer,
    name: &str,
    query: &PageQuery,
) -> Result<String, ApiError> {
    let name = batch_name(name)?;
    let state = query.state.as_deref().map(str::parse::<JobState>).transpose();
    let state = state.map_err(|unknown| ApiError::usage(format!("state: {unknown}")))?;
    let status = status_of(app, &name).await?;
    let record = handlers::find_batch(&app.engine, &name).await?;
    let (store, from) = (app.engine.store().clone(), query.from.unwrap_or_default());
    let found = blocking(move || job_page(&store, &record, from, state, PAGE_JOBS)).await;
    let found = match found {
        // The address was made up, or the batch was begun anew.
        Err(_) if from > 0 => return Err(ApiError::usage("the list of jobs has no page that begins there")),
        found => found.map_err(HandlerError::from)?,
    };
    let list = JobList {
        batch: name.to_string(),
        state: state.map(|state| state.name().to_owned()),
        jobs: found.jobs.iter().map(page_views::job_row).collect(),
        is_later: from > 0,
        next: found.next,
    };
    let frame = Frame {
        title: name.as_str(),
        up: Some(("/".to_owned(), "Overview".to_owned())),
        events: Some(format!("/events?batch={}", in_address(name.as_str()))),
        viewer,
        notice: app.pages.notice(query.done.as_deref()),
    };
    let body = html! { (sections(fragments_of(&status))) (job_list(&list)) };
    let has_gallery = app.gallery.is_written();
    let summary = html! {
        @if has_gallery { a href={ "/batches/" (in_address(name.as_str())) "/gallery" } { "Gallery" } " · on this machine: " }
        code { "callsheet open " (name) }
    };
    Ok(live_page(&frame, &summary, &body))
}

async fn job(
    State(app): Shared,
    who: Who,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Response {
    let viewer = viewer(&app, who);
    let explanation = match explain_answer::explain(&app.engine, &id).await {
        Ok(explanation) => explanation,
        Err(error) => return refused(&viewer, error),
    };
    let view = page_views::job_view(&explanation);
    let frame = Frame {
        title: &view.label,
        up: Some((format!("/batches/{}", in_address(&view.batch)), view.batch.clone())),
        events: None,
        viewer: &viewer,
        notice: app.pages.notice(query.done.as_deref()),
    };
    LivePage(live_page(&frame, &html! {}, &job_body(&view, &viewer))).into_response()
}

/// Which page events are asked for.
#[derive(Debug, Default, Deserialize)]
struct EventsQuery {
    batch: Option<BatchName>,
}

async fn events(
    State(app): Shared,
    tcp: Option<Extension<Arc<TcpAccess>>>,
    Query(query): Query<EventsQuery>,
) -> Response {
    let topic = query.batch.map_or(Topic::Overview, Topic::Batch);
    let own = app.clone();
    let render = move |topics: Vec<Topic>| {
        let app = own.clone();
        async move { events_now(&app, topics).await }
    };
    // Who listens with a token that is replaced has to show the new one.
    let until = async move {
        match tcp {
            Some(Extension(tcp)) => tcp.until_replaced().await,
            None => std::future::pending().await,
        }
    };
    app.pages.events().listen(topic, until, render).unwrap_or_else(|| {
        let message = format!("{STREAMS_MAX} pages are updated already; this one is not updated");
        let refusal =
            Refusal::new(Exit::Unfinished, message).hint("reload the page to see the present state");
        ApiError(StatusCode::SERVICE_UNAVAILABLE, refusal).into_response()
    })
}

/// The parts of the pages that somebody looks at, as JSON.
async fn events_now(app: &AppState, topics: Vec<Topic>) -> Result<BTreeMap<Topic, String>, HandlerError> {
    let named = |topic: &Topic| match topic {
        Topic::Overview => None,
        Topic::Batch(name) => Some(name.clone()),
    };
    let batches: Vec<BatchName> = topics.iter().filter_map(named).collect();
    let (overview, mut of_batches) = overview_now(app, &batches).await?;
    let typed = app.pages.typed_commands();
    let json = |fragments: Fragments| {
        let parts = fragments
            .into_iter()
            .map(|(id, part)| (id, typed(&part.into_string())))
            .collect::<BTreeMap<_, _>>();
        serde_json::to_string(&parts).unwrap_or_default()
    };
    let mut overview = Some(overview);
    let of = |topic: Topic| {
        let fragments = match &topic {
            Topic::Overview => overview.take(),
            Topic::Batch(name) => of_batches.remove(name),
        };
        Some((topic, json(fragments?)))
    };
    Ok(topics.into_iter().filter_map(of).collect())
}

async fn asset(Path(name): Path<String>) -> Response {
    match LIVE_ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, content_type, content)) => {
            // A new version of the program has another style.
            let headers = [(header::CONTENT_TYPE, *content_type), (header::CACHE_CONTROL, "no-cache")];
            (headers, *content).into_response()
        }
        None => ApiError(StatusCode::NOT_FOUND, Refusal::new(Exit::Usage, "no such file")).into_response(),
    }
}
