//! What each route knows of each field of a request: done, without effect, or refused in words.
//!
//! A field that is left out in silence gives another reply than the one that was asked for. So every field that OpenAI
//! or vLLM know for a route stands in its table, and one that stands in none is refused as well. The tables of
//! `docs/extending/trainer-api.md` are made from these.

mod text;

use std::{borrow::Cow, collections::BTreeMap};

use metaclaw_trainer_terms::ErrorCode;
use serde_json::{Value, value::RawValue};

pub use self::text::{CHAT, TOKENIZE};
use crate::error::ApiError;

/// How much of a refused value is shown.
const SHOWN: usize = 80;

/// A field of a route.
#[derive(Debug)]
pub struct Field {
    name: &'static str,
    rule: Rule,
    /// What it does; of a refused one, what is to be done instead.
    about: &'static str,
}

/// What becomes of a field.
#[derive(Debug)]
enum Rule {
    /// Read by the route.
    Done,
    /// Taken and not looked at: it says nothing of the reply.
    NoEffect,
    /// Not built. Null says nothing, and neither do these values, as JSON.
    Refused(&'static [&'static str]),
}

/// A field that the route reads.
pub const fn done(name: &'static str, about: &'static str) -> Field {
    Field {
        name,
        rule: Rule::Done,
        about,
    }
}

/// A field that is taken and not looked at.
pub const fn no_effect(name: &'static str, about: &'static str) -> Field {
    Field {
        name,
        rule: Rule::NoEffect,
        about,
    }
}

/// A field that is not built; `neutral` are values, as JSON, that say nothing.
pub const fn refused(
    name: &'static str,
    neutral: &'static [&'static str],
    about: &'static str,
) -> Field {
    Field {
        name,
        rule: Rule::Refused(neutral),
        about,
    }
}

/// Refuses what `fields` do not have, or refuse. What is no JSON object passes: reading it says what is wrong.
///
/// # Errors
/// 400 naming the field, what was given and what is allowed.
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
        .filter(|field| matches!(field.rule, Rule::Done))
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
        let Rule::Refused(neutral) = self.rule else {
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

    /// Its line of the documentation.
    pub fn row(&self) -> String {
        let neutral = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            match values.as_slice() {
                [] => "refused".to_owned(),
                values => format!("refused unless {}", values.join(", ")),
            }
        };
        let rule = match &self.rule {
            Rule::Done => "done".to_owned(),
            Rule::NoEffect => "no effect".to_owned(),
            Rule::Refused(values) => neutral(values),
        };
        format!("| `{}` | {rule} | {} |\n", self.name, self.about)
    }

    /// Its name, if the route reads it.
    pub fn is_done(&self) -> bool {
        matches!(self.rule, Rule::Done)
    }
}

/// Whether two JSON texts say the same; 1 is 1.0.
fn is_same(given: &str, wanted: &str) -> bool {
    // What is far longer says something else, and need not be read.
    if given.len() > wanted.len() + SHOWN {
        return false;
    }
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let (given, wanted) = (read(given), read(wanted));
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64);
    given.is_some() && given == wanted
        || number(&given).is_some() && number(&given) == number(&wanted)
}

/// The beginning of a text of the caller's, of any length.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
