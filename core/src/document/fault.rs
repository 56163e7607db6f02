//! What is wrong with a document: where, which value, why, and the way out.

use std::{cmp::Reverse, collections::HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::tree::{Entry, Exceeded, MAX_BYTES, Node, Position};

/// At most this many faults are told at once.
pub const MAX_FAULTS: usize = 100;
const MAX_VALUE: usize = 80;

/// One fault of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
pub struct Fault {
    pub code: FaultCode,
    /// The field, such as `roles[0].resources.cpu`. Empty: the document as a whole.
    pub path: String,
    /// From 1. Left out where the document came without a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// From 1, in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The value that is wrong, as written, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The kind of a fault. Stable: programs may tell faults apart by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// Longer than the largest text that is read.
    TooLarge,
    /// Too deep, too many values, or aliases that expand too far.
    TooComplex,
    /// Not YAML, or not JSON.
    Syntax,
    /// YAML that is deliberately not read: tags, merge keys, keys that are not text.
    UnsupportedYaml,
    /// Nothing in the text.
    Empty,
    SeveralDocuments,
    DuplicateKey,
    /// Another kind of document, or another version.
    WrongKind,
    UnknownField,
    MissingField,
    WrongType,
    /// Outside a closed set of words.
    UnknownWord,
    /// Right type, wrong form: a name, a quantity, a path.
    WrongForm,
    OutOfRange,
    /// A placeholder that nobody filled in.
    Placeholder,
    DuplicateName,
    /// A name that Trainyard itself uses.
    ReservedName,
    /// Two fields that can't stand together, or one that needs another.
    Conflict,
    /// Too many faults to tell them all.
    More,
}

impl Fault {
    pub(super) fn at(code: FaultCode, at: Position, message: String) -> Self {
        Self {
            code,
            path: String::new(),
            line: (at.line > 0).then_some(at.line),
            column: (at.line > 0).then_some(at.column),
            value: None,
            message,
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: String) -> Self {
        self.hint = Some(hint);
        self
    }

    pub(super) fn bound(exceeded: Exceeded, at: Position) -> Self {
        Self::at(
            FaultCode::TooComplex,
            at,
            format!("the document is too complex: {exceeded}"),
        )
    }

    pub(super) fn too_large(bytes: usize) -> Self {
        let message = format!("the document has {bytes} bytes; at most {MAX_BYTES} are read");
        Self::at(FaultCode::TooLarge, Position::NOWHERE, message)
            .hint("large code does not belong inside: upload it, or name a git commit".into())
    }

    /// A reader counts on to the end of the text and a little beyond it; what is told lies inside.
    pub(super) fn kept_inside(mut self, text: &str) -> Self {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            let mut lines = text.split('\n');
            let last = text.bytes().filter(|&byte| byte == b'\n').count() as u32 + 1;
            let line = line.clamp(1, last);
            let length = lines.nth(line as usize - 1).map_or(0, |line| line.chars().count()) as u32;
            self.line = Some(line);
            self.column = Some(column.clamp(1, length + 1));
        }
        self
    }
}

impl std::fmt::Display for Fault {
    /// `line 3, column 9: roles[0].name: 'A' is not ...; hint`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

/// Faults while they are gathered. Checks name the node; its path is worked out once, at the end, and only if
/// something is wrong, so a clean document pays nothing for it.
#[derive(Default)]
pub(super) struct Faults<'t> {
    found: Vec<(Spot<'t>, Fault)>,
    more: usize,
}

#[derive(Clone, Copy)]
pub(super) enum Spot<'t> {
    Value(&'t Node),
    Key(&'t Entry),
    /// A field that the mapping lacks.
    Missing(&'t Node, &'t str),
}

impl<'t> Faults<'t> {
    pub fn value(&mut self, node: &'t Node, code: FaultCode, message: String, hint: Option<String>) {
        self.push(
            Spot::Value(node),
            node.at,
            code,
            node.written().map(shortened),
            message,
            hint,
        );
    }

    /// As [`Faults::value`], without the value.
    pub fn unshown(&mut self, node: &'t Node, code: FaultCode, message: String) {
        self.push(Spot::Value(node), node.at, code, None, message, None);
    }

    pub fn key(&mut self, entry: &'t Entry, code: FaultCode, message: String, hint: Option<String>) {
        let value = Some(shortened(&entry.key));
        self.push(Spot::Key(entry), entry.key_at, code, value, message, hint);
    }

    pub fn missing(&mut self, map: &'t Node, field: &'t str, message: String, hint: Option<String>) {
        self.push(
            Spot::Missing(map, field),
            map.at,
            FaultCode::MissingField,
            None,
            message,
            hint,
        );
    }

    fn push(
        &mut self,
        spot: Spot<'t>,
        at: Position,
        code: FaultCode,
        value: Option<String>,
        message: String,
        hint: Option<String>,
    ) {
        if self.found.len() >= MAX_FAULTS {
            self.more += 1;
            return;
        }
        let mut fault = Fault::at(code, at, message);
        fault.value = value;
        fault.hint = hint;
        self.found.push((spot, fault));
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// In the order of the text, with paths.
    pub fn finish(self, root: &'t Node) -> Vec<Fault> {
        let mut wanted: HashMap<*const Node, Option<String>> = HashMap::new();
        for (spot, _) in &self.found {
            wanted.insert(std::ptr::from_ref(spot.node()), None);
        }
        find_paths(root, &mut String::new(), &mut wanted);
        let mut faults: Vec<Fault> = self
            .found
            .into_iter()
            .map(|(spot, mut fault)| {
                let path = wanted
                    .get(&std::ptr::from_ref(spot.node()))
                    .cloned()
                    .flatten()
                    .unwrap_or_default();
                fault.path = match spot {
                    Spot::Missing(_, field) => joined(&path, field),
                    Spot::Value(_) | Spot::Key(_) => path,
                };
                fault
            })
            .collect();
        faults.sort_by_key(|fault| (fault.line, fault.column));
        if self.more > 0 {
            let message = format!("{} more faults are not listed", self.more);
            faults.push(Fault::at(FaultCode::More, Position::NOWHERE, message));
        }
        faults
    }
}

impl<'t> Spot<'t> {
    fn node(self) -> &'t Node {
        match self {
            Spot::Value(node) | Spot::Missing(node, _) => node,
            Spot::Key(entry) => &entry.value,
        }
    }
}

fn find_paths(node: &Node, path: &mut String, wanted: &mut HashMap<*const Node, Option<String>>) {
    if let Some(found) = wanted.get_mut(&std::ptr::from_ref(node)) {
        *found = Some(path.clone());
    }
    let length = path.len();
    for (index, item) in node.items().iter().enumerate() {
        path.push_str(&format!("[{index}]"));
        find_paths(item, path, wanted);
        path.truncate(length);
    }
    for entry in node.entries() {
        *path = joined(path, &entry.key);
        find_paths(&entry.value, path, wanted);
        path.truncate(length);
    }
}

/// `a.b`, and `a["b.c"]` where the key is no plain word.
pub(super) fn joined(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{:?}]", shortened(key)),
    }
}

/// At most [`MAX_VALUE`] characters of it, on one line.
pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(MAX_VALUE)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if short.len() < text.len() && text.chars().nth(MAX_VALUE).is_some() {
        short.push('…');
    }
    short
}

/// The nearest of some words, if it is near enough to be what was meant.
pub(super) fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let word = word.to_lowercase();
    if word.chars().count() > MAX_VALUE {
        return None;
    }
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    let rate = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        let distance = strsim::osa_distance(&word, &candidate);
        // A lost or added end is a common slip: `resource` for `resources`, `mem` for `memory`.
        let prefix = word.len() >= 3 && (candidate.starts_with(&word) || word.starts_with(&candidate));
        (distance <= allowed || prefix).then_some(distance)
    };
    known
        .into_iter()
        .filter_map(|candidate| Some((rate(candidate)?, Reverse(candidate.len()), candidate)))
        .min()
        .map(|(_, _, candidate)| candidate)
}
