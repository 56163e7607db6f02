//! A refusal on the page of the form that met it, in the words that the API has for it. What nobody can mend by typing
//! something else is an error like any other.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::{shown, told};
use crate::{actions::Refusal, web::Error};

#[derive(Debug, Clone)]
pub struct Refused {
    pub status: u16,
    /// Which of the page's forms it was.
    pub form: &'static str,
    /// A line for each fault.
    pub words: Vec<String>,
}

impl Refused {
    pub fn of(form: &'static str, refusal: Refusal) -> Result<Self, Error> {
        let problem = match Error::from(refusal) {
            Error(problem) if matches!(problem.status, 404 | 409 | 412 | 422) => problem,
            error => return Err(error),
        };
        let line = |what: &str, hint: Option<&String>| match hint {
            Some(hint) => format!("{} {}", told::full(what), told::full(hint)),
            None => told::full(what),
        };
        let faults = problem.errors.iter().map(|fault| {
            let what = match fault.path.is_empty() {
                true => fault.message.clone(),
                false => format!("`{}`: {}", fault.path, fault.message),
            };
            line(&what, fault.hint.as_ref())
        });
        let words = match problem.errors.is_empty() {
            true => vec![line(&problem.detail, problem.hint.as_ref())],
            false => faults.collect(),
        };
        Ok(Self {
            status: problem.status,
            form,
            words,
        })
    }
}

/// A page with the status of what was refused on it.
pub(super) fn answer(page: &impl askama::Template, refused: Option<&Refused>) -> Result<Response, Error> {
    let status = refused.and_then(|refused| StatusCode::from_u16(refused.status).ok());
    Ok((status.unwrap_or(StatusCode::OK), shown(page)?).into_response())
}
