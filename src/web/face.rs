//! Which face a problem shows: programs get problem+json, a browser that asked for a page gets one. Nobody signed in and
//! a page asked for: on to the sign-in page.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header},
    response::{Html, IntoResponse, Response},
};

use super::{Code, WebState, error::Problem};

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
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let path = request.uri().path();
    if path.starts_with("/api/") || !accept.contains("text/html") {
        return Face::Program;
    }
    Face::Browser {
        get: request.method() == Method::GET,
    }
}

/// Completes a problem: its request id, and its form.
pub fn show(mut response: Response, face: Face, request_id: &str, state: &WebState) -> Response {
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
            let mut page = Html(page(&problem, state)).into_response();
            *page.status_mut() = parts.status;
            for (name, value) in &parts.headers {
                page.headers_mut().insert(name, value.clone());
            }
            page
        }
    }
}

/// A plain page, complete without style or script.
fn page(problem: &Problem, _: &WebState) -> String {
    let hint = problem
        .hint
        .as_deref()
        .map(|hint| format!("<p>{}</p>", escaped(hint)))
        .unwrap_or_default();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head><body><main>\
         <h1>{title}</h1><p>{detail}</p>{hint}<p><small>{code}, request {request}</small></p>\
         <p><a href=\"/\">Jobs</a></p></main></body></html>",
        title = escaped(&problem.title),
        detail = escaped(&problem.detail),
        code = escaped(&problem.code),
        request = escaped(problem.request_id.as_deref().unwrap_or("unknown")),
    )
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
