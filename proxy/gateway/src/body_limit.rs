//! Reads bodies of requests completely. Each is limited by `proxy.max_body`, and all together by `proxy.body_memory`.
//! Both limits count received bytes, and then those of a compressed body that was decompressed. A length that a client
//! announces takes nothing from the others. A body that only passes is not held, and has only a time limit
//! (`timed_body`).

use std::{
    io::{self, ErrorKind, Write},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header, request::Parts};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use metaclaw_capture::{Budget, Held};
use metaclaw_chat::{Size, excerpt};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tower::service_fn;

use crate::{
    body::decoded,
    config::ProxyConfig,
    handler::{Answer, Handler},
    metrics::{Metrics, RequestMetrics},
    timed_body::{BodyError, TimedBody},
};

/// The time and the number of bytes for which a refused body is read and discarded while the answer is sent. A client
/// that is cut off while it writes never sees the answer.
const DISCARD_TIME: Duration = Duration::from_secs(5);
const DISCARDED: u64 = 256 << 20;
/// The largest number of bytes that are reserved for a body before any of it has arrived.
const EXPECTED: u64 = 64 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Clone)]
pub(crate) struct BodyLimitLayer(Arc<Bounds>);

#[derive(Debug)]
struct Bounds {
    max_body: Size,
    memory: Size,
    budget: Budget,
    tasks: TaskTracker,
}

/// The received part of a body, and its share of the memory, which is released with the last reference.
struct Growing {
    bytes: Vec<u8>,
    held: Held,
    limit: Size,
}

// === impl BodyLimitLayer ===

impl BodyLimitLayer {
    pub(crate) fn new(config: &ProxyConfig, metrics: &Arc<Metrics>, tasks: &TaskTracker) -> Self {
        let (max_body, memory) = (config.max_body, config.body_memory);
        let budget = Budget::new(memory.0, Arc::clone(&metrics.body_bytes));
        Self(Arc::new(Bounds {
            max_body,
            memory,
            budget,
            tasks: tasks.clone(),
        }))
    }

    pub(crate) fn around<E>(self, inner: impl Handler<Bytes, E>) -> impl Handler<Incoming, E>
    where
        E: From<BodyError> + 'static,
    {
        service_fn(move |request: Request<Incoming>| -> Answer<E> {
            let (bounds, mut inner) = (Arc::clone(&self.0), inner.clone());
            Box::pin(async move {
                let (mut head, body) = request.into_parts();
                let mut body = bounds.read(&head.headers, body).await?;
                if head.headers.contains_key(header::CONTENT_ENCODING) {
                    body = bounds.decoded(&mut head.headers, body).await?;
                }
                // Some editors on Windows put this mark before a text. It is not part of JSON.
                if body.starts_with(BYTE_ORDER_MARK) {
                    body = body.slice(BYTE_ORDER_MARK.len()..);
                }
                detach(&mut head);
                RequestMetrics::from_extensions(&head.extensions).has_read();
                inner.call(Request::from_parts(head, body)).await
            })
        })
    }
}

// === impl Bounds ===

impl Bounds {
    async fn read(&self, headers: &HeaderMap, body: Incoming) -> Result<Bytes, BodyError> {
        let limit = self.max_body;
        let given = body.size_hint().exact();
        let mut body = TimedBody::new(body);
        if given.is_some_and(|given| given > limit.0) {
            // A client that waits for `100 Continue` sends nothing.
            if !headers.contains_key(header::EXPECT) {
                self.tasks.spawn(discard(body.into_inner()));
            }
            return Err(BodyError::TooLarge { limit, given });
        }
        let read = self.try_read(&mut body).await;
        if let Err(BodyError::TooLarge { .. } | BodyError::NoRoom { .. }) = &read {
            self.tasks.spawn(discard(body.into_inner()));
        }
        read
    }

    async fn try_read(&self, body: &mut TimedBody<Incoming>) -> Result<Bytes, BodyError> {
        let limit = self.max_body;
        let no_room = || BodyError::NoRoom { limit: self.memory };
        let expected = body.size_hint().lower().min(EXPECTED);
        let expected = usize::try_from(expected).unwrap_or(0);
        let mut growing = self.growing();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            if (growing.bytes.len() + data.len()) as u64 > limit.0 {
                let given = None;
                return Err(BodyError::TooLarge { limit, given });
            }
            if growing.bytes.is_empty() {
                growing.reserve(expected).ok_or_else(no_room)?;
            }
            growing.push(&data).ok_or_else(no_room)?;
        }
        Ok(Bytes::from_owner(growing))
    }

    async fn decoded(
        self: Arc<Self>,
        headers: &mut HeaderMap,
        body: Bytes,
    ) -> Result<Bytes, BodyError> {
        let given = headers.get_all(header::CONTENT_ENCODING).iter();
        let given = given.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let given = excerpt(&given.collect::<Vec<_>>().join(", ")).into_owned();
        let (limit, memory) = (self.max_body, self.memory);
        let decoded = decoded(headers, body, limit.0, move || self.growing()).await;
        headers.remove(header::CONTENT_ENCODING);
        decoded.map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => BodyError::TooLarge { limit, given: None },
            ErrorKind::OutOfMemory => BodyError::NoRoom { limit: memory },
            _ => BodyError::Encoding { given, error },
        })
    }

    fn growing(&self) -> Growing {
        Growing {
            bytes: Vec::new(),
            held: self.budget.nothing(),
            limit: self.max_body,
        }
    }
}

/// Copies a head into its own memory. hyper's values share the buffer of the body, 64 KiB, which would stay until the
/// reply has ended: 8 MB for 128 connections. The values share one buffer, because clones of separate ones would
/// allocate memory for each.
fn detach(head: &mut Parts) {
    let texts: Vec<&[u8]> = head.headers.values().map(HeaderValue::as_bytes).collect();
    let mut texts = Bytes::from(texts.concat());
    for value in head.headers.values_mut() {
        if let Ok(mut own) = HeaderValue::from_maybe_shared(texts.split_to(value.len())) {
            own.set_sensitive(value.is_sensitive());
            *value = own;
        }
    }
    if let Ok(own) = head.uri.to_string().parse() {
        head.uri = own;
    }
}

async fn discard(mut body: Incoming) {
    let all = async {
        let mut n_bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            n_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if n_bytes > DISCARDED {
                break;
            }
        }
    };
    // The result does not matter.
    let _ = timeout(DISCARD_TIME, all).await;
}

// === impl Growing ===

impl Growing {
    fn reserve(&mut self, capacity: usize) -> Option<()> {
        let more = capacity.saturating_sub(self.bytes.capacity());
        if more > 0 {
            self.held.grow(more as u64).then_some(())?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        Some(())
    }

    fn push(&mut self, data: &[u8]) -> Option<()> {
        let len = self.bytes.len() + data.len();
        if len > self.bytes.capacity() {
            // The buffer grows by at least half of its length, so that copying stays cheap.
            let limit = usize::try_from(self.limit.0).unwrap_or(usize::MAX);
            let by_halves = self.bytes.capacity() * 3 / 2;
            self.reserve(len.max(by_halves.min(limit)))?;
        }
        self.bytes.extend_from_slice(data);
        Some(())
    }
}

impl Write for Growing {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.push(data).ok_or(ErrorKind::OutOfMemory)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRef<[u8]> for Growing {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_was_read_keeps_nothing_of_its_buffer() {
        let buffer = Bytes::from(b"/v1/x?y=1 secret".to_vec());
        let mut secret = HeaderValue::from_maybe_shared(buffer.slice(10..)).unwrap();
        secret.set_sensitive(true);
        let uri = http::Uri::from_maybe_shared(buffer.slice(..9)).unwrap();
        let request = Request::post(uri).header("authorization", secret);
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        assert!(!buffer.is_unique());
        detach(&mut head);
        assert!(buffer.is_unique());
        assert_eq!(head.uri, "/v1/x?y=1");
        let value = &head.headers["authorization"];
        assert!(value == "secret" && value.is_sensitive());
    }
}
