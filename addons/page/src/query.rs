//! The query of an address, read and written.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All characters but those that no address gives a meaning.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The names and values of a query, as they stand there.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter_map(|pair| pair.split_once('='))
}

pub(crate) fn decoded(value: &str) -> String {
    let spaced = value.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_from_an_address() {
        let text = "a b/ö&=%+\u{202f}";
        assert_eq!(decoded(&encoded(text)), text);
        assert_eq!(encoded("a b/ö&"), "a%20b%2F%C3%B6%26");
        assert_eq!(decoded("a+b%2"), "a b%2");
    }
}
