//! A line as people get it. Stored bytes may be anything; text is what can be shown: torn or invalid UTF-8 becomes U+FFFD,
//! NUL becomes a visible sign, a progress bar's line is its last state. Colours stay; a page turns them into styles.

use std::borrow::Cow;

use chrono::DateTime;
use serde::{Deserialize, Serialize};
use trainyard_core::model::LogStream;
use utoipa::ToSchema;

use super::run::{LONGEST, Run, RunBody};
use crate::db::logs::StreamRow;

/// One line of output, or a gap, as the API shows it. The encoder below writes the same fields without this detour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Counts the lines of its stream from 1. A gap has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Where it begins in its stream, in bytes.
    pub offset: u64,
    /// When it was stored, to the millisecond, in UTC.
    pub at: String,
    pub kind: LineKind,
    pub attempt: i32,
    pub role: String,
    pub index: i32,
    pub rank: i32,
    pub stream: LogStream,
    pub text: String,
    /// The line has no end yet: what is shown may grow or change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// So many bytes of the line are not shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    /// The line was written over with carriage returns; `raw=true` shows all of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub overwritten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    Output,
    /// Output is missing here; the text says how much and why.
    Gap,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A line within a run, before it becomes text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawLine<'r> {
    /// From 0.
    pub number: u64,
    pub offset: u64,
    /// Without its end.
    pub bytes: &'r [u8],
    pub missing: u64,
    pub partial: bool,
}

impl Run {
    /// The lines of the run; a gap has none, nor have lines that were passed.
    pub fn lines(&self) -> Lines<'_> {
        let (rest, missing, partial, whole) = match &self.body {
            RunBody::Lines(data) => (&data[..], 0, false, true),
            RunBody::Cut { text, missing } => (&text[..], *missing, false, false),
            RunBody::Unfinished { text, missing } => (&text[..], *missing, true, false),
            RunBody::Gap(_) | RunBody::Passed => (&[][..], 0, false, true),
        };
        Lines {
            number: self.first_line,
            offset: self.offset,
            rest,
            missing,
            partial,
            // A cut or unfinished line is one line, even of no bytes.
            single: !whole,
        }
    }

    /// How many lines a reader gets of it; a gap counts as one.
    pub fn count(&self) -> usize {
        match &self.body {
            RunBody::Lines(data) => memchr::memchr_iter(b'\n', data).count(),
            RunBody::Passed => 0,
            _ => 1,
        }
    }
}

#[derive(Debug)]
pub struct Lines<'r> {
    number: u64,
    offset: u64,
    rest: &'r [u8],
    missing: u64,
    partial: bool,
    single: bool,
}

impl<'r> Iterator for Lines<'r> {
    type Item = RawLine<'r>;

    fn next(&mut self) -> Option<RawLine<'r>> {
        let (bytes, taken) = if self.single {
            self.single = false;
            (std::mem::take(&mut self.rest), 0)
        } else {
            let end = memchr::memchr(b'\n', self.rest)?;
            let bytes = &self.rest[..end];
            self.rest = &self.rest[end + 1..];
            (bytes, end as u64 + 1)
        };
        let (bytes, over) = shorten(bytes);
        let line = RawLine {
            number: self.number,
            offset: self.offset,
            bytes,
            missing: self.missing + over,
            partial: self.partial,
        };
        self.number += 1;
        self.offset += taken;
        Some(line)
    }
}

/// At most [`LONGEST`] bytes, never ending inside a character, and how many were cut off. Of a progress bar that grew
/// longer than that, the newest state.
fn shorten(bytes: &[u8]) -> (&[u8], u64) {
    if bytes.len() <= LONGEST {
        return (bytes, 0);
    }
    let bytes = &bytes[newest_state(bytes).unwrap_or(0)..];
    if bytes.len() <= LONGEST {
        return (bytes, 0);
    }
    let kept = whole_characters(&bytes[..LONGEST]);
    (kept, (bytes.len() - kept.len()) as u64)
}

/// Without the character at the end that is not whole, if the end is one. Looks at nothing else, so that a line is cut
/// at the same byte however its chunks are.
pub(super) fn whole_characters(bytes: &[u8]) -> &[u8] {
    let tail = bytes.len().saturating_sub(3);
    let Some(lead) = bytes[tail..]
        .iter()
        .rposition(|&byte| byte & 0xc0 != 0x80)
        .map(|at| tail + at)
    else {
        return bytes;
    };
    let length = match bytes[lead] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    if lead + length > bytes.len() {
        &bytes[..lead]
    } else {
        bytes
    }
}

/// What of a line's bytes is shown: for a progress bar, its last state. `true`: earlier states were left out.
pub fn last_state(bytes: &[u8]) -> (&[u8], bool) {
    let shown = without_returns(bytes);
    match newest_state(bytes) {
        // A bar that ended its state with blanks only, to wipe the line, has shown nothing last.
        Some(at) => (&shown[at + 1..], true),
        None => (shown, false),
    }
}

/// The `\r` behind which the newest state of a progress bar stands: the last one with anything after it.
pub(super) fn newest_state(bytes: &[u8]) -> Option<usize> {
    memchr::memrchr(b'\r', without_returns(bytes))
}

/// Without those at the end, which wiped nothing yet.
fn without_returns(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != b'\r').map_or(0, |at| at + 1);
    &bytes[..end]
}

/// Bytes as text that can be shown. `raw` keeps NUL as it is.
pub fn text(bytes: &[u8], raw: bool) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    if !raw && memchr::memchr(0, bytes).is_some() {
        return Cow::Owned(text.replace('\0', "\u{2400}"));
    }
    text
}

/// The words of a gap.
pub fn gap_words(reason: &str, bytes: Option<u64>) -> String {
    match bytes {
        Some(1) => format!("1 byte of output is missing here: {reason}"),
        Some(bytes) => format!("{bytes} bytes of output are missing here: {reason}"),
        None => format!("output may be missing here: {reason}"),
    }
}

/// How lines are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A line of JSON each.
    Ndjson,
    /// The same, as data lines of a Server-Sent Event.
    Sse,
}

/// Writes runs of one stream as JSON lines; the fields are those of [`LogLine`].
#[derive(Debug, Clone)]
pub struct Encoder {
    stream: Vec<u8>,
    form: Form,
    raw: bool,
}

impl Encoder {
    pub fn new(row: &StreamRow, form: Form, raw: bool) -> Self {
        let mut stream = Vec::with_capacity(96);
        stream.extend_from_slice(format!(",\"attempt\":{},\"role\":\"", row.attempt).as_bytes());
        escape(&mut stream, &row.role, false);
        stream.extend_from_slice(
            format!(
                "\",\"index\":{},\"rank\":{},\"stream\":\"{}\",\"text\":\"",
                row.index, row.rank, row.stream
            )
            .as_bytes(),
        );
        Self { stream, form, raw }
    }

    /// Appends the lines of a run, and answers how many.
    pub fn write(&self, out: &mut Vec<u8>, run: &Run) -> usize {
        self.write_some(out, run, |_| true)
    }

    /// Appends the lines of a run that are wanted, and answers how many.
    pub fn write_some(&self, out: &mut Vec<u8>, run: &Run, mut wanted: impl FnMut(&RawLine<'_>) -> bool) -> usize {
        let at = format_time(run.at);
        if let RunBody::Gap(gap) = &run.body {
            self.begin(out);
            out.extend_from_slice(b"{\"offset\":");
            number(out, gap.offset);
            self.middle(out, &at, b"gap");
            escape(out, &gap_words(&gap.reason, gap.bytes), self.raw);
            out.extend_from_slice(b"\"}\n");
            return 1;
        }
        let mut count = 0;
        for line in run.lines() {
            if !wanted(&line) {
                continue;
            }
            count += 1;
            self.begin(out);
            out.extend_from_slice(b"{\"line\":");
            number(out, line.number + 1);
            out.extend_from_slice(b",\"offset\":");
            number(out, line.offset);
            self.middle(out, &at, b"output");
            let (shown, overwritten) = if self.raw {
                (line.bytes, false)
            } else {
                last_state(line.bytes)
            };
            match std::str::from_utf8(shown) {
                Ok(text) => escape(out, text, self.raw),
                Err(_) => escape(out, &String::from_utf8_lossy(shown), self.raw),
            }
            out.push(b'"');
            if line.partial {
                out.extend_from_slice(b",\"partial\":true");
            }
            if line.missing > 0 {
                out.extend_from_slice(b",\"missing\":");
                number(out, line.missing);
            }
            if overwritten {
                out.extend_from_slice(b",\"overwritten\":true");
            }
            out.extend_from_slice(b"}\n");
        }
        count
    }

    fn begin(&self, out: &mut Vec<u8>) {
        if self.form == Form::Sse {
            out.extend_from_slice(b"data: ");
        }
    }

    fn middle(&self, out: &mut Vec<u8>, at: &str, kind: &[u8]) {
        out.extend_from_slice(b",\"at\":\"");
        out.extend_from_slice(at.as_bytes());
        out.extend_from_slice(b"\",\"kind\":\"");
        out.extend_from_slice(kind);
        out.push(b'"');
        out.extend_from_slice(&self.stream);
    }
}

/// Milliseconds since 1970 as `2026-11-30T12:00:00.123Z`.
pub fn format_time(millis: i64) -> String {
    let time = DateTime::from_timestamp_millis(millis).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// 1 for bytes that JSON text can't hold as they are.
const SPECIAL: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = 1;
        byte += 1;
    }
    table[b'"' as usize] = 1;
    table[b'\\' as usize] = 1;
    table
};

/// Appends text as the inside of a JSON string.
fn escape(out: &mut Vec<u8>, text: &str, raw: bool) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| SPECIAL[byte as usize] != 0) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0 if !raw => out.extend_from_slice("\u{2400}".as_bytes()),
            byte => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}
