//! A job's output. The server shows a window of it as plain markup; where JavaScript runs, `logs.js` follows, scrolls
//! and searches over the API. Output can never become markup: the template escapes it, the script sets text only.

use askama::Template;

use super::{
    terminal::Segment,
    view::{SelectOption, Shell, Tone},
};

#[derive(Debug, Template)]
#[template(path = "logs.html")]
pub struct LogsPage {
    pub shell: Shell,
    pub id: String,
    pub name: String,
    pub tone: Tone,
    pub sentence: String,
    pub attempts: Vec<SelectOption>,
    pub replicas: Vec<SelectOption>,
    pub times: Vec<SelectOption>,
    /// `clock`, `start` or `off`, as a class.
    pub time_mode: &'static str,
    pub search: String,
    pub regex: bool,
    pub follow: bool,
    pub found: Option<Found>,
    pub first_error: Option<String>,
    pub download: String,
    pub older: Option<String>,
    pub newer: Option<String>,
    pub rows: Vec<LogRow>,
    /// What would be here.
    pub none: String,
    /// What the script needs to go on from here, as JSON.
    pub viewer_config: String,
}

#[derive(Debug, Clone)]
pub struct LogRow {
    /// `worker-1.stdout.1240`, stable for ever.
    pub anchor: String,
    pub number: u64,
    pub replica: String,
    /// The rank's colour, from 0 to 11.
    pub color: u32,
    pub stderr: bool,
    pub error: bool,
    pub time: String,
    pub exact: String,
    pub iso: String,
    pub segments: Vec<Segment>,
    /// In place of a line: what is missing here, in words.
    pub gap: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Found {
    /// `"NaN" found 12 times, in 2 of 8 ranks`.
    pub summary: String,
    pub hits: Vec<FoundHit>,
}

#[derive(Debug, Clone)]
pub struct FoundHit {
    pub href: String,
    pub anchor: String,
    pub replica: String,
    pub color: u32,
    pub line: u64,
    pub before: String,
    pub hit: String,
    pub after: String,
}
