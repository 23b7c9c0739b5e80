//! The query of an address, read and written.

use std::fmt::Write as _;

/// The names and values of a query, as they stand there.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter_map(|pair| pair.split_once('='))
}

pub(crate) fn decoded(value: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = value.as_bytes().iter();
    while let Some(byte) = bytes.next() {
        match *byte {
            b'+' => out.push(b' '),
            b'%' => match bytes.as_slice().get(..2).and_then(hex) {
                Some(byte) => {
                    out.push(byte);
                    bytes.nth(1);
                }
                None => out.push(b'%'),
            },
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn hex(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
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
