//! What a reader of a live page has already, so that only what differs is sent.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use serde_json::json;

use crate::{hub::frame, web::Error};

/// What a look found.
pub enum Look {
    /// Pieces of the page: id and markup.
    Pieces {
        title: String,
        pieces: Vec<(&'static str, String)>,
        last: bool,
    },
    /// Rows of a list by their ids, and pieces around it.
    Rows {
        title: String,
        summary: String,
        rows: Vec<(String, String)>,
        pieces: Vec<(&'static str, String)>,
    },
    Gone,
}

/// What the reader has already.
#[derive(Default)]
pub struct Sent {
    hashes: HashMap<String, u64>,
    hasher: std::hash::RandomState,
    /// When a large piece was last sent.
    large: HashMap<&'static str, Instant>,
    /// The reader was told that the records can't be reached.
    away: bool,
    /// Nothing will change any more.
    pub over: bool,
}

/// Pieces of this size (plots) are sent every [`LARGE_EVERY`] at most.
const LARGE: usize = 16 * 1024;
const LARGE_EVERY: Duration = Duration::from_secs(6);

impl Sent {
    fn is_new(&mut self, key: &str, value: &str) -> bool {
        let hash = self.hasher.hash_one(value);
        self.hashes.insert(key.to_owned(), hash) != Some(hash)
    }

    pub fn messages(&mut self, found: Look) -> Vec<Bytes> {
        let mut messages = Vec::new();
        if std::mem::take(&mut self.away) {
            messages.push(frame::of_json(None, "back", "{}"));
        }
        match found {
            Look::Pieces { title, pieces, last } => {
                self.title(&title, &mut messages);
                self.patches(pieces, last, &mut messages);
                if last {
                    self.over = true;
                    messages.push(frame::of_json(None, "end", "{}"));
                }
            }
            Look::Rows {
                title,
                summary,
                rows,
                pieces,
            } => {
                self.title(&title, &mut messages);
                self.patches(pieces, false, &mut messages);
                let rows: Vec<_> = rows
                    .into_iter()
                    .map(|(id, html)| json!({ "id": id, "html": html }))
                    .collect();
                let rows = json!({ "summary": summary, "rows": rows }).to_string();
                if self.is_new("rows", &rows) {
                    messages.push(frame::of_json(None, "rows", &rows));
                }
            }
            Look::Gone => {
                self.over = true;
                messages.push(frame::of_json(None, "reset", "{}"));
            }
        }
        messages
    }

    fn patches(&mut self, pieces: Vec<(&'static str, String)>, last: bool, messages: &mut Vec<Bytes>) {
        let now = Instant::now();
        for (id, html) in pieces {
            let sent = self.large.get(id);
            let soon = sent.is_some_and(|sent| now.duration_since(*sent) < LARGE_EVERY);
            if soon && !last && html.len() > LARGE {
                continue;
            }
            if self.is_new(id, &html) {
                self.large.insert(id, now);
                let patch = json!({ "id": id, "html": html }).to_string();
                messages.push(frame::of_json(None, "patch", &patch));
            }
        }
    }

    fn title(&mut self, title: &str, messages: &mut Vec<Bytes>) {
        if self.is_new("title", title) {
            let text = json!(format!("{title} · Trainyard")).to_string();
            messages.push(frame::of_json(None, "title", &text));
        }
    }

    /// What to tell when a look failed: that its subject is gone, or, once, that the records can't be read.
    pub fn excuse(&mut self, error: &Error) -> Vec<Bytes> {
        if error.0.status == 404 {
            return self.messages(Look::Gone);
        }
        match std::mem::replace(&mut self.away, true) {
            true => Vec::new(),
            false => vec![frame::of_json(None, "away", "{}")],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(state: &str, last: bool) -> Look {
        Look::Pieces {
            title: "t".into(),
            pieces: vec![("state", state.into()), ("facts", "same".into())],
            last,
        }
    }

    #[test]
    fn only_what_differs_is_sent() {
        let mut sent = Sent::default();
        assert_eq!(sent.messages(look("<p>a</p>", false)).len(), 3);
        assert_eq!(sent.messages(look("<p>a</p>", false)).len(), 0);
        let messages = sent.messages(look("<p>\nb</p>", false));
        assert_eq!(messages.len(), 1);
        assert_eq!(
            &messages[0][..],
            b"event: patch\ndata: {\"id\":\"state\",\"html\":\"<p>\\nb</p>\"}\n\n"
        );
    }

    #[test]
    fn a_list_tells_its_rows_and_what_stands_around_them() {
        let list = |count: &str| Look::Rows {
            title: "t".into(),
            summary: count.into(),
            rows: vec![("node_1".into(), "<tr id=\"node_1\"></tr>".into())],
            pieces: vec![("choices", format!("<p>{count}</p>"))],
        };
        let mut sent = Sent::default();
        assert_eq!(sent.messages(list("1")).len(), 3);
        assert_eq!(sent.messages(list("1")).len(), 0);
        assert_eq!(sent.messages(list("2")).len(), 2);
    }

    #[test]
    fn a_page_that_will_not_change_any_more_ends_its_stream() {
        let mut sent = Sent::default();
        sent.messages(look("a", true));
        assert!(sent.over);
    }

    #[test]
    fn a_job_that_is_gone_reloads_the_page_and_a_database_that_is_away_is_told_once_until_it_is_back() {
        let mut sent = Sent::default();
        assert!(sent.excuse(&Error::not_found("job", "x")).len() == 1 && sent.over);
        let mut sent = Sent::default();
        sent.messages(look("a", false));
        let away = sent.excuse(&Error::silent());
        assert_eq!(&away[0][..], b"event: away\ndata: {}\n\n");
        assert!(sent.excuse(&Error::silent()).is_empty() && !sent.over);
        let back = sent.messages(look("a", false));
        assert_eq!(back.len(), 1, "nothing else changed meanwhile");
        assert_eq!(&back[0][..], b"event: back\ndata: {}\n\n");
        assert!(sent.messages(look("a", false)).is_empty());
    }
}
