//! The fields of each route's requests: supported, without effect, or refused with a reason.
//!
//! A field that is silently ignored would lead to another reply than the requested one. So the table of a route has
//! every field that OpenAI or vLLM define for it, and a field in no table is refused too. The tables are rows of Markdown
//! in `data/fields.md`, which `docs/extending/trainer-api.md` repeats.

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use metaclaw_trainer_terms::ErrorCode;
use serde_json::{Value, value::RawValue};

use crate::error::ApiError;

const SHOWN: usize = 80;

/// A field of a route.
#[derive(Debug)]
pub struct Field {
    name: &'static str,
    rule: FieldRule,
    /// What it does. For a refused field, what to do instead.
    about: &'static str,
}

#[derive(Debug)]
enum FieldRule {
    Done,
    /// It is accepted and ignored, because it does not affect the reply.
    NoEffect,
    /// It is not supported. Null is accepted as "not given". So are these values, as JSON.
    Refused(Vec<&'static str>),
}

/// The fields of each route.
pub type FieldTables = BTreeMap<&'static str, Vec<Field>>;

static TABLES: LazyLock<FieldTables> =
    LazyLock::new(|| read_tables(include_str!("../data/fields.md")));

/// Reads a page with a heading for each route, as `## POST /tokenize`, and a row for each field.
pub fn read_tables(page: &'static str) -> FieldTables {
    let table = |section: &'static str| {
        let (route, rows) = section.split_once('\n')?;
        Some((route, rows.lines().filter_map(Field::read).collect()))
    };
    page.split("## ").filter_map(table).collect()
}

pub(crate) fn of_route(route: &str) -> &'static [Field] {
    TABLES.get(route).map_or(&[], Vec::as_slice)
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
    let done = fields.iter().filter(|field| field.is_done());
    let done: Vec<&str> = done.map(Field::name).collect();
    let done = done.join(", ");
    let text = format!(
        "{shown} is no field of this route: {done} are read (docs/extending/trainer-api.md)"
    );
    ApiError::field(shown, text).with_code(ErrorCode::UnknownParameter)
}

// === impl Field ===

impl Field {
    fn read(row: &'static str) -> Option<Self> {
        let row = row.strip_prefix("| `")?.strip_suffix(" |")?;
        let mut cells = row.splitn(3, " | ");
        let (name, rule) = (cells.next()?.strip_suffix('`')?, cells.next()?);
        let about = cells.next()?;
        let rule = match rule {
            "done" => FieldRule::Done,
            "no effect" => FieldRule::NoEffect,
            refused => FieldRule::Refused(refused.split('`').skip(1).step_by(2).collect()),
        };
        Some(Self { name, rule, about })
    }

    fn check(&self, value: &RawValue) -> Result<(), ApiError> {
        let FieldRule::Refused(neutral) = &self.rule else {
            return Ok(());
        };
        if value.get() == "null" || neutral.iter().any(|one| is_same(value.get(), one)) {
            return Ok(());
        }
        let allowed = match neutral.as_slice() {
            [] => "none".to_owned(),
            values => values.join(" or "),
        };
        let (name, about) = (self.name, self.about);
        let given = cut(value.get());
        let text = format!("{name} is {given}, allowed: {allowed} ({about})");
        Err(ApiError::field(name, text).with_code(ErrorCode::UnsupportedParameter))
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

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
