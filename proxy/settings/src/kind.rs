//! Kinds of values: what a key allows, and how written values are converted.
//!
//! All sources are read in the same way: the file gives YAML values, the environment and `config set` give text. YAML
//! 1.1 reads `yes` as true and `23:00` as 1380, so both are accepted.

use std::{
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use metaclaw_chat::{Size, Span};
use serde_json::Value;

use crate::{environment, yaml};

/// What values a key takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueKind {
    /// Any text; a bare number is a text too.
    Text,
    /// A text that is never shown in full, and is used in a header.
    Secret,
    /// A secret that callers must send; an empty one would let everybody in.
    CallersKey,
    /// `http://…` or `https://…`.
    Url,
    /// An address of this machine.
    Host,
    /// A file or folder; `~/` is the user's home, and a relative path starts at the folder of the file that names it.
    Path,
    Bool,
    /// A whole number between two bounds, both allowed.
    Count(u64, u64),
    /// Minutes, between two bounds, both allowed.
    Minutes(u64, u64),
    /// A number between two bounds, both allowed.
    Number(f64, f64),
    /// A duration, as in `10 min`.
    Span,
    /// A size, as in `16 MiB`.
    Size,
    /// A time of day, as in `23:00`.
    Time,
    /// One of these words.
    OneOf(Vec<String>),
    /// Some of these words, joined by `+` or as a list.
    SomeOf(Vec<String>),
    /// A list of these words; it may be empty.
    AnyOf(Vec<String>),
    /// A list of at least one of these words.
    Among(Vec<String>),
    /// A list of texts.
    Texts,
    /// A list of at least one text.
    OneOrMore,
    /// A list of texts that are never shown in full.
    Secrets,
    /// A list of calendars: files, or addresses that are secret like keys.
    Calendars,
    /// A tree that its section checks; the text describes it.
    Tree(String),
}

// === impl ValueKind ===

impl ValueKind {
    /// The kind by its name in `unsupported_keys.yaml`: a word, or the words of a choice with `|` between them.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "bool" => Self::Bool,
            "count" => Self::Count(0, u64::MAX),
            "number" => Self::Number(0.0, f64::MAX),
            "secret" => Self::Secret,
            "span" => Self::Span,
            "tree" => Self::Tree("a tree".to_owned()),
            "url" => Self::Url,
            choice if choice.contains('|') => {
                Self::OneOf(choice.split('|').map(|it| it.trim().to_owned()).collect())
            }
            _ => Self::Text,
        }
    }

    /// Whether it is never shown in full.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(
            self,
            Self::Secret | Self::CallersKey | Self::Secrets | Self::Calendars
        )
    }

    /// Whether it may name variables of the environment, as in `${NAME}`.
    pub(crate) fn may_name_variables(&self) -> bool {
        self.is_secret() || *self == Self::Url
    }

    /// Returns whether the text is taken as it was written, whatever YAML reads it as, because a model may have the
    /// name `n` or `1.10`.
    pub(crate) fn is_text(&self) -> bool {
        !matches!(
            self,
            Self::Bool
                | Self::Count(..)
                | Self::Minutes(..)
                | Self::Number(..)
                | Self::Span
                | Self::Size
                | Self::Time
                | Self::Tree(_)
        )
    }

    /// Whether a default alone does not show what else is allowed.
    pub(crate) fn is_bounded(&self) -> bool {
        matches!(
            self,
            Self::Count(..)
                | Self::Minutes(..)
                | Self::Number(..)
                | Self::OneOf(_)
                | Self::SomeOf(_)
                | Self::AnyOf(_)
                | Self::Among(_)
                | Self::Tree(_)
        )
    }

    /// Returns what is allowed, as the end of an error message.
    pub(crate) fn allowed(&self) -> String {
        let said = match self {
            Self::Text => "a text",
            Self::Secret => {
                "ASCII text without spaces, or ${NAME} for a variable of the environment"
            }
            Self::CallersKey => {
                "ASCII text without spaces, or ${NAME} for a variable of the environment, not empty: leave it out for none"
            }
            Self::Url => "an address that begins with http:// or https://",
            Self::Host => "an IP address, or localhost",
            Self::Path => "a path",
            Self::Bool => "true or false",
            Self::Span => "a duration: a number and one of ms, s, min, h, d, as in \"10 min\"",
            Self::Size => "a size: a number and one of B, KiB, MiB, GiB, as in \"16 MiB\"",
            Self::Time => "a time of day, as in \"23:00\"",
            Self::Texts => "a list of texts",
            Self::Secrets => {
                "a list of ASCII texts without spaces, or of ${NAME} for variables of the environment"
            }
            Self::Calendars => {
                "a list of files, or of addresses that begin with https://, http:// or webcal://"
            }
            Self::OneOrMore => "a list of one or more texts",
            Self::Tree(shape) => shape,
            Self::Count(low, u64::MAX) => return format!("a whole number, {low} or more"),
            Self::Count(low, high) => return format!("a whole number from {low} to {high}"),
            Self::Minutes(low, high) => {
                return format!(
                    "minutes: a whole number from {low} to {high} without a unit, as in 30"
                );
            }
            Self::Number(low, f64::MAX) => return format!("a number, {low} or more"),
            Self::Number(low, high) => return format!("a number from {low} to {high}"),
            Self::OneOf(words) => return words.join(", "),
            Self::SomeOf(words) => {
                return format!("one or more of {}, joined by +", words.join(", "));
            }
            Self::AnyOf(words) => return format!("a list of any of {}", words.join(", ")),
            Self::Among(words) => return format!("a list of one or more of {}", words.join(", ")),
        };
        said.to_owned()
    }

    /// Returns the value in its normal form, or `None` if it is not allowed.
    pub(crate) fn parse(&self, given: &Value) -> Option<Value> {
        match self {
            Self::Text | Self::Path => text(given).map(Value::from),
            Self::Secret => text(given).filter(|it| is_of_signs(it)).map(Value::from),
            Self::CallersKey => Self::Secret.parse(given).filter(|it| *it != ""),
            Self::Host => host(given).map(Value::from),
            Self::Url => text(given)
                .filter(|it| is_url(it) || it.starts_with("${"))
                .map(Value::from),
            Self::Bool => boolean(given).map(Value::from),
            Self::Count(low, high) | Self::Minutes(low, high) => count(given)
                .filter(|it| (low..=high).contains(&it))
                .map(Value::from),
            Self::Number(low, high) => number(given)
                .filter(|it| (low..=high).contains(&it))
                .map(Value::from),
            Self::Span => unit::<Span>(given),
            Self::Size => unit::<Size>(given),
            Self::Time => time(given).map(Value::from),
            // YAML 1.1 reads off as false.
            Self::OneOf(words) if *given == false && is_word("off", words) => Some("off".into()),
            Self::OneOf(words) => {
                let given = text(given)?.to_lowercase();
                is_word(&given, words).then(|| given.into())
            }
            Self::SomeOf(words) => {
                let given = match given {
                    Value::Array(_) => texts(given)?,
                    other => text(other)?
                        .split('+')
                        .map(|it| it.trim().to_owned())
                        .collect(),
                };
                are_words(&given, words)
                    .then(|| given.join("+").into())
                    .filter(|it| *it != "")
            }
            Self::AnyOf(words) => texts(given)
                .filter(|it| are_words(it, words))
                .map(Value::from),
            Self::Among(words) => Self::AnyOf(words.clone()).parse(given).filter(is_some),
            Self::Texts | Self::Calendars => texts(given).map(Value::from),
            Self::Secrets => texts(given)
                .filter(|keys| keys.iter().all(|it| is_of_signs(it)))
                .map(Value::from),
            Self::OneOrMore => Self::Texts.parse(given).filter(is_some),
            Self::Tree(_) => tree(given),
        }
    }
}

/// Returns whether a text can be in a header and be compared there, and is no other system's way to name a variable.
fn is_of_signs(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic()) && !environment::is_foreign(text)
}

/// Parses a value with a unit by its own type.
fn unit<T: FromStr + ToString>(given: &Value) -> Option<Value> {
    let unit: T = text(given)?.parse().ok()?;
    Some(unit.to_string().into())
}

fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
}

fn host(given: &Value) -> Option<String> {
    let given = text(given)?;
    if given == "localhost" {
        return Some(Ipv4Addr::LOCALHOST.to_string());
    }
    let address: IpAddr = given.trim_matches(['[', ']']).parse().ok()?;
    Some(address.to_string())
}

fn text(given: &Value) -> Option<String> {
    match given {
        Value::String(it) => Some(it.trim().to_owned()),
        // JSON would write 0.00001 as 1e-5.
        Value::Number(it) if it.is_f64() => it.as_f64().map(|it| it.to_string()),
        Value::Number(it) => Some(it.to_string()),
        Value::Bool(it) => Some(it.to_string()),
        Value::Null | Value::Object(_) | Value::Array(_) => None,
    }
}

fn boolean(given: &Value) -> Option<bool> {
    match text(given)?.to_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn count(given: &Value) -> Option<u64> {
    text(given)?.replace('_', "").parse().ok()
}

fn number(given: &Value) -> Option<f64> {
    let number: f64 = text(given)?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// Parses `23:00`, or 1380, which YAML 1.1 makes of it without quotes.
fn time(given: &Value) -> Option<String> {
    let given = text(given)?;
    let (hours, minutes) = match given.split_once(':') {
        Some((hours, minutes)) if minutes.len() == 2 => {
            (hours.parse::<u32>().ok()?, minutes.parse::<u32>().ok()?)
        }
        Some(_) => return None,
        None => {
            let minutes = given.parse::<u32>().ok()?;
            (minutes / 60, minutes % 60)
        }
    };
    (hours < 24 && minutes < 60).then(|| format!("{hours:02}:{minutes:02}"))
}

fn texts(given: &Value) -> Option<Vec<String>> {
    match given {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::String(it) if it.trim_start().starts_with('[') => texts(&tree(given)?),
        other => text(other).map(|it| vec![it]),
    }
}

fn is_some(list: &Value) -> bool {
    list.as_array().is_some_and(|items| !items.is_empty())
}

fn is_word(given: &str, words: &[String]) -> bool {
    words.iter().any(|word| word == given)
}

fn are_words(given: &[String], words: &[String]) -> bool {
    given.iter().all(|it| is_word(it, words))
}

/// Returns a tree unchanged; from the environment it comes as YAML in one line.
fn tree(given: &Value) -> Option<Value> {
    match given {
        Value::String(it) => yaml::value(it),
        Value::Object(_) | Value::Array(_) => Some(given.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
        words.map(str::to_owned).into()
    }

    fn read(kind: &ValueKind, given: impl Into<Value>) -> Option<String> {
        kind.parse(&given.into()).as_ref().and_then(text)
    }

    #[test]
    fn what_yaml_1_1_meant_is_understood() {
        assert_eq!(read(&ValueKind::Time, 1380).as_deref(), Some("23:00"));
        assert_eq!(read(&ValueKind::Time, "7:00").as_deref(), Some("07:00"));
        assert_eq!(read(&ValueKind::Time, "24:00"), None);
        assert_eq!(read(&ValueKind::Time, 1440), None);
        assert_eq!(read(&ValueKind::Bool, "yes").as_deref(), Some("true"));
        assert_eq!(read(&ValueKind::Bool, "Off").as_deref(), Some("false"));
        assert_eq!(read(&ValueKind::Bool, "maybe"), None);
        assert_eq!(
            read(&ValueKind::Count(0, 99_999), "1_000").as_deref(),
            Some("1000")
        );
    }

    #[test]
    fn bounds_hold_for_numbers_and_for_text() {
        assert_eq!(read(&ValueKind::Count(1, 8), 9), None);
        assert_eq!(read(&ValueKind::Count(1, 8), "8").as_deref(), Some("8"));
        assert_eq!(read(&ValueKind::Count(0, 8), -1), None);
        assert_eq!(
            read(&ValueKind::Number(0.0, 1.0), "5e-4").as_deref(),
            Some("0.0005")
        );
        assert_eq!(read(&ValueKind::Number(0.0, 1.0), "nan"), None);
        assert_eq!(read(&ValueKind::Url, "ftp://x"), None);
    }

    #[test]
    fn a_number_is_a_text_where_a_text_is_asked_for() {
        assert_eq!(read(&ValueKind::Secret, 12345).as_deref(), Some("12345"));
        assert_eq!(read(&ValueKind::Text, " a b ").as_deref(), Some("a b"));
    }

    #[test]
    fn lists_may_be_lists_or_text() {
        let methods = ValueKind::SomeOf(words(["redo", "opd"]));
        let list = vec![Value::from("redo"), Value::from("opd")];
        assert_eq!(read(&methods, list).as_deref(), Some("redo+opd"));
        assert_eq!(read(&methods, "opd").as_deref(), Some("opd"));
        assert_eq!(read(&methods, "redo+nothing"), None);
        let any = ValueKind::AnyOf(words(["auth", "server"]));
        let read_any = |given: &str| any.parse(&given.into())?.as_array().cloned();
        assert_eq!(read_any("[server, auth]").unwrap().len(), 2);
        assert_eq!(read_any("[]").unwrap().len(), 0);
        assert_eq!(read_any("[server, sever]"), None);
        let texts = ValueKind::Texts.parse(&Value::from("[a, b]")).unwrap();
        assert_eq!(texts.as_array().unwrap().len(), 2);
        assert!(ValueKind::Texts.parse(&Value::from("[]")).is_some());
        let some = [ValueKind::OneOrMore, ValueKind::Among(words(["auth"]))];
        assert!(
            some.iter()
                .all(|it| it.parse(&Value::from("auth")).is_some())
        );
        assert!(some.iter().all(|it| it.parse(&Value::from("[]")).is_none()));
    }
}
