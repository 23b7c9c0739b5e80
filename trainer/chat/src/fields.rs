//! The fields of each route's requests: supported, without effect, or refused with a reason.
//!
//! A field that is silently ignored would lead to another reply than the requested one. So the table of a route has
//! every field that OpenAI or vLLM define for it, and a field in no table is refused too. The tables of
//! `docs/extending/trainer-api.md` are generated from these.

mod text;

use std::{borrow::Cow, collections::BTreeMap};

use metaclaw_trainer_terms::ErrorCode;
use serde_json::{Value, value::RawValue};

pub use self::text::{CHAT, TOKENIZE};
use crate::error::ApiError;

/// Characters of a refused value that are shown.
const SHOWN: usize = 80;

/// A field of a route.
#[derive(Debug)]
pub struct Field {
    name: &'static str,
    rule: FieldRule,
    /// What it does. For a refused field, what to do instead.
    about: &'static str,
}

/// How a field is handled.
#[derive(Debug)]
enum FieldRule {
    /// The route reads it.
    Done,
    /// It is accepted and ignored, because it does not affect the reply.
    NoEffect,
    /// It is not supported. Null is accepted as "not given". So are these values, as JSON.
    Refused(&'static [&'static str]),
}

/// Makes a field that the route reads.
pub const fn done(name: &'static str, about: &'static str) -> Field {
    Field {
        name,
        rule: FieldRule::Done,
        about,
    }
}

/// Makes a field that is accepted and ignored.
pub const fn no_effect(name: &'static str, about: &'static str) -> Field {
    Field {
        name,
        rule: FieldRule::NoEffect,
        about,
    }
}

/// Makes a field that is not supported. `neutral` are values, as JSON, that count as "not given".
pub const fn refused(
    name: &'static str,
    neutral: &'static [&'static str],
    about: &'static str,
) -> Field {
    Field {
        name,
        rule: FieldRule::Refused(neutral),
        about,
    }
}

/// Refuses fields that are not in `fields`, or are refused there. A body that is not a JSON object passes. Parsing it
/// reports the error.
///
/// # Errors
/// Answers 400, which names the field, the given value and the allowed ones.
pub fn check(body: &[u8], fields: &[Field]) -> Result<(), ApiError> {
    let Ok(given) = serde_json::from_slice::<BTreeMap<Cow<'_, str>, &RawValue>>(body) else {
        return Ok(());
    };
    for (name, value) in given {
        let field = fields.iter().find(|field| field.name == name);
        let field = field.ok_or_else(|| unknown(&name, fields))?;
        field.check(value)?;
    }
    Ok(())
}

fn unknown(name: &str, fields: &[Field]) -> ApiError {
    let shown = cut(name);
    let done: Vec<&str> = fields
        .iter()
        .filter(|field| matches!(field.rule, FieldRule::Done))
        .map(|field| field.name)
        .collect();
    let text = format!(
        "{shown} is no field of this route: {} are read (docs/extending/trainer-api.md)",
        done.join(", ")
    );
    ApiError::field(shown, text).with_code(ErrorCode::UnknownParameter)
}

// === impl Field ===

impl Field {
    fn check(&self, value: &RawValue) -> Result<(), ApiError> {
        let FieldRule::Refused(neutral) = self.rule else {
            return Ok(());
        };
        if value.get() == "null" || neutral.iter().any(|one| is_same(value.get(), one)) {
            return Ok(());
        }
        let allowed = match neutral {
            [] => "none".to_owned(),
            values => values.join(" or "),
        };
        let (name, about) = (self.name, self.about);
        let text = format!(
            "{name} is {}, allowed: {allowed} ({about})",
            cut(value.get())
        );
        Err(ApiError::field(name, text).with_code(ErrorCode::UnsupportedParameter))
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what the documentation says of it: whether it is supported, and its meaning.
    pub fn cells(&self) -> String {
        let neutral = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            match values.as_slice() {
                [] => "refused".to_owned(),
                values => format!("refused unless {}", values.join(", ")),
            }
        };
        let rule = match &self.rule {
            FieldRule::Done => "done".to_owned(),
            FieldRule::NoEffect => "no effect".to_owned(),
            FieldRule::Refused(values) => neutral(values),
        };
        format!("{rule} | {}", self.about)
    }

    /// Returns its name, if the route reads it.
    pub fn is_done(&self) -> bool {
        matches!(self.rule, FieldRule::Done)
    }
}

/// Returns whether two JSON texts have the same value. 1 equals 1.0.
fn is_same(given: &str, wanted: &str) -> bool {
    // A far longer text has another value, and need not be parsed.
    if given.len() > wanted.len() + SHOWN {
        return false;
    }
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let (given, wanted) = (read(given), read(wanted));
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64);
    given.is_some() && given == wanted
        || number(&given).is_some() && number(&given) == number(&wanted)
}

/// Returns the beginning of a caller's text of any length.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
