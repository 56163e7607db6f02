//! A refusal or a fault as a page, made from the same table that the API answers from.

use askama::Template;

use super::{told, view::Shell};
use crate::web::{error::Problem, face::Typed, params};

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
    /// The form that met a fault which passes, with what was typed.
    pub again: Option<Again>,
    pub request: Option<String>,
}

/// A form to send again as it was.
#[derive(Debug, Clone)]
pub struct Again {
    pub action: String,
    /// What goes along unseen.
    pub hidden: Vec<(String, String)>,
    /// What has several lines, and can be copied or changed.
    pub texts: Vec<(String, String)>,
}

impl Again {
    /// Nothing, unless all of it can be read.
    fn of(typed: &Typed) -> Option<Self> {
        let fields = params::pairs(std::str::from_utf8(&typed.body).ok()?).ok()?;
        let (texts, hidden) = fields.into_iter().partition(|(_, value)| value.contains('\n'));
        Some(Self {
            action: typed.path.clone(),
            hidden,
            texts,
        })
    }
}

/// A problem as a whole page. Nothing is asked of the database, which may be what is away.
pub fn page(problem: &Problem, typed: Option<&Typed>) -> String {
    let faults = problem
        .errors
        .iter()
        .map(|fault| format!("{}: {}", fault.path, fault.message));
    let detail = match problem.errors.len() {
        0 | 1 => problem.detail.clone(),
        _ => faults.collect::<Vec<_>>().join("; "),
    };
    let retry = problem.retry_after.is_some();
    let again = typed.filter(|_| retry).and_then(Again::of);
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
        retry,
        again,
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
            let page = page(&problem, None);
            assert!(page.contains(code.title()) && page.contains(code.as_str()), "{code:?}");
            assert!(!page.contains("<script>alert"), "{code:?}");
        }
    }

    #[test]
    fn what_was_typed_stands_on_the_page_of_a_fault_that_passes_and_of_no_other() {
        let typed = Typed {
            path: "/jobs/new".into(),
            body: "csrf=c1&do=submit&key=a&key=b&document=name%3A+a%0D%0Ab%3A+%3C%2Ftextarea%3E".into(),
        };
        let away = Error::new(Code::Unavailable, "away").retry_after(2).0;
        let kept = page(&away, Some(&typed));
        assert!(kept.contains(r#"<form method="post" action="/jobs/new""#), "{kept}");
        for field in [
            r#"name="do" value="submit""#,
            r#"name="key" value="a""#,
            r#"name="key" value="b""#,
        ] {
            assert!(kept.contains(field), "{field}");
        }
        assert!(kept.contains("name: a\r\nb: &#60;/textarea&#62;</textarea>"), "{kept}");
        let told = page(&Error::silent().0, None);
        assert!(
            told.contains("run <code>trainyard doctor</code> on the server"),
            "{told}"
        );
        let refused = page(&Error::new(Code::Forbidden, "no").0, Some(&typed));
        assert!(!refused.contains("textarea"));
    }
}
