//! Names and numbers in a line that is meant for people: `step=120 loss=0.31`, `Step 120/5000 - loss 0.31`.
//!
//! The line is cut into tokens once; then a number belongs to the words before it. A pair with `=` or `:` is firm. A
//! pair with a blank is loose, and believed only if the whole line reads as pairs, so that prose is left alone.

use super::{CaughtMetric, is_step};

const MAX_TOKENS: usize = 1024;
/// Names of more words than this are prose.
const MAX_WORDS: usize = 3;

pub fn read(text: &str) -> Option<CaughtMetric> {
    let (bar, text) = match progress_bar(text) {
        Some((step, total, rest)) => (Some((step, total)), rest),
        None => (None, text),
    };
    let tokens = tokens(text)?;
    let pairs = Pairs::of(&tokens);
    let mut metric = CaughtMetric::default();
    for pair in &pairs.found {
        let last = pair.words.last().copied().unwrap_or_default();
        if is_step(last) && pair.value.fract() == 0.0 && (0.0..9e15).contains(&pair.value) {
            metric.step = metric.step.or(Some(pair.value as i64));
            metric.total = metric.total.or(pair.total.map(|total| total as i64));
        } else if pair.firm || pairs.whole {
            metric.add(&pair.words.join("_"), Some(pair.value));
        }
    }
    let firm_step = pairs
        .found
        .iter()
        .any(|pair| pair.firm && pair.words.last().is_some_and(|word| is_step(word)));
    if let Some((step, total)) = bar {
        metric.step = metric.step.or(Some(step));
        metric.total = metric.total.or(Some(total));
        return (!metric.values.is_empty()).then_some(metric);
    }
    let has = |name: &str| metric.values.iter().any(|(known, _)| known == name);
    let worth = match metric.step {
        Some(_) => firm_step || pairs.whole || !metric.values.is_empty(),
        None => text.starts_with('{') && has("loss") && has("epoch"),
    };
    worth.then_some(metric)
}

/// `24%|██▍   | 120/500 [00:12<00:38, 9.87it/s, loss=0.31]`: the step, the total, and what follows the bracket.
fn progress_bar(text: &str) -> Option<(i64, i64, &str)> {
    let (_, after) = text.split_once("%|")?;
    let (_, counts) = after.split_once('|')?;
    let (counts, rest) = counts.split_once('[')?;
    let (step, total) = counts.trim().split_once('/')?;
    Some((step.parse().ok()?, total.parse().ok()?, rest))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'t> {
    Word(&'t str),
    Number(f64),
    /// `=` or `:`.
    Sign(u8),
    Slash,
    /// What divides pairs: commas, bars, brackets, a dash with blanks.
    Break,
    /// Dates, addresses, numbers with units.
    Other,
}

fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if tokens.len() >= MAX_TOKENS {
            return None;
        }
        let start = at;
        let byte = bytes[at];
        let next = bytes.get(at + 1).copied().unwrap_or(b' ');
        at += 1;
        let token = match byte {
            b' ' | b'\t' | b'\'' | b'"' => continue,
            b'=' | b':' => Token::Sign(byte),
            b'/' => Token::Slash,
            b',' | b';' | b'|' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' => Token::Break,
            b'0'..=b'9' => number(bytes, text, start, &mut at),
            b'+' | b'-' | b'.' if next.is_ascii_digit() || (next == b'.' && byte != b'.') => {
                number(bytes, text, start, &mut at)
            }
            b'-' if next.is_ascii_alphabetic() => {
                while at < bytes.len() && bytes[at].is_ascii_alphabetic() {
                    at += 1;
                }
                infinite(&text[start..at]).map_or(Token::Other, Token::Number)
            }
            b'-' => Token::Break,
            _ if byte.is_ascii_alphabetic() || byte == b'_' => {
                while at < bytes.len() && is_name(bytes[at]) {
                    at += 1;
                }
                let word = text[start..at].trim_end_matches(['.', '-', '/']);
                at = start + word.len();
                Token::Word(word)
            }
            _ => {
                // To the end of the character.
                while at < bytes.len() && !text.is_char_boundary(at) {
                    at += 1;
                }
                Token::Other
            }
        };
        tokens.push(token);
    }
    Some(tokens)
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-' | b'@')
}

fn number<'t>(bytes: &[u8], text: &str, start: usize, at: &mut usize) -> Token<'t> {
    let digits = |at: &mut usize| {
        while *at < bytes.len() && bytes[*at].is_ascii_digit() {
            *at += 1;
        }
    };
    *at = start + usize::from(matches!(bytes[start], b'+' | b'-'));
    digits(at);
    if bytes.get(*at) == Some(&b'.') {
        *at += 1;
        digits(at);
    }
    if matches!(bytes.get(*at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(*at + 1), Some(b'+' | b'-')));
        if bytes.get(*at + 1 + sign).is_some_and(u8::is_ascii_digit) {
            *at += 1 + sign;
            digits(at);
        }
    }
    let end = *at;
    if bytes.get(end) == Some(&b'%') {
        *at += 1;
    } else if bytes
        .get(end)
        .is_some_and(|&byte| byte >= 0x80 || is_name(byte) && byte != b'/')
    {
        while *at < bytes.len() && (is_name(bytes[*at]) || bytes[*at] >= 0x80) {
            *at += 1;
        }
        return Token::Other;
    }
    text[start..end].parse().map_or(Token::Other, Token::Number)
}

fn infinite(word: &str) -> Option<f64> {
    let known = ["nan", "-nan", "inf", "-inf", "infinity", "-infinity"];
    let is_known = known.iter().any(|known| word.eq_ignore_ascii_case(known));
    is_known
        .then(|| word.trim_start_matches('-').parse::<f64>().ok())
        .flatten()
        .map(|value| if word.starts_with('-') { -value } else { value })
}

struct Pair<'t> {
    words: Vec<&'t str>,
    value: f64,
    total: Option<f64>,
    firm: bool,
}

struct Pairs<'t> {
    found: Vec<Pair<'t>>,
    /// Nothing in the line but pairs.
    whole: bool,
}

impl<'t> Pairs<'t> {
    fn of(tokens: &[Token<'t>]) -> Self {
        let mut pairs = Pairs {
            found: Vec::new(),
            whole: true,
        };
        let mut words: Vec<&'t str> = Vec::new();
        let mut sign: Option<u8> = None;
        let mut index = 0;
        while index < tokens.len() {
            let token = match tokens[index] {
                // After a name, a word may be a number that is none.
                Token::Word(word) if !words.is_empty() => infinite(word).map_or(tokens[index], Token::Number),
                token => token,
            };
            index += 1;
            match token {
                Token::Word(word) => {
                    if let Some(sign) = sign.take() {
                        // The value of `device=cuda`; but `INFO:root:step=1` goes on.
                        words.clear();
                        pairs.whole = false;
                        if sign == b'=' || !matches!(tokens.get(index), Some(Token::Sign(_))) {
                            continue;
                        }
                    }
                    words.push(word);
                }
                Token::Sign(found) if !words.is_empty() => sign = Some(found),
                Token::Number(value) if !words.is_empty() => {
                    let total = match tokens.get(index..index + 2) {
                        Some([Token::Slash, Token::Number(total)]) => Some(*total),
                        _ => None,
                    };
                    index += if total.is_some() { 2 } else { 0 };
                    pairs.add(std::mem::take(&mut words), value, total, sign.take());
                }
                Token::Break if words.is_empty() => sign = None,
                _ => {
                    pairs.whole = false;
                    words.clear();
                    sign = None;
                }
            }
        }
        pairs.whole &= words.is_empty();
        pairs
    }

    fn add(&mut self, mut words: Vec<&'t str>, value: f64, total: Option<f64>, sign: Option<u8>) {
        let last_is_step = words.last().is_some_and(|word| is_step(word));
        if sign == Some(b'=') || last_is_step {
            // A key before `=` is one word; what stands before it is prose or a prefix.
            if words.len() > 1 {
                self.whole = false;
                words.drain(..words.len() - 1);
            }
        } else if words.len() > MAX_WORDS {
            self.whole = false;
            return;
        }
        self.found.push(Pair {
            words,
            value,
            total,
            firm: sign.is_some(),
        });
    }
}
