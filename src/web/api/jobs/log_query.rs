//! What the endpoints of logs have in common: which streams, and from where.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use trainyard_core::model::{LogStream, StreamId};
use utoipa::IntoParams;

use super::super::super::Error;
use crate::{
    actions::FieldFault,
    logs::{
        merge::Begin,
        page::{Filter, LINES},
        position::Position,
        stream::From,
    },
};

/// Which streams. Everything left out lets every stream through.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogParams {
    /// Only this attempt. Left out: all.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<1, _>")]
    pub attempt: Option<i32>,
    /// Only this role.
    pub role: Option<String>,
    /// Only this index within the role.
    #[param(minimum = 0)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<0, _>")]
    pub index: Option<i32>,
    /// Only this rank. Of an MPI job that is one of `mpirun`'s: the launcher's lines in which it speaks, as they were
    /// printed, with its tag; a line in which other ranks speak as well is whole.
    #[param(minimum = 0)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<0, _>")]
    pub rank: Option<i32>,
    /// Only stdout or stderr.
    pub stream: Option<LogStream>,
    /// Only this stream, by id.
    pub stream_id: Option<StreamId>,
    /// The last so many lines, or fewer where they are more than 8 MiB of text.
    #[param(minimum = 0, maximum = 20000)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<0, _>")]
    pub tail: Option<i32>,
    /// From the first line that was stored at this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Nothing that was stored at this time or later.
    pub until: Option<DateTime<Utc>>,
    /// From this line of one stream, from 1.
    #[param(minimum = 1)]
    pub line: Option<u64>,
    /// From the line that this byte of one stream lies in.
    #[param(minimum = 0)]
    pub offset: Option<u64>,
    /// Show what carriage returns overwrote, too.
    #[serde(default)]
    pub raw: bool,
    /// At most this many lines. Left out: 1000, or what `tail` says.
    #[param(minimum = 1, maximum = 20000)]
    pub limit: Option<usize>,
    /// `next` of the page before. It wins over `tail`, `since`, `line` and `offset`.
    pub cursor: Option<String>,
}

impl LogParams {
    pub fn filter(&self) -> Filter {
        Filter {
            attempt: self.attempt,
            role: self.role.clone(),
            index: self.index,
            rank: self.rank,
            stream: self.stream,
            id: self.stream_id,
            mpi_rank: None,
        }
    }

    /// Where to begin. Lines and bytes count within a stream, so they want exactly one.
    pub fn begin(&self, streams: usize, position: Option<&str>) -> Result<Begin, Error> {
        if let Some(text) = position.or(self.cursor.as_deref()) {
            return Ok(Begin::Position(text.parse::<Position>().map_err(Error::from)?));
        }
        let given = [
            self.tail.is_some(),
            self.since.is_some(),
            self.line.is_some(),
            self.offset.is_some(),
        ];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err(Error::parameter(
                FieldFault::new(
                    "tail",
                    "conflict",
                    "tail, since, line and offset each say where to begin",
                )
                .hint("send one of them"),
            ));
        }
        if let Some(lines) = self.tail.filter(|lines| lines.unsigned_abs() as usize > LINES) {
            return Err(Error::parameter(
                FieldFault::new(
                    "tail",
                    "out_of_range",
                    format!("the last 0 to {LINES} lines can be asked for"),
                )
                .value(lines.to_string())
                .hint("read on from a time with since, or download"),
            ));
        }
        if (self.line.is_some() || self.offset.is_some()) && streams != 1 {
            let name = if self.line.is_some() { "line" } else { "offset" };
            return Err(Error::parameter(
                FieldFault::new(
                    name,
                    "conflict",
                    format!("this counts within one stream, and {streams} are chosen"),
                )
                .hint("choose one by stream_id, or by attempt, rank and stream"),
            ));
        }
        Ok(Begin::From(match (self.tail, self.since, self.line, self.offset) {
            (Some(lines), ..) => From::Tail(lines.unsigned_abs().into()),
            (_, Some(at), ..) => From::Time(at.timestamp_millis()),
            (_, _, Some(line), _) => From::Line(line.saturating_sub(1)),
            (_, _, _, Some(byte)) => From::Byte(byte),
            _ => From::Start,
        }))
    }

    /// How many lines a page has at most.
    pub fn lines(&self) -> Result<usize, Error> {
        let tail = self.tail.map_or(0, |lines| lines.unsigned_abs() as usize);
        let lines = self.limit.unwrap_or(tail.max(1000));
        let fault = if !(1..=LINES).contains(&lines) && self.limit.is_some() {
            FieldFault::new("limit", "out_of_range", format!("a page has 1 to {LINES} lines"))
                .value(lines.to_string())
                .hint("read on with the cursor, or download")
        } else if tail > lines && self.cursor.is_none() {
            FieldFault::new(
                "tail",
                "conflict",
                format!("limit lets no more than {lines} lines through"),
            )
            .value(tail.to_string())
            .hint("leave limit out: a tail is one page")
        } else {
            return Ok(lines);
        };
        Err(Error::parameter(fault))
    }
}
