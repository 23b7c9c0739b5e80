//! Reads JSON of careless peers, for proxy and trainer. This is the only place that handles lone surrogates.
//!
//! JSON allows `"\ud83d"`, but Unicode text does not. JavaScript writes it when it cuts a text inside an emoji, and
//! some servers split one between two events. Here it becomes U+FFFD.

use std::borrow::Cow;

use memchr::memmem;
use serde::de::DeserializeOwned;

const HIGH: std::ops::RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: std::ops::RangeInclusive<u16> = 0xdc00..=0xdfff;

/// Parses a value. A lone surrogate becomes U+FFFD.
///
/// # Errors
/// Fails if the text is not JSON even then.
pub fn read<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|error| match mended(text) {
        Cow::Owned(mended) => serde_json::from_str(&mended),
        Cow::Borrowed(_) => Err(error),
    })
}

/// Returns `text` with the escapes of lone surrogates replaced.
pub fn mended(text: &str) -> Cow<'_, str> {
    if memmem::find(text.as_bytes(), b"\\u").is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut n_done = 0;
    let mut at = 0;
    while let Some(next) = text[at..].find('\\') {
        at += next;
        let Some(unit) = unit(&text[at..]) else {
            // The escaped character may itself be a backslash, and is never within another character.
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

/// Returns the UTF-16 code unit of the escape at the beginning: `\u` and four hexadecimal digits.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn half_an_emoji_does_not_cost_the_text_around_it() {
        for (text, expected) in [
            (r#""a\ud83db""#, json!("a\u{fffd}b")),
            (r#""\ude00\ud83d\ude00\ud83d""#, json!("\u{fffd}😀\u{fffd}")),
            (r#""\uD83D\uD83D""#, json!("\u{fffd}\u{fffd}")),
            (
                r#""\ud83d\\ude00 \\\ud83d""#,
                json!("\u{fffd}\\ude00 \\\u{fffd}"),
            ),
            (
                r#"{"\udfff": 9007199254740993}"#,
                json!({"\u{fffd}": 9_007_199_254_740_993_u64}),
            ),
        ] {
            assert_eq!(read::<Value>(text).unwrap(), expected, "{text}");
        }
        for broken in [r#"{"a":"\ud83d"#, "\\", r#""\ud8""#] {
            assert!(read::<Value>(broken).is_err(), "{broken}");
        }
        let whole = r#"{"a":"\ud83d\ude00 \\ud83d"}"#;
        assert!(matches!(mended(whole), Cow::Borrowed(_)));
    }
}
