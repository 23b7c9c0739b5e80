//! The query of a view, whose refusal is a page.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use crate::failure::PageFailure;

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
