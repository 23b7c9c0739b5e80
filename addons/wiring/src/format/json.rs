//! JSON and JSON5, edited through [`crate::document`].

use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::{Map, Value};

use crate::document::{self, PlaceError, beyond, existing, input, named, object_at, once};

pub(super) fn values(text: &str) -> Result<Value, PlaceError> {
    document::value(text)
}

pub(super) fn set(text: &str, path: &[String], value: &Value) -> Result<String, PlaceError> {
    let Some((name, above)) = path.split_last() else {
        return Ok(pretty(value));
    };
    if text.trim().is_empty() {
        let mut whole = Value::Object(Map::new());
        crate::tree::set(&mut whole, path, value.clone());
        return Ok(pretty(&whole));
    }
    let root = document::parse(text)?;
    fill_null(&root, above);
    let object = object_at(&root, &strs(above))?;
    once(&object, name, &named(path))?;
    match object.get(name) {
        Some(property) => property.set_value(input(value)),
        None => return Ok(appended(&root, &object, name, value)),
    }
    Ok(root.to_string())
}

/// Returns the text with one more property. An object in one line stays in one line, which the editor would spread.
fn appended(root: &CstRootNode, object: &CstObject, name: &str, value: &Value) -> String {
    let (before, is_empty) = (object.to_string(), object.properties().is_empty());
    object.append(name, input(value));
    let (after, whole) = (object.to_string(), root.to_string());
    let inner = before.strip_suffix('}').unwrap_or(&before);
    let (kept, space) = inner.split_at(inner.trim_end().len());
    if is_empty || before.contains('\n') || value.is_object() || kept.ends_with("*/") {
        return whole;
    }
    let kept = kept.trim_end_matches(',');
    let name = Value::from(name);
    whole.replacen(&after, &format!("{kept}, {name}: {value}{space}}}"), 1)
}

pub(super) fn remove(text: &str, path: &[String]) -> Result<String, PlaceError> {
    let root = document::parse(text)?;
    let (name, above) = path.split_last().ok_or_else(beyond)?;
    let object = existing(&root, &strs(above)).ok_or_else(beyond)?;
    once(&object, name, &named(path))?;
    object.get(name).ok_or_else(beyond)?.remove();
    Ok(root.to_string())
}

pub(super) fn insert(text: &str, path: &[String], item: &Value) -> Result<String, PlaceError> {
    let root = document::parse(text)?;
    list_at(&root, path)?.insert(0, input(item));
    Ok(root.to_string())
}

pub(super) fn remove_item(text: &str, path: &[String], index: usize) -> Result<String, PlaceError> {
    let root = document::parse(text)?;
    let list = list_at(&root, path)?;
    let element: CstNode = list.elements().get(index).cloned().ok_or_else(beyond)?;
    element.remove();
    Ok(root.to_string())
}

fn fill_null(root: &CstRootNode, path: &[String]) {
    for depth in 1..=path.len() {
        let (name, above) = (&path[depth - 1], &path[..depth - 1]);
        let property = existing(root, &strs(above)).and_then(|it| it.get(name));
        if let Some(property) = property.filter(|it| it.to_serde_value() == Some(Value::Null)) {
            property.set_value(CstInputValue::Object(Vec::new()));
        }
    }
}

fn list_at(root: &CstRootNode, path: &[String]) -> Result<CstArray, PlaceError> {
    let none = || PlaceError::NoList(named(path));
    let Some((name, above)) = path.split_last() else {
        return root.array_value().ok_or_else(none);
    };
    let object = existing(root, &strs(above)).ok_or_else(none)?;
    once(&object, name, &named(path))?;
    object.array_value(name).ok_or_else(none)
}

fn strs(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
