//! Tables that sort: the head of a column is a link, and the choice lives in the address: `sort=cpu` rises, `sort=-cpu`
//! falls. A page is told where the one before it ended by that row's own place in the order, so a row that comes, goes or
//! changes meanwhile moves no other one.

use std::cmp::Ordering;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub label: &'static str,
    /// In the address. Empty: no sort by it.
    pub word: &'static str,
    pub holds: Holds,
}

impl Column {
    pub const fn new(label: &'static str, word: &'static str, holds: Holds) -> Self {
        Self { label, word, holds }
    }
}

/// What stands in a column, which says how its orders are called and which of them comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    State,
    Text,
    Number,
    Time,
}

impl Holds {
    /// Rising and falling in words.
    fn orders(self) -> [&'static str; 2] {
        match self {
            Holds::State => ["best first", "worst first"],
            Holds::Text => ["A to Z", "Z to A"],
            Holds::Number => ["smallest first", "largest first"],
            Holds::Time => ["oldest first", "newest first"],
        }
    }
}

/// The order of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    pub word: &'static str,
    pub falls: bool,
}

impl Sort {
    /// What the address asks for, or the usual order where that is none of ours.
    pub fn of(text: Option<&str>, columns: &[Column], usual: Sort) -> Self {
        let text = text.unwrap_or_default();
        let (falls, word) = match text.strip_prefix('-') {
            Some(word) => (true, word),
            None => (false, text),
        };
        let known = columns.iter().find(|column| !word.is_empty() && column.word == word);
        known.map_or(usual, |column| Sort {
            word: column.word,
            falls,
        })
    }

    /// As the address has it.
    pub fn text(self) -> String {
        format!("{}{}", if self.falls { "-" } else { "" }, self.word)
    }

    /// How two rows follow each other: by the column, and within it always by name.
    fn order<T, U>(self, one: &Placed<T>, other: &Placed<U>) -> Ordering {
        let by_key = one.key.cmp(&other.key);
        let by_key = if self.falls { by_key.reverse() } else { by_key };
        by_key
            .then_with(|| one.name.cmp(&other.name))
            .then_with(|| one.id.cmp(&other.id))
    }
}

/// What a row is sorted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Number(i64),
    Text(String),
}

/// A row with its place in an order. Names of nodes and clusters hold no `~`.
#[derive(Debug, Clone)]
pub struct Placed<T> {
    pub key: Key,
    pub name: String,
    pub id: String,
    pub row: T,
}

impl<T> Placed<T> {
    /// This place as an address carries it.
    pub fn place(&self) -> String {
        let key = match &self.key {
            Key::Number(number) => number.to_string(),
            Key::Text(text) => text.clone(),
        };
        format!("{key}~{}~{}", self.name, self.id)
    }

    /// The place of a row that may be gone. `None`: the text is no place among rows like this one.
    fn of_place(&self, text: &str) -> Option<Placed<()>> {
        let mut parts = text.rsplitn(3, '~').map(str::to_owned);
        let (id, name, key) = (parts.next()?, parts.next()?, parts.next()?);
        let key = match self.key {
            Key::Number(_) => Key::Number(key.parse().ok()?),
            Key::Text(_) => Key::Text(key),
        };
        Some(Placed { key, name, id, row: () })
    }
}

/// Puts rows into order and answers those of one page, with the place after which the next one begins.
pub fn page<T>(mut rows: Vec<Placed<T>>, sort: Sort, after: Option<&str>, size: usize) -> (Vec<T>, Option<String>) {
    rows.sort_by(|one, other| sort.order(one, other));
    let after = rows.first().and_then(|first| first.of_place(after?));
    let from = after.map_or(0, |after| rows.partition_point(|row| sort.order(row, &after).is_le()));
    let next = (rows.len() > from + size).then(|| rows[from + size - 1].place());
    let rows = rows.into_iter().skip(from).take(size);
    (rows.map(|placed| placed.row).collect(), next)
}

/// The head of a column as the page shows it.
#[derive(Debug, Clone)]
pub struct Head {
    pub label: &'static str,
    pub numeric: bool,
    pub link: Option<SortLink>,
}

#[derive(Debug, Clone)]
pub struct SortLink {
    pub href: String,
    /// `Sort by CPU, cores, largest first`.
    pub title: String,
    /// `ascending` or `descending`, of the column that the table is sorted by.
    pub now: Option<&'static str>,
}

/// Heads of all columns. A second press on the same one turns the order round.
pub fn heads(columns: &[Column], sort: Sort, address: impl Fn(&str) -> String) -> Vec<Head> {
    let head = |column: &Column| {
        let current = column.word == sort.word;
        let turned = Sort {
            word: column.word,
            falls: if current {
                !sort.falls
            } else {
                column.holds != Holds::Text
            },
        };
        let words = column.holds.orders()[usize::from(turned.falls)];
        Head {
            label: column.label,
            numeric: column.holds == Holds::Number,
            link: (!column.word.is_empty()).then(|| SortLink {
                href: address(&turned.text()),
                title: format!("Sort by {}, {words}", column.label),
                now: current.then_some(if sort.falls { "descending" } else { "ascending" }),
            }),
        }
    };
    columns.iter().map(head).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column::new("Node", "name", Holds::Text),
        Column::new("GPUs", "gpus", Holds::Number),
        Column::new("Asks for", "", Holds::Text),
    ];
    const USUAL: Sort = Sort {
        word: "name",
        falls: false,
    };

    fn rows(gpus: &[i64]) -> Vec<Placed<usize>> {
        (gpus.iter().enumerate())
            .map(|(row, gpus)| Placed {
                key: Key::Number(*gpus),
                name: format!("node-{row}"),
                id: row.to_string(),
                row,
            })
            .collect()
    }

    #[test]
    fn the_address_chooses_among_the_columns_that_sort() {
        let gpus = Sort {
            word: "gpus",
            falls: true,
        };
        assert_eq!(Sort::of(Some("-gpus"), &COLUMNS, USUAL), gpus);
        for foreign in [None, Some(""), Some("-"), Some("password")] {
            assert_eq!(Sort::of(foreign, &COLUMNS, USUAL), USUAL, "{foreign:?}");
        }
    }

    #[test]
    fn a_head_turns_its_own_order_round_and_says_so() {
        let heads = heads(&COLUMNS, USUAL, |sort| format!("/nodes?sort={sort}"));
        let link = heads[0].link.as_ref().unwrap();
        assert_eq!((link.href.as_str(), link.now), ("/nodes?sort=-name", Some("ascending")));
        assert_eq!(link.title, "Sort by Node, Z to A");
        let link = heads[1].link.as_ref().unwrap();
        assert_eq!((link.href.as_str(), link.now), ("/nodes?sort=-gpus", None));
        assert!(heads[2].link.is_none());
    }

    #[test]
    fn pages_follow_each_other_though_the_row_between_them_is_gone() {
        let falling = Sort {
            word: "gpus",
            falls: true,
        };
        let (first, next) = page(rows(&[1, 8, 8, 4, 8, 0]), falling, None, 2);
        assert_eq!(first, [1, 2]);
        // The last row of the first page lost its GPUs since.
        let (second, next) = page(rows(&[1, 8, 0, 4, 8, 0]), falling, next.as_deref(), 2);
        assert_eq!(second, [4, 3]);
        let (last, next) = page(rows(&[1, 8, 0, 4, 8, 0]), falling, next.as_deref(), 10);
        assert_eq!((last, next), (vec![0, 2, 5], None));
        let (all, _) = page(rows(&[1, 2]), falling, Some("no place"), 10);
        assert_eq!(all, [1, 0]);
    }
}
