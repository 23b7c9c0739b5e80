//! What the gateway counts.
//!
//! Single numbers are plain atomics here; what is told apart by labels is in `traffic`, and `expose`
//! makes the text of `/metrics` of both. A request looks its labels up once and then adds.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

mod expose;
mod request;
mod traffic;

pub(crate) use self::{
    expose::{CONTENT_TYPE, text},
    request::{MetricsLayer, RequestMetrics},
    traffic::{Traffic, api_name},
};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters since the start. Every loss on the way of a turn into the log has one.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $($(#[$doc])* pub(crate) $name: Counter,)*
            pub(crate) traffic: Traffic,
        }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Metrics {
            /// The counters now.
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Requests that came in.
    requests,
    /// Requests that the gateway answered itself, with an error.
    refused,
    /// Requests under way now.
    active_streams,
    /// Bytes held now for capture.
    capture_bytes,
    /// Bytes of request bodies held now.
    body_bytes,
    /// Turns that the log has acknowledged.
    recorded,
    /// Turns that are not in the log because its queue was full.
    dropped,
    /// Turns that are not in the log because it failed.
    failed,
    /// Turns without their reply, as the capture's memory ran out or an event was too long to read.
    overflowed,
    /// Turns without their reply, as it was compressed in a way that is not read here, or badly.
    undecodable,
    /// Chats relayed without capture, as their messages could not be read.
    unread,
    /// Chats relayed without capture, as they came compressed.
    encoded,
    /// Sessions whose lessons were chosen again after a pause: the provider's prompt cache broke.
    cache_breaks,
}

/// One number that goes up, and for some down again. On a line of the cache of its own: threads that count
/// different things need not wait for each other.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counter(AtomicU64);

// === impl Counter ===

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn inc(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
