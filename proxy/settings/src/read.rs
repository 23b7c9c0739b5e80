//! Reads the sections of one tree of settings into their structs, and says which key does not fit.
//!
//! Each struct is read from values of JSON alone, by a function of its own crate, so that its deserialiser is compiled
//! once. Errors of such a deserialiser name no place; [`place`] finds it.

use serde_json::Value;

use crate::{
    error::SettingsError,
    layer::{Layer, Origin},
};

/// Reads layers that lie on a tree, the last on top.
///
/// # Errors
///
/// [`SettingsError::Room`].
pub(crate) fn read<T>(
    mut tree: Value,
    layers: &[Layer],
    read: fn(Value) -> serde_json::Result<T>,
) -> Result<T, SettingsError> {
    for layer in layers {
        layer.lay_on(&mut tree);
    }
    read(tree.clone()).map_err(|error| {
        let error = error.to_string();
        let fault = |tree| read(tree).err().map(|it| it.to_string());
        let key = place(&tree, &error, &fault).join(".");
        SettingsError::Room {
            origin: origin(layers, &key)
                .map_or_else(|| "the configuration".to_owned(), ToString::to_string),
            message: in_our_words(&error).unwrap_or(error),
            key,
        }
    })
}

/// The source of what stands at a place, or above or below it.
fn origin<'a>(layers: &'a [Layer], place: &str) -> Option<&'a Origin> {
    let is_within = |outer: &str, inner: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_there = |key: &String| is_within(key, place) || is_within(place, key);
    let holder = layers.iter().rev();
    let mut holders = holder.filter(|layer| layer.values().keys().any(is_there));
    holders.next().map(Layer::origin)
}

/// The path of the value at which `error` arises: it does so if only the values before it are there, and without it does
/// not. A field is missing in a map, whichever of the map's values comes last.
fn place(tree: &Value, error: &str, fault: &dyn Fn(Value) -> Option<String>) -> Vec<String> {
    type NamedParts = Vec<(String, Value)>;
    let fails = |tree| fault(tree).as_deref() == Some(error);
    let is_missing = error.starts_with("missing field");
    let (parts, whole): (NamedParts, fn(NamedParts) -> Value) = match tree.clone() {
        Value::Object(entries) => (entries.into_iter().collect(), Value::from_iter),
        Value::Array(items) => {
            let named = items.into_iter().enumerate();
            let parts = named.map(|(at, item)| (at.to_string(), item)).collect();
            (parts, |parts| {
                parts.into_iter().map(|(_, item)| item).collect()
            })
        }
        _ => return Vec::new(),
    };
    if fails(whole(Vec::new())) {
        return Vec::new();
    }
    for (at, (name, part)) in parts.iter().enumerate() {
        let with = |part| {
            let before = parts.iter().take(at).cloned();
            whole(before.chain([(name.clone(), part)]).collect())
        };
        let may_fail = part.is_object() || part.is_array() || !is_missing;
        if may_fail && fails(with(part.clone())) {
            let below = place(part, error, &|part| fault(with(part)));
            return [vec![name.clone()], below].concat();
        }
    }
    Vec::new()
}

/// What serde says of a word that is not among those allowed, as all other messages say it.
fn in_our_words(error: &str) -> Option<String> {
    let (given, allowed) = error
        .strip_prefix("unknown variant `")?
        .split_once("`, expected ")?;
    let allowed = allowed.trim_start_matches("one of ").replace('`', "");
    let allowed = allowed.replace(" or ", ", ");
    Some(format!("{given:?} is not allowed: {allowed}"))
}
