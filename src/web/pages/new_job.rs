//! Writing a job. Every fault at once with its line and column; nothing that was typed is ever lost.

use askama::Template;

use super::view::{Fact, Shell};

#[derive(Debug, Template)]
#[template(path = "new_job.html")]
pub struct NewJobPage {
    pub shell: Shell,
    pub document: String,
    /// `3 faults in this document`.
    pub faults_heading: String,
    pub faults: Vec<FaultView>,
    /// The answer to a check without faults.
    pub plan: Option<PlanView>,
    /// Sent with the form, so that a doubled click submits once.
    pub idempotency_key: String,
    pub examples: Vec<Example>,
}

#[derive(Debug, Clone)]
pub struct FaultView {
    pub line: Option<usize>,
    pub column: usize,
    pub path: String,
    pub message: String,
    pub hint: Option<String>,
    /// The line itself with a mark under the place.
    pub excerpt: Option<String>,
}

#[derive(Debug, Clone)]
pub struct PlanView {
    pub heading: &'static str,
    pub sentence: String,
    pub facts: Vec<Fact>,
}

#[derive(Debug, Clone)]
pub struct Example {
    pub name: String,
    pub about: String,
    pub href: String,
}

/// The line of a fault with its number, and a caret under the column. Tabs stay, so that the caret stands right.
pub fn excerpt(document: &str, line: usize, column: usize) -> Option<String> {
    const WIDTH: usize = 120;
    let text = document.lines().nth(line.checked_sub(1)?)?;
    let skipped = column.saturating_sub(WIDTH / 2);
    let shown: String = text.chars().skip(skipped).take(WIDTH).collect();
    let lead: String = text
        .chars()
        .skip(skipped)
        .take(column.saturating_sub(1).saturating_sub(skipped))
        .map(|character| if character == '\t' { '\t' } else { ' ' })
        .collect();
    let number = line.to_string();
    Some(format!("{number} | {shown}\n{} | {lead}^", " ".repeat(number.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_points_at_the_place_even_in_a_very_long_line() {
        assert_eq!(excerpt("a: 1\nb: x\n", 2, 4).unwrap(), "2 | b: x\n  |    ^");
        let long = "y".repeat(5_000) + "!";
        let shown = excerpt(&long, 1, 5_001).unwrap();
        let (text, caret) = shown.split_once('\n').unwrap();
        assert_eq!(text.find('!'), caret.find('^'));
        assert_eq!(excerpt("a", 7, 1), None);
    }
}
