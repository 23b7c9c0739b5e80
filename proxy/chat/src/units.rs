//! Durations and sizes as people write them in a configuration: `10 min`, `16 MiB`.

use std::{fmt, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::clock::whole_ms;

/// A duration: `500 ms`, `60 s`, `10 min`, `8 h`, `30 d`. A bare number is in seconds.
///
/// # Examples
/// ```
/// use metaclaw_chat::Span;
///
/// assert_eq!("10 min".parse::<Span>()?, Span::mins(10));
/// assert!("ten minutes".parse::<Span>().is_err());
/// # Ok::<(), metaclaw_chat::UnitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, JsonSchema)]
#[schemars(extend("format" = "span"))]
pub struct Span(#[schemars(with = "String")] pub Duration);

/// A number of bytes: `512 KiB`, `16 MiB`, `2 GiB`; a bare number is bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, JsonSchema)]
#[schemars(extend("format" = "size"))]
pub struct Size(#[schemars(with = "String")] pub u64);

/// Why a text is not a duration or not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no {kind}")]
pub struct UnitError {
    value: String,
    kind: &'static str,
}

const SPANS_MS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("min", 60_000),
    ("s", 1_000),
    ("ms", 1),
];
const SIZES: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Parses `12 min` by a table of units. Without a unit, the factor is `bare`.
fn read(text: &str, units: &[(&str, u64)], bare: u64) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = (&text[..split], text[split..].trim());
    let factor = match unit {
        "" => bare,
        unit => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn write(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
    match units.iter().find(fits).or_else(|| units.last()) {
        Some((name, factor)) => write!(f, "{} {name}", value / factor),
        None => write!(f, "{value}"),
    }
}

// === impl Span ===

impl Span {
    /// Makes a span of whole seconds.
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// Makes a span of whole minutes.
    pub const fn mins(n: u64) -> Self {
        Self::secs(n * 60)
    }

    /// Makes a span of whole hours.
    pub const fn hours(n: u64) -> Self {
        Self::mins(n * 60)
    }

    /// Makes a span of whole milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
}

// === impl Size ===

impl Size {
    /// Makes a size of whole mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Returns the size as `usize`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A number or a text, because YAML may give either.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// Reads and writes a unit by its table. Without a unit, the factor is `$bare`.
macro_rules! unit {
    ($name:ident, $units:expr, $bare:expr, $from:expr, $to:expr, $kind:literal) => {
        impl FromStr for $name {
            type Err = UnitError;

            fn from_str(value: &str) -> Result<Self, UnitError> {
                read(value, &$units, $bare)
                    .map($from)
                    .ok_or_else(|| UnitError {
                        value: value.to_owned(),
                        kind: $kind,
                    })
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write(f, $to(self.0), &$units)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = match NumberOrText::deserialize(deserializer)? {
                    NumberOrText::Number(number) => number.to_string(),
                    NumberOrText::Text(text) => text,
                };
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}
unit!(
    Span,
    SPANS_MS,
    1_000,
    Self::millis,
    whole_ms,
    "duration: a number and one of ms, s, min, h, d, as in \"10 min\""
);
unit!(
    Size,
    SIZES,
    1,
    Self,
    u64::from,
    "size: a number and one of B, KiB, MiB, GiB, as in \"16 MiB\""
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_read_back_as_written() {
        for text in ["10 min", "8 h", "500 ms", "14 d", "1 s", "90 s", "0 ms"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["16 MiB", "512 KiB", "3 GiB", "7 B"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("10min".parse::<Span>().unwrap(), Span::mins(10));
        assert_eq!(serde_json::from_str::<Span>("60").unwrap(), Span::secs(60));
    }

    #[test]
    fn what_is_no_unit_is_refused_in_words() {
        for bad in ["", "min", "5 weeks", "-1 s", "99999999999999999999 d"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        let error = serde_json::from_str::<Size>("\"5 MB\"").unwrap_err();
        assert!(error.to_string().contains("KiB, MiB, GiB"), "{error}");
    }
}
