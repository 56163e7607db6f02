//! Values in the place of a document's placeholders: `PLACEHOLDER_NAME`, `${NAME}` and `$NAME`, for the given names
//! alone, so that a shell's own `$PATH` is left as it is.
//!
//! A value fills a place in one scalar and never becomes more than that scalar: whatever it holds, the document keeps
//! its lists, mappings and keys. Lines stay where they are, since faults that a server finds name them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::{Captures, Regex};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::{
    fault::Fault,
    tree::Content,
    yaml::{resolve, syntax},
};

#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// A value that was given and is nowhere wanted is a slip of the hand.
    #[error("the document has no placeholder named {}; it has {}", .names.join(", "), listed(.there))]
    NoPlace { names: Vec<String>, there: Vec<String> },
    #[error("{0}")]
    Unreadable(Box<Fault>),
    #[error("what is filled in can't stand in the text that begins on line {line}; write that text in double quotes")]
    NotThere { line: usize },
}

fn listed(there: &[String]) -> String {
    match there {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

/// The document, YAML or JSON, with these values in it. Where a plain scalar becomes a number or a boolean, it is one;
/// every other one is text.
pub fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String, FillError> {
    let masked = mask(text);
    let mut offsets: Vec<usize> = text.char_indices().map(|(offset, _)| offset).collect();
    offsets.push(text.len());
    let mut names = Names {
        values,
        there: BTreeSet::new(),
        used: BTreeSet::new(),
    };
    let (mut filled, mut copied, mut wanted) = (String::new(), 0, Vec::new());
    for event in Parser::new_from_str(&masked) {
        let (event, span) = event.map_err(|error| FillError::Unreadable(Box::new(syntax(&error))))?;
        let written = read(&event, &span);
        let scalar = names.put(&written.text, str::to_owned);
        let same = scalar == written.text;
        wanted.push(Read {
            text: scalar.clone(),
            ..written
        });
        let Event::Scalar(_, style, ..) = event else { continue };
        if same {
            continue;
        }
        let offset = |index: usize| offsets.get(index).copied().unwrap_or(text.len());
        let (from, to) = (offset(span.start.index()), offset(span.end.index()));
        let raw = &text[from..to];
        filled.push_str(&text[copied..from]);
        if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
            let break_of_line = format!("\n{}", " ".repeat(span.start.col()));
            let value = |value: &str| value.replace("\r\n", "\n").replace(['\r', '\n'], &break_of_line);
            filled.push_str(&names.put(raw, value));
        } else {
            filled.push_str(properties(raw));
            let plain = style == ScalarStyle::Plain
                && matches!(resolve(&scalar), Content::Number { .. } | Content::Bool { .. });
            match plain {
                true => filled.push_str(&scalar),
                // JSON's escapes are YAML's too.
                false => filled.push_str(&serde_json::Value::from(scalar).to_string()),
            }
            filled.extend(raw.matches('\n'));
        }
        copied = to;
    }
    filled.push_str(&text[copied..]);
    names.all_used()?;
    // Whatever a block makes of its lines, nothing is sent that reads otherwise than it was meant.
    let masked = mask(&filled);
    let mut pairs = wanted.iter().zip(Parser::new_from_str(&masked));
    match pairs.find(|(wanted, now)| !matches!(now, Ok((event, span)) if read(event, span).same_as(wanted))) {
        Some((wanted, _)) => Err(FillError::NotThere { line: wanted.line }),
        None => Ok(filled),
    }
}

struct Names<'v> {
    values: &'v BTreeMap<String, String>,
    there: BTreeSet<String>,
    used: BTreeSet<String>,
}

impl Names<'_> {
    /// The text with every value that is wanted in it, as `written` writes it. No value is filled again.
    fn put(&mut self, text: &str, written: impl Fn(&str) -> String) -> String {
        let Some(pattern) = PLACEHOLDER.as_ref() else {
            return text.to_owned();
        };
        let filled = pattern.replace_all(text, |found: &Captures<'_>| {
            let whole = &found[0];
            let name = found.iter().skip(1).flatten().next().map_or("", |name| name.as_str());
            self.there.insert(name.to_owned());
            // The whole word is a name too: `--set PLACEHOLDER_IMAGE=...` is what a reader of the file may type.
            let given = self
                .values
                .get_key_value(whole)
                .or_else(|| self.values.get_key_value(name));
            match given {
                Some((name, value)) => {
                    self.used.insert(name.clone());
                    written(value)
                }
                None => whole.to_owned(),
            }
        });
        filled.into_owned()
    }

    fn all_used(self) -> Result<(), FillError> {
        let unused = self.values.keys().filter(|name| !self.used.contains(*name));
        let names: Vec<String> = unused.cloned().collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(FillError::NoPlace {
                names,
                there: self.there.into_iter().collect(),
            }),
        }
    }
}

static PLACEHOLDER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"PLACEHOLDER_([A-Za-z0-9_]+)|\$\{([A-Za-z0-9_]+)\}|\$([A-Za-z0-9_]+)").ok());

/// `[${N}]` is no YAML before it is filled: its braces become characters that nobody writes, one for each, so that
/// every other character stays where it is.
fn mask(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, name) = (&rest[..at], &rest[at + 2..]);
        let end = name
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(name.len());
        masked.push_str(before);
        rest = &name[end..];
        match rest.strip_prefix('}') {
            Some(behind) if end > 0 => {
                masked.extend(['$', OPEN].into_iter().chain(name[..end].chars()).chain([CLOSE]));
                rest = behind;
            }
            _ => masked.extend(["${", &name[..end]]),
        }
    }
    masked + rest
}

const OPEN: char = '\u{10fffc}';
const CLOSE: char = '\u{10fffd}';

fn unmask(text: &str) -> String {
    text.replace(OPEN, "{").replace(CLOSE, "}")
}

/// What a reader gets of an event, and where it stands.
struct Read {
    kind: char,
    text: String,
    line: usize,
}

impl Read {
    /// How lines end, and how many empty ones end a block, is the block's own to say.
    fn same_as(&self, other: &Read) -> bool {
        let lines = |text: &str| text.replace("\r\n", "\n").replace('\r', "\n").trim_end().to_owned();
        self.kind == other.kind && lines(&self.text) == lines(&other.text)
    }
}

fn read(event: &Event<'_>, span: &Span) -> Read {
    let (kind, text) = match event {
        Event::Scalar(text, ..) => ('s', unmask(text)),
        Event::SequenceStart(..) => ('[', String::new()),
        Event::SequenceEnd => (']', String::new()),
        Event::MappingStart(..) => ('{', String::new()),
        Event::MappingEnd => ('}', String::new()),
        Event::Alias(_) => ('*', String::new()),
        Event::StreamEnd => ('.', String::new()),
        _ => (' ', String::new()),
    };
    let line = span.start.line();
    Read { kind, text, line }
}

/// The anchor and tag before a scalar.
fn properties(raw: &str) -> &str {
    let mut scalar = raw;
    while scalar.starts_with(['&', '!']) {
        let Some(end) = scalar.find(char::is_whitespace) else {
            break;
        };
        scalar = scalar[end..].trim_start();
    }
    &raw[..raw.len() - scalar.len()]
}
