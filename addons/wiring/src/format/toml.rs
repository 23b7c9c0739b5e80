//! TOML, edited by `toml_edit`.

use serde::Serialize as _;
use serde_json::Value;
use toml_edit::{
    DocumentMut, Item, Table, TableLike, Value as TomlValue, de::from_document,
    ser::ValueSerializer,
};

use crate::document::{PlaceError, beyond, named};

pub(super) fn values(text: &str) -> Result<Value, PlaceError> {
    from_document(parse(text)?).map_err(|_| beyond())
}

pub(super) fn set(text: &str, path: &[String], value: &Value) -> Result<String, PlaceError> {
    let mut document = parse(text)?;
    let (name, above) = path.split_last().ok_or_else(beyond)?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, name) in above.iter().enumerate() {
        if table.get(name).is_none() {
            table.insert(name, Item::Table(implicit()));
        }
        let item = table.get_mut(name).ok_or_else(beyond)?;
        let none = || PlaceError::NoObject(named(&path[..=depth]));
        table = item.as_table_like_mut().ok_or_else(none)?;
    }
    let new = value.serialize(ValueSerializer::new());
    let new = new.map_err(|_| beyond())?;
    if let Some(Item::Value(old)) = table.get_mut(name) {
        // What stands around the value, a comment behind it too.
        let decor = old.decor().clone();
        *old = new;
        *old.decor_mut() = decor;
    } else {
        let item = match new {
            TomlValue::InlineTable(fields) => Item::Table(fields.into_table()),
            one => Item::Value(one),
        };
        table.insert(name, item);
    }
    Ok(document.to_string())
}

pub(super) fn remove(text: &str, path: &[String]) -> Result<String, PlaceError> {
    let mut document = parse(text)?;
    let (name, above) = path.split_last().ok_or_else(beyond)?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in above {
        let item = table.get_mut(name).ok_or_else(beyond)?;
        table = item.as_table_like_mut().ok_or_else(beyond)?;
    }
    table.remove(name);
    Ok(document.to_string())
}

fn parse(text: &str) -> Result<DocumentMut, PlaceError> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        // Its whole text shows the line, which may hold a key.
        PlaceError::Format("TOML", error.message().to_owned())
    })
}

/// Returns a table that contains only tables, and has no line of its own.
fn implicit() -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table
}
