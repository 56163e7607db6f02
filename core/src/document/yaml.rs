//! YAML text to a tree with positions, from the events of saphyr's parser.
//!
//! YAML 1.2, core schema: `no`, `on` and `yes` are text, `true` and `0x1F` are not. Anchors and aliases are expanded
//! within the bounds of [`super::tree`]. Deliberately absent: merge keys (`<<`) and tags of one's own, both refused by
//! name, and a second document in the same text.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::{
    fault::{Fault, FaultCode, shortened},
    tree::{Budget, Content, Entry, Exceeded, MAX_DEPTH, Node, Position},
};

pub fn read(text: &str) -> Result<Node, Fault> {
    if let Some(fault) = control_character(text) {
        return Err(fault);
    }
    let mut builder = Builder::default();
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        let at = position(&span.start);
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(Fault::at(
                        FaultCode::SeveralDocuments,
                        at,
                        "a second document begins here; one text holds one document".into(),
                    )
                    .hint("send each document by itself".into()));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let content = scalar(&text, style, tag.as_deref(), at)?;
                builder.scalar(at, content, &text, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => builder.open(at, anchor, tag.as_deref(), false)?,
            Event::MappingStart(anchor, tag) => builder.open(at, anchor, tag.as_deref(), true)?,
            Event::SequenceEnd | Event::MappingEnd => builder.close()?,
            Event::Alias(anchor) => builder.alias(at, anchor)?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    let empty = || {
        Fault::at(
            FaultCode::Empty,
            Position::START,
            "there is no document in this text".into(),
        )
    };
    match builder.root {
        Some(Node {
            content: Content::Null, ..
        })
        | None => Err(empty()),
        Some(root) => Ok(root),
    }
}

fn position(marker: &Marker) -> Position {
    Position {
        line: marker.line().max(1) as u32,
        column: marker.col() as u32 + 1,
    }
}

/// YAML allows no control characters, and the parser would take a NUL for the end of the text.
fn control_character(text: &str) -> Option<Fault> {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 11 | 12 | 14..=31);
    let offset = text.as_bytes().iter().position(is_control)?;
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let at = Position {
        line: before.bytes().filter(|&byte| byte == b'\n').count() as u32 + 1,
        column: before[line_start..].chars().count() as u32 + 1,
    };
    let code = text.as_bytes()[offset];
    let message = format!("the control character U+{code:04X} may not stand in a document");
    Some(Fault::at(FaultCode::Syntax, at, message).hint("in double quotes it can be written as an escape".into()))
}

pub(super) fn syntax(error: &ScanError) -> Fault {
    let at = position(error.marker());
    // The parser reads ahead, and meets its own bound on flow collections before it hands us what passes ours.
    if error.info().contains("recursion limit") {
        return Fault::bound(Exceeded::Depth, at);
    }
    Fault::at(FaultCode::Syntax, at, format!("this is not YAML: {}", error.info()))
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Position) -> Result<Content, Fault> {
    let plain = style == ScalarStyle::Plain;
    let Some(tag) = tag else {
        return Ok(if plain {
            resolve(text)
        } else {
            Content::Text(text.to_owned())
        });
    };
    let core = tag.is_yaml_core_schema();
    match tag.suffix.as_str() {
        "str" if core => Ok(Content::Text(text.to_owned())),
        "" if tag.handle == "!" => Ok(Content::Text(text.to_owned())),
        "int" | "float" | "bool" | "null" if core => Ok(resolve(text)),
        _ => Err(unknown_tag(tag, at)),
    }
}

fn unknown_tag(tag: &Tag, at: Position) -> Fault {
    let name = if tag.is_yaml_core_schema() {
        format!("!!{}", tag.suffix)
    } else {
        tag.to_string()
    };
    let message = format!("the tag {} is not supported", shortened(&name));
    Fault::at(FaultCode::UnsupportedYaml, at, message)
        .hint("leave the tag out; the field decides how its value is read".into())
}

/// The core schema of YAML 1.2.
pub(super) fn resolve(text: &str) -> Content {
    let written = || text.to_owned();
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "true" | "True" | "TRUE" => Content::Bool {
            value: true,
            written: written(),
        },
        "false" | "False" | "FALSE" => Content::Bool {
            value: false,
            written: written(),
        },
        _ => match number(text) {
            Some(value) => Content::Number {
                value,
                written: written(),
            },
            None => Content::Text(written()),
        },
    }
}

/// Infinities and NaN stay text: JSON can't hold them, and no field of ours takes them.
fn number(text: &str) -> Option<serde_json::Number> {
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return None;
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return based(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return based(digits, 8);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        let digits = text.strip_prefix('+').unwrap_or(text);
        if let Ok(value) = digits.parse::<u64>() {
            return Some(value.into());
        }
        if let Ok(value) = digits.parse::<i64>() {
            return Some(value.into());
        }
    }
    // What Rust reads as a float beyond the core schema all starts with a letter ("inf", "nan"), sign apart.
    if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return text.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
    }
    None
}

fn based(digits: &str, base: u32) -> Option<serde_json::Number> {
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, base).ok().map(Into::into)
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    budget: Budget,
}

/// A list or mapping whose end has not been seen.
struct Open {
    at: Position,
    anchor: usize,
    content: Content,
    /// In a mapping: the key whose value comes next.
    key: Option<(String, Position)>,
}

impl Builder {
    fn scalar(&mut self, at: Position, content: Content, text: &str, anchor: usize) -> Result<(), Fault> {
        self.take(1, text.len(), at)?;
        if let Some(open) = self.open.last_mut()
            && matches!(open.content, Content::Map(_))
            && open.key.is_none()
        {
            if matches!(content, Content::Null) && text.is_empty() {
                return Err(Fault::at(FaultCode::Syntax, at, "a key is missing here".into()));
            }
            if text == "<<" {
                return Err(Fault::at(
                    FaultCode::UnsupportedYaml,
                    at,
                    "merge keys (<<) are not part of YAML 1.2 and are not supported".into(),
                )
                .hint("write the fields out, or use an alias for a whole value".into()));
            }
            open.key = Some((text.to_owned(), at));
            if anchor > 0 {
                self.anchors.insert(anchor, Node { at, content });
            }
            return Ok(());
        }
        self.finish(Node { at, content }, anchor)
    }

    fn open(&mut self, at: Position, anchor: usize, tag: Option<&Tag>, map: bool) -> Result<(), Fault> {
        if let Some(tag) = tag
            && !(tag.is_yaml_core_schema() && tag.suffix == if map { "map" } else { "seq" })
        {
            return Err(unknown_tag(tag, at));
        }
        self.refuse_as_key(at)?;
        self.take(1, 0, at)?;
        let depth = self.budget.depth(self.open.len() + 1);
        depth.map_err(|bound| Fault::bound(bound, at))?;
        self.open.push(Open {
            at,
            anchor,
            content: if map {
                Content::Map(Vec::new())
            } else {
                Content::List(Vec::new())
            },
            key: None,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        match self.open.pop() {
            Some(open) => self.finish(
                Node {
                    at: open.at,
                    content: open.content,
                },
                open.anchor,
            ),
            None => Ok(()),
        }
    }

    fn alias(&mut self, at: Position, anchor: usize) -> Result<(), Fault> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(Fault::at(
                FaultCode::Syntax,
                at,
                "this alias stands inside the value that it names".into(),
            ));
        };
        let (nodes, bytes, height) = measure(node);
        self.take(nodes, bytes, at)?;
        if self.open.len() + height > MAX_DEPTH {
            return Err(Fault::bound(Exceeded::Depth, at));
        }
        // Cloned only now that the budget holds it.
        let node = self.anchors.get(&anchor).cloned();
        let is_key = self.expects_key();
        match node {
            Some(node) if is_key => match node.written() {
                Some(text) => {
                    let text = text.to_owned();
                    self.scalar(at, node.content, &text, 0)
                }
                None => self.refuse_as_key(at),
            },
            Some(node) => self.finish(node, 0),
            None => Ok(()),
        }
    }

    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        if anchor > 0 {
            // The copy that aliases are made from is charged too.
            let (nodes, bytes, _) = measure(&node);
            self.take(nodes, bytes, node.at)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(node);
            return Ok(());
        };
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map(entries) => {
                if let Some((key, key_at)) = open.key.take() {
                    entries.push(Entry {
                        key,
                        key_at,
                        value: node,
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        self.open
            .last()
            .is_some_and(|open| matches!(open.content, Content::Map(_)) && open.key.is_none())
    }

    fn refuse_as_key(&self, at: Position) -> Result<(), Fault> {
        if self.expects_key() {
            let message = "a key must be text, not a list or a mapping".into();
            return Err(Fault::at(FaultCode::UnsupportedYaml, at, message)
                .hint("a placeholder in double braces, {{X}}, is read as a mapping: put it in quotes".into()));
        }
        Ok(())
    }

    fn take(&mut self, nodes: usize, bytes: usize, at: Position) -> Result<(), Fault> {
        self.budget.take(nodes, bytes).map_err(|bound| Fault::bound(bound, at))
    }
}

/// How many values, how much text and how many levels a node is.
fn measure(node: &Node) -> (usize, usize, usize) {
    let add = |sum: (usize, usize, usize), part: (usize, usize, usize)| {
        (sum.0 + part.0, sum.1 + part.1, sum.2.max(part.2 + 1))
    };
    match &node.content {
        Content::List(items) => items.iter().map(measure).fold((1, 0, 1), add),
        Content::Map(entries) => entries.iter().fold((1, 0, 1), |sum, entry| {
            let (nodes, bytes, height) = measure(&entry.value);
            add(sum, (nodes, bytes + entry.key.len(), height))
        }),
        _ => (1, node.written().map_or(0, str::len), 0),
    }
}
