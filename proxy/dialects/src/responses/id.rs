//! Finds a reply's own id in its first event or its body.

use std::borrow::Cow;

use memchr::memmem;
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};

use crate::api::Api;

/// Returns the id of a reply of `api`, if its first bytes, `beginning`, contain it: in its body, or in its first event
/// if it `is_stream`.
///
/// A request may continue a reply by this id before the log has read the reply. So nothing beyond the id is parsed.
pub fn reply_id(api: Api, beginning: &[u8], is_stream: bool) -> Option<String> {
    let path: &[&str] = match api {
        Api::Responses if is_stream => &["response", "id"],
        Api::Messages if is_stream => &["message", "id"],
        Api::Chat | Api::Responses | Api::Messages => &["id"],
    };
    let json = if is_stream {
        let data = memmem::find(beginning, b"data:")? + b"data:".len();
        &beginning[data..]
    } else {
        beginning
    };
    let mut found = None;
    let at = NestedText {
        path,
        found: &mut found,
    };
    // Parsing usually ends with an error: nothing is read beyond the id, or the beginning ends before it.
    let _ = at.deserialize(&mut serde_json::Deserializer::from_slice(json));
    // The first event of Azure's chat completions has an empty id.
    found.filter(|id: &String| !id.is_empty())
}

struct NestedText<'a> {
    path: &'a [&'static str],
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for NestedText<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NestedText<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((name, path)) = self.path.split_first() else {
            return Err(A::Error::custom("no name to look for"));
        };
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key != *name {
                map.next_value::<IgnoredAny>()?;
            } else if path.is_empty() {
                *self.found = Some(map.next_value()?);
                return Err(A::Error::custom("found"));
            } else {
                let found = self.found;
                return map.next_value_seed(NestedText { path, found });
            }
        }
        Ok(())
    }
}
