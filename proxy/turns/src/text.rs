//! Compact JSON texts with their hashes: what records and blobs are made of.

use std::sync::Arc;

use memchr::memchr2;
use serde::Serialize;

use crate::blobs::{Hash, INLINE};

/// A JSON value as compact text: no blanks, so no line breaks either. Equal values that were written
/// by the usual means have equal texts, so that they are stored once.
///
/// Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText {
    pub(crate) hash: Hash,
    pub(crate) text: Arc<str>,
}

// === impl JsonText ===

impl JsonText {
    /// The text of a value that stands as `raw` in a request and was found to be JSON there.
    ///
    /// Nearly always that is `raw` itself; what has blanks, needless escapes or numbers that can be
    /// written in several ways is read and written anew.
    ///
    /// # Errors
    /// What no value can hold: a number beyond f64, half a surrogate pair.
    pub fn new(raw: &[u8]) -> Result<Self, serde_json::Error> {
        match std::str::from_utf8(raw) {
            Ok(text) if is_compact(raw) => Ok(Self::hashed(text)),
            _ => Self::of(&serde_json::from_slice::<serde_json::Value>(raw)?),
        }
    }

    /// The text of a value.
    ///
    /// # Errors
    /// What JSON cannot say: a map whose keys are no strings.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self::hashed(&text))
    }

    /// The text of a string.
    pub fn of_str(text: &str) -> Self {
        Self::hashed(&serde_json::Value::from(text).to_string())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its BLAKE3 hash.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Whether it is long enough to be stored apart from what says it.
    pub(crate) fn is_blob(&self) -> bool {
        self.text.len() > INLINE
    }

    fn hashed(text: &str) -> Self {
        Self {
            hash: *blake3::hash(text.as_bytes()).as_bytes(),
            text: Arc::from(text),
        }
    }
}

/// Whether valid JSON is written as serde_json writes it, as far as a look at its bytes can tell.
fn is_compact(raw: &[u8]) -> bool {
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        let n_bytes = match byte {
            b'"' => string(after),
            b'-' | b'0'..=b'9' => integer(rest),
            b' ' | b'\t' | b'\n' | b'\r' => None,
            _ => Some(1),
        };
        let Some(n_bytes) = n_bytes else {
            return false;
        };
        rest = rest.get(n_bytes..).unwrap_or_default();
    }
    true
}

/// The length of a string, given from behind its opening quote, with both quotes; none where an
/// escape could be written otherwise.
fn string(inner: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', inner.get(at..)?)?;
        if inner[at] == b'"' {
            return Some(at + 2);
        }
        at += match inner.get(at + 1..)? {
            [b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            // Control characters that have no letter of their own.
            [b'u', b'0', b'0', b'0', b'0'..=b'7' | b'b' | b'e' | b'f', ..]
            | [b'u', b'0', b'0', b'1', b'0'..=b'9' | b'a'..=b'f', ..] => 6,
            _ => return None,
        };
    }
}

/// The length of an integer; none of a number that can be written in several ways.
fn integer(raw: &[u8]) -> Option<usize> {
    /// Of more digits not all fit into 64 bits.
    const MAX_DIGITS: usize = 18;
    let n_sign = usize::from(raw.first() == Some(&b'-'));
    let digits = raw[n_sign..].iter().take_while(|b| b.is_ascii_digit());
    let n_digits = digits.count();
    let is_fraction = matches!(raw.get(n_sign + n_digits), Some(b'.' | b'e' | b'E'));
    let is_minus_zero = n_sign == 1 && raw.get(1) == Some(&b'0');
    let is_plain = n_digits <= MAX_DIGITS && !is_fraction && !is_minus_zero;
    is_plain.then_some(n_sign + n_digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_written_the_usual_way_is_taken_as_it_is() {
        for raw in [
            r#"{"role":"user","content":"a\n\"\u001b[0mé😀","n":[-12,0,null,true]}"#,
            r"[]",
            "\"\"",
        ] {
            assert!(is_compact(raw.as_bytes()), "{raw}");
            assert_eq!(JsonText::new(raw.as_bytes()).unwrap().as_str(), raw);
        }
    }

    #[test]
    fn what_can_be_written_otherwise_is_written_anew() {
        for (raw, text) in [
            ("{\"a\": 1,\n\"b\":\t[ ]}", r#"{"a":1,"b":[]}"#),
            (r#""caf\u00e9 \/ \u0041""#, r#""café / A""#),
            (
                "[1.50,-0,1e2,12345678901234567890]",
                "[1.5,-0.0,100.0,12345678901234567890]",
            ),
        ] {
            assert_eq!(JsonText::new(raw.as_bytes()).unwrap().as_str(), text);
        }
        assert!(JsonText::new(b"1e999").is_err());
    }

    proptest! {
        /// Whatever the writer, the text is what reading and writing gives.
        #[test]
        fn a_text_is_what_reading_and_writing_gives(
            text in any::<String>(), number in any::<f64>(), integer in any::<i64>(), pretty in any::<bool>(),
        ) {
            let value = json!({ "content": text, "n": [number, integer, [null, {}]] });
            let raw = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let raw = raw.unwrap();
            let expected = serde_json::from_str::<Value>(&raw).unwrap().to_string();
            let text = JsonText::new(raw.as_bytes()).unwrap();
            prop_assert_eq!(text.as_str(), expected);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = JsonText::new(&bytes);
        }
    }
}
