//! TOML, edited by `toml_edit`.

use serde_json::{Map, Value, json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use crate::document::{PlaceError, beyond, named};

pub(super) fn values(text: &str) -> Result<Value, PlaceError> {
    Ok(of_table(parse(text)?.as_table()))
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
    let new = plain(value).ok_or_else(beyond)?;
    if let Some(Item::Value(old)) = table.get_mut(name) {
        // What stands around the value, a comment behind it too.
        let decor = old.decor().clone();
        *old = new;
        *old.decor_mut() = decor;
    } else if value.is_object() {
        let new = of_object(value).ok_or_else(beyond)?;
        table.insert(name, Item::Table(new));
    } else {
        table.insert(name, Item::Value(new));
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

fn of_object(value: &Value) -> Option<Table> {
    let mut table = Table::new();
    for (name, value) in value.as_object()? {
        table.insert(name, Item::Value(plain(value)?));
    }
    Some(table)
}

fn plain(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(it) => (*it).into(),
        Value::String(it) => it.as_str().into(),
        Value::Number(it) => match it.as_i64() {
            Some(whole) => whole.into(),
            None => it.as_f64()?.into(),
        },
        Value::Array(items) => {
            let items: Option<Array> = items.iter().map(plain).collect();
            items?.into()
        }
        Value::Object(fields) => {
            let mut table = InlineTable::new();
            for (name, value) in fields {
                table.insert(name, plain(value)?);
            }
            table.into()
        }
    })
}

fn of_table(table: &dyn TableLike) -> Value {
    let fields = table.iter();
    let fields = fields.map(|(name, item)| (name.to_owned(), of_item(item)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn of_item(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Table(table) => of_table(table),
        Item::ArrayOfTables(tables) => tables.iter().map(|it| of_table(it)).collect(),
        Item::Value(value) => of_value(value),
    }
}

fn of_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(it) => json!(it.value()),
        toml_edit::Value::Integer(it) => json!(it.value()),
        toml_edit::Value::Float(it) => json!(it.value()),
        toml_edit::Value::Boolean(it) => json!(it.value()),
        toml_edit::Value::Datetime(it) => json!(it.value().to_string()),
        toml_edit::Value::Array(items) => items.iter().map(of_value).collect(),
        toml_edit::Value::InlineTable(table) => of_table(table),
    }
}
