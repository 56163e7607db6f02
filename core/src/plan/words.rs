//! Numbers, sizes and times as people read them. Used by every sentence here and by pages and the command line.

use chrono::{DateTime, Duration, Utc};

const UNITS: [(i64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];

/// `2 h 14 min`, `3 d 2 h`, `45 s`, `0 s`. At most two units; negative ones count as zero.
pub fn duration(span: Duration) -> String {
    let seconds = span.num_seconds().max(0);
    let Some(largest) = UNITS.iter().position(|&(unit, _)| seconds >= unit) else {
        return "0 s".to_owned();
    };
    let (unit, name) = UNITS[largest];
    let head = format!("{} {name}", seconds / unit);
    match UNITS.get(largest + 1) {
        Some(&(next, next_name)) if seconds % unit >= next => {
            format!("{head} {} {next_name}", seconds % unit / next)
        }
        _ => head,
    }
}

/// `about 2 h`: one unit, rounded to the nearest.
pub fn about(span: Duration) -> String {
    let seconds = span.num_seconds().max(0);
    // A unit is used from where rounding reaches one of it, so that 59 min 40 s is "about 1 h".
    let (unit, name) = UNITS
        .into_iter()
        .find(|&(unit, _)| seconds + smaller(unit) / 2 >= unit)
        .unwrap_or((1, "s"));
    format!("about {} {name}", (seconds + unit / 2) / unit)
}

/// The next smaller unit of a unit, in seconds.
fn smaller(unit: i64) -> i64 {
    match unit {
        86_400 => 3_600,
        3_600 => 60,
        60 => 1,
        _ => 0,
    }
}

/// `0.25 s`, `4.2 s`, `2 min 5 s`: for steps, whose fractions matter below ten seconds.
pub fn brief(span: Duration) -> String {
    let milliseconds = span.num_milliseconds().max(0);
    match milliseconds {
        0..1_000 => format!("0.{:02} s", milliseconds / 10),
        1_000..10_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        _ => duration(span),
    }
}

/// `4 min ago`, `in 4 min`, `now`.
pub fn relative(then: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let span = now - then;
    match span.num_seconds() {
        0 => "now".to_owned(),
        1.. => format!("{} ago", coarse(span)),
        _ => format!("in {}", coarse(-span)),
    }
}

/// The largest unit alone: what a table has room for.
pub fn coarse(span: Duration) -> String {
    let seconds = span.num_seconds().max(0);
    let (unit, name) = UNITS.into_iter().find(|&(unit, _)| seconds >= unit).unwrap_or((1, "s"));
    format!("{} {name}", seconds / unit)
}

/// `2026-11-30 13:04:10 UTC`.
pub fn exact(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// `1,240`.
pub fn count(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        grouped.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 rank`, `8 ranks`, `1,240 jobs`. For nouns whose plural ends in `s`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// `1.5 GiB`, `512 MiB`, `17 bytes`. One decimal below ten, where it says something.
pub fn bytes(number: u64) -> String {
    const SIZES: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match SIZES.into_iter().find(|&(size, _)| number >= size) {
        None => counted(number, "byte"),
        Some((size, name)) => {
            let tenths = (u128::from(number) * 10 + u128::from(size) / 2) / u128::from(size);
            if tenths < 100 && tenths % 10 != 0 {
                format!("{}.{} {name}", tenths / 10, tenths % 10)
            } else {
                // Below 2^64 / 1024 after division, so it fits.
                format!("{} {name}", count((tenths as i128 + 5) / 10))
            }
        }
    }
}

/// `2 cores`, `0.5 cores`, `1 core`.
pub fn cores(milli: u64) -> String {
    let fraction = milli % 1_000;
    let mut text = count(milli / 1_000);
    if fraction > 0 {
        text.push_str(format!(".{fraction:03}").trim_end_matches('0'));
    }
    format!("{text} core{}", if milli == 1_000 { "" } else { "s" })
}

/// `a`, `a and b`, `a, b and c`, `a, b and 7 more` when there are more than `most`.
pub fn list(items: &[String], most: usize) -> String {
    let shown = &items[..items.len().min(most)];
    let last = match items.len() - shown.len() {
        0 => None,
        rest => Some(format!("{} more", count(rest as u64))),
    };
    let mut parts: Vec<&str> = shown.iter().map(String::as_str).chain(last.as_deref()).collect();
    match parts.pop() {
        None => String::new(),
        Some(only) if parts.is_empty() => only.to_owned(),
        Some(last) => format!("{} and {last}", parts.join(", ")),
    }
}

/// `rank 2`, `ranks 2, 3 and 5`, `ranks 0 to 7`: runs of three and more are folded.
pub fn ranks(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in &sorted {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *rank => *end = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let parts: Vec<String> = runs
        .into_iter()
        .flat_map(|(from, to)| match to - from {
            0 => vec![from.to_string()],
            1 => vec![from.to_string(), to.to_string()],
            _ => vec![format!("{from} to {to}")],
        })
        .collect();
    let noun = if sorted.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", list(&parts, 8))
}

/// The first letter as a capital: sentences are made of parts that may start one.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units_and_never_a_sign() {
        for (seconds, words) in [
            (-5, "0 s"),
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (8_040, "2 h 14 min"),
            (7_201, "2 h"),
            (266_400, "3 d 2 h"),
        ] {
            assert_eq!(duration(Duration::seconds(seconds)), words, "{seconds}");
        }
    }

    #[test]
    fn steps_are_told_with_fractions_while_they_are_short() {
        for (milliseconds, words) in [(0, "0.00 s"), (254, "0.25 s"), (4_290, "4.2 s"), (61_000, "1 min 1 s")] {
            assert_eq!(brief(Duration::milliseconds(milliseconds)), words);
        }
    }

    #[test]
    fn about_rounds_to_one_unit() {
        for (seconds, words) in [
            (0, "about 0 s"),
            (44, "about 44 s"),
            (89, "about 1 min"),
            (91, "about 2 min"),
            (3_580, "about 1 h"),
            (3_500, "about 58 min"),
            (8_040, "about 2 h"),
            (86_399, "about 1 d"),
        ] {
            assert_eq!(about(Duration::seconds(seconds)), words, "{seconds}");
        }
    }

    #[test]
    fn numbers_are_grouped_and_sizes_are_short() {
        assert_eq!(count(1_240u32), "1,240");
        assert_eq!(count(-1_234_567i64), "-1,234,567");
        assert_eq!(count(999u32), "999");
        assert_eq!(counted(1, "rank"), "1 rank");
        assert_eq!(counted(1_000, "job"), "1,000 jobs");
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(1_610_612_736), "1.5 GiB");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(u64::MAX), "16,777,216 TiB");
        assert_eq!(cores(500), "0.5 cores");
        assert_eq!(cores(1_000), "1 core");
        assert_eq!(cores(64_250), "64.25 cores");
    }

    #[test]
    fn lists_and_ranks_read_as_a_person_would_say_them() {
        let items: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        assert_eq!(list(&items[..1], 3), "a");
        assert_eq!(list(&items[..2], 3), "a and b");
        assert_eq!(list(&items, 4), "a, b, c and d");
        assert_eq!(list(&items, 2), "a, b and 2 more");
        assert_eq!(list(&[], 2), "");
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[5, 2, 3]), "ranks 2, 3 and 5");
        assert_eq!(ranks(&[0, 1, 2, 3, 4, 5, 6, 7]), "ranks 0 to 7");
    }

    #[test]
    fn relative_times_say_on_which_side_of_now_they_are() {
        let now = DateTime::UNIX_EPOCH + Duration::days(20_000);
        assert_eq!(relative(now - Duration::seconds(250), now), "4 min ago");
        assert_eq!(relative(now + Duration::hours(5), now), "in 5 h");
        assert_eq!(relative(now, now), "now");
    }
}
