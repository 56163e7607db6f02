//! Pages of lists: a limit that holds, and cursors that say nothing to anybody but us. A cursor carries a hash of the
//! filter that it was made under, so it can't be used with another one by mistake.

use axum::{
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use utoipa::{IntoParams, ToSchema};

use super::Error;
use crate::actions::FieldFault;

pub const DEFAULT_LIMIT: u32 = 50;
pub const MAX_LIMIT: u32 = 200;

/// How much of a list, and from where.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// The limit, if it is one.
pub fn limit(asked: Option<u32>) -> Result<i64, Error> {
    let limit = asked.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        Ok(i64::from(limit))
    } else {
        Err(Error::parameter(
            FieldFault::new("limit", "out_of_range", format!("a page has 1 to {MAX_LIMIT} items"))
                .value(limit.to_string())
                .hint("read further pages with the cursor"),
        ))
    }
}

/// Where a list goes on, for one filter.
#[derive(Debug, Serialize, Deserialize)]
struct Cursor<T> {
    /// A hash of the filter.
    f: [u8; 8],
    /// The last item's key.
    k: T,
}

/// A cursor behind an item, for the list of this filter.
pub fn encode<T: Serialize>(filter: &impl std::fmt::Debug, key: T) -> String {
    let cursor = Cursor {
        f: hash(filter),
        k: key,
    };
    // Keys are ids, numbers and texts, which always become JSON.
    BASE64URL_NOPAD.encode(&serde_json::to_vec(&cursor).unwrap_or_default())
}

/// The key in a cursor that was made for this filter.
pub fn decode<T: DeserializeOwned>(filter: &impl std::fmt::Debug, cursor: Option<&str>) -> Result<Option<T>, Error> {
    let Some(text) = cursor else { return Ok(None) };
    let wrong = |message: &str| {
        Error::parameter(
            FieldFault::new("cursor", "wrong_form", message)
                .value(text)
                .hint("take it from the page before, with the same filters; leave it out to begin"),
        )
    };
    let bytes = BASE64URL_NOPAD
        .decode(text.as_bytes())
        .map_err(|_| wrong("this is no cursor"))?;
    let cursor: Cursor<T> = serde_json::from_slice(&bytes).map_err(|_| wrong("this is no cursor of this list"))?;
    if cursor.f != hash(filter) {
        return Err(wrong("this cursor belongs to other filters"));
    }
    Ok(Some(cursor.k))
}

fn hash(filter: &impl std::fmt::Debug) -> [u8; 8] {
    let digest = Sha256::digest(format!("{filter:?}").as_bytes());
    let mut short = [0; 8];
    short.copy_from_slice(&digest[..8]);
    short
}

/// Items, and the cursor of the next page if there may be one.
pub fn cut<T, K: Serialize>(
    mut items: Vec<T>,
    limit: i64,
    filter: &impl std::fmt::Debug,
    key: impl Fn(&T) -> K,
) -> (Vec<T>, Option<String>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if items.len() <= limit {
        return (items, None);
    }
    items.truncate(limit);
    let next = items.last().map(|last| encode(filter, key(last)));
    (items, next)
}

/// A page as JSON, written into room for fifty jobs at once. Grown from nothing, as axum's own answer grows, it would be
/// copied nine times and end in a piece of memory so large that the allocator tidies up whenever one is given back.
pub fn answer(page: &impl Serialize) -> Response {
    let mut text = Vec::with_capacity(48 << 10);
    match serde_json::to_writer(&mut text, page) {
        Ok(()) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => axum::Json(page).into_response(), // which says what is wrong
    }
}

/// Declares a page's type, so that every list has a name of its own in the API's document.
macro_rules! pages {
    ($($(#[$doc:meta])* $name:ident of $item:ty;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Serialize, ToSchema)]
        pub struct $name {
            pub items: Vec<$item>,
            /// The next page's cursor. `null`: this was the last one.
            pub next: Option<String>,
        }
    )+};
}

pages! {
    /// Newest first. A page may hold fewer than asked for while `next` is there: one request looks at so many jobs only.
    JobList of crate::db::jobs_read::Job;
    AttemptList of crate::db::attempts_read::Attempt;
    ReplicaList of crate::db::attempts_read::Replica;
    IncarnationList of crate::db::attempts_read::Incarnation;
    EventList of crate::hub::events::EventView;
    CheckpointList of crate::db::reports::Checkpoint;
    ClusterList of crate::db::clusters_read::Cluster;
    NodeList of crate::db::nodes_read::Node;
    UserList of crate::db::users::User;
    TeamList of crate::db::teams::Team;
    TokenList of crate::db::tokens::Token;
    SecretList of crate::db::secrets::Secret;
    AuditList of crate::db::audit::AuditEntry;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_holds_for_its_filter_alone() {
        let cursor = encode(&("running", 1), 7u32);
        assert_eq!(decode::<u32>(&("running", 1), Some(&cursor)).unwrap(), Some(7));
        assert_eq!(decode::<u32>(&("running", 1), None).unwrap(), None);
        assert!(decode::<u32>(&("failed", 1), Some(&cursor)).is_err());
        for wrong in ["", "x", "AAAA", "e30"] {
            assert!(decode::<u32>(&("running", 1), Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_full_page_tells_where_the_next_one_begins() {
        let (items, next) = cut(vec![3, 2, 1], 2, &"all", |item| *item);
        assert_eq!(items, [3, 2]);
        assert_eq!(decode::<i32>(&"all", next.as_deref()).unwrap(), Some(2));
        assert_eq!(cut(vec![1], 2, &"all", |item| *item).1, None);
    }
}
