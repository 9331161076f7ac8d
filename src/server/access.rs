//! Who may do what over TCP, and over the socket.
//!
//! The socket's file says who may use it: everything. Over TCP without a token there is only reading, from this machine.
//! With one the token opens everything, as a header for programs, or by a login whose session opens the pages and their
//! forms; other credentials than a token, such as a reverse proxy passes on, are ignored. Whatever comes of a page of another
//! site is refused.

use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;

use crate::domain::exit_code::Exit;
use crate::server::api_error::ApiError;
use crate::server::page_session::{COOKIE, Sessions, is_same};
use crate::server::protocol::Refusal;

/// What the sender of a request may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    /// Only read.
    Reading,
    /// Everything; the text tells sessions apart, for the tokens of their forms.
    Everything { principal: String, session: Option<String> },
    /// Only log in.
    Nothing,
}

impl Access {
    /// Of those who came by the socket, in this process, or with the token.
    pub(super) fn trusted() -> Access {
        Access::Everything { principal: "trusted".to_owned(), session: None }
    }
}

/// What the TCP listener knows.
#[derive(Debug)]
pub struct TcpAccess {
    token: RwLock<Option<SecretString>>,
    pub(super) sessions: Sessions,
    /// Told when the token was replaced.
    replaced: watch::Sender<()>,
}

impl TcpAccess {
    /// Without a token there is only reading.
    pub fn new(token: Option<SecretString>) -> TcpAccess {
        let (replaced, _) = watch::channel(());
        TcpAccess { token: RwLock::new(token), sessions: Sessions::new(), replaced }
    }

    /// Another token in place of the one before: what was opened with that is closed. Where there was none, none is asked
    /// for until a restart. True: it is another one.
    pub fn replace_token(&self, token: SecretString) -> bool {
        if !self.asks_for_token() || self.is_token(token.expose_secret()) {
            return false;
        }
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = Some(token);
        self.sessions.end_all();
        self.replaced.send_replace(());
        true
    }

    /// Is over when the token is replaced, or nobody is served any more.
    pub(super) fn until_replaced(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut replaced = self.replaced.subscribe();
        async move {
            let _ = replaced.changed().await;
        }
    }

    fn asks_for_token(&self) -> bool {
        self.token.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether this is the token.
    pub(super) fn is_token(&self, given: &str) -> bool {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        token.as_ref().is_some_and(|token| is_same(given, token.expose_secret()))
    }
}

fn refuse(status: StatusCode, message: &str, hint: Option<&str>) -> Response {
    let refusal = Refusal::new(Exit::Unauthorised, message);
    ApiError(status, Refusal { hint: hint.map(str::to_owned), ..refusal }).into_response()
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Before everything that comes by TCP.
pub(super) async fn authenticate(
    State(tcp): State<Arc<TcpAccess>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (headers, path) = (request.headers(), request.uri().path());
    if let Some(refused) = refuse_other_site(&request) {
        return refused;
    }
    let access = if !tcp.asks_for_token() {
        // A name that leads to this machine may be somebody else's (DNS rebinding).
        if !text(headers, "host").is_some_and(is_loopback) || is_of_other_site(headers) {
            return refuse(
                StatusCode::UNAUTHORIZED,
                "without a token only programs on this machine are allowed",
                None,
            );
        }
        if !is_reading(request.method()) {
            let hint = "set control.token_file and send the token, or use the control socket";
            return refuse(
                StatusCode::FORBIDDEN,
                "without a token only reading is allowed over TCP",
                Some(hint),
            );
        }
        Access::Reading
    } else if let Some(given) = text(headers, "authorization").and_then(bearer) {
        if !tcp.is_token(given) {
            return refuse_without_token();
        }
        Access::trusted()
    } else if is_of_program(path) {
        return refuse_without_token();
    } else if let Some(session) = session_of(headers).filter(|session| tcp.sessions.is_open(session)) {
        // A page of the same site has the cookie sent with what it embeds. What a person opens is shown to that person alone.
        if is_of_other_site(headers) && text(headers, "sec-fetch-mode") != Some("navigate") {
            return refuse_page_of_other_site();
        }
        Access::Everything { principal: session.to_owned(), session: Some(session.to_owned()) }
    } else if path == "/login" || path.starts_with("/assets/") {
        Access::Nothing
    } else if is_reading(request.method()) && path != "/events" {
        let next = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let next: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let login = format!("/login?next={next}");
        return (StatusCode::SEE_OTHER, [(header::LOCATION, login)]).into_response();
    } else {
        return refuse_without_token();
    };
    request.extensions_mut().insert(access);
    request.extensions_mut().insert(tcp);
    next.run(request).await
}

/// Before everything that comes by the socket, which a reverse proxy may serve to browsers.
pub(super) async fn check_site(mut request: Request, next: Next) -> Response {
    if let Some(refused) = refuse_other_site(&request) {
        return refused;
    }
    request.extensions_mut().insert(Access::trusted());
    next.run(request).await
}

fn refuse_without_token() -> Response {
    refuse(StatusCode::UNAUTHORIZED, "a bearer token is required; none or a wrong one was given", None)
}

/// A page of another site can make a browser send what it likes; it changes nothing here.
fn refuse_other_site(request: &Request) -> Option<Response> {
    let is_refused = !is_reading(request.method()) && is_of_other_site(request.headers());
    is_refused.then(refuse_page_of_other_site)
}

fn refuse_page_of_other_site() -> Response {
    refuse(StatusCode::FORBIDDEN, "the request comes from a page of another site", None)
}

/// Routes of programs: no browser's session opens them.
fn is_of_program(path: &str) -> bool {
    path.starts_with("/v1/") || path == "/metrics"
}

/// The token of `Bearer TOKEN`. A scheme's name is the same in capitals (RFC 9110, 11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}

/// The session in the cookies of a request.
fn session_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let named = cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    named.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value).next()
}

/// Whether a page of another site had a browser send it. What a person opens comes from no page: `none`. A browser that
/// says nothing of sites says where a form came from.
fn is_of_other_site(headers: &HeaderMap) -> bool {
    match (headers.get("sec-fetch-site"), headers.get(header::ORIGIN)) {
        (Some(site), _) => !matches!(site.as_bytes(), b"same-origin" | b"none"),
        (None, Some(origin)) => {
            let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            origin.map(|(_, host)| host) != text(headers, "host")
        }
        (None, None) => false,
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = name.unwrap_or_default();
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_site_is_known_by_what_a_browser_says() {
        let of = |more: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in [("host", "127.0.0.1:8080")].iter().chain(more) {
                headers.insert(*name, value.parse().unwrap());
            }
            is_of_other_site(&headers)
        };
        assert!(!of(&[]) && !of(&[("sec-fetch-site", "none")]) && !of(&[("sec-fetch-site", "same-origin")]));
        assert!(of(&[("sec-fetch-site", "same-site")]) && of(&[("sec-fetch-site", "cross-site")]));
        assert!(!of(&[("origin", "http://127.0.0.1:8080")]));
        assert!(of(&[("origin", "http://127.0.0.1:9")]) && of(&[("origin", "null")]));
        assert!(of(&[("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn a_session_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        headers.insert("cookie", "a=b; callsheet-session=xyz; c=d".parse().unwrap());
        assert_eq!(session_of(&headers), Some("xyz"));
        assert!(
            is_loopback("localhost:1") && is_loopback("[::1]:1") && !is_loopback("localhost.evil.example")
        );
    }
}
