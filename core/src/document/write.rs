//! Documents as text again, for clones and forms: every default spelt out, scripts as blocks that can be read.

use serde_json::Value;

use super::job::JobDocument;

/// The document as YAML. Read again, it is the same document.
pub fn to_yaml(document: &JobDocument) -> String {
    let mut text = String::new();
    // Every field of the types has a JSON form: no map with keys that are not text, no number that is not finite.
    let value = serde_json::to_value(document).unwrap_or_default();
    write_fields(&mut text, &value, 0);
    text
}

/// The document as indented JSON.
pub fn to_json(document: &JobDocument) -> String {
    // As above.
    serde_json::to_string_pretty(document).unwrap_or_default()
}

fn write_fields(text: &mut String, value: &Value, indent: usize) {
    for (index, (key, value)) in value.as_object().into_iter().flatten().enumerate() {
        // The first field of a list's item stands behind its dash.
        if index > 0 || text.is_empty() || text.ends_with('\n') {
            text.extend(std::iter::repeat_n(' ', indent));
        }
        text.push_str(&scalar(key));
        text.push(':');
        write_value(text, value, indent);
    }
}

fn write_value(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if fields.is_empty() => text.push_str(" {}\n"),
        Value::Object(_) => {
            text.push('\n');
            write_fields(text, value, indent + 2);
        }
        Value::Array(items) if items.iter().all(is_short) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), scalar))
                .collect();
            text.push_str(&format!(" [{}]\n", items.join(", ")));
        }
        Value::Array(items) => {
            text.push('\n');
            for item in items {
                text.extend(std::iter::repeat_n(' ', indent + 2));
                match item {
                    Value::Object(fields) if !fields.is_empty() => {
                        text.push_str("- ");
                        write_fields(text, item, indent + 4);
                    }
                    _ => {
                        text.push('-');
                        write_value(text, item, indent + 2);
                    }
                }
            }
        }
        Value::String(value) if is_block(value) => {
            text.push_str(if value.ends_with('\n') { " |\n" } else { " |-\n" });
            for line in value.strip_suffix('\n').unwrap_or(value).split('\n') {
                if !line.is_empty() {
                    text.extend(std::iter::repeat_n(' ', indent + 2));
                    text.push_str(line);
                }
                text.push('\n');
            }
        }
        Value::String(value) => text.push_str(&format!(" {}\n", scalar(value))),
        other => text.push_str(&format!(" {other}\n")),
    }
}

/// Fits in a list on one line.
fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => !is_block(text),
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    }
}

/// Several lines that a literal block gives back exactly: something on the first and the last line, no character that
/// needs an escape, and at most one newline at the end.
fn is_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let first = body.split('\n').next().unwrap_or_default();
    body.contains('\n')
        && !first.is_empty()
        && !first.starts_with([' ', '\t'])
        && !body.ends_with('\n')
        && !body.rsplit('\n').next().unwrap_or_default().trim().is_empty()
        && body.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
}

fn is_printable(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Plain where nobody could take it for anything else, in double quotes with JSON's escapes otherwise.
fn scalar(text: &str) -> String {
    let begins = text
        .strip_prefix("--")
        .unwrap_or(text)
        .starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_');
    let plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '='));
    let taken = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    // `10s`, `1h30m`, `2Gi`: begins like a number and can't be one in any version of YAML.
    let quantity = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_digit() || "smhdkKMGTi".contains(c));
    if quantity {
        return text.to_owned();
    }
    if begins && plain && !taken.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if is_printable(c) => quoted.push(c),
            c if (c as u32) <= 0xff => quoted.push_str(&format!("\\x{:02x}", c as u32)),
            c => quoted.push_str(&format!("\\u{:04x}", c as u32)),
        }
    }
    quoted.push('"');
    quoted
}
