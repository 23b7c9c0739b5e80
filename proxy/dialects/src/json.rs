//! JSON read from peers that are not careful.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::Value;

const HIGH: std::ops::RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: std::ops::RangeInclusive<u16> = 0xdc00..=0xdfff;

/// Reads a value. Half of a surrogate pair, which no Rust text can hold, is U+FFFD: some servers tear an
/// emoji between two events, and the rest of what they say need not be lost for it.
///
/// # Errors
/// What is no JSON even so.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|error| match mended(text) {
        Cow::Owned(mended) => serde_json::from_str(&mended),
        Cow::Borrowed(_) => Err(error),
    })
}

/// Reads a value from bytes that need not be UTF-8.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_bytes(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|_| read(&String::from_utf8_lossy(bytes)))
}

/// `text` with the escapes of half pairs replaced.
fn mended(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut n_done = 0;
    let mut at = 0;
    while let Some(next) = text[at..].find('\\') {
        at += next;
        let Some(unit) = unit(&text[at..]) else {
            // The escaped character may itself be a backslash; it is never within another character.
            at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8);
            continue;
        };
        let is_pair = HIGH.contains(&unit)
            && self::unit(&text[at + 6..]).is_some_and(|low| LOW.contains(&low));
        if is_pair {
            at += 12;
            continue;
        }
        if HIGH.contains(&unit) || LOW.contains(&unit) {
            out.push_str(&text[n_done..at]);
            out.push_str("\\ufffd");
            n_done = at + 6;
        }
        at += 6;
    }
    if n_done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[n_done..]);
    Cow::Owned(out)
}

/// The UTF-16 code unit of the escape at the beginning: `\u` and four hexadecimal digits.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    #[test]
    fn half_an_emoji_does_not_cost_the_text_around_it() {
        let read = |text| read::<Value>(text).unwrap();
        assert_eq!(read(r#""a\ud83db""#), "a\u{fffd}b");
        assert_eq!(read(r#""\ude00\ud83d\ude00\ud83d""#), "\u{fffd}😀\u{fffd}");
        assert_eq!(
            read(r#""\ud83d\\ude00 \\\ud83d""#),
            "\u{fffd}\\ude00 \\\u{fffd}"
        );
        assert!(super::read::<Value>(r#"{"a":"\ud83d"#).is_err());
        assert!(super::read::<Value>("\\").is_err());
        assert_eq!(
            read_bytes(b"[\"\xf0\x9f\", \"\\ud83d\"]").unwrap(),
            serde_json::json!(["\u{fffd}", "\u{fffd}"])
        );
    }

    proptest! {
        #[test]
        fn every_string_of_escapes_can_be_read(
            escapes in vec(select(vec!["\\ud83d", "\\ude00", "\\\\", "\\u00e9", "é", "u", "\\\"", "\\n"]), 0..9),
        ) {
            let text = format!("\"{}\"", escapes.concat());
            prop_assert!(read::<Value>(&text).unwrap().is_string());
        }

        #[test]
        fn no_text_makes_it_panic(text in "[\\\\ud83eé\"{} ]{0,30}") {
            let _ = read::<Value>(&text);
        }
    }
}
