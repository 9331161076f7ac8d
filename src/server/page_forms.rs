//! What the forms of the live pages have in common: their fields, who may send them, and where they lead.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::pages::live_document::{Viewer, refusal_page};
use crate::pages::live_forms::login_page;
use crate::server::access::{Access, TcpAccess};
use crate::server::api_error::{ApiError, Query};
use crate::server::app_state::{AppState, Shared};
use crate::server::live_page::LivePage;
use crate::server::page_session::{COOKIE, SESSION_SPAN, is_same};
use crate::server::protocol::{BatchStatus, ProcessKind, Refusal, StatusRequest};
use crate::server::status_list;

/// Who looks; nothing is known of a client in this process, which may do everything.
pub(super) type Who = Option<Extension<Access>>;

/// What they may do, as pages are told it.
pub(super) fn viewer(app: &AppState, who: Who) -> Viewer {
    match who.map_or_else(Access::trusted, |Extension(access)| access) {
        Access::Reading => Viewer::Reader,
        Access::Nothing => Viewer::Stranger,
        Access::Everything { principal, session } => Viewer::Operator {
            form_token: app.pages.form_token(&principal),
            is_logged_in: session.is_some(),
            takes_manifests: app.health.process == ProcessKind::Daemon,
        },
    }
}

/// A page that says why there is none.
pub(super) fn refused(viewer: &Viewer, error: impl Into<ApiError>) -> Response {
    let ApiError(status, Refusal { message, hint, .. }) = error.into();
    let title = if status == StatusCode::NOT_FOUND { "Not found" } else { "Refused" };
    (status, LivePage(refusal_page(title, &message, hint.as_deref(), viewer))).into_response()
}

/// A batch by the name in an address.
pub(super) fn batch_name(text: &str) -> Result<BatchName, ApiError> {
    text.parse().map_err(|error| {
        ApiError(
            StatusCode::NOT_FOUND,
            Refusal::new(Exit::Usage, format!("invalid name of a batch: {error}")),
        )
    })
}

/// A batch in numbers.
pub(super) async fn status_of(app: &AppState, name: &BatchName) -> Result<BatchStatus, ApiError> {
    let request = StatusRequest { batch: Some(name.clone()), all: false };
    let found = status_list::status(&app.engine, &request).await?.batches.pop();
    let missing =
        || ApiError(StatusCode::NOT_FOUND, Refusal::new(Exit::Usage, format!("no batch is called {name}")));
    found.ok_or_else(missing)
}

/// The fields of a form.
#[derive(Debug)]
pub(super) struct Form(BTreeMap<String, String>);

impl Form {
    /// A field without white space around it; nothing where it is missing or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// A field as it was sent.
    pub(super) fn raw(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    /// A field that holds a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let bad =
            |value: &str| ApiError::usage(format!("{name}: found {value:?}, expected a number of credits"));
        self.get(name).map(|value| value.parse().map_err(|_| bad(value))).transpose()
    }
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Form, Response> {
        let wants_json = wants_json(request.headers());
        let body = Bytes::from_request(request, state).await.map_err(|error| {
            let error = match error {
                BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)) => {
                    let ApiError(status, refusal) = ApiError::usage("the form is too large");
                    ApiError(status, refusal.hint("to submit a large manifest: callsheet submit MANIFEST"))
                }
                error => ApiError::body(&error),
            };
            if wants_json { error.into_response() } else { refused(&Viewer::Stranger, error) }
        })?;
        Ok(Form(url::form_urlencoded::parse(&body).into_owned().collect()))
    }
}

/// Whether a script asks, and no browser that shows the answer as a page.
pub(super) fn wants_json(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/json")
}

/// The viewer, if the form came from one of our pages and the viewer may change something.
pub(super) fn operator(app: &AppState, who: Who, form: &Form) -> Result<Viewer, ApiError> {
    let viewer = viewer(app, who);
    match &viewer {
        Viewer::Operator { form_token, .. } if is_same(form.raw("form_token"), form_token) => Ok(viewer),
        Viewer::Operator { .. } => {
            let refusal =
                Refusal::new(Exit::Unauthorised, "the form comes from another page or an earlier login");
            Err(ApiError(StatusCode::FORBIDDEN, refusal.hint("go back, reload the page, and send it again")))
        }
        Viewer::Reader | Viewer::Stranger => Err(reading_only()),
    }
}

/// Why a form is not even shown.
pub(super) fn reading_only() -> ApiError {
    let refusal = Refusal::new(Exit::Unauthorised, "without a token only reading is allowed over TCP");
    ApiError(StatusCode::FORBIDDEN, refusal.hint("set control.token_file, or use the command line"))
}

/// Leads on to a page that says what was done.
pub(super) fn lead_to(app: &AppState, page: &str, done: String) -> Response {
    let joint = if page.contains('?') { '&' } else { '?' };
    let to = format!("{page}{joint}done={}", app.pages.keep_notice(done));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

fn lead(to: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, to.to_owned())]).into_response()
}

/// Where a login leads: to a page of this server.
#[derive(Debug, Default, Deserialize)]
pub(super) struct LoginQuery {
    next: Option<String>,
}

fn own_page(next: Option<&str>) -> &str {
    let is_own = |next: &&str| {
        next.starts_with('/') && !next[1..].starts_with(['/', '\\']) && !next.contains(char::is_control)
    };
    next.filter(is_own).unwrap_or("/")
}

pub(super) async fn login_form(
    tcp: Option<Extension<Arc<TcpAccess>>>,
    who: Who,
    Query(query): Query<LoginQuery>,
) -> Response {
    let next = own_page(query.next.as_deref());
    match (tcp, who) {
        (Some(_), Some(Extension(Access::Nothing))) => LivePage(login_page(next, false)).into_response(),
        _ => lead(next),
    }
}

pub(super) async fn login(
    tcp: Option<Extension<Arc<TcpAccess>>>,
    headers: HeaderMap,
    form: Form,
) -> Response {
    let next = own_page(form.get("next"));
    let Some(Extension(tcp)) = tcp else { return lead(next) };
    if !tcp.is_token(form.get("token").unwrap_or_default()) {
        tracing::warn!("a login with a wrong token");
        return (StatusCode::UNAUTHORIZED, LivePage(login_page(next, true))).into_response();
    }
    // Only a reverse proxy says so; a cookie that it keeps to TLS does no harm elsewhere.
    let is_secure = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let secure = if is_secure { "; Secure" } else { "" };
    let session = tcp.sessions.begin();
    let seconds = SESSION_SPAN.0 / 1_000;
    let cookie = format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    with_cookie(lead(next), &cookie)
}

pub(super) async fn logout(
    State(app): Shared,
    tcp: Option<Extension<Arc<TcpAccess>>>,
    who: Who,
    form: Form,
) -> Result<Response, ApiError> {
    operator(&app, who.clone(), &form)?;
    if let (Some(Extension(tcp)), Some(Extension(Access::Everything { session: Some(session), .. }))) =
        (tcp, who)
    {
        tcp.sessions.end(&session);
    }
    Ok(with_cookie(lead("/login"), &format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")))
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_no_other_site() {
        for (next, leads) in [
            ("/batches/x?state=failed", "/batches/x?state=failed"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("/a\r\nset-cookie: x", "/"),
        ] {
            assert_eq!(own_page(Some(next)), leads);
        }
        assert_eq!(own_page(None), "/");
    }
}
