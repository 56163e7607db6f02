//! What a person writes: documents as trees with positions, checked whole, and only then as types.
//!
//! A text is read into a [`tree`] (by [`yaml`] or [`json`]), the tree is held against [`rules`] made from the JSON
//! Schema of its type (by [`check`]), then against what a schema can't say (by [`job_checks`]). All faults come at once,
//! each with its path, line and column; only a tree without faults becomes a [`job::JobDocument`].
//!
//! The checker knows no kind of document: another kind brings its schema and its own checks, and nothing else.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

mod check;
mod fault;
mod fill;
mod forms;
pub mod job;
mod job_checks;
mod json;
mod rules;
mod shape;
mod tree;
pub mod units;
mod write;
mod yaml;

pub use fault::{Fault, FaultCode, MAX_FAULTS};
pub use fill::{FillError, fill};
pub use rules::{Rules, SchemaError};
pub use tree::{MAX_BYTES, MAX_DEPTH, MAX_NODES, Position};
pub use write::{to_json, to_yaml};

use check::check;
use fault::Faults;
use job::JobDocument;
use shape::to_value;
use tree::Node;

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

/// A job document from its text. Without a format, a text that begins with a brace is tried as JSON first.
pub fn check_job(text: &str, format: Option<Format>) -> Result<JobDocument, Vec<Fault>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = read(text, format).map_err(|fault| vec![fault.kept_inside(text)])?;
    let judged = judge_job(&root);
    judged.map_err(|faults| faults.into_iter().map(|fault| fault.kept_inside(text)).collect())
}

/// A job document from a value that some other parser read. Its faults have paths, but no lines.
pub fn check_job_value(value: &Value) -> Result<JobDocument, Vec<Fault>> {
    let root = Node::from_value(value).map_err(|exceeded| vec![Fault::bound(exceeded, Position::NOWHERE)])?;
    judge_job(&root)
}

/// The faults of a JSON text that is no document but has a schema too.
pub fn check_json(text: &str, rules: &Rules) -> Vec<Fault> {
    let root = match json::read(text) {
        Ok(root) => root,
        Err(fault) => return vec![fault.kept_inside(text)],
    };
    let mut faults = Faults::default();
    check(rules, &root, &mut faults);
    faults.finish(&root)
}

/// Where in a text the field of that path stands, for faults that only records can tell. `None`: it is not written.
pub fn place_of(text: &str, format: Option<Format>, path: &str) -> Option<Position> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = read(text, format).ok()?;
    let mut node = &root;
    for part in path.split('.') {
        let (name, rest) = part
            .split_once('[')
            .map_or((part, None), |(name, rest)| (name, Some(rest)));
        node = node.get(name)?;
        if let Some(index) = rest {
            node = node.items().get(index.strip_suffix(']')?.parse::<usize>().ok()?)?;
        }
    }
    Some(node.at)
}

/// The JSON Schema of job documents, as it is served and committed.
pub fn job_schema() -> Value {
    JOB_SCHEMA.clone()
}

static JOB_SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<JobDocument>();
    schema.insert("$id".into(), "https://trainyard.dev/schemas/v1/job.json".into());
    schema.to_value()
});

static JOB_RULES: LazyLock<Result<Rules, SchemaError>> = LazyLock::new(|| Rules::compile(&JOB_SCHEMA));

fn judge_job(root: &Node) -> Result<JobDocument, Vec<Fault>> {
    // A test compiles the rules, so this error never leaves a build.
    let rules = JOB_RULES.as_ref().map_err(|error| vec![unreadable(error)])?;
    let mut faults = Faults::default();
    if job_checks::is_another_kind(root, &mut faults) {
        return Err(faults.finish(root));
    }
    check(rules, root, &mut faults);
    job_checks::check(root, &mut faults);
    if !faults.is_empty() {
        return Err(faults.finish(root));
    }
    serde_json::from_value(to_value(rules, root)).map_err(|error| vec![unreadable(&error)])
}

/// The checker let something through that the types refuse: a fault of ours, told rather than hidden.
fn unreadable(error: &dyn std::error::Error) -> Fault {
    let message = format!("the document passed its checks but can't be read: {error}");
    Fault::at(FaultCode::WrongForm, Position::NOWHERE, message)
}

fn read(text: &str, format: Option<Format>) -> Result<Node, Fault> {
    if text.len() > MAX_BYTES {
        return Err(Fault::too_large(text.len()));
    }
    match format {
        Some(Format::Json) => json::read(text),
        Some(Format::Yaml) => yaml::read(text),
        None if text.trim_start().starts_with('{') => {
            // A mapping in YAML's flow style begins alike.
            json::read(text).or_else(|fault| yaml::read(text).map_err(|_| fault))
        }
        None => yaml::read(text),
    }
}

#[cfg(test)]
mod tests;
