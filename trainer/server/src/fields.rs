//! The fields of the trainer's own routes; those of chats are in `metaclaw_trainer_chat::fields`.

use std::{fmt::Display, str::FromStr, sync::LazyLock};

use metaclaw_trainer_chat::fields::{Field, FieldTables, read_tables};
pub(crate) use metaclaw_trainer_chat::fields::{check, cut};

use crate::error::{ApiError, Result};

/// Reads the value of a field.
///
/// # Errors
/// Returns 400 with the field.
pub(crate) fn parsed<T: FromStr<Err: Display>>(field: &'static str, text: &str) -> Result<T> {
    let refused = |error: T::Err| ApiError::field(field, error.to_string());
    text.parse().map_err(refused)
}

static TABLES: LazyLock<FieldTables> =
    LazyLock::new(|| read_tables(include_str!("../data/fields.md")));

pub(crate) fn of_route(route: &str) -> &'static [Field] {
    TABLES.get(route).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
