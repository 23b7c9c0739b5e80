//! Reads the tree of all layers into structs, and says which key does not fit.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use crate::{
    error::SettingsError,
    layer::{Layer, Origin},
};

/// Lays layers on a tree, the last on top.
pub(crate) fn laid_on(mut tree: Value, layers: &[Layer]) -> Value {
    for (path, value) in layers.iter().flat_map(Layer::values) {
        let place = path.split('.').fold(&mut tree, |place, name| {
            if !place.is_object() {
                *place = Map::new().into();
            }
            &mut place[name]
        });
        place.clone_from(value);
    }
    tree
}

/// Reads a struct from the tree of these layers.
///
/// # Errors
///
/// [`SettingsError::Room`].
pub(crate) fn read<T: DeserializeOwned>(
    tree: &Value,
    layers: &[Layer],
) -> Result<T, SettingsError> {
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let names = error.path().iter().filter_map(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        let key = names.collect::<Vec<_>>().join(".");
        let message = error.inner().to_string();
        SettingsError::Room {
            origin: origin(layers, &key)
                .map_or_else(|| "the configuration".to_owned(), ToString::to_string),
            message: in_our_words(&message).unwrap_or(message),
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
    let mut holders = layers.iter().rev();
    let holder = holders.find(|layer| layer.values().keys().any(is_there));
    holder.map(Layer::origin)
}

/// What serde says of a word that is not among those allowed, as all other messages say it.
fn in_our_words(error: &str) -> Option<String> {
    let (given, allowed) = error
        .strip_prefix("unknown variant `")?
        .split_once("`, expected ")?;
    let words = allowed.trim_start_matches("one of ").replace('`', "");
    let allowed = words.replace(" or ", ", ");
    Some(format!("{given:?} is not allowed: {allowed}"))
}
