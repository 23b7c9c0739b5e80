//! What an upstream records of its callers.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use axum::{
    body::Bytes,
    http::{
        HeaderMap, HeaderName, Uri,
        header::{CONNECTION, HOST},
    },
};

use super::play::{Asked, Play};

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    /// The headers by name, without those of the single connection, which a relay must not change.
    pub fn end_to_end(&self) -> BTreeMap<String, String> {
        let is_of_the_message = |name: &HeaderName| *name != HOST && *name != CONNECTION;
        let headers = self.headers.iter();
        headers
            .filter(|(name, _)| is_of_the_message(name))
            .map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned()))
            .collect()
    }
}

/// The records of the server, and its script.
pub(super) struct Shared {
    pub(super) script: Box<dyn Fn(&Asked<'_>) -> Play + Send + Sync>,
    pub(super) received: Mutex<Vec<Received>>,
    pub(super) hang_ups: Mutex<Vec<SystemTime>>,
}

/// A panic of another test does not make these lists wrong.
pub(super) fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
