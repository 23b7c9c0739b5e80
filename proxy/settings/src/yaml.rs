//! YAML text as figment values. figment's own reader pulls in a deprecated crate.

use std::fmt;

use figment::value::{Dict, Empty, Value};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// Reads one YAML document. An empty text is an empty value.
///
/// # Errors
///
/// In words, with line and column, when the text is not YAML or names a key twice.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let value: Option<Value> = serde_saphyr::from_str(text).map_err(|error| {
        // The first line says what and where; the excerpt after it would show secrets.
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        let first = first.strip_prefix("error: ").unwrap_or(first);
        // The rest is advice for programmers.
        let (said, _) = first
            .split_once(", set DuplicateKeyPolicy")
            .unwrap_or((first, ""));
        said.to_owned()
    })?;
    Ok(value.unwrap_or_else(nothing))
}

/// The same value, with the scalars at those places that `is_text` names as they were written: the key
/// `0x10` is no 16, and `1.10` no 1.1.
pub(crate) fn with_texts(text: &str, value: Value, is_text: &dyn Fn(&str) -> bool) -> Value {
    let seed = WithTexts {
        value: value.clone(),
        path: String::new(),
        is_text,
    };
    let read = serde_saphyr::with_deserializer_from_str(text, |it| seed.deserialize(it));
    // It was read once already.
    read.unwrap_or(value)
}

/// Reads again what was read as `value`.
struct WithTexts<'a> {
    value: Value,
    path: String,
    is_text: &'a dyn Fn(&str) -> bool,
}

// === impl WithTexts ===

impl<'de> DeserializeSeed<'de> for WithTexts<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, yaml: D) -> Result<Value, D::Error> {
        match &self.value {
            Value::Dict(..) => yaml.deserialize_map(self),
            Value::Array(..) => yaml.deserialize_seq(self),
            Value::Num(..) | Value::Bool(..) if (self.is_text)(&self.path) => {
                String::deserialize(yaml).map(Value::from)
            }
            Value::Num(..)
            | Value::Bool(..)
            | Value::String(..)
            | Value::Char(..)
            | Value::Empty(..) => IgnoredAny::deserialize(yaml).map(|_| self.value),
        }
    }
}

impl<'de> Visitor<'de> for WithTexts<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was read before")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut known = self.value.into_dict().unwrap_or_default();
        let mut dict = Dict::new();
        while let Some(name) = map.next_key::<String>()? {
            let dot = if self.path.is_empty() { "" } else { "." };
            let below = WithTexts {
                value: known.remove(&name).unwrap_or_else(nothing),
                path: format!("{}{dot}{name}", self.path),
                is_text: self.is_text,
            };
            dict.insert(name, map.next_value_seed(below)?);
        }
        Ok(dict.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut known = self.value.into_array().unwrap_or_default().into_iter();
        let mut next = || WithTexts {
            value: known.next().unwrap_or_else(nothing),
            path: self.path.clone(),
            is_text: self.is_text,
        };
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(next())? {
            items.push(item);
        }
        Ok(items.into())
    }
}

fn nothing() -> Value {
    Value::from(Empty::Unit)
}
