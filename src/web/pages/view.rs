//! The pieces that pages share. Pure data: strings that are ready to be shown, never a record and never a query.

use chrono::{DateTime, SecondsFormat, Utc};

/// What surrounds every page.
#[derive(Debug, Clone, Default)]
pub struct Shell {
    /// The tab's title, the state first, so that a row of tabs can be read.
    pub title: String,
    pub section: Section,
    pub crumbs: Vec<Crumb>,
    /// Nobody: signed out.
    pub viewer: Option<Viewer>,
    /// The ways to other pages are shown though it is not known who looks.
    pub ways: bool,
    /// Where this page's live changes come from.
    pub live: Option<String>,
    /// This page's own address, for the Refresh link.
    pub here: String,
    /// What the last action did, in one sentence.
    pub notice: Option<String>,
    /// The content may use the full width (logs, grids).
    pub wide: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Section {
    #[default]
    None,
    Jobs,
    Nodes,
    Clusters,
    Teams,
    Settings,
}

#[derive(Debug, Clone)]
pub struct Crumb {
    pub label: String,
    pub href: String,
}

#[derive(Debug, Clone)]
pub struct Viewer {
    pub name: String,
    /// The session's token for forms, as it goes into a hidden field.
    pub csrf: String,
    /// Workers only observe, until somebody confirms a restore.
    pub restored: Option<Restored>,
}

#[derive(Debug, Clone)]
pub struct Restored {
    /// When the records were restored, in words.
    pub at: String,
    pub may_confirm: bool,
}

impl Shell {
    /// For the navigation's mark.
    pub fn at(&self, section: &str) -> bool {
        section
            == match self.section {
                Section::None => "",
                Section::Jobs => "jobs",
                Section::Nodes => "nodes",
                Section::Clusters => "clusters",
                Section::Teams => "teams",
                Section::Settings => "settings",
            }
    }

    /// The hidden field's value; signed out there is no form that needs it.
    pub fn csrf(&self) -> &str {
        self.viewer.as_ref().map_or("", |viewer| viewer.csrf.as_str())
    }
}

/// A state's colour and mark. Its word stands beside it always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Running,
    Waiting,
    Starting,
    Succeeded,
    Failed,
    /// Ready, but something is as wrong as it can be.
    Critical,
    Cancelled,
    Suspended,
    Stale,
    Warning,
    Info,
}

impl Tone {
    /// The class in the stylesheet and the symbol in the sprite.
    pub fn class(self) -> &'static str {
        match self {
            Tone::Running => "running",
            Tone::Waiting => "waiting",
            Tone::Starting => "starting",
            Tone::Succeeded => "succeeded",
            Tone::Failed => "failed",
            Tone::Critical => "critical",
            Tone::Cancelled => "cancelled",
            Tone::Suspended => "suspended",
            Tone::Stale => "stale",
            Tone::Warning => "warning",
            Tone::Info => "info",
        }
    }
}

/// A moment: relative in the text, exact with its zone in the title and in print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    pub words: String,
    pub exact: String,
    pub iso: String,
}

impl When {
    pub fn new(words: impl Into<String>, at: DateTime<Utc>) -> Self {
        Self {
            words: words.into(),
            exact: at.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
            iso: at.to_rfc3339_opts(SecondsFormat::Millis, true),
        }
    }
}

/// A state as a person reads it: the sentence, then the mark.
#[derive(Debug, Clone)]
pub struct State {
    pub tone: Tone,
    /// `Running, 8 of 8 ranks, step 1,240 of 5,000, about 2 h left`.
    pub sentence: String,
    pub reason: Option<String>,
    /// The stable code of the reason, small beside it.
    pub code: Option<String>,
    pub since: Option<When>,
    pub next: Option<String>,
    /// What we know is old: since when, in words.
    pub stale: Option<String>,
}

/// A piece of a sentence: what stood `between marks` is code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece<'a> {
    pub text: &'a str,
    pub is_code: bool,
}

/// A sentence in its pieces. Marks that are no pairs are left as they are.
pub fn pieces(sentence: &str) -> Vec<Piece<'_>> {
    let whole = || {
        vec![Piece {
            text: sentence,
            is_code: false,
        }]
    };
    match sentence.matches('`').count() {
        0 => whole(),
        odd if odd % 2 == 1 => whole(),
        _ => (sentence.split('`').enumerate())
            .map(|(place, text)| Piece {
                text,
                is_code: place % 2 == 1,
            })
            .filter(|piece| !piece.text.is_empty())
            .collect(),
    }
}

/// A name and its value in a list of facts.
#[derive(Debug, Clone)]
pub struct Fact {
    pub name: &'static str,
    pub value: String,
    pub href: Option<String>,
    pub title: Option<String>,
}

impl Fact {
    pub fn new(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            name,
            value: value.into(),
            href: None,
            title: None,
        }
    }

    pub fn link(name: &'static str, value: impl Into<String>, href: impl Into<String>) -> Self {
        Self {
            href: Some(href.into()),
            ..Self::new(name, value)
        }
    }

    pub fn when(name: &'static str, when: When) -> Self {
        Self {
            title: Some(when.exact),
            ..Self::new(name, when.words)
        }
    }
}

/// Something that holds now or held, with its evidence in words.
#[derive(Debug, Clone)]
pub struct Condition {
    pub tone: Tone,
    /// `critical`, `warning`, `info`, or `unknown`.
    pub severity: &'static str,
    pub name: String,
    pub message: String,
    pub code: String,
    pub since: When,
}

/// A row of an event table.
#[derive(Debug, Clone)]
pub struct EventRow {
    pub seq: i64,
    pub at: When,
    pub message: String,
    pub kind: String,
    /// The person who did it; empty: the program.
    pub actor: Option<String>,
}

/// Links from one page of a list, whatever its order.
#[derive(Debug, Clone, Default)]
pub struct Pages {
    /// Back to the first one, on every other.
    pub first: Option<String>,
    pub next: Option<String>,
}

/// A choice among links: a tab, a filter, a view.
#[derive(Debug, Clone)]
pub struct Choice {
    pub label: String,
    pub href: String,
    pub current: bool,
    /// How many, where that is cheap to know.
    pub count: Option<String>,
}

/// An entry of a `<select>`.
#[derive(Debug, Clone)]
pub struct SelectOption {
    pub value: String,
    pub label: String,
    pub selected: bool,
}

/// A grid of many small cells, grouped, worst first; its text is every cell's name for a screen reader.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    pub groups: Vec<GridGroup>,
    pub legend: Vec<(Tone, String)>,
    /// The address of the same as a table.
    pub table: String,
}

#[derive(Debug, Clone)]
pub struct GridGroup {
    pub label: String,
    pub summary: String,
    pub runs: Vec<GridRun>,
}

/// Cells of one state within a group.
#[derive(Debug, Clone)]
pub struct GridRun {
    pub tone: Tone,
    /// `3 not ready`.
    pub label: String,
    pub cells: Vec<GridCell>,
}

#[derive(Debug, Clone)]
pub struct GridCell {
    pub name: String,
    pub href: String,
}

/// A drawing by the server. Made only by [`crate::web::plot`] and [`super::timeline`], which escape every text.
#[derive(Debug, Clone, Default)]
pub struct Svg(pub(in crate::web) String);

impl Svg {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A plot on a page, with the way to its numbers.
#[derive(Debug, Clone)]
pub struct Plot {
    pub id: String,
    pub title: String,
    /// What it says, in words: `0.31 at step 1,240; rank 3 is slowest`.
    pub says: String,
    pub svg: Svg,
    /// The same numbers as a table.
    pub numbers: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_marks_is_code_and_a_lone_mark_is_a_mark() {
        let told = |sentence| -> Vec<(bool, &str)> {
            let pieces = pieces(sentence).into_iter();
            pieces.map(|piece| (piece.is_code, piece.text)).collect()
        };
        assert_eq!(
            told("run `a b`, or `c`"),
            [(false, "run "), (true, "a b"), (false, ", or "), (true, "c")]
        );
        assert_eq!(told("a ` b"), [(false, "a ` b")]);
        assert_eq!(told("plain"), [(false, "plain")]);
    }
}
