//! The query of an address, read and written.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::de::DeserializeOwned;

use crate::failure::PageFailure;

/// All characters but those that no address gives a meaning.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The query of a view. One that does not read is told as a page.
pub(crate) struct ViewQuery<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for ViewQuery<T> {
    type Rejection = PageFailure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, PageFailure> {
        let read = Query::try_from_uri(&parts.uri).map_err(|error| {
            let text = error.body_text();
            let why = text.split_once(": ").map_or(&*text, |(_, why)| why);
            PageFailure::bad_request(format!(
                "This address has a value that is not allowed: {why}."
            ))
        });
        read.map(|Query(query)| Self(query))
    }
}

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
