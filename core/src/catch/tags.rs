//! Tags of `mpirun --tag-output`: `[1,3]<stdout>:` stands before what rank 3 of job family 1 printed. mpirun tags whatever
//! it reads at once, so a line's end may be tagged apart from the line, and another rank's text may stand between them.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::bytes::Regex;

/// The form of a tag, with a pattern for the rank.
fn form(rank: &str) -> Option<Regex> {
    Regex::new(&format!(r"(?-u)\[\d{{1,9}},{rank}\]<std(?:out|err)>:")).ok()
}

/// Finds where one rank speaks. Made once, then asked for much text: almost as fast as a search for a word.
#[derive(Debug, Clone)]
pub struct Speaker(Option<Regex>);

impl Speaker {
    pub fn new(rank: u32) -> Self {
        Self(form(&rank.to_string()))
    }

    /// Where the rank's first tag begins in a line, or in several with their ends.
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        Some(self.0.as_ref()?.find(text)?.start())
    }

    /// A line of several ranks is a line of each.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|tag| tag.is_match(text))
    }
}

/// What each rank printed in one line; `None`: what stands before any tag.
pub(super) fn texts_by_rank(line: &[u8]) -> BTreeMap<Option<u32>, Vec<u8>> {
    static TAG: LazyLock<Option<Regex>> = LazyLock::new(|| form(r"(\d{1,9})"));
    let mut texts: BTreeMap<Option<u32>, Vec<u8>> = BTreeMap::new();
    let (mut rank, mut from) = (None, 0);
    let tags = TAG.iter().flat_map(|tag| tag.captures_iter(line));
    for (whole, number) in tags.filter_map(|tag| Some((tag.get(0)?, tag.get(1)?))) {
        if from < whole.start() {
            texts
                .entry(rank)
                .or_default()
                .extend_from_slice(&line[from..whole.start()]);
        }
        rank = std::str::from_utf8(number.as_bytes())
            .ok()
            .and_then(|number| number.parse().ok());
        texts.entry(rank).or_default();
        from = whole.end();
    }
    texts.entry(rank).or_default().extend_from_slice(&line[from..]);
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ranks_lines_are_found_by_its_tag_wherever_it_stands() {
        let of = |rank, line: &str| Speaker::new(rank).is_in(line.as_bytes());
        let mixed = "[1,1]<stdout>:step=5 pi=3.1[1,12]<stderr>:step=5";
        assert!(of(1, mixed) && of(12, mixed));
        assert!(!of(2, mixed) && !of(5, mixed));
        assert!(!of(1, "rank [1,1] speaks") && !of(1, "[1,1]<stdin>:") && !of(1, "[,1]<stdout>:"));
        assert!(!of(1, "[1,11]<stdout>:") && !of(11, "[1,1]<stdout>:") && !of(0, ""));
    }

    /// Whatever is told apart for numbers is told apart for readers.
    #[test]
    fn both_readers_of_tags_agree() {
        for line in [
            "[1,0]<stdout>:step=1",
            "before [123456789,7]<stderr>:after[1,0]<stdout>:",
            "[1234567890,3]<stdout>:",
            "\u{fc}[1,3]<stdout>:\u{fc}",
            "[1,3]<stdout> :",
            "no tag",
        ] {
            let told = texts_by_rank(line.as_bytes());
            for rank in 0..10 {
                let found = Speaker::new(rank).is_in(line.as_bytes());
                assert_eq!(found, told.contains_key(&Some(rank)), "{rank} in {line}");
            }
        }
    }

    #[test]
    fn the_first_tag_of_a_rank_is_found_among_lines() {
        let text = b"[1,0]<stdout>:a\n[1,3]<stdout>:b\n[1,3]<stdout>:c\n";
        assert_eq!(Speaker::new(3).find(text), Some(16));
        assert_eq!(Speaker::new(1).find(text), None);
        // What is no UTF-8 hides no tag.
        assert_eq!(Speaker::new(3).find(b"\xff\n[1,3]<stderr>:"), Some(2));
    }
}
