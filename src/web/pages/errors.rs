//! A refusal or a fault as a page, made from the same table that the API answers from.

use askama::Template;

use super::{told, view::Shell};
use crate::web::error::Problem;

#[derive(Debug, Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    pub shell: Shell,
    pub status: u16,
    pub code: String,
    pub title: String,
    pub detail: String,
    pub hint: Option<String>,
    /// Trying the same again may help.
    pub retry: bool,
    pub request: Option<String>,
}

/// A problem as a whole page. Nothing is asked of the database, which may be what is away.
pub fn page(problem: &Problem) -> String {
    let faults = problem
        .errors
        .iter()
        .map(|fault| format!("{}: {}", fault.path, fault.message));
    let detail = match problem.errors.len() {
        0 | 1 => problem.detail.clone(),
        _ => faults.collect::<Vec<_>>().join("; "),
    };
    let page = ErrorPage {
        shell: Shell {
            title: problem.title.clone(),
            // Who has no session yet has no way to go but to sign in.
            ways: problem.status != 401,
            ..Shell::default()
        },
        status: problem.status,
        code: problem.code.clone(),
        title: problem.title.clone(),
        detail: told::full(&detail),
        hint: problem.hint.as_deref().map(told::full),
        retry: problem.retry_after.is_some(),
        request: problem.request_id.clone(),
    };
    page.render().unwrap_or_else(|_| problem.status.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::{Code, Error};

    #[test]
    fn every_problem_is_a_page_and_its_words_stay_words() {
        for &code in Code::ALL {
            let problem = Error::new(code, "<script>alert(1)</script>").hint("try \"this\"").0;
            let page = page(&problem);
            assert!(page.contains(code.title()) && page.contains(code.as_str()), "{code:?}");
            assert!(!page.contains("<script>alert"), "{code:?}");
        }
    }
}
