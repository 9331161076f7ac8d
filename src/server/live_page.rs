//! Pages of a running process as they are answered: every command on them is typed as it has to be for this state.
//!
//! A command without its flags that is copied from the page of an emulator's daemon would change the real state.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

/// A text of HTML in which every command has the flags that it needs.
pub type TypedCommands = fn(&str) -> String;

/// A live page. The same as [`Html`], but for what becomes of the commands in it.
#[derive(Debug)]
pub(super) struct LivePage(pub(super) String);

#[derive(Debug, Clone, Copy)]
struct IsLivePage;

impl IntoResponse for LivePage {
    fn into_response(self) -> Response {
        let mut response = Html(self.0).into_response();
        response.extensions_mut().insert(IsLivePage);
        response
    }
}

/// Gives the commands of a live page their flags; every other answer is left as it is.
pub(super) async fn type_commands(typed: TypedCommands, request: Request, next: Next) -> Response {
    let is_head = request.method() == Method::HEAD;
    let response = next.run(request).await;
    if is_head || response.extensions().get::<IsLivePage>().is_none() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // It was made as one text, which is at hand.
    let Ok(page) = to_bytes(body, usize::MAX).await else {
        return Response::from_parts(head, Body::empty());
    };
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(typed(&String::from_utf8_lossy(&page))))
}
