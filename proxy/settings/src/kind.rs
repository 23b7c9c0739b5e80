//! Kinds of values: what a key allows, and how written values are converted.
//!
//! All sources are read in the same way: the file gives YAML values, the environment and `config set` give text. YAML
//! 1.1 reads `yes` as true and `23:00` as 1380, so both are accepted.

use std::net::{IpAddr, Ipv4Addr};

use metaclaw_chat::{Size, Span, is_variable};
use serde_json::Value;

use crate::{providers, yaml};

/// How other systems write that a secret is in a variable of the environment.
const FOREIGN: &str = "$NAME %NAME% <NAME> $(NAME) {{NAME}} $env:NAME env:NAME env.NAME {env:NAME} \
    os.environ/NAME os.environ[NAME] os.environ.get(NAME) os.getenv(NAME) process.env.NAME process.env[NAME] \
    $NAME} ENV[NAME] !env:NAME";
/// How other systems write that a secret is elsewhere.
const ELSEWHERE: [&str; 5] = ["{file:", "file:", "op://", "vault:", "keyring:"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueKind {
    /// One value.
    One(ValueForm),
    /// A list of at least so many values.
    List(ValueForm, usize),
    /// One or more of these words, joined by `+` or as a list.
    Joined(Vec<String>),
    /// A tree that its section checks; the text describes it.
    Tree(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueForm {
    /// Any text; a bare number is a text too.
    Text,
    /// A text that is never shown in full, and is used in a header.
    Secret,
    /// A secret that callers must send; an empty one would let everybody in.
    CallersKey,
    /// The name of a provider. With an address beside it, another name may stand for keys of `metaclaw auth`.
    Provider,
    /// `http://…` or `https://…`.
    Url,
    /// An address of this machine.
    Host,
    /// A file or folder; `~/` is the user's home, and a relative path starts at the folder of the file that names it.
    Path,
    /// A file, or an address that is secret like a key.
    Calendar,
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
    Word(Vec<String>),
}

// === impl ValueKind ===

impl ValueKind {
    pub(crate) fn from_schema(property: &Value) -> Self {
        let schema = without_null(property);
        let is_filled = schema["minItems"] == 1 || schema["minLength"] == 1;
        if type_of(schema) != "array" {
            return match ValueForm::from_schema(schema) {
                ValueForm::Word(words) if schema["format"] == "words" => Self::Joined(words),
                ValueForm::Secret if is_filled => Self::One(ValueForm::CallersKey),
                form => Self::One(form),
            };
        }
        let items = without_null(&schema["items"]);
        match schema["format"].as_str() {
            Some("calendars") => Self::List(ValueForm::Calendar, 0),
            _ if type_of(items) == "object" => {
                Self::Tree(schema["shape"].as_str().unwrap_or("a tree").to_owned())
            }
            _ => Self::List(ValueForm::from_schema(items), usize::from(is_filled)),
        }
    }

    pub(crate) fn is_secret(&self) -> bool {
        use ValueForm::{Calendar, CallersKey, Secret};
        matches!(
            self,
            Self::One(Secret | CallersKey) | Self::List(Secret | Calendar, _)
        )
    }

    /// Whether it may name variables of the environment, as in `${NAME}`.
    pub(crate) fn may_name_variables(&self) -> bool {
        self.is_secret() || matches!(self, Self::One(ValueForm::Url | ValueForm::Path))
    }

    /// Returns whether the text is taken as it was written, whatever YAML reads it as, because a model may have the
    /// name `n` or `1.10`.
    pub(crate) fn is_text(&self) -> bool {
        use ValueForm::{Bool, Count, Minutes, Number, Size, Span, Time};
        let is_typed = |form: &ValueForm| {
            matches!(
                form,
                Bool | Count(..) | Minutes(..) | Number(..) | Span | Size | Time
            )
        };
        !matches!(self, Self::Tree(_)) && !matches!(self, Self::One(form) if is_typed(form))
    }

    /// Whether a default alone does not show what else is allowed.
    pub(crate) fn is_bounded(&self) -> bool {
        use ValueForm::{Count, Minutes, Number, Provider, Word};
        let is_bounded = |form: &ValueForm| {
            matches!(
                form,
                Count(..) | Minutes(..) | Number(..) | Provider | Word(_)
            )
        };
        match self {
            Self::One(form) | Self::List(form, _) => is_bounded(form),
            Self::Joined(_) | Self::Tree(_) => true,
        }
    }

    pub(crate) fn allowed(&self) -> String {
        match self {
            Self::One(form) => form.allowed(),
            Self::List(form, least) => {
                let items = match form {
                    ValueForm::Text => "texts".to_owned(),
                    ValueForm::Secret => {
                        "ASCII texts without spaces, or of ${NAME} for variables of the environment"
                            .to_owned()
                    }
                    ValueForm::Calendar => {
                        "files, or of addresses that begin with https://, http:// or webcal://"
                            .to_owned()
                    }
                    ValueForm::Word(words) if *least == 0 => format!("any of {}", words.join(", ")),
                    ValueForm::Word(words) => format!("of {}", words.join(", ")),
                    form => form.allowed(),
                };
                format!(
                    "a list of {}{items}",
                    if *least == 0 { "" } else { "one or more " }
                )
            }
            Self::Joined(words) => format!("one or more of {}, joined by +", words.join(", ")),
            Self::Tree(shape) => shape.clone(),
        }
    }

    /// Returns the name of a kind that docs/operating/config.md describes once, above its tables.
    pub(crate) fn name(&self) -> Option<&'static str> {
        use ValueForm::{CallersKey, Secret, Size, Span, Url};
        Some(match self {
            Self::One(Span) => "a duration",
            Self::One(Size) => "a size",
            Self::One(Url) => "an address",
            Self::One(Secret | CallersKey) => "a key",
            Self::List(Secret, _) => "a list of keys",
            _ => return None,
        })
    }

    pub(crate) fn parse(&self, given: &Value) -> Option<Value> {
        match self {
            Self::One(form @ ValueForm::Word(_)) => form.parse(&text(given)?.to_lowercase()),
            Self::One(form) => form.parse(&text(given)?),
            Self::List(form, least) => {
                let items = texts(given)?;
                let is_enough = items.len() >= *least;
                let parsed = items.iter().map(|item| form.parse(item));
                parsed.collect::<Option<Value>>().filter(|_| is_enough)
            }
            Self::Joined(words) => {
                let parts = match given {
                    Value::Array(_) => texts(given)?,
                    one => text(one)?
                        .split('+')
                        .map(|part| part.trim().to_owned())
                        .collect(),
                };
                let are_known = !parts.is_empty() && parts.iter().all(|part| words.contains(part));
                are_known.then(|| parts.join("+").into())
            }
            Self::Tree(_) => tree(given),
        }
    }
}

// === impl ValueForm ===

impl ValueForm {
    /// The form of a value by its schema; numbers of a unit are told apart by `format`.
    fn from_schema(schema: &Value) -> Self {
        let bound = |name: &str, none: f64| schema[name].as_f64().unwrap_or(none);
        let count = |name: &str, none: u64| schema[name].as_u64().unwrap_or(none);
        let (least, most) = (count("minimum", 0), count("maximum", u64::MAX));
        match (
            type_of(schema),
            schema["format"].as_str().unwrap_or_default(),
        ) {
            ("boolean", _) => Self::Bool,
            ("integer", "minutes") => Self::Minutes(least, most),
            ("integer", _) => Self::Count(least, most),
            ("number", _) => Self::Number(bound("minimum", f64::MIN), bound("maximum", f64::MAX)),
            (_, "secret") => Self::Secret,
            (_, "provider") => Self::Provider,
            (_, "uri") => Self::Url,
            (_, "ip") => Self::Host,
            (_, "path") => Self::Path,
            (_, "span") => Self::Span,
            (_, "size") => Self::Size,
            (_, "time") => Self::Time,
            _ => Some(words(schema))
                .filter(|words| !words.is_empty())
                .map_or(Self::Text, Self::Word),
        }
    }

    fn allowed(&self) -> String {
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
            Self::Path | Self::Calendar => "a path",
            Self::Bool => "true or false",
            Self::Span => "a duration: a number and one of ms, s, min, h, d, as in \"10 min\"",
            Self::Size => "a size: a number and one of B, KiB, MiB, GiB, as in \"16 MiB\"",
            Self::Time => "a time of day, as in \"23:00\"",
            Self::Count(low, u64::MAX) => return format!("a whole number, {low} or more"),
            Self::Count(low, high) => return format!("a whole number from {low} to {high}"),
            Self::Minutes(low, high) => {
                return format!(
                    "minutes: a whole number from {low} to {high} without a unit, as in 30"
                );
            }
            Self::Number(low, f64::MAX) => return format!("a number, {low} or more"),
            Self::Number(low, high) => return format!("a number from {low} to {high}"),
            Self::Provider => return providers::names().join(", "),
            Self::Word(words) => return words.join(", "),
        };
        said.to_owned()
    }

    fn parse(&self, text: &str) -> Option<Value> {
        match self {
            Self::Text | Self::Provider | Self::Path | Self::Calendar => Some(text.into()),
            Self::Secret => is_header_text(text).then(|| text.into()),
            Self::CallersKey => (!text.is_empty() && is_header_text(text)).then(|| text.into()),
            Self::Url => (is_url(text) || text.starts_with("${")).then(|| text.into()),
            Self::Host if text == "localhost" => Some(Ipv4Addr::LOCALHOST.to_string().into()),
            Self::Host => {
                let address: IpAddr = text.trim_matches(['[', ']']).parse().ok()?;
                Some(address.to_string().into())
            }
            Self::Bool => match text.to_lowercase().as_str() {
                "true" | "yes" | "on" => Some(true.into()),
                "false" | "no" | "off" => Some(false.into()),
                _ => None,
            },
            Self::Count(low, high) | Self::Minutes(low, high) => {
                let count: u64 = text.replace('_', "").parse().ok()?;
                (low..=high).contains(&&count).then(|| count.into())
            }
            Self::Number(low, high) => {
                let number: f64 = text.parse().ok()?;
                (low..=high).contains(&&number).then(|| number.into())
            }
            Self::Span => Some(text.parse::<Span>().ok()?.to_string().into()),
            Self::Size => Some(text.parse::<Size>().ok()?.to_string().into()),
            Self::Time => time(text).map(Value::from),
            Self::Word(words) => words.iter().any(|word| word == text).then(|| text.into()),
        }
    }
}

fn without_null(schema: &Value) -> &Value {
    let either = schema["anyOf"].as_array();
    let other = either.and_then(|all| all.iter().find(|one| one["type"] != "null"));
    other.unwrap_or(schema)
}

fn type_of(schema: &Value) -> &str {
    let name = match &schema["type"] {
        Value::Array(types) => types.iter().find(|name| **name != "null"),
        one => Some(one),
    };
    name.and_then(Value::as_str).unwrap_or_default()
}

/// The words that an enum takes; those with a doc comment stand each in a schema of its own.
fn words(schema: &Value) -> Vec<String> {
    let plain = schema["enum"].as_array().into_iter().flatten();
    let each = schema["oneOf"].as_array().into_iter().flatten();
    let documented = each.flat_map(|one| {
        let several = one["enum"].as_array().into_iter().flatten();
        one.get("const").into_iter().chain(several)
    });
    let all = plain.chain(documented).filter_map(Value::as_str);
    all.map(str::to_owned).collect()
}

/// Returns whether a text can be in a header and be compared there, and is no other system's way to name a variable.
fn is_header_text(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic()) && !is_foreign(text)
}

/// Returns whether a text is another system's way to say that a secret is in a variable or elsewhere. No provider may get
/// such a text as a key.
fn is_foreign(text: &str) -> bool {
    let names = |form: &str| {
        let (before, behind) = form.split_once("NAME")?;
        let inside = text.strip_prefix(before)?.strip_suffix(behind)?;
        let name = inside.trim_matches(['"', '\'']);
        // A key may begin with one of the short signs.
        let is_name = is_variable(name) || before.len() > 2 && is_variable(&name.to_uppercase());
        Some(is_name || is_foreign(name))
    };
    let is_elsewhere = ELSEWHERE.iter().any(|way| text.starts_with(way));
    is_elsewhere || FOREIGN.split_whitespace().any(|it| names(it) == Some(true))
}

fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
}

pub(crate) fn text(given: &Value) -> Option<String> {
    match given {
        Value::String(text) => Some(text.trim().to_owned()),
        // JSON would write 0.00001 as 1e-5.
        Value::Number(number) if number.is_f64() => number.as_f64().map(|float| float.to_string()),
        Value::Number(_) | Value::Bool(_) => Some(given.to_string()),
        Value::Null | Value::Object(_) | Value::Array(_) => None,
    }
}

/// Parses `23:00`, or 1380, which YAML 1.1 makes of it without quotes.
fn time(text: &str) -> Option<String> {
    let (hours, minutes): (u32, u32) = match text.split_once(':') {
        Some((hours, minutes)) if minutes.len() == 2 => {
            (hours.parse().ok()?, minutes.parse().ok()?)
        }
        Some(_) => return None,
        None => {
            let minutes: u32 = text.parse().ok()?;
            (minutes / 60, minutes % 60)
        }
    };
    (hours < 24 && minutes < 60).then(|| format!("{hours:02}:{minutes:02}"))
}

fn texts(given: &Value) -> Option<Vec<String>> {
    match given {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::String(list) if list.trim_start().starts_with('[') => texts(&tree(given)?),
        one => text(one).map(|only| vec![only]),
    }
}

/// Returns a tree unchanged; from the environment it comes as YAML in one line.
fn tree(given: &Value) -> Option<Value> {
    match given {
        Value::String(text) => yaml::value(text),
        Value::Object(_) | Value::Array(_) => Some(given.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_meant_and_bounds_hold_for_numbers_and_for_text() {
        let words = |words: &str| -> Vec<String> { words.split(' ').map(str::to_owned).collect() };
        let one = ValueKind::One;
        let methods = ValueKind::Joined(words("redo opd"));
        let any = ValueKind::List(ValueForm::Word(words("auth server")), 0);
        let some = ValueKind::List(ValueForm::Word(words("auth")), 1);
        let texts = |least| ValueKind::List(ValueForm::Text, least);
        for (kind, given, normal) in [
            // YAML 1.1 makes such numbers and words of times and flags.
            (&one(ValueForm::Time), "1380", r#""23:00""#),
            (&one(ValueForm::Time), r#""7:00""#, r#""07:00""#),
            (&one(ValueForm::Time), r#""24:00""#, ""),
            (&one(ValueForm::Time), "1440", ""),
            (&one(ValueForm::Bool), r#""yes""#, "true"),
            (&one(ValueForm::Bool), r#""Off""#, "false"),
            (&one(ValueForm::Bool), r#""maybe""#, ""),
            (&one(ValueForm::Count(0, 99_999)), r#""1_000""#, "1000"),
            (&one(ValueForm::Count(1, 8)), "9", ""),
            (&one(ValueForm::Count(1, 8)), r#""8""#, "8"),
            (&one(ValueForm::Count(0, 8)), "-1", ""),
            (&one(ValueForm::Number(0.0, 1.0)), r#""5e-4""#, "0.0005"),
            (&one(ValueForm::Number(0.0, 1.0)), r#""nan""#, ""),
            (&one(ValueForm::Url), r#""ftp://x""#, ""),
            // A number is a text where a text is asked for.
            (&one(ValueForm::Secret), "12345", r#""12345""#),
            (&one(ValueForm::Text), r#"" a b ""#, r#""a b""#),
            // Lists may be lists or text.
            (&methods, r#"["redo", "opd"]"#, r#""redo+opd""#),
            (&methods, r#""opd""#, r#""opd""#),
            (&methods, r#""redo+nothing""#, ""),
            (&any, r#""[server, auth]""#, r#"["server","auth"]"#),
            (&any, "[]", "[]"),
            (&any, r#""[server, sever]""#, ""),
            (&texts(0), r#""[a, b]""#, r#"["a","b"]"#),
            (&texts(0), r#""[]""#, "[]"),
            (&texts(1), r#""auth""#, r#"["auth"]"#),
            (&texts(1), r#""[]""#, ""),
            (&some, r#""auth""#, r#"["auth"]"#),
            (&some, r#""[]""#, ""),
        ] {
            let parsed = kind.parse(&serde_json::from_str(given).unwrap());
            let shown = parsed.map_or_else(String::new, |value| value.to_string());
            assert_eq!(shown, normal, "{kind:?} {given}");
        }
    }

    #[test]
    fn other_systems_ways_to_name_a_variable_are_known_and_keys_are_none() {
        let foreign = r#"$MY_KEY|%MY_KEY%|<YOUR_KEY>|$(MY_KEY)|{{MY_KEY}}|{{env.MY_KEY}}|$env:MY_KEY|env:MY_KEY|env:my_key|env.MY_KEY|{env:MY_KEY}|os.environ/MY_KEY|os.environ['MY_KEY']|os.environ.get("MY_KEY")|os.getenv("MY_KEY")|$MY_KEY}|ENV['MY_KEY']|process.env["MY_KEY"]|process.env.MY_KEY|{file:~/.key}|op://vault/item/key"#;
        for text in foreign.split('|') {
            assert!(is_foreign(text), "{text}");
        }
        let keys = "|$|%|<>|sk-0123|$ecret|EMPTY|key|sk-$HOME|a%B%|${MY_KEY}|env|env:|AKIA0123|eyJhbGciOi.x.y";
        for key in keys.split('|') {
            assert!(!is_foreign(key), "{key}");
        }
    }
}
