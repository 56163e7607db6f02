//! A document as a tree in which every value and every key knows its place in the text.
//!
//! Both readers ([`super::yaml`], [`super::json`]) build this one tree, and every check walks it, so a fault can always
//! say where it lies. Scalars keep how they were written: where a schema allows text, `EPOCHS: 010` stays `010`.
//!
//! Everything is bounded before it is built: bytes of text, depth, number of values (aliases count as what they stand
//! for) and bytes of text after aliases are expanded.

use serde_json::Number;

/// The largest text that is read at all.
pub const MAX_BYTES: usize = 1 << 20;
/// How deep lists and mappings may be nested.
pub const MAX_DEPTH: usize = 64;
/// How many values a document may hold: thirty times what the largest real one does, and as many as 10,000 posted points.
pub const MAX_NODES: usize = 60_000;
/// How much text a document may hold once its aliases are expanded.
const MAX_EXPANDED_BYTES: usize = 4 * MAX_BYTES;

/// A place in the text: both counted from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    /// For values that came without a text, such as a parsed request body.
    pub const NOWHERE: Position = Position { line: 0, column: 0 };
    pub const START: Position = Position { line: 1, column: 1 };
}

#[derive(Debug, Clone)]
pub struct Node {
    pub at: Position,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub enum Content {
    Null,
    Bool { value: bool, written: String },
    Number { value: Number, written: String },
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub key: String,
    pub key_at: Position,
    pub value: Node,
}

impl Node {
    /// A plain value as a tree without places.
    pub fn from_value(value: &serde_json::Value) -> Result<Node, Exceeded> {
        let mut budget = Budget::default();
        from_value(value, 0, &mut budget)
    }

    /// The entry of a mapping, the first one where the key is doubled.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The entries of a mapping; nothing for anything else, so that checks can walk half-right documents.
    pub fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; nothing for anything else.
    pub fn items(&self) -> &[Node] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    /// A scalar as it was written.
    pub fn written(&self) -> Option<&str> {
        match &self.content {
            Content::Bool { written, .. } | Content::Number { written, .. } | Content::Text(written) => Some(written),
            _ => None,
        }
    }

    /// The kind of value in the words of messages.
    pub fn kind(&self) -> &'static str {
        match &self.content {
            Content::Null => "nothing",
            Content::Bool { .. } => "a boolean",
            Content::Number { .. } => "a number",
            Content::Text(_) => "text",
            Content::List(_) => "a list",
            Content::Map(_) => "a mapping",
        }
    }
}

fn from_value(value: &serde_json::Value, depth: usize, budget: &mut Budget) -> Result<Node, Exceeded> {
    use serde_json::Value;
    budget.take(1, 0)?;
    let content = match value {
        Value::Null => Content::Null,
        Value::Bool(value) => Content::Bool {
            value: *value,
            written: value.to_string(),
        },
        Value::Number(value) => Content::Number {
            value: value.clone(),
            written: value.to_string(),
        },
        Value::String(text) => {
            budget.take(0, text.len())?;
            Content::Text(text.clone())
        }
        Value::Array(items) => {
            budget.depth(depth + 1)?;
            let items = items.iter().map(|item| from_value(item, depth + 1, budget));
            Content::List(items.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            budget.depth(depth + 1)?;
            let entries = fields.iter().map(|(key, value)| {
                budget.take(0, key.len())?;
                Ok(Entry {
                    key: key.clone(),
                    key_at: Position::NOWHERE,
                    value: from_value(value, depth + 1, budget)?,
                })
            });
            Content::Map(entries.collect::<Result<_, _>>()?)
        }
    };
    Ok(Node {
        at: Position::NOWHERE,
        content,
    })
}

/// A bound that a document passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    Depth,
    #[error("it holds more than {MAX_NODES} values, aliases counted as what they stand for")]
    Nodes,
    #[error("it holds more than {MAX_EXPANDED_BYTES} bytes of text once its aliases are expanded")]
    Expanded,
}

/// What a reader has used so far. Asked before anything is built.
#[derive(Debug, Default)]
pub struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    pub fn take(&mut self, nodes: usize, bytes: usize) -> Result<(), Exceeded> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > MAX_NODES {
            Err(Exceeded::Nodes)
        } else if self.bytes > MAX_EXPANDED_BYTES {
            Err(Exceeded::Expanded)
        } else {
            Ok(())
        }
    }

    pub fn depth(&self, depth: usize) -> Result<(), Exceeded> {
        if depth > MAX_DEPTH {
            Err(Exceeded::Depth)
        } else {
            Ok(())
        }
    }
}
