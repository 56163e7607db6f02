//! A part of a plot's horizontal axis, as an address and a form name it: steps, or moments.

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Utc};
use trainyard_core::plan::words;

use crate::{
    actions::FieldFault,
    db::metrics::{Point, Selection},
    web::{Error, pages::told},
};

/// Where the numbers page stands, for its form and its links.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The page's address without its query.
    pub path: String,
    /// The field of the query that every link keeps.
    pub kept: (&'static str, String),
    /// `step`, or `time, UTC`.
    pub unit: &'static str,
    pub from: String,
    pub to: String,
    /// The ends of what there is.
    pub first: String,
    pub last: String,
}

impl Place {
    pub fn is_narrow(&self) -> bool {
        !self.from.is_empty() || !self.to.is_empty()
    }

    /// The address of the whole.
    pub fn whole(&self) -> String {
        format!("{}?{}={}", self.path, self.kept.0, told::encoded(&self.kept.1))
    }
}

/// Both ends belong to it. An end that is left out is open.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Range {
    by_step: bool,
    from: Option<i64>,
    to: Option<i64>,
}

impl Range {
    pub fn parse(from: Option<&str>, to: Option<&str>, by_step: bool) -> Result<Self, Error> {
        let end = |name: &str, text: Option<&str>| match text.map(str::trim).filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => read(text, by_step).map(Some).ok_or_else(|| {
                let (form, hint) = match by_step {
                    true => ("a step is a whole number", "write 1200"),
                    false => ("this is no time", "write 2026-11-30 17:05:00, in UTC"),
                };
                Error::parameter(FieldFault::new(name, "wrong_form", form).value(text).hint(hint))
            }),
        };
        Ok(Self {
            by_step,
            from: end("from", from)?,
            to: end("to", to)?,
        })
    }

    /// The points of a selection that lie in it. Those without a place on this axis belong to no part of it.
    pub fn of<'a>(&self, selection: Selection<'a>) -> Selection<'a> {
        let moment = |milliseconds: i64| DateTime::from_timestamp_millis(milliseconds);
        match self.by_step {
            true if (self.from, self.to) == (None, None) => selection,
            true => Selection {
                steps: Some((self.from.unwrap_or(i64::MIN), self.to.unwrap_or(i64::MAX))),
                ..selection
            },
            false => Selection {
                since: self.from.and_then(moment).max(selection.since),
                until: self.to.and_then(|to| moment(to.saturating_add(1))).or(selection.until),
                ..selection
            },
        }
    }

    /// Fills in the form.
    pub fn write(&self, place: &mut Place, points: impl Iterator<Item = i64>) {
        let say = |value: i64| match self.by_step {
            true => words::count(value),
            false => moment(value),
        };
        let ends = points.fold(None, |ends: Option<(i64, i64)>, at| {
            ends.map_or(Some((at, at)), |(low, high)| Some((low.min(at), high.max(at))))
        });
        if let Some((low, high)) = ends {
            (place.first, place.last) = (say(low), say(high));
        }
        place.unit = if self.by_step { "step" } else { "time, UTC" };
        place.from = self.from.map(say).unwrap_or_default();
        place.to = self.to.map(say).unwrap_or_default();
    }
}

/// A point's place on the axis.
pub fn place(point: &Point, by_step: bool) -> Option<i64> {
    if by_step { point.step } else { Some(point.at) }
}

fn read(text: &str, by_step: bool) -> Option<i64> {
    if by_step {
        return text.replace(',', "").parse().ok();
    }
    let zoned = || DateTime::parse_from_rfc3339(text).ok().map(|at| at.with_timezone(&Utc));
    let plain = || {
        let forms = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
        let naive = |form: &&str| NaiveDateTime::parse_from_str(text, form).ok();
        forms.iter().find_map(naive).map(|at| at.and_utc())
    };
    zoned().or_else(plain).map(|at| at.timestamp_millis())
}

fn moment(milliseconds: i64) -> String {
    DateTime::from_timestamp_millis(milliseconds)
        .map(|at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true))
        .map(|text| text.replace('T', " ").replace('Z', ""))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_form_shows_it_reads_again() {
        for by_step in [true, false] {
            let values = if by_step {
                [120, 4_800]
            } else {
                [1_796_058_300_250, 1_796_058_360_000]
            };
            let mut shown = Place::default();
            let range = Range {
                by_step,
                from: Some(values[0]),
                to: Some(values[1]),
            };
            range.write(&mut shown, values.into_iter());
            assert_eq!((&shown.first, &shown.last), (&shown.from, &shown.to));
            let again = Range::parse(Some(&shown.from), Some(&shown.to), by_step).unwrap();
            assert_eq!(again, range, "{shown:?}");
        }
    }

    #[test]
    fn both_ends_belong_to_it_and_either_may_be_open() {
        let steps = |from, to| {
            let range = Range::parse(from, to, true).unwrap();
            range.of(Selection::default()).steps
        };
        assert_eq!(steps(Some("10"), Some(" 1,200 ")), Some((10, 1_200)));
        assert_eq!(steps(None, Some("7")), Some((i64::MIN, 7)));
        assert_eq!(steps(None, Some("")), None);
        let kept = Selection {
            since: DateTime::from_timestamp(1_796_000_000, 0),
            ..Selection::default()
        };
        let part = Range::parse(Some("2020-01-01 00:00"), Some("2026-11-30 17:05:00"), false)
            .unwrap()
            .of(kept.clone());
        assert_eq!(part.since, kept.since, "the page's own bound stays");
        let last = DateTime::parse_from_rfc3339("2026-11-30T17:05:00Z").unwrap();
        assert!(part.until.is_some_and(|until| until > last), "the end belongs to it");
        assert!(Range::parse(Some("2026-11-30T17:05:00Z"), None, false).is_ok());
    }

    #[test]
    fn an_end_that_is_none_is_refused_by_its_name() {
        let error = Range::parse(None, Some("later"), false).unwrap_err();
        assert_eq!(error.0.errors[0].path, "to");
        assert!(Range::parse(Some("1.5"), None, true).is_err());
    }
}
