//! Secret values in output become `***`, wherever reads cut them.
//!
//! A byte is masked if any occurrence of any value covers it; occurrences that overlap become one `***`. What is
//! masked does not depend on how the output was cut: the end of what was read is held back while it may begin a value,
//! and a mask that reaches beyond what was decided is remembered.

use aho_corasick::{AhoCorasick, MatchKind};
use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD};
use trainyard_core::model::SHORTEST_MASKED as SHORTEST;

/// What stands in the place of a value.
const MASK: &[u8] = b"***";
/// Lines of a value of several lines (a key file) are masked each, since programs print them one by one.
const SHORTEST_LINE: usize = 8;

#[derive(Debug, Clone, Default)]
pub struct Masker {
    automaton: Option<AhoCorasick>,
    values: Vec<Vec<u8>>,
}

/// How far masking got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masked {
    /// Bytes of the input that are decided.
    pub consumed: usize,
    /// Bytes behind them that the last mask covers too.
    pub covered: usize,
}

impl Masker {
    pub fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for value in values {
            let whole = value.trim_end_matches(['\r', '\n']);
            if whole.len() >= SHORTEST {
                all.push(whole.as_bytes().to_vec());
            }
            all.extend(encoded(whole));
            let lines = whole.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE);
            all.extend(
                lines
                    .filter(|line| line.len() < whole.len())
                    .map(|line| line.as_bytes().to_vec()),
            );
        }
        all.sort();
        all.dedup();
        // Building fails only beyond 2 GiB of patterns; a document holds far less. Without the automaton, the slow
        // way below masks all the same.
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&all).ok();
        Self {
            automaton: automaton.filter(|_| !all.is_empty()),
            values: all,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Appends the decided part of `input` to `out`. `covered`: how many of its first bytes the mask before reaches
    /// over. `last`: nothing follows, so everything is decided.
    pub fn mask(&self, input: &[u8], covered: usize, last: bool, out: &mut Vec<u8>) -> Masked {
        let decided = if last { input.len() } else { self.undecided_from(input) };
        // Where the present mask ends; it may end beyond the input.
        let mut mask_end = covered;
        let mut written = covered.min(decided);
        for (start, end) in self.occurrences(input) {
            if start >= decided {
                break;
            }
            if start >= mask_end {
                out.extend_from_slice(&input[written..start]);
                out.extend_from_slice(MASK);
            }
            mask_end = mask_end.max(end);
            written = mask_end.min(decided);
        }
        out.extend_from_slice(&input[written..decided]);
        Masked {
            consumed: decided,
            covered: mask_end.saturating_sub(decided),
        }
    }

    /// All occurrences, by where they start.
    fn occurrences(&self, input: &[u8]) -> Vec<(usize, usize)> {
        let mut all: Vec<(usize, usize)> = match &self.automaton {
            Some(automaton) => automaton
                .find_overlapping_iter(input)
                .map(|found| (found.start(), found.end()))
                .collect(),
            None => self
                .values
                .iter()
                .flat_map(|value| memchr::memmem::find_iter(input, value).map(|at| (at, at + value.len())))
                .collect(),
        };
        all.sort_unstable();
        all
    }

    /// Where the earliest suffix starts that may begin a value and is not whole yet.
    fn undecided_from(&self, input: &[u8]) -> usize {
        self.values
            .iter()
            .map(|value| undecided(value, input))
            .min()
            .unwrap_or(input.len())
    }

    /// At a place where output is missing, nothing tells whether a value was torn: the longest end of `input` that
    /// begins a value is masked too, if it tells anything.
    pub fn mask_torn_end(&self, input: &[u8]) -> usize {
        let from = self.undecided_from(input);
        if input.len() - from >= SHORTEST {
            from
        } else {
            input.len()
        }
    }

    /// The same behind the missing output: how many of the first bytes end a value.
    pub fn torn_start(&self, input: &[u8]) -> usize {
        let ends = |value: &Vec<u8>| {
            (SHORTEST..value.len())
                .rev()
                .find(|&length| length <= input.len() && value.ends_with(&input[..length]))
        };
        self.values.iter().filter_map(ends).max().unwrap_or(0)
    }
}

fn undecided(value: &[u8], input: &[u8]) -> usize {
    let from = input.len().saturating_sub(value.len() - 1);
    memchr::memchr_iter(value[0], &input[from..])
        .map(|at| from + at)
        .find(|&start| value.starts_with(&input[start..]))
        .unwrap_or(input.len())
}

/// A value in base64, by either alphabet, alone and with the line end that `echo` adds; in lines as `base64` breaks them.
/// Without the padding, so that a form with it and one without are both found.
fn encoded(value: &str) -> Vec<Vec<u8>> {
    const LINE: usize = 76;
    if value.len() < SHORTEST {
        return Vec::new();
    }
    let texts = [value.to_owned(), format!("{value}\n")];
    let forms = texts.iter().flat_map(|text| {
        let bytes = text.as_bytes();
        [BASE64_NOPAD.encode(bytes), BASE64URL_NOPAD.encode(bytes)]
    });
    let forms = forms.flat_map(|form| {
        let lines = form.as_bytes().chunks(LINE).map(<[u8]>::to_vec);
        let lines: Vec<Vec<u8>> = lines.filter(|line| line.len() >= SHORTEST_LINE).collect();
        lines.into_iter().chain([form.into_bytes()])
    });
    forms.chain(inner(value)).collect()
}

/// What base64 of a longer text has of the value, wherever in it the value begins: the characters that it alone decides.
fn inner(value: &str) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let text = [&vec![0; before][..], value.as_bytes()].concat();
        let decided = (before * 8).div_ceil(6)..text.len() * 8 / 6;
        for form in [BASE64_NOPAD.encode(&text), BASE64URL_NOPAD.encode(&text)] {
            forms.push(form.as_bytes()[decided.clone()].to_vec());
        }
    }
    forms.retain(|form| form.len() >= SHORTEST_LINE);
    forms
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    /// The definition, written down slowly.
    fn expected(values: &[&str], input: &[u8]) -> Vec<u8> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for value in values.iter().filter(|value| value.len() >= SHORTEST) {
            for start in 0..input.len() {
                if input[start..].starts_with(value.as_bytes()) {
                    spans.push((start, start + value.len()));
                }
            }
        }
        spans.sort();
        let mut out = Vec::new();
        let mut at = 0;
        for (start, end) in spans {
            if start >= at {
                out.extend_from_slice(&input[at..start]);
                out.extend_from_slice(MASK);
            }
            at = at.max(end);
        }
        out.extend_from_slice(&input[at.min(input.len())..]);
        out
    }

    fn in_cuts(masker: &Masker, input: &[u8], cuts: &mut StdRng) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut from, mut to, mut covered) = (0, 0, 0);
        while to < input.len() {
            to = (to + cuts.random_range(1..=5)).min(input.len());
            let masked = masker.mask(&input[from..to], covered, to == input.len(), &mut out);
            from += masked.consumed;
            covered = masked.covered;
        }
        assert_eq!(from, input.len());
        out
    }

    #[test]
    fn what_is_masked_does_not_depend_on_cuts() {
        let sets: [&[&str]; 5] = [
            &["abab"],
            &["aaaa", "aab", "baab"],
            &["abcd", "bcda", "abcdabcd"],
            &["abba", "bbaa", "aabbaabb"],
            &[],
        ];
        for seed in 0..400u64 {
            let mut random = StdRng::seed_from_u64(seed);
            let values = sets[seed as usize % sets.len()];
            let length = random.random_range(0..60);
            let input: Vec<u8> = (0..length)
                .map(|_| b"abcd"[random.random_range(0..4) % (2 + seed as usize % 3)])
                .collect();
            let masker = Masker::new(values.iter().copied());
            let text = String::from_utf8_lossy(&input).into_owned();
            assert_eq!(
                in_cuts(&masker, &input, &mut random),
                expected(values, &input),
                "seed {seed}: {text}"
            );
        }
    }

    #[test]
    fn a_value_in_base64_is_masked_with_and_without_what_echo_adds() {
        let value = "s3cret+Value/with&signs=7f3a~~~???";
        let long = "x9".repeat(50);
        let masker = Masker::new([value, long.as_str()]);
        for text in [
            value.to_owned(),
            format!("{value}\n"),
            long.clone(),
            format!("{long}\n"),
        ] {
            let forms = [
                data_encoding::BASE64.encode(text.as_bytes()),
                data_encoding::BASE64URL_NOPAD.encode(text.as_bytes()),
            ];
            for form in forms {
                let mut out = Vec::new();
                masker.mask(format!("key: {form}\n").as_bytes(), 0, true, &mut out);
                let out = String::from_utf8_lossy(&out).into_owned();
                assert_eq!(out.trim_end_matches(['=', '\n']), "key: ***", "{form}");
                let mut out = Vec::new();
                let broken: Vec<&str> = form
                    .as_bytes()
                    .chunks(76)
                    .filter_map(|line| std::str::from_utf8(line).ok())
                    .collect();
                masker.mask(broken.join("\n").as_bytes(), 0, true, &mut out);
                let out = String::from_utf8_lossy(&out).into_owned();
                assert!(
                    out.lines().all(|line| line.trim_end_matches('=') == "***"),
                    "{form}: {out}"
                );
            }
        }
    }

    #[test]
    fn a_value_within_a_text_in_base64_is_masked_but_for_what_it_shares_with_its_neighbours() {
        let masker = Masker::new(["s3cret+Value"]);
        for before in ["", "u", "user:", "another:"] {
            let form = data_encoding::BASE64.encode(format!("{before}s3cret+Value and more").as_bytes());
            let mut out = Vec::new();
            masker.mask(form.as_bytes(), 0, true, &mut out);
            let out = String::from_utf8_lossy(&out).into_owned();
            let (start, end) = out.split_once("***").unwrap_or_else(|| panic!("{before}: {out}"));
            assert!(start.len() <= before.len() * 8 / 6 + 1, "{before}: {out}");
            // All but the character that begins within the value is of " and more".
            assert!(
                end.trim_end_matches('=').len() <= " and more".len() * 8 / 6 + 1,
                "{before}: {out}"
            );
        }
    }

    #[test]
    fn a_key_file_is_masked_line_by_line_too() {
        let masker = Masker::new(["-----BEGIN KEY-----\nAAAABBBBCCCC\nshort\n-----END KEY-----\n"]);
        let mut out = Vec::new();
        masker.mask(b"> AAAABBBBCCCC <\n> short <\n", 0, true, &mut out);
        assert_eq!(out, b"> *** <\n> short <\n");
    }

    #[test]
    fn what_a_gap_may_have_torn_is_masked() {
        let masker = Masker::new(["correct horse battery"]);
        assert_eq!(masker.mask_torn_end(b"pass: correct ho"), 6);
        assert_eq!(masker.mask_torn_end(b"pass: cor"), 9);
        assert_eq!(masker.torn_start(b"battery\nnext"), 7);
        assert_eq!(masker.torn_start(b"ery\nnext"), 0);
    }
}
