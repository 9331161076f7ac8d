//! A manifest handed in by a form: planned first, and then submitted byte by byte as it was planned.

use std::path::{Path, PathBuf};

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::domain::budget::BudgetSetting;
use crate::domain::credits::Credits;
use crate::domain::plural::counted;
use crate::engine::to_the_end;
use crate::ingest::IngestOptions;
use crate::ingest::ingest_handle::IncomingDir;
use crate::ingest::receipt::Receipt;
use crate::pages::document::in_address;
use crate::pages::live_document::Viewer;
use crate::pages::live_forms::{ManifestForm, PlanView, manifest_page, plan_page};
use crate::server::api_error::{ApiError, check_file_name, ingest_error, storage_error};
use crate::server::app_state::{AppState, Shared};
use crate::server::live_page::LivePage;
use crate::server::page_forms::{Form, lead_to, operator, reading_only};
use crate::server::page_forms::{Who, refused, viewer};
use crate::server::planned_manifests::Planned;
use crate::server::protocol::{ProcessKind, Submission};

/// Largest body of a form with a manifest in it, in bytes: each may take three.
pub(super) const FORM_MAX_BYTES: usize = 3 * MANIFEST_MAX_BYTES + 64 * 1024;
/// Largest manifest of a form.
const MANIFEST_MAX_BYTES: usize = 4 << 20;
/// Whether this process takes manifests in at all.
fn must_take_manifests(app: &AppState) -> Result<(), ApiError> {
    match app.health.process {
        ProcessKind::Daemon => Ok(()),
        ProcessKind::Run => Err(ApiError(axum::http::StatusCode::CONFLICT, app.health.refuse_manifests())),
    }
}

pub(super) async fn form(State(app): Shared, who: Who) -> Response {
    let viewer = viewer(&app, who);
    let is_allowed = match viewer {
        Viewer::Operator { .. } => must_take_manifests(&app),
        Viewer::Reader | Viewer::Stranger => Err(reading_only()),
    };
    match is_allowed {
        Ok(()) => LivePage(manifest_page(&ManifestForm::default(), None, &viewer)).into_response(),
        Err(error) => refused(&viewer, error),
    }
}

pub(super) async fn plan(State(app): Shared, who: Who, form: Form) -> Response {
    let viewer = match operator(&app, who.clone(), &form)
        .and_then(|viewer| must_take_manifests(&app).map(|()| viewer))
    {
        Ok(viewer) => viewer,
        Err(error) => return refused(&self::viewer(&app, who), error),
    };
    let filled = ManifestForm {
        file: form.raw("file").to_owned(),
        batch: form.raw("batch").to_owned(),
        budget: form.raw("budget").to_owned(),
        // A browser sends every end of a line in a text as two characters, and a prompt may have lines.
        manifest: form.raw("manifest").replace("\r\n", "\n"),
        strict: form.get("strict") == Some("true"),
    };
    match planned(&app, &form, &filled).await {
        Ok(view) => LivePage(plan_page(&view, &viewer)).into_response(),
        Err(ApiError(status, refusal)) => {
            (status, LivePage(manifest_page(&filled, Some(&refusal.message), &viewer))).into_response()
        }
    }
}

async fn planned(app: &AppState, form: &Form, filled: &ManifestForm) -> Result<PlanView, ApiError> {
    if filled.manifest.len() > MANIFEST_MAX_BYTES {
        return Err(ApiError::usage("the manifest has more than 4 MiB: use callsheet submit"));
    }
    let batch = form.get("batch").map(str::parse).transpose();
    let submission = Submission {
        file: form.get("file").unwrap_or_default().to_owned(),
        batch: batch.map_err(|error| ApiError::usage(format!("batch: {error}")))?,
        budget: form.number("budget")?.map(|budget| BudgetSetting::Limit(Credits(budget))),
        strict: filled.strict,
        ..Submission::default()
    };
    check_file_name(&submission.file)?;
    let planned = Planned {
        key: uuid::Uuid::new_v4().simple().to_string(),
        at: app.pages.clock().now().tick,
        submission,
        manifest: filled.manifest.clone(),
        total: Credits::ZERO,
        price: Credits::ZERO,
    };
    let receipt = plan_now(app, &planned).await?;
    let mut view = plan_view(&receipt, &planned.submission);
    if !receipt.refused && !receipt.file_refused && receipt.added() + receipt.have > 0 {
        view.key = Some(planned.key.clone());
        app.pages.planned().keep(Planned { total: receipt.total_credits, price: receipt.price, ..planned });
    }
    Ok(view)
}

/// Writes a manifest to where it is read.
fn write(app: &AppState, planned: &Planned) -> Result<(IncomingDir, PathBuf), ApiError> {
    let folder = IncomingDir::create(app.engine.store().dir()).map_err(|error| storage_error(&error))?;
    let path = folder.path().join(Path::new(&planned.submission.file));
    std::fs::write(&path, &planned.manifest).map_err(|error| storage_error(&error))?;
    Ok((folder, path))
}

async fn plan_now(app: &AppState, planned: &Planned) -> Result<Receipt, ApiError> {
    let (folder, path) = write(app, planned)?;
    let options = IngestOptions::from(planned.submission.clone());
    let ingest = app.ingest.clone();
    let receipt = to_the_end(async move {
        let receipt = ingest.plan(&path, options).await;
        drop(folder);
        receipt
    });
    receipt.await.map_err(|error| ingest_error(&error))
}

fn plan_view(receipt: &Receipt, submission: &Submission) -> PlanView {
    let problem = |problem: &crate::domain::diagnostic::Diagnostic| {
        let hint = problem.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let line = problem.position.map(|position| format!("line {}", position.line));
        let place = [line, problem.field.clone()].into_iter().flatten().collect::<Vec<_>>().join(", ");
        (place, format!("{}{hint}", problem.message))
    };
    PlanView {
        file: submission.file.clone(),
        batch: receipt.batch.as_ref().map(ToString::to_string),
        rows: receipt.rows,
        new: receipt.new,
        changed: receipt.changed,
        have: receipt.have,
        invalid: receipt.invalid,
        price: receipt.price.0,
        total: receipt.total_credits.0,
        budget: receipt.budget.or(submission.budget.and_then(BudgetSetting::limit)).map(|budget| budget.0),
        problems: receipt.problems.iter().map(problem).collect(),
        problems_total: receipt.problems_total,
        notes: receipt.notes.iter().map(problem).map(|(place, text)| format!("{place} {text}")).collect(),
        short: receipt.group_budgets.iter().map(ToString::to_string).collect(),
        key: None,
        again: None,
    }
}

pub(super) async fn submit(State(app): Shared, who: Who, form: Form) -> Response {
    let viewer = match operator(&app, who.clone(), &form)
        .and_then(|viewer| must_take_manifests(&app).map(|()| viewer))
    {
        Ok(viewer) => viewer,
        Err(error) => return refused(&self::viewer(&app, who), error),
    };
    match submitted(&app, &form, &viewer).await {
        Ok(response) => response,
        Err(error) => refused(&viewer, error),
    }
}

/// The cost that is higher than it was planned, now and then: of what is new, or of all that is still to be sent. What waited
/// and was sent meanwhile pays for nothing new.
fn dearer(now: (Credits, Credits), planned: (Credits, Credits)) -> Option<(Credits, Credits)> {
    [(now.0, planned.0), (now.1, planned.1)].into_iter().find(|(now, planned)| now > planned)
}

async fn submitted(app: &AppState, form: &Form, viewer: &Viewer) -> Result<Response, ApiError> {
    let now = app.pages.clock().now().tick;
    let gone =
        || ApiError::usage("the plan was submitted already, or is older than 15 minutes: plan it again");
    let planned = app.pages.planned().take(form.raw("plan"), now).ok_or_else(gone)?;
    // Prices may have changed, and so may what the batch has.
    let receipt = plan_now(app, &planned).await?;
    let now = (receipt.price, receipt.total_credits);
    if let Some((now, then)) = dearer(now, (planned.price, planned.total)) {
        let again = format!("It would cost {now} now, and was planned at {then}.");
        let planned = Planned { total: receipt.total_credits, price: receipt.price, ..planned };
        let view = PlanView {
            key: Some(planned.key.clone()),
            again: Some(again),
            ..plan_view(&receipt, &planned.submission)
        };
        app.pages.planned().keep(planned);
        return Ok(LivePage(plan_page(&view, viewer)).into_response());
    }
    let (folder, path) = write(app, &planned)?;
    let options = IngestOptions::from(planned.submission.clone());
    let ingest = app.ingest.clone();
    let work = async move {
        let receipt = ingest.accept(&path, options).await;
        drop(folder);
        receipt
    };
    let receipt = to_the_end(work).await.map_err(|error| ingest_error(&error))?;
    let Some(batch) = receipt.batch.as_ref().filter(|_| !receipt.refused && !receipt.file_refused) else {
        return Ok(LivePage(plan_page(&plan_view(&receipt, &planned.submission), viewer)).into_response());
    };
    let invalid = match receipt.invalid {
        0 => String::new(),
        1 => ", 1 row refused".to_owned(),
        rows => format!(", {rows} rows refused"),
    };
    let new = counted(receipt.new, "new job");
    let done = format!(
        "{}: {new}, {} changed, {} already there{invalid}; {} at most.",
        planned.submission.file, receipt.changed, receipt.have, receipt.price
    );
    Ok(lead_to(app, &format!("/batches/{}", in_address(batch.as_str())), done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_and_was_sent_pays_for_nothing_new() {
        let costs = |price, total| (Credits(price), Credits(total));
        assert_eq!(dearer(costs(50, 100), costs(50, 100)), None);
        assert_eq!(dearer(costs(50, 50), costs(50, 100)), None, "the others were sent");
        assert_eq!(dearer(costs(90, 90), costs(50, 100)), Some((Credits(90), Credits(50))));
        assert_eq!(dearer(costs(50, 120), costs(50, 100)), Some((Credits(120), Credits(100))));
    }
}
