//! Numbers and checkpoints in what a program prints. Pure: one line in, what it holds out.
//!
//! # Metrics
//! A line holds metrics if it names its step (`step`, `global_step`, `iteration` or `iter`, in small letters, in
//! capitals or capitalised), in one of these forms:
//!
//! | form | example |
//! |---|---|
//! | pairs with `=` | `step=120 loss=0.31 lr=1e-4`, also after a prefix: `INFO:train:step=120 loss=0.31` |
//! | pairs with `:` | `step: 120, train loss: 0.31` (names of up to three words; the series is `train_loss`) |
//! | pairs with a blank | `Step 120/5000 - loss 0.31`, only if the whole line reads as such pairs |
//! | JSON lines | `{"step": 120, "loss": 0.31}`: numbers at the top level |
//! | Python dictionaries | `{'loss': 0.31, 'epoch': 0.5}`: caught without a step if both of these are there |
//! | progress bars | `24%|██▍   | 120/500 [00:12<00:38, 9.87it/s, loss=0.31]`, only with at least one series |
//! | an own pattern | `metrics.pattern`: a group `step`, optionally `total`, and one group per series; replaces the above |
//!
//! `120/5000` as a step also tells the total. `nan` and `inf` are kept as such: a loss that is no number any more is
//! what people look for. A number that carries a unit (`12ms`, `1.3GB`) is no metric; `45%` is 45. Names begin with a
//! letter and have at most 64 characters; a line holds at most 64 series; the first of two equal names counts.
//!
//! # Checkpoints
//! `checkpoint step=120 path=/where/it/lies`, also after a prefix; a path with blanks stands in double quotes. As a JSON
//! line: `{"step": 120, "checkpoint": "/where/it/lies"}`.
//!
//! # Ranks of an MPI job
//! `mpirun --tag-output` puts `[1,3]<stdout>:` before what rank 3 prints; the rest of the line is read as above, and what
//! it holds belongs to that rank. In other jobs such a beginning means nothing. Readers of output find a rank's lines by the same
//! [tags].
//!
//! Colours are skipped, and of a line that a progress bar wrote again and again (`\r`) the last state counts. Lines over
//! 8 KiB hold nothing.

mod pairs;
pub mod tags;

use std::{borrow::Cow, sync::LazyLock};

use regex::{Regex, RegexBuilder, bytes};
use serde_json::Value;

use crate::document::job::Metrics;

pub const MAX_LINE: usize = 8 * 1024;
pub const MAX_SERIES: usize = 64;
pub const MAX_NAME: usize = 64;
pub const MAX_PATH: usize = 1024; // an index holds it
const MAX_PATTERN: usize = 1024;

/// What one line held.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Caught {
    /// The rank in mpirun's tag, if there is one; told also where nothing else is held.
    pub rank: Option<u32>,
    pub metric: Option<CaughtMetric>,
    pub checkpoint: Option<CaughtCheckpoint>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CaughtMetric {
    pub step: Option<i64>,
    /// The last step, where the line tells it.
    pub total: Option<i64>,
    /// May hold NaN and infinities.
    pub values: Vec<(String, f64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaughtCheckpoint {
    pub step: i64,
    pub path: String,
}

/// How the lines of one job are read. Made once per job, then asked for every line.
#[derive(Debug, Clone)]
pub struct Catcher {
    metrics: Forms,
    tagged: bool,
}

#[derive(Debug, Clone)]
enum Forms {
    Off,
    Known,
    Own(Regex),
}

/// Why a pattern can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("the pattern has {0} characters; at most {MAX_PATTERN} are allowed")]
    TooLong(usize),
    #[error("the pattern is no regular expression: {0}")]
    Invalid(String),
    #[error("the pattern has no group named step; write (?P<step>\\d+)")]
    NoStep,
    #[error("the pattern has more than {MAX_SERIES} groups, or a name of more than {MAX_NAME} characters")]
    TooManyGroups,
}

/// An own pattern, checked.
pub fn compile(pattern: &str) -> Result<Regex, PatternError> {
    let length = pattern.chars().count();
    if length > MAX_PATTERN {
        return Err(PatternError::TooLong(length));
    }
    let built = RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .dfa_size_limit(1 << 20)
        .build();
    let regex = built.map_err(|error| PatternError::Invalid(in_one_line(&error)))?;
    let names: Vec<&str> = regex.capture_names().flatten().collect();
    if names.len() > MAX_SERIES + 2 || names.iter().any(|name| name.len() > MAX_NAME) {
        return Err(PatternError::TooManyGroups);
    }
    if !names.contains(&"step") {
        return Err(PatternError::NoStep);
    }
    Ok(regex)
}

/// The library draws a picture over several lines; its last line says what is wrong.
fn in_one_line(error: &regex::Error) -> String {
    let words = error.to_string();
    let last = words.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl Catcher {
    pub fn new(metrics: &Metrics) -> Result<Self, PatternError> {
        let metrics = match &metrics.pattern {
            _ if !metrics.catch => Forms::Off,
            Some(pattern) => Forms::Own(compile(pattern)?),
            None => Forms::Known,
        };
        Ok(Self { metrics, tagged: false })
    }

    /// For what a launcher of an MPI job prints.
    pub fn with_tags(self) -> Self {
        Self { tagged: true, ..self }
    }

    /// What the line holds, by the ranks that printed it where the job is one of mpirun.
    pub fn each(&self, line: &[u8], found: &mut dyn FnMut(Caught)) {
        if !self.tagged {
            return found(self.catch(line));
        }
        for (rank, text) in tags::texts_by_rank(line) {
            found(Caught {
                rank,
                ..self.catch(&text)
            });
        }
    }

    /// What a line holds; almost always nothing, and then it costs one search.
    pub fn catch(&self, line: &[u8]) -> Caught {
        let may_hold = CLUE.as_ref().is_none_or(|clue| clue.is_match(line));
        if !may_hold && !matches!(self.metrics, Forms::Own(_)) {
            return Caught::default();
        }
        let Some(line) = last_state(line) else {
            return Caught::default();
        };
        let text = plain(line);
        let checkpoint = if may_hold { checkpoint(&text) } else { None };
        let metric = match &self.metrics {
            Forms::Off => None,
            Forms::Own(pattern) => own(pattern, &text),
            // Its step is the checkpoint's; a JSON line may hold both.
            Forms::Known if checkpoint.is_some() && !text.trim_start().starts_with('{') => None,
            Forms::Known => known(&text),
        };
        Caught {
            rank: None,
            metric,
            checkpoint,
        }
    }
}

/// Every line that holds something by our own forms has one of these in it. Three spellings each and not `(?i)`: plain
/// words are searched for with vector instructions, eight times as fast.
static CLUE: LazyLock<Option<bytes::Regex>> = LazyLock::new(|| {
    bytes::Regex::new(r"(?-u)step|Step|STEP|iter|Iter|ITER|checkpoint|Checkpoint|CHECKPOINT|%\||'epoch'").ok()
});

/// A progress bar returns to the line's start; what stands there last is what a person sees.
fn last_state(line: &[u8]) -> Option<&[u8]> {
    let line = line.trim_ascii_end();
    let state = line.rsplit(|&byte| byte == b'\r').next().unwrap_or(line);
    (!state.is_empty() && state.len() <= MAX_LINE).then_some(state)
}

/// Without colours, as text.
fn plain(line: &[u8]) -> Cow<'_, str> {
    if !line.contains(&0x1b) {
        return String::from_utf8_lossy(line);
    }
    let mut kept = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(escape) = rest.iter().position(|&byte| byte == 0x1b) {
        kept.extend_from_slice(&rest[..escape]);
        rest = &rest[escape + 1..];
        if rest.first() == Some(&b'[') {
            let end = rest[1..].iter().position(|byte| (0x40..=0x7e).contains(byte));
            rest = end.map_or(&[], |end| &rest[end + 2..]);
        }
    }
    kept.extend_from_slice(rest);
    Cow::Owned(String::from_utf8_lossy(&kept).into_owned())
}

fn checkpoint(text: &str) -> Option<CaughtCheckpoint> {
    static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"(?i)(?:^|[\s\]:])checkpoint:?\s+step[=:]\s?(\d{1,18}),?\s+path[=:]\s?(?:"([^"]+)"|([^\s"]\S*))"#)
            .ok()
    });
    let (step, path) = if text.trim_start().starts_with('{') {
        let object: Value = serde_json::from_str(text).ok()?;
        (
            object.get("step")?.as_i64()?,
            object.get("checkpoint")?.as_str()?.to_owned(),
        )
    } else {
        let groups = FORM.as_ref()?.captures(text)?;
        let path = groups.get(2).or_else(|| groups.get(3))?;
        (groups[1].parse().ok()?, path.as_str().to_owned())
    };
    let sound = step >= 0 && !path.is_empty() && path.len() <= MAX_PATH && !path.chars().any(char::is_control);
    sound.then_some(CaughtCheckpoint { step, path })
}

fn own(pattern: &Regex, text: &str) -> Option<CaughtMetric> {
    let groups = pattern.captures(text)?;
    let mut metric = CaughtMetric::default();
    for name in pattern.capture_names().flatten() {
        let Some(found) = groups.name(name) else { continue };
        let found = found.as_str().trim();
        match name {
            "step" => metric.step = found.parse().ok().filter(|step| *step >= 0),
            "total" => metric.total = found.parse().ok(),
            _ => metric.add(name, found.parse().ok()),
        }
    }
    let holds = metric.step.is_some() || !metric.values.is_empty();
    holds.then_some(metric)
}

fn known(text: &str) -> Option<CaughtMetric> {
    let trimmed = text.trim();
    if trimmed.starts_with('{') {
        if !trimmed.ends_with('}') {
            // Torn: the last number may be half of one.
            return None;
        }
        // What is no JSON after all (a Python dictionary, or Python's NaN) is read as pairs.
        if let Ok(Value::Object(fields)) = serde_json::from_str(trimmed) {
            return of_fields(&fields);
        }
    }
    pairs::read(trimmed)
}

fn of_fields(fields: &serde_json::Map<String, Value>) -> Option<CaughtMetric> {
    let mut metric = CaughtMetric::default();
    for (name, value) in fields {
        match value {
            Value::Number(number) if is_step(name) => metric.step = metric.step.or(number.as_i64()),
            Value::Number(number) => metric.add(name, number.as_f64()),
            _ => {}
        }
    }
    metric.step = metric.step.filter(|step| *step >= 0);
    metric.step.is_some().then_some(metric)
}

fn is_step(name: &str) -> bool {
    ["step", "global_step", "iteration", "iter"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

impl CaughtMetric {
    fn add(&mut self, name: &str, value: Option<f64>) {
        let named = name.starts_with(|c: char| c.is_alphabetic())
            && name.len() <= MAX_NAME
            && !name.chars().any(char::is_control);
        if let Some(value) = value
            && named
            && self.values.len() < MAX_SERIES
            && !self.values.iter().any(|(known, _)| known == name)
        {
            self.values.push((name.to_owned(), value));
        }
    }
}

#[cfg(test)]
mod tests;
