//! A place in the order of a job's lines, as readers carry it: `Last-Event-ID`, cursors. Opaque to them; it holds for as
//! long as the logs do, across restarts of any process.
//!
//! The order is by attempt, and a position has a place for each attempt that may still grow. Attempts below `first` are
//! read whole.

use std::{collections::BTreeMap, fmt, str::FromStr};

use trainyard_core::model::StreamId;
use uuid::Uuid;

use super::LogsError;
use crate::db::logs::StreamRow;

/// A line's place within an attempt: the flush in which it ended, then its stream, then where it ends; a gap comes
/// behind the line that ends where it stands. What follows is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub at: i64,
    pub stream: StreamId,
    /// The end of the line; of a gap, where it stands.
    pub end: u64,
    pub gap: bool,
}

impl Place {
    /// Before everything.
    pub const START: Place = Place {
        at: 0,
        stream: StreamId(Uuid::nil()),
        end: 0,
        gap: false,
    };

    /// Behind everything of a flush.
    pub fn after(at: i64) -> Self {
        Self {
            at,
            stream: StreamId(Uuid::max()),
            end: u64::MAX,
            gap: true,
        }
    }
}

/// Everything up to here was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position {
    /// Attempts below this number were read whole.
    first: i32,
    places: BTreeMap<i32, Place>,
}

impl Position {
    pub fn start() -> Self {
        Self::default()
    }

    /// The place reached in an attempt. `None`: it was read whole.
    pub fn of(&self, attempt: i32) -> Option<Place> {
        if attempt < self.first {
            return None;
        }
        Some(self.places.get(&attempt).copied().unwrap_or(Place::START))
    }

    /// Was this read?
    pub fn covers(&self, attempt: i32, place: Place) -> bool {
        self.of(attempt).is_none_or(|reached| place <= reached)
    }

    pub fn reach(&mut self, attempt: i32, place: Place) {
        if attempt >= self.first {
            let reached = self.places.entry(attempt).or_insert(place);
            *reached = place.max(*reached);
        }
    }

    /// Both were read.
    pub fn join(&mut self, other: &Position) {
        self.finish_below(other.first);
        for (attempt, place) in &other.places {
            self.reach(*attempt, *place);
        }
    }

    /// After everything stored was read: attempts of which every stream ended, and after which another began, need no
    /// place any more, which keeps the position of a job that was retried a hundred times short.
    pub fn finish_ended(&mut self, streams: &[StreamRow]) {
        let open = streams
            .iter()
            .filter(|row| row.ended_at.is_none())
            .map(|row| row.attempt)
            .min();
        let newest = streams.iter().map(|row| row.attempt).max();
        if let Some(first) = open.or(newest) {
            self.finish_below(first);
        }
    }

    /// Nothing more will come in attempts below `first`, and all of it was read.
    pub fn finish_below(&mut self, first: i32) {
        self.first = self.first.max(first);
        self.places.retain(|&attempt, _| attempt >= self.first);
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.first)?;
        for (attempt, place) in &self.places {
            if place.stream.0 == Uuid::max() {
                write!(f, "~{attempt}.{}", place.at)?;
            } else {
                let gap = if place.gap { ".gap" } else { "" };
                write!(
                    f,
                    "~{attempt}.{}.{}.{}{gap}",
                    place.at,
                    place.stream.0.simple(),
                    place.end
                )?;
            }
        }
        Ok(())
    }
}

impl FromStr for Position {
    type Err = LogsError;

    fn from_str(text: &str) -> Result<Self, LogsError> {
        parse(text).ok_or_else(|| LogsError::Position(text.chars().take(200).collect()))
    }
}

fn parse(text: &str) -> Option<Position> {
    let mut parts = text.split('~');
    let first = parts.next()?.strip_prefix("1.")?.parse().ok()?;
    let mut places = BTreeMap::new();
    for part in parts {
        let mut fields = part.split('.');
        let attempt: i32 = fields.next()?.parse().ok()?;
        let at = fields.next()?.parse().ok()?;
        let place = match fields.next() {
            None => Place::after(at),
            Some(stream) => Place {
                at,
                stream: StreamId(Uuid::try_parse(stream).ok()?),
                end: fields.next()?.parse().ok()?,
                gap: match fields.next() {
                    None => false,
                    Some("gap") => true,
                    Some(_) => return None,
                },
            },
        };
        if fields.next().is_some() {
            return None;
        }
        places.insert(attempt, place);
    }
    Some(Position { first, places })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_the_way_out_and_back() {
        let mut position = Position::start();
        position.finish_below(2);
        position.reach(2, Place::after(1_764_504_000_123));
        position.reach(
            3,
            Place {
                at: 5,
                stream: StreamId(Uuid::from_u128(7)),
                end: 99,
                gap: true,
            },
        );
        assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
        assert_eq!(position.of(1), None);
        assert_eq!(position.of(4), Some(Place::START));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "1",
            "2.0",
            "1.x",
            "1.0~1",
            "1.0~1.2.3",
            "1.0~1.2.zz.4",
            "1.0~1.2.0.4.5",
        ] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }
}
