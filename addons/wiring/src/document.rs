//! JSON5 as people write it: parsed to values, and edited in place. Comments, order, quotes and unknown keys are
//! preserved.

use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstObject, CstRootNode},
};
use serde_json::Value;

/// OpenClaw reads JSON5. JSON5 does not allow missing commas.
const JSON5: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: true,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: true,
    allow_hexadecimal_numbers: true,
    allow_unary_plus_numbers: true,
    allow_bare_decimal_point_numbers: true,
    allow_non_finite_numbers: true,
    allow_extended_string_escapes: true,
};

/// Names from the outermost to the innermost.
pub(crate) type Path = Vec<String>;

pub(crate) fn named(path: &[String]) -> String {
    if path.is_empty() {
        "the file".to_owned()
    } else {
        path.join(".")
    }
}

pub(crate) fn beyond() -> PlaceError {
    PlaceError::Beyond
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The text is not valid JSON5.
    #[error("it is not JSON5: {0}")]
    Syntax(String),
    /// The part comes from another file.
    #[error("{0} comes from another file ($include)")]
    Included(String),
    /// The place contains something other than an object.
    #[error("{0} is not an object")]
    NoObject(String),
    /// The name occurs twice. The last one counts, and changing one of them would be unexpected.
    #[error("{0} stands twice")]
    Twice(String),
    /// A list is needed there.
    #[error("{0} is not a list")]
    NoList(String),
    /// A name of ours is somebody's already.
    #[error("{0} is there already, and this MetaClaw did not write it")]
    Taken(String),
    /// The text is not what it should be.
    #[error("it is not {0}: {1}")]
    Format(&'static str, String),
    /// An editor does not manage this layout.
    #[error("its layout is beyond the editor")]
    Beyond,
}

pub(crate) fn parse(text: &str) -> Result<CstRootNode, PlaceError> {
    CstRootNode::parse(text, &JSON5).map_err(|error| PlaceError::Syntax(error.to_string()))
}

/// Parses a text into a value. An empty text is null.
pub(crate) fn value(text: &str) -> Result<Value, PlaceError> {
    Ok(parse(text)?.to_serde_value().unwrap_or(Value::Null))
}

/// Returns the object at `path`. Missing objects are created.
pub(crate) fn object_at(root: &CstRootNode, path: &[&str]) -> Result<CstObject, PlaceError> {
    let whole = || "the file".to_owned();
    let mut object = match root.value() {
        None => root.object_value_or_set(),
        Some(_) => (root.object_value()).ok_or_else(|| PlaceError::NoObject(whole()))?,
    };
    check(&object, &whole())?;
    for (depth, name) in path.iter().enumerate() {
        let place = path[..=depth].join(".");
        once(&object, name, &place)?;
        object = if let Some(property) = object.get(name) {
            let inner = property.object_value();
            inner.ok_or_else(|| PlaceError::NoObject(place.clone()))?
        } else {
            let property = object.append(name, CstInputValue::Object(Vec::new()));
            property.object_value_or_set()
        };
        check(&object, &place)?;
    }
    Ok(object)
}

pub(crate) fn existing(root: &CstRootNode, path: &[&str]) -> Option<CstObject> {
    let start = root.object_value()?;
    path.iter()
        .try_fold(start, |object, name| object.object_value(name))
}

pub(crate) fn once(object: &CstObject, name: &str, place: &str) -> Result<(), PlaceError> {
    let properties = object.properties().into_iter();
    let alike = properties.filter(|it| it.decoded_name().as_deref() == Some(name));
    match alike.count() {
        0 | 1 => Ok(()),
        _ => Err(PlaceError::Twice(place.to_owned())),
    }
}

fn check(object: &CstObject, place: &str) -> Result<(), PlaceError> {
    match object.get("$include") {
        Some(_) => Err(PlaceError::Included(place.to_owned())),
        None => Ok(()),
    }
}

pub(crate) fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(it) => CstInputValue::Bool(*it),
        Value::Number(it) => CstInputValue::Number(it.to_string()),
        Value::String(it) => CstInputValue::String(it.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| (name.clone(), input(value));
            CstInputValue::Object(fields.iter().map(field).collect())
        }
    }
}
