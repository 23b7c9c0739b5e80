//! JSON as bytes: members and elements with their original text.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Returns the members of an object in order, including duplicates: key and value in their original text.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(&'de RawValue, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(InOrder).map(Self)
    }
}

pub fn members(raw: &str) -> Option<Members<'_>> {
    serde_json::from_str(raw).ok()
}

pub fn elements(raw: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(raw).ok()
}

/// Returns a string's text, or `None` for one with half a surrogate pair.
pub fn text(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

/// Returns whether these bytes are one JSON object.
pub fn is_object(raw: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(raw) else {
        return false;
    };
    let space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r');
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    is_json && text.trim_start_matches(space).starts_with('{')
}

/// Returns whether `after` differs from `before` only by added `texts`: at the end of a string, after a blank line; as
/// an element before or after all others; as a member after all others; or in place of `null`.
pub fn grew(before: &str, after: &str, texts: &[&str]) -> bool {
    if before == after {
        return true;
    }
    let is_ours = |raw: &str| texts.iter().any(|text| raw.contains(&inside(text)));
    match (before.as_bytes()[0], after.as_bytes()[0]) {
        (b'"', b'"') => grew_string(before, after, texts),
        (b'n', b'"' | b'[') => is_ours(after),
        (b'"', b'[') => grew_to_list(before, after, texts),
        (b'[', b'[') => {
            let (Some(old), Some(new)) = (elements(before), elements(after)) else {
                return false;
            };
            let grew = |old: &[&RawValue], new: &[&RawValue]| {
                let mut pairs = old.iter().zip(new);
                old.len() == new.len() && pairs.all(|(old, new)| grew(old.get(), new.get(), texts))
            };
            grew(&old, &new)
                || new
                    .split_first()
                    .is_some_and(|(first, rest)| is_ours(first.get()) && grew(&old, rest))
                || new
                    .split_last()
                    .is_some_and(|(last, rest)| is_ours(last.get()) && grew(&old, rest))
        }
        (b'{', b'{') => {
            let (Some(Members(old)), Some(Members(new))) = (members(before), members(after)) else {
                return false;
            };
            let added = new.len().checked_sub(old.len());
            let same = old.iter().zip(&new).all(|(old, new)| {
                old.0.get() == new.0.get() && grew(old.1.get(), new.1.get(), texts)
            });
            same && match added {
                Some(0) => true,
                Some(1) => new.last().is_some_and(|(_, value)| is_ours(value.get())),
                _ => false,
            }
        }
        _ => false,
    }
}

/// The comparison uses bytes, so that escapes must stay the same: `"text"` and `"text\n\nours"`.
fn grew_string(before: &str, after: &str, texts: &[&str]) -> bool {
    let (before, after) = (&before[1..before.len() - 1], &after[1..after.len() - 1]);
    let Some(added) = after.strip_prefix(before) else {
        return false;
    };
    // An owner's line may follow a lesson in the same text.
    texts.iter().any(|text| {
        let ours = inside(text);
        added == format!("\\n\\n{ours}") || (before.is_empty() && added == ours)
    })
}

/// A text became a list: its first part is the text unchanged, followed by the added text.
fn grew_to_list(before: &str, after: &str, texts: &[&str]) -> bool {
    let is_ours = |raw: &str| texts.iter().any(|text| raw.contains(&inside(text)));
    let parts = elements(after).unwrap_or_default();
    matches!(parts[..], [first, last] if first.get().contains(before) && is_ours(last.get()))
}

/// Returns a text as it is written between quotes.
fn inside(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
