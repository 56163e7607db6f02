//! Quantities as people write them: `90s`, `500m`, `2Gi`. Each knows its one text form and refuses the rest by name.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What is wrong with a quantity, in words that name the value and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct UnitError {
    pub text: String,
    pub expected: &'static str,
}

fn fault(text: &str, expected: &'static str) -> UnitError {
    UnitError {
        text: text.chars().take(64).collect(),
        expected,
    }
}

/// A span of time in whole seconds, written `90s`, `15m`, `1h30m`, `2d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    const EXPECTED: &'static str = "a duration such as 90s, 15m, 1h30m or 2d (at most 3650d)";
    const MAX: u64 = 3650 * 86_400;

    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    pub const fn as_seconds(self) -> u64 {
        self.0
    }

    pub fn as_chrono(self) -> chrono::Duration {
        // MAX is far below the limit of chrono's milliseconds.
        chrono::Duration::seconds(self.0.min(Self::MAX) as i64)
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let mut total: u64 = 0;
        let mut digits = String::new();
        let mut last_unit = u64::MAX;
        for character in text.chars() {
            if character.is_ascii_digit() && digits.len() < 12 {
                digits.push(character);
                continue;
            }
            let unit = match character {
                'd' => 86_400,
                'h' => 3_600,
                'm' => 60,
                's' => 1,
                _ => return Err(fault(text, Self::EXPECTED)),
            };
            let number: u64 = digits.parse().map_err(|_| fault(text, Self::EXPECTED))?;
            if unit >= last_unit {
                return Err(fault(text, Self::EXPECTED));
            }
            total = total.saturating_add(number.saturating_mul(unit));
            last_unit = unit;
            digits.clear();
        }
        if !digits.is_empty() || last_unit == u64::MAX || total > Self::MAX {
            return Err(fault(text, Self::EXPECTED));
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, name) in [(86_400, 'd'), (3_600, 'h'), (60, 'm'), (1, 's')] {
            if rest >= unit {
                write!(f, "{}{name}", rest / unit)?;
                rest %= unit;
            }
        }
        Ok(())
    }
}

/// Processor time in thousandths of a core, written `2`, `0.5` or `500m`. The default is one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuQuantity(u64);

impl CpuQuantity {
    const EXPECTED: &'static str = "a number of cores such as 2, 0.5 or 500m (at least 1m, at most 10000)";
    const MAX_MILLI: u64 = 10_000_000;

    pub const fn milli(milli: u64) -> Self {
        Self(milli)
    }

    pub const fn as_milli(self) -> u64 {
        self.0
    }
}

impl Default for CpuQuantity {
    fn default() -> Self {
        Self(1000)
    }
}

impl FromStr for CpuQuantity {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || fault(text, Self::EXPECTED);
        let milli = match text.strip_suffix('m') {
            Some(whole) if whole.bytes().all(|byte| byte.is_ascii_digit()) => whole.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
            None => decimal(text, 1000).ok_or_else(wrong)?,
        };
        if (1..=Self::MAX_MILLI).contains(&milli) {
            Ok(Self(milli))
        } else {
            Err(wrong())
        }
    }
}

impl fmt::Display for CpuQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) {
            write!(f, "{}", self.0 / 1000)
        } else {
            write!(f, "{}m", self.0)
        }
    }
}

/// Bytes, written `512Mi`, `2Gi`, `1G` or as a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryQuantity(u64);

impl MemoryQuantity {
    const EXPECTED: &'static str = "an amount of memory such as 512Mi, 2Gi, 1G or a number of bytes";
    const UNITS: [(&'static str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    const MAX: u64 = 1 << 50;

    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for MemoryQuantity {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || fault(text, Self::EXPECTED);
        let (number, unit) = Self::UNITS
            .iter()
            .find_map(|&(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, unit)))
            .unwrap_or((text, 1));
        let bytes = decimal(number, unit).ok_or_else(wrong)?;
        if (1..=Self::MAX).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(wrong())
        }
    }
}

impl fmt::Display for MemoryQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, unit) in [("Ti", 1u64 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{suffix}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A plain decimal times a unit, exactly; `None` for anything else, fractions of the smallest part included.
fn decimal(text: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.len() <= 18 && part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || text.ends_with('.') {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let scale = 10u128.pow(fraction.len() as u32);
    let fraction: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scaled = (whole * scale + fraction).checked_mul(u128::from(unit))?;
    if scaled % scale != 0 {
        return None;
    }
    u64::try_from(scaled / scale).ok()
}

/// JSON and YAML give numbers where people write `cpu: 2`; both forms are read, one is written.
macro_rules! text_or_number {
    ($name:ident, $format:literal, $title:literal, $pattern:literal, $number:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = match serde_json::Value::deserialize(deserializer)? {
                    serde_json::Value::String(text) => text,
                    serde_json::Value::Number(number) if $number => number.to_string(),
                    other => other.to_string(),
                };
                text.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                if $number {
                    json_schema!({ "title": $title, "type": ["string", "number"], "pattern": $pattern, "format": $format })
                } else {
                    json_schema!({ "title": $title, "type": "string", "pattern": $pattern, "format": $format })
                }
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some($title))
                    .pattern(Some($pattern))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}

text_or_number!(
    Duration,
    "duration-text",
    "a duration such as 90s, 15m, 1h30m or 2d",
    "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$",
    false
);
text_or_number!(
    CpuQuantity,
    "cpu-quantity",
    "a number of cores such as 2, 0.5 or 500m",
    r"^[0-9]+(\.[0-9]+)?$|^[0-9]+m$",
    true
);
text_or_number!(
    MemoryQuantity,
    "memory-quantity",
    "an amount of memory such as 512Mi, 2Gi, 1G or a number of bytes",
    r"^[0-9]+(\.[0-9]+)?([KMGT]i|[kMGT])?$",
    true
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h30m", 5400), ("2d", 172_800), ("0s", 0)] {
            assert_eq!(
                text.parse::<Duration>().map(Duration::as_seconds),
                Ok(seconds),
                "{text}"
            );
        }
        assert_eq!(Duration::seconds(90).to_string(), "1m30s");
        for wrong in [
            "",
            "10",
            "m",
            "1m1h",
            "1x",
            "1s1s",
            "99999999999999999999s",
            "3651d",
            "-1s",
            "1.5h",
        ] {
            assert!(wrong.parse::<Duration>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn quantities_are_exact_or_refused() {
        assert_eq!("0.5".parse::<CpuQuantity>().map(CpuQuantity::as_milli), Ok(500));
        assert_eq!("500m".parse::<CpuQuantity>().map(CpuQuantity::as_milli), Ok(500));
        assert_eq!("2".parse::<CpuQuantity>().map(|cpu| cpu.to_string()), Ok("2".into()));
        assert_eq!(
            "1.5Gi".parse::<MemoryQuantity>().map(MemoryQuantity::as_bytes),
            Ok(1_610_612_736)
        );
        assert_eq!(
            "512Mi".parse::<MemoryQuantity>().map(|memory| memory.to_string()),
            Ok("512Mi".into())
        );
        for wrong in [
            "",
            "-1",
            "1e3",
            "0.0001",
            "0",
            "m",
            "1.m",
            "1 ",
            "NaN",
            "99999999999999999999",
        ] {
            assert!(wrong.parse::<CpuQuantity>().is_err(), "{wrong}");
        }
        for wrong in ["", "1GiB", "0.3", "0", "Gi", "1.Gi"] {
            assert!(wrong.parse::<MemoryQuantity>().is_err(), "{wrong}");
        }
    }
}
