//! Bodies, as every room passes them on.

use bytes::Bytes;
use http_body::SizeHint;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

/// A body on its way, whatever it is made of.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
/// Whatever broke a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A whole body of our own.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// What `hint` says, and so many bytes more.
pub(crate) fn longer(hint: &SizeHint, n_bytes: usize) -> SizeHint {
    let n_bytes = n_bytes as u64;
    let mut longer = SizeHint::new();
    longer.set_lower(hint.lower().saturating_add(n_bytes));
    if let Some(upper) = hint.upper() {
        longer.set_upper(upper.saturating_add(n_bytes));
    }
    longer
}

/// Keeps `guard` for as long as the body is there.
pub(crate) fn guarded(body: Body, guard: impl Send + 'static) -> Body {
    // It is the closure's, and goes with it.
    let kept = body.inspect_frame(move |_| _ = &guard);
    kept.boxed_unsync()
}
