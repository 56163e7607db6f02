//! JSON text to a tree with positions.
//!
//! serde_json does all the reading. It hands every key and value back as a slice of the text, and where the slice
//! begins is the position: no second JSON parser, and doubled keys stay visible.

use std::{borrow::Cow, fmt};

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    fault::{Fault, FaultCode},
    tree::{Budget, Content, Entry, Node, Position},
};

pub fn read(text: &str) -> Result<Node, Fault> {
    // The whole text first: the error then carries its place in the document and not in a slice of it.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return Err(syntax(text, &error));
    }
    let whole: &RawValue = serde_json::from_str(text).map_err(|error| syntax(text, &error))?;
    let mut reader = Reader {
        text,
        offset: 0,
        position: Position::START,
        budget: Budget::default(),
    };
    reader.node(whole.get(), 0)
}

fn syntax(text: &str, error: &serde_json::Error) -> Fault {
    let line = error.line().max(1);
    // serde_json counts columns in bytes.
    let in_line = text.split('\n').nth(line - 1).unwrap_or("");
    let bytes = error.column().saturating_sub(1).min(in_line.len());
    let column = in_line.char_indices().take_while(|(index, _)| *index < bytes).count() + 1;
    let words = error.to_string();
    let words = words.split(" at line ").next().unwrap_or_default();
    Fault::at(
        FaultCode::Syntax,
        Position {
            line: line as u32,
            column: column as u32,
        },
        format!("this is not JSON: {words}"),
    )
}

struct Reader<'t> {
    text: &'t str,
    /// Slices are visited in the order of the text, so one cursor finds every position in one pass.
    offset: usize,
    position: Position,
    budget: Budget,
}

impl<'t> Reader<'t> {
    fn node(&mut self, slice: &'t str, depth: usize) -> Result<Node, Fault> {
        let at = self.position_of(slice);
        self.budget.take(1, 0).map_err(|bound| Fault::bound(bound, at))?;
        let content = match slice.as_bytes().first() {
            Some(b'{') => {
                let depth = self.deeper(depth, at)?;
                let pairs: Pairs<'t> = serde_json::from_str(slice).map_err(|error| syntax(self.text, &error))?;
                let mut entries = Vec::with_capacity(pairs.0.len());
                for (key, value) in pairs.0 {
                    let key_at = self.position_of(key.get());
                    let key = self.string(key.get(), key_at)?;
                    let value = self.node(value.get(), depth)?;
                    entries.push(Entry { key, key_at, value });
                }
                Content::Map(entries)
            }
            Some(b'[') => {
                let depth = self.deeper(depth, at)?;
                let slices: Slices<'t> = serde_json::from_str(slice).map_err(|error| syntax(self.text, &error))?;
                let items = slices.0.into_iter().map(|item| self.node(item.get(), depth));
                Content::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'"') => Content::Text(self.string(slice, at)?),
            Some(b't') => Content::Bool {
                value: true,
                written: slice.to_owned(),
            },
            Some(b'f') => Content::Bool {
                value: false,
                written: slice.to_owned(),
            },
            Some(b'n') => Content::Null,
            _ => Content::Number {
                value: serde_json::from_str(slice).map_err(|error| {
                    Fault::at(
                        FaultCode::Syntax,
                        at,
                        format!("{slice} is not a number that can be held: {error}"),
                    )
                })?,
                written: slice.to_owned(),
            },
        };
        Ok(Node { at, content })
    }

    fn deeper(&self, depth: usize, at: Position) -> Result<usize, Fault> {
        self.budget.depth(depth + 1).map_err(|bound| Fault::bound(bound, at))?;
        Ok(depth + 1)
    }

    fn string(&mut self, slice: &'t str, at: Position) -> Result<String, Fault> {
        self.budget
            .take(0, slice.len())
            .map_err(|bound| Fault::bound(bound, at))?;
        let text: Cow<'t, str> = serde_json::from_str::<Cow<'t, str>>(slice)
            .map_err(|error| Fault::at(FaultCode::Syntax, at, format!("this is not JSON text: {error}")))?;
        Ok(text.into_owned())
    }

    fn position_of(&mut self, slice: &'t str) -> Position {
        let offset = (slice.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let passed = self.text.get(self.offset..offset).unwrap_or("");
        match passed.rfind('\n') {
            Some(last) => {
                self.position.line += passed.bytes().filter(|&byte| byte == b'\n').count() as u32;
                self.position.column = passed[last + 1..].chars().count() as u32 + 1;
            }
            None => self.position.column += passed.chars().count() as u32,
        }
        self.offset = self.offset.max(offset);
        self.position
    }
}

/// An object's keys and values as slices of the text, in order, doubled keys included.
struct Pairs<'t>(Vec<(&'t RawValue, &'t RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// A list's items as slices of the text.
struct Slices<'t>(Vec<&'t RawValue>);

impl<'de> Deserialize<'de> for Slices<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Slices<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut slices = Vec::new();
                while let Some(slice) = list.next_element()? {
                    slices.push(slice);
                }
                Ok(Slices(slices))
            }
        }
        deserializer.deserialize_seq(Collect)
    }
}
