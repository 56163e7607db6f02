//! Tables for people: columns as wide as they need to be, numbers to the right, no ruler lines. Control characters and
//! those that turn the order of text are shown escaped, so that nothing printed by a job can drive or deceive a terminal.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

const GAP: &str = "  ";
/// A cell of the first column is not cut below this.
const SHORTEST: usize = 20;

pub struct Table {
    heads: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[(&'static str, Align)]) -> Self {
        Self {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// No wider than the terminal, where one reads it: first without the columns that can be spared, in that order, then
    /// with the first column cut. A file or a pipe gets all of it.
    pub fn fitted(self, spare: &[&str]) -> Self {
        match rustix::termios::tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 => self.within(usize::from(size.ws_col), spare),
            _ => self,
        }
    }

    fn within(mut self, room: usize, spare: &[&str]) -> Self {
        for head in spare {
            let place = self.heads.iter().position(|(known, _)| known == head);
            if let Some(place) = place.filter(|_| self.width() > room) {
                self.heads.remove(place);
                self.rows.iter_mut().for_each(|row| drop(row.remove(place)));
            }
        }
        let over = self.width().saturating_sub(room);
        let least = self.widths()[0].saturating_sub(over).max(SHORTEST);
        for cell in self.rows.iter_mut().filter_map(|row| row.first_mut()) {
            if cell.chars().count() > least {
                *cell = cell.chars().take(least - 1).chain(['…']).collect();
            }
        }
        self
    }

    fn widths(&self) -> Vec<usize> {
        let cells = |column| self.rows.iter().filter_map(move |row: &Vec<String>| row.get(column));
        (self.heads.iter().enumerate())
            .map(|(column, (head, _))| {
                let widths = cells(column).map(|cell| cell.chars().count());
                widths.chain([head.chars().count()]).max().unwrap_or(0)
            })
            .collect()
    }

    fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |text: &str| text.chars().count();
        let widths = self.widths();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| -> std::fmt::Result {
            let mut text = String::new();
            for (column, cell) in cells.enumerate() {
                let (Some(&(_, align)), Some(&wide)) = (self.heads.get(column), widths.get(column)) else {
                    break;
                };
                if column > 0 {
                    text.push_str(GAP);
                }
                let room = " ".repeat(wide.saturating_sub(width(cell)));
                match align {
                    Align::Left => text.extend([cell, &room]),
                    Align::Right => text.extend([room.as_str(), cell]),
                }
            }
            writeln!(f, "{}", text.trim_end())
        };
        line(&mut self.heads.iter().map(|(head, _)| *head))?;
        for row in &self.rows {
            line(&mut row.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// Moves a terminal's cursor, changes its state, or turns the order of what stands beside it.
fn drives(character: char) -> bool {
    let turns =
        matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns
}

/// One line, in which what could drive a terminal is seen instead: `\u{202e}`. Blanks of all kinds are a blank.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' | '\n' | '\r' => shown.push(' '),
            other if drives(other) => shown.extend(other.escape_unicode()),
            other => shown.push(other),
        }
    }
    shown
}

/// JSON that says the same and drives no terminal: what could stands only in its strings, where it can be escaped.
pub fn json_for_terminal(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            // Between the values, for whoever reads it.
            '\n' => shown.push('\n'),
            other if drives(other) => shown.push_str(&format!("\\u{:04x}", u32::from(other))),
            other => shown.push(other),
        }
    }
    shown
}

/// A line of output for a terminal: its colours stay, whatever else could drive the terminal is seen instead.
pub fn line_for_terminal(text: &str, colours: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|character: char| drives(character) && character != '\t') {
        shown.push_str(&rest[..at]);
        let tail = &rest[at..];
        let look = tail.strip_prefix("\u{1b}[").and_then(|codes| {
            let end = codes.find(|code: char| !(code.is_ascii_digit() || matches!(code, ';' | ':')))?;
            codes[end..].starts_with('m').then_some(2 + end + 1)
        });
        match look {
            Some(length) => {
                if colours {
                    shown.push_str(&tail[..length]);
                }
                rest = &tail[length..];
            }
            None => {
                let mut characters = tail.chars();
                shown.extend(characters.next().into_iter().flat_map(char::escape_unicode));
                rest = characters.as_str();
            }
        }
    }
    shown.push_str(rest);
    if colours && text.contains("\u{1b}[") {
        shown.push_str("\u{1b}[0m");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_stand_to_the_right() {
        let mut table = Table::new(&[("NAME", Align::Left), ("GPUS", Align::Right), ("STATE", Align::Left)]);
        table.row(["a".into(), "8".into(), "Running".into()]);
        table.row(["été".into(), "128".into(), "x\n\u{1b}[2Jy".into()]);
        assert_eq!(
            table.to_string(),
            "NAME  GPUS  STATE\na        8  Running\nété    128  x \\u{1b}[2Jy\n"
        );
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns_and_a_shorter_first_one() {
        let table = || {
            let mut table = Table::new(&[
                ("STATE", Align::Left),
                ("NAME", Align::Left),
                ("GPUS", Align::Right),
                ("ID", Align::Left),
            ]);
            table.row([
                "Waiting 37 s: starts next; needs 1 core".into(),
                "a".into(),
                "8".into(),
                "job_1".into(),
            ]);
            table.row(["Running".into(), "b".into(), "16".into(), "job_2".into()]);
            table
        };
        assert_eq!(
            table().within(58, &["GPUS"]).to_string(),
            table().to_string(),
            "it fits"
        );
        let narrow = table().within(40, &["GPUS"]).to_string();
        assert_eq!(
            narrow,
            "STATE                        NAME  ID\n\
             Waiting 37 s: starts next;…  a     job_1\n\
             Running                      b     job_2\n"
        );
        assert!(narrow.lines().all(|line| line.chars().count() <= 40));
        let least = table().within(5, &["GPUS"]).to_string();
        assert!(least.contains("\nWaiting 37 s: start…  a"), "{least}");
    }

    #[test]
    fn output_can_colour_a_terminal_but_not_drive_it() {
        assert_eq!(
            line_for_terminal("a\u{1b}[31mb\u{1b}[0m", true),
            "a\u{1b}[31mb\u{1b}[0m\u{1b}[0m"
        );
        assert_eq!(line_for_terminal("a\u{1b}[31mb", false), "ab");
        assert_eq!(
            line_for_terminal("a\u{1b}[2J\u{7}\u{0}b\tc", true),
            "a\\u{1b}[2J\\u{7}\\u{0}b\tc\u{1b}[0m"
        );
        assert_eq!(
            line_for_terminal("\u{1b}]0;title\u{7}x\u{1b}[3", true),
            "\\u{1b}]0;title\\u{7}x\\u{1b}[3\u{1b}[0m"
        );
    }

    #[test]
    fn what_turns_or_drives_a_terminal_is_seen_and_never_obeyed() {
        let evil = "a\u{202e}b\u{9b}2J\u{2066}c\u{7f}";
        assert_eq!(printable(evil), "a\\u{202e}b\\u{9b}2J\\u{2066}c\\u{7f}");
        assert_eq!(line_for_terminal(evil, true), printable(evil));
        let json = serde_json::to_string_pretty(&serde_json::json!({ "text": evil, "é": ["ü"] })).unwrap();
        let shown = json_for_terminal(&json);
        assert!(
            !shown.chars().any(|character| drives(character) && character != '\n'),
            "{shown}"
        );
        let back: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(back["text"], evil, "it says the same");
        assert_eq!(back["é"][0], "ü");
    }
}
