//! Bodies in the form in which all modules pass them on.

use std::io;

use bytes::Bytes;
use http::HeaderMap;
use http_body::SizeHint;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use metaclaw_capture::Encoding;
use tokio::task::spawn_blocking;

pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Decompresses a body of these headers where this may take its time. Each step writes to a new `out`.
pub(crate) async fn decoded<W>(
    headers: &HeaderMap,
    mut body: Bytes,
    limit: u64,
    out: impl Fn() -> W + Send + 'static,
) -> io::Result<Bytes>
where
    W: io::Write + AsRef<[u8]> + Send + 'static,
{
    // One that is not supported is refused by its decoder.
    let encodings = Encoding::all(headers).unwrap_or_else(|| vec![Encoding::Unsupported]);
    if encodings.is_empty() {
        return Ok(body);
    }
    let decoding = spawn_blocking(move || -> io::Result<Bytes> {
        for encoding in encodings.into_iter().rev() {
            let mut out = out();
            encoding.decode(&body, limit, &mut out)?;
            body = Bytes::from_owner(out);
        }
        Ok(body)
    });
    decoding.await?
}

pub(crate) fn longer(hint: &SizeHint, n_bytes: usize) -> SizeHint {
    let n_bytes = n_bytes as u64;
    let mut longer = SizeHint::new();
    longer.set_lower(hint.lower().saturating_add(n_bytes));
    if let Some(upper) = hint.upper() {
        longer.set_upper(upper.saturating_add(n_bytes));
    }
    longer
}

pub(crate) fn guarded(body: Body, guard: impl Send + 'static) -> Body {
    // The closure owns the guard, and both are dropped together.
    let kept = body.inspect_frame(move |_| _ = &guard);
    kept.boxed_unsync()
}
