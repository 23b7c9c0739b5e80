//! An object read no deeper than its fields, since of most events one text is all that is wanted.

use std::{borrow::Cow, fmt};

use metaclaw_chat::work::looks_at;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use crate::{grow::append, json};

/// The fields of an object, in their order, those that occur twice included.
#[derive(Debug, Default)]
pub(crate) struct JsonFields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

// === impl Fields ===

impl<'a> JsonFields<'a> {
    pub(crate) fn parse(json: &'a str) -> Option<Self> {
        looks_at(json.len());
        serde_json::from_str(json).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a field; of one that is there twice, the last. `null` counts as not there.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.last(name).filter(|value| value.get() != "null")
    }

    /// The value of a field, be it `null`; of one that is there twice, the last.
    pub(crate) fn last(&self, name: &str) -> Option<&'a RawValue> {
        let mut fields = self.0.iter().rev();
        let (_, value) = fields.find(|(known, _)| known == name)?;
        Some(value)
    }

    pub(crate) fn object(&self, name: &str) -> Option<Self> {
        Self::parse(self.get(name)?.get())
    }

    pub(crate) fn objects(&self, name: &str) -> Vec<Self> {
        let each = self.list(name).into_iter();
        each.filter_map(|value| Self::parse(value.get())).collect()
    }

    pub(crate) fn first(&self, name: &str) -> Option<Self> {
        Self::parse(self.list(name).first()?.get())
    }

    fn list(&self, name: &str) -> Vec<&'a RawValue> {
        let list = self.get(name).map(RawValue::get);
        list.map(elements).unwrap_or_default()
    }

    pub(crate) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        text(self.get(name)?)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.get().parse().ok()
    }

    pub(crate) fn to_value(&self) -> Value {
        let fields = self.0.iter();
        fields.map(|(name, raw)| (&**name, value(raw))).collect()
    }

    pub(crate) fn value(&self, name: &str) -> Option<Value> {
        self.get(name).map(value)
    }
}

impl<'a> IntoIterator for JsonFields<'a> {
    type Item = (Cow<'a, str>, &'a RawValue);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'de> Deserialize<'de> for JsonFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shallow;

        impl<'de> Visitor<'de> for Shallow {
            type Value = JsonFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                // Read raw: no text can hold a name with half a surrogate pair.
                while let Some((name, value)) = map.next_entry::<&RawValue, _>()? {
                    fields.push((text(name).unwrap_or_default(), value));
                }
                Ok(JsonFields(fields))
            }
        }

        deserializer.deserialize_map(Shallow)
    }
}

pub(crate) fn elements(json: &str) -> Vec<&RawValue> {
    looks_at(json.len());
    serde_json::from_str(json).unwrap_or_default()
}

pub(crate) fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    json::string(value.get())
}

/// A value, read to its depth; `null` where no value can hold it (a number that no f64 is).
pub(crate) fn value(value: &RawValue) -> Value {
    looks_at(value.get().len());
    json::read(value.get()).unwrap_or_default()
}

pub(crate) fn append_raw(map: &mut Map<String, Value>, name: &str, raw: &RawValue) {
    match (map.get_mut(name), text(raw)) {
        (Some(Value::String(known)), Some(more)) => known.push_str(&more),
        (_, Some(more)) => append(map, name.to_owned(), more.into_owned().into()),
        (_, None) => append(map, name.to_owned(), value(raw)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_object_has_fields_and_the_last_of_a_name_counts() {
        for json in ["[]", "7", "{", "null", r#"{"a":}"#, ""] {
            assert!(JsonFields::parse(json).is_none(), "{json}");
        }
        let fields =
            JsonFields::parse(r#" {"a":1,"\u0062":"x\n","a": 2,"c":null,"d":{"e":-1}} "#).unwrap();
        assert_eq!(
            (fields.number("a"), fields.text("b").as_deref()),
            (Some(2), Some("x\n"))
        );
        assert!(fields.get("c").is_none() && fields.text("a").is_none());
        let fields_of = |json: &'static str| JsonFields::parse(json).unwrap();
        let first = |json| fields_of(json).first("a").and_then(|it| it.number("b"));
        assert_eq!(first(r#"{"a":[{"b":1},7,{"b":2}]}"#), Some(1));
        for json in [
            r#"{"a":[]}"#,
            r#"{"a":[7,{"b":1}]}"#,
            r#"{"a":{"b":1}}"#,
            "{}",
        ] {
            assert_eq!(first(json), None, "{json}");
        }
        let inner = fields.object("d").unwrap();
        assert_eq!(
            (inner.number("e"), inner.value("e")),
            (None, Some(json!(-1)))
        );
    }

    #[test]
    fn half_an_emoji_is_shown_and_the_text_around_it_kept() {
        let fields =
            JsonFields::parse(r#"{"a":"so \ud83d","b":"\ude00 \ud83d\ude00","c":1e999}"#).unwrap();
        assert!(fields.text("a").unwrap().starts_with("so \u{fffd}"));
        assert!(fields.text("b").unwrap().ends_with(" \u{1f600}"));
        assert_eq!(fields.value("c"), Some(Value::Null));
    }

    proptest! {
        #[test]
        fn what_is_appended_unread_is_what_is_appended_read(known in crate::any_json::any_json(), more in crate::any_json::any_json()) {
            let mut map = Map::from_iter([("x".to_owned(), known)]);
            let mut read = map.clone();
            let more = more.to_string();
            append(&mut read, "x".to_owned(), serde_json::from_str(&more).unwrap());
            let json = format!("{{\"x\":{more}}}");
            for (name, raw) in JsonFields::parse(&json).unwrap() {
                append_raw(&mut map, &name, raw);
            }
            prop_assert_eq!(map, read);
        }
    }
}
