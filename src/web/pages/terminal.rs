//! A line of output as a terminal would leave it: colours become classes of the theme, a progress bar's `\r` leaves its
//! last state, and what can't be seen becomes visible. Background colours are dropped, since no theme could promise
//! that text on them stays readable; `logs.js` does the same in the browser.

/// A run of text with the same look. The class is empty, or words such as `a1 ab`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub class: String,
    pub text: String,
}

/// Cuts one stored line into segments.
pub fn segments(line: &str) -> Vec<Segment> {
    let mut look = Look::default();
    let mut done: Vec<Segment> = Vec::new();
    let mut rest = last_state(line);
    while let Some(character) = rest.chars().next() {
        if character == '\u{1b}' {
            let (sequence, after) = escape(rest);
            if let Some(codes) = sequence {
                look.apply(codes);
            }
            rest = after;
            continue;
        }
        let class = look.class();
        let shown = visible(character);
        match done.last_mut() {
            Some(last) if last.class == class => last.text.push(shown),
            _ => done.push(Segment {
                class,
                text: shown.to_string(),
            }),
        }
        rest = &rest[character.len_utf8()..];
    }
    done
}

/// The text alone, for titles and searches.
pub fn plain(line: &str) -> String {
    segments(line).into_iter().map(|segment| segment.text).collect()
}

/// What stands after the last carriage return that has anything after it.
fn last_state(line: &str) -> &str {
    let line = line.trim_end_matches(['\r', '\n']);
    line.rsplit('\r').next().unwrap_or(line)
}

/// Splits an escape sequence off. `Some`: the codes of a change of look; every other sequence is dropped whole.
fn escape(text: &str) -> (Option<&str>, &str) {
    let body = &text[1..];
    match body.as_bytes().first() {
        Some(b'[') => {
            let end = body[1..].find(|character: char| ('@'..='~').contains(&character));
            match end {
                Some(end) => {
                    let codes = (body.as_bytes()[1 + end] == b'm').then(|| &body[1..1 + end]);
                    (codes, &body[end + 2..])
                }
                None => (None, ""),
            }
        }
        // An operating system command (a title, a link) ends with BEL or ESC \.
        Some(b']') => {
            let bell = body.find('\u{7}').map(|at| (at, at + 1));
            let string = body.find("\u{1b}\\").map(|at| (at, at + 2));
            let end = [bell, string].into_iter().flatten().min();
            (None, end.map_or("", |(_, after)| &body[after..]))
        }
        Some(first) if first.is_ascii() => (None, &body[1..]),
        _ => (None, body),
    }
}

/// Control characters get their pictures, so that a NUL in the output can be seen and can't cut anything off. Marks
/// that turn the direction of text are shown too, or one line could pretend to be another.
fn visible(character: char) -> char {
    match character {
        '\t' => '\t',
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + character as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        other => other,
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Look {
    color: Option<u8>,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
    inverse: bool,
}

impl Look {
    fn class(self) -> String {
        let mut class = String::new();
        let mut add = |word: &str| {
            if !class.is_empty() {
                class.push(' ');
            }
            class.push_str(word);
        };
        if let Some(color) = self.color {
            add(&format!("a{color}"));
        }
        for (set, word) in [
            (self.bold, "ab"),
            (self.dim, "ad"),
            (self.italic, "ai"),
            (self.underline, "au"),
            (self.inverse, "av"),
        ] {
            if set {
                add(word);
            }
        }
        class
    }

    fn apply(&mut self, codes: &str) {
        let mut codes = codes
            .split([';', ':'])
            .map(|code| if code.is_empty() { Ok(0) } else { code.parse::<u16>() });
        while let Some(code) = codes.next() {
            let Ok(code) = code else { return };
            match code {
                0 => *self = Look::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                4 => self.underline = true,
                7 => self.inverse = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underline = false,
                27 => self.inverse = false,
                30..=37 => self.color = Some((code - 30) as u8),
                39 => self.color = None,
                90..=97 => self.color = Some((code - 82) as u8),
                38 | 48 => {
                    let mut next = || codes.next().and_then(Result::ok).unwrap_or(0).min(255) as u8;
                    let color = match next() {
                        5 => indexed(next()),
                        2 => nearest(next(), next(), next()),
                        _ => return,
                    };
                    if code == 38 {
                        self.color = Some(color);
                    }
                }
                _ => {}
            }
        }
    }
}

/// One of 256 as the nearest of the sixteen.
fn indexed(index: u8) -> u8 {
    match index {
        0..=15 => index,
        16..=231 => {
            let level = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
            let cube = index - 16;
            nearest(level(cube / 36), level(cube / 6 % 6), level(cube % 6))
        }
        232.. => 7,
    }
}

fn nearest(red: u8, green: u8, blue: u8) -> u8 {
    let top = red.max(green).max(blue);
    if top - red.min(green).min(blue) < 32 {
        return 7;
    }
    let bit = |part: u8| u8::from(u16::from(part) * 3 > u16::from(top) * 2);
    bit(red) | bit(green) << 1 | bit(blue) << 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(line: &str) -> Vec<(String, String)> {
        segments(line)
            .into_iter()
            .map(|segment| (segment.class, segment.text))
            .collect()
    }

    #[test]
    fn colours_become_classes_and_end_where_they_end() {
        assert_eq!(
            cut("a \u{1b}[1;31mbad\u{1b}[0m z"),
            [("", "a "), ("a1 ab", "bad"), ("", " z")].map(|(class, text)| (class.into(), text.into()))
        );
        assert_eq!(cut("\u{1b}[38;5;196mred")[0].0, "a1");
        assert_eq!(cut("\u{1b}[38;2;0;200;0mgreen")[0].0, "a2");
        assert_eq!(cut("\u{1b}[94mblue")[0].0, "a12");
        assert_eq!(cut("\u{1b}[41mno ground")[0].0, "");
    }

    #[test]
    fn a_progress_bar_leaves_its_last_state() {
        assert_eq!(plain("  0%\r 50%\r100%"), "100%");
        assert_eq!(plain("windows line\r"), "windows line");
        assert_eq!(plain("100%\r\r"), "100%");
    }

    #[test]
    fn sequences_that_are_no_colour_vanish_even_when_they_are_cut_off() {
        assert_eq!(
            plain("\u{1b}[2Ka\u{1b}]8;;http://x\u{7}b\u{1b}]0;t\u{1b}\\c\u{1b}(Bd"),
            "abcBd"
        );
        assert_eq!(plain("a\u{1b}[31"), "a");
        assert_eq!(plain("a\u{1b}]0;never ends"), "a");
        assert_eq!(plain("a\u{1b}"), "a");
        assert_eq!(plain("a\u{1b}é"), "aé");
        assert_eq!(plain("a\u{1b}[999999999999mb"), "ab");
    }

    #[test]
    fn what_cannot_be_seen_is_shown() {
        assert_eq!(plain("a\u{0}b\u{7f}"), "a\u{2400}b\u{2421}");
        assert_eq!(plain("\u{202e}evil"), "\u{fffd}evil");
    }
}
