//! Which face a problem shows: programs get problem+json, a browser that asked for a page gets one. Nobody signed in and
//! a page asked for: on to the sign-in page.

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header},
    response::{Html, IntoResponse, Response},
};

use super::{Code, accept, auth::csrf, error::Problem, extract, pages};

/// How the client wants to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    Program,
    /// A browser; `GET` can be asked again after signing in.
    Browser {
        get: bool,
    },
}

pub fn of(request: &Request) -> Face {
    let path = request.uri().path();
    if path.starts_with("/api/") || !accept::prefers(request.headers(), "text/html", "application/json") {
        return Face::Program;
    }
    Face::Browser {
        get: request.method() == Method::GET,
    }
}

/// What somebody typed into a form of ours, as it was sent.
#[derive(Debug, Clone)]
pub struct Typed {
    pub path: String,
    pub body: Bytes,
}

/// The request, and a copy of the form in it: should it meet a fault that passes, its page has everything that was typed.
pub async fn typed(request: Request, face: Face, limit: usize) -> (Request, Option<Typed>) {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let fits = length.is_some_and(|length| length <= limit);
    let is_form = extract::media_type(request.headers()).as_deref() == Some(csrf::FORM);
    if face != (Face::Browser { get: false }) || !is_form || !fits || csrf::cross_site(request.headers()) {
        return (request, None);
    }
    let path = request.uri().path().to_owned();
    let (parts, body) = request.into_parts();
    match axum::body::to_bytes(body, limit).await {
        Ok(body) => {
            let request = Request::from_parts(parts, Body::from(body.clone()));
            (request, Some(Typed { path, body }))
        }
        // It broke off; whoever reads it says so.
        Err(error) => {
            let broken = futures::stream::once(async { Err::<Bytes, _>(error) });
            (Request::from_parts(parts, Body::from_stream(broken)), None)
        }
    }
}

/// Completes a problem: its request id, and its form.
pub fn show(mut response: Response, face: Face, typed: Option<Typed>, request_id: &str) -> Response {
    let Some(mut problem) = response.extensions_mut().remove::<Box<Problem>>() else {
        return response;
    };
    problem.request_id = Some(request_id.to_owned());
    if problem.status >= 500 {
        tracing::warn!(
            request_id,
            code = problem.code,
            detail = problem.detail,
            "answered with a problem"
        );
    }
    match face {
        Face::Program => {
            let body = serde_json::to_vec(&problem).unwrap_or_default();
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.body_mut() = Body::from(body);
            response
        }
        Face::Browser { get: true } if problem.code == Code::Unauthenticated.as_str() => {
            let mut redirect = StatusCode::SEE_OTHER.into_response();
            redirect
                .headers_mut()
                .insert(header::LOCATION, HeaderValue::from_static("/sign-in"));
            redirect
        }
        Face::Browser { .. } => {
            let (mut parts, _) = response.into_parts();
            parts.headers.remove(header::CONTENT_TYPE);
            parts.headers.remove(header::CONTENT_LENGTH);
            let mut page = Html(pages::errors::page(&problem, typed.as_ref())).into_response();
            *page.status_mut() = parts.status;
            for (name, value) in &parts.headers {
                page.headers_mut().insert(name, value.clone());
            }
            page
        }
    }
}
