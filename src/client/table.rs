//! Tables for people: columns as wide as they need to be, numbers to the right, no ruler lines. Text from a server is
//! shown without its control characters, so that nothing printed by a job can move a terminal's cursor.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

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

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |text: &str| text.chars().count();
        let widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(column, (head, _))| {
                let cells = self
                    .rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| width(cell));
                cells.chain([width(head)]).max().unwrap_or(0)
            })
            .collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| -> std::fmt::Result {
            let mut text = String::new();
            for (column, cell) in cells.enumerate() {
                let (Some(&(_, align)), Some(&wide)) = (self.heads.get(column), widths.get(column)) else {
                    break;
                };
                if column > 0 {
                    text.push_str("  ");
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

/// One line without control characters.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect()
}

/// A line of output for a terminal: its colours stay, every other way to move the terminal goes.
pub fn line_for_terminal(text: &str, colours: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|character: char| character.is_control() && character != '\t') {
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
                // Every control character is one or two bytes long.
                rest = &tail[tail.chars().next().map_or(1, char::len_utf8)..];
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
            "NAME  GPUS  STATE\na        8  Running\nété    128  x  [2Jy\n"
        );
    }

    #[test]
    fn output_can_colour_a_terminal_but_not_drive_it() {
        assert_eq!(
            line_for_terminal("a\u{1b}[31mb\u{1b}[0m", true),
            "a\u{1b}[31mb\u{1b}[0m\u{1b}[0m"
        );
        assert_eq!(line_for_terminal("a\u{1b}[31mb", false), "ab");
        assert_eq!(line_for_terminal("a\u{1b}[2J\u{7}\u{0}b\tc", true), "a[2Jb\tc\u{1b}[0m");
        assert_eq!(
            line_for_terminal("\u{1b}]0;title\u{7}x\u{1b}[3", true),
            "]0;titlex[3\u{1b}[0m"
        );
    }
}
