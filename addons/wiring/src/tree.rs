//! Edits of parsed values. An edit of a file's text has to have the same effect, whatever the format is.

use serde_json::{Map, Value};

/// Returns the value at `path`, or null if it is missing or null.
pub(crate) fn get<'v>(root: &'v Value, path: &[String]) -> &'v Value {
    const NULL: Value = Value::Null;
    path.iter().fold(root, |value, name| {
        value
            .as_object()
            .and_then(|it| it.get(name))
            .unwrap_or(&NULL)
    })
}

/// Returns whether `path` exists, even if its value is null.
pub(crate) fn has(root: &Value, path: &[String]) -> bool {
    let Some((name, above)) = path.split_last() else {
        return true;
    };
    (get(root, above).as_object()).is_some_and(|it| it.contains_key(name))
}

/// Sets `path`, and adds objects above it that are missing or null. Returns false if another kind of value is in the way.
pub(crate) fn set(root: &mut Value, path: &[String], value: Value) -> bool {
    let Some((name, above)) = path.split_last() else {
        *root = value;
        return true;
    };
    let Some(object) = object_at(root, above) else {
        return false;
    };
    object.insert(name.clone(), value);
    true
}

pub(crate) fn remove(root: &mut Value, path: &[String]) {
    let Some((name, above)) = path.split_last() else {
        *root = Value::Null;
        return;
    };
    let above = above
        .iter()
        .try_fold(root, |value, name| value.as_object_mut()?.get_mut(name));
    if let Some(object) = above.and_then(Value::as_object_mut) {
        object.shift_remove(name);
    }
}

pub(crate) fn list_mut<'v>(root: &'v mut Value, path: &[String]) -> Option<&'v mut Vec<Value>> {
    let value = path
        .iter()
        .try_fold(root, |value, name| value.as_object_mut()?.get_mut(name));
    value?.as_array_mut()
}

/// Returns the paths above `path`, from the outside in, that are not objects yet.
pub(crate) fn missing_above(root: &Value, path: &[String]) -> Vec<Vec<String>> {
    let above = 1..path.len();
    let above = above.map(|depth| path[..depth].to_vec());
    above.filter(|it| !get(root, it).is_object()).collect()
}

/// Returns whether two files have the same values. A missing object and an empty one count as equal.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    one == other || is_empty(one) && is_empty(other)
}

pub(crate) fn without_empty(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return value.clone();
    };
    let fields = fields
        .iter()
        .map(|(name, value)| (name.clone(), without_empty(value)));
    let is_full = |(_, value): &(String, Value)| value.as_object().is_none_or(|it| !it.is_empty());
    Value::Object(fields.filter(is_full).collect())
}

fn object_at<'v>(root: &'v mut Value, path: &[String]) -> Option<&'v mut Map<String, Value>> {
    let mut value = root;
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    for name in path {
        let entry = value.as_object_mut()?.entry(name.clone());
        value = entry.or_insert(Value::Null);
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
    }
    value.as_object_mut()
}
