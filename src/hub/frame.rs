//! Server-Sent Events as bytes.

use bytes::Bytes;

/// A message whose data lines (`data: ...\n` each) are there already.
pub fn of_lines(id: Option<&str>, event: &str, data: &[&[u8]]) -> Bytes {
    let size: usize = data.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(size + 128);
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.as_bytes());
    out.push(b'\n');
    for part in data {
        out.extend_from_slice(part);
    }
    out.push(b'\n');
    Bytes::from(out)
}

/// A message with one value of JSON, which has no line ends.
pub fn of_json(id: Option<&str>, event: &str, json: &str) -> Bytes {
    of_lines(id, event, &[b"data: ", json.as_bytes(), b"\n"])
}

/// A comment, so that proxies and browsers keep an idle connection.
pub fn heartbeat() -> Bytes {
    Bytes::from_static(b": still here\n\n")
}
