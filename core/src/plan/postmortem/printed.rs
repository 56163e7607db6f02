//! What a replica printed last: the line that tells most, and the lines that are kept.

use crate::plan::{
    attempt::Evidence,
    recognise::{Recognised, recognise},
};

/// So many last lines of each stream are looked at for one that tells something.
pub const LOOKED_AT: usize = 400;
pub const LINE_LENGTH: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Printed {
    pub recognised: Option<Recognised>,
    /// Oldest first, each cut to [`LINE_LENGTH`] characters.
    pub last_lines: Vec<String>,
}

impl Printed {
    /// From the last lines of a replica's streams, oldest first, each with the number of its stream. Every stream is
    /// read by itself, so that what goes on being printed on one neither cuts a traceback on the other in pieces nor
    /// pushes it out of the lines that are kept.
    pub fn new(lines: &[(usize, &str)], kept: usize) -> Self {
        let streams = lines.iter().map(|&(stream, _)| stream + 1).max().unwrap_or(0);
        let mut of_stream = vec![Vec::new(); streams];
        for &(stream, line) in lines {
            of_stream[stream].push(line);
        }
        let recognised = of_stream
            .iter()
            .filter_map(|lines| recognise(lines))
            .min_by_key(|found| match found.evidence {
                Evidence::Cause => 0,
                Evidence::Consequence => 1,
                Evidence::Silent => 2,
            });
        Self {
            recognised,
            last_lines: last(lines, &of_stream, kept),
        }
    }
}

/// The last lines of all together, but of each stream its share.
fn last(lines: &[(usize, &str)], of_stream: &[Vec<&str>], kept: usize) -> Vec<String> {
    let share = kept / of_stream.len().max(1);
    let mut left: Vec<usize> = of_stream.iter().map(Vec::len).collect();
    let mut too_many = lines.len().saturating_sub(kept);
    let mut last = Vec::with_capacity(lines.len() - too_many);
    for &(stream, line) in lines {
        if too_many > 0 && left[stream] > share {
            left[stream] -= 1;
            too_many -= 1;
        } else {
            last.push(storable(line));
        }
    }
    last
}

/// Cut to its length, and without NUL, which no JSON column of Postgres takes.
fn storable(line: &str) -> String {
    line.chars()
        .take(LINE_LENGTH)
        .map(|letter| if letter == '\0' { '\u{2400}' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEBACK: [&str; 3] = [
        "Traceback (most recent call last):",
        "  File \"train.py\", line 9, in <module>",
        "KeyError: 'label'",
    ];

    #[test]
    fn a_traceback_is_found_and_kept_whatever_the_other_stream_goes_on_to_print() {
        let noise: Vec<String> = (0..300).map(|number| format!("loading shard {number}")).collect();
        let mut lines: Vec<(usize, &str)> = noise[..100].iter().map(|line| (0, line.as_str())).collect();
        for (place, line) in TRACEBACK.into_iter().enumerate() {
            lines.push((1, line));
            lines.push((0, noise[100 + place].as_str()));
        }
        lines.extend(noise[103..].iter().map(|line| (0, line.as_str())));
        let printed = Printed::new(&lines, 50);
        assert_eq!(printed.recognised.unwrap().line, "KeyError: 'label'");
        assert_eq!(printed.last_lines.len(), 50);
        let of_traceback = printed
            .last_lines
            .iter()
            .filter(|line| TRACEBACK.contains(&line.as_str()));
        assert_eq!(of_traceback.count(), 3);
        assert_eq!(printed.last_lines[0], TRACEBACK[0]);
        assert_eq!(printed.last_lines[49], "loading shard 299");
    }

    #[test]
    fn a_cause_on_one_stream_outweighs_a_lost_peer_on_the_other() {
        let lines = [
            (0, "Connection reset by peer"),
            (1, "MemoryError"),
            (0, "Connection reset by peer"),
        ];
        assert_eq!(Printed::new(&lines, 50).recognised.unwrap().line, "MemoryError");
    }

    #[test]
    fn one_stream_alone_and_none_at_all() {
        let lines: Vec<(usize, &str)> = vec![(0, "a"), (0, "b"), (0, "c")];
        assert_eq!(Printed::new(&lines, 2).last_lines, ["b", "c"]);
        assert_eq!(Printed::new(&[], 2), Printed::default());
        // Three streams share two lines: the last ones, whosever they are.
        assert_eq!(Printed::new(&[(0, "a"), (1, "b"), (2, "c")], 2).last_lines, ["b", "c"]);
    }
}
