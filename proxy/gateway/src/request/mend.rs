//! Halves of surrogate pairs: JavaScript writes them when it cuts a text inside an emoji.
//!
//! JSON allows `"\ud83d"`, Unicode text does not. Upstreams get the bytes as they are; what we read
//! has U+FFFD in their place.

use std::borrow::Cow;

use crate::scan::text::unit;

const REPLACEMENT: &[u8] = b"\\ufffd";

/// Replaces escapes that are half a surrogate pair. `raw` is valid JSON.
pub(super) fn surrogates(raw: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = raw[at..].iter().position(|b| *b == b'\\') {
        at += found;
        match unit(&raw[at..]) {
            Some(0xd800..=0xdbff)
                if matches!(raw.get(at + 6..).and_then(unit), Some(0xdc00..=0xdfff)) =>
            {
                at += 12;
            }
            Some(0xd800..=0xdfff) => {
                out.extend_from_slice(&raw[copied..at]);
                out.extend_from_slice(REPLACEMENT);
                at += 6;
                copied = at;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(raw);
    }
    out.extend_from_slice(&raw[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_are_replaced() {
        let mended = |text: &str| String::from_utf8(surrogates(text.as_bytes()).to_vec()).unwrap();
        assert_eq!(mended(r#""a\ud83d\uDE00\n""#), r#""a\ud83d\uDE00\n""#);
        assert_eq!(mended(r#""\ud83d""#), r#""\ufffd""#);
        assert_eq!(
            mended(r#""\ude00\ud83d\ud83d\ude00""#),
            r#""\ufffd\ufffd\ud83d\ude00""#
        );
        assert_eq!(mended(r#""\\ud83d""#), r#""\\ud83d""#);
        assert_eq!(mended(r#""\\\ud83dx""#), r#""\\\ufffdx""#);
    }
}
