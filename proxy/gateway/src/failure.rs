//! Why an upstream did not answer, and how long it asks clients to wait.

use std::time::Duration;

use http::HeaderMap;
pub use metaclaw_dialects::Failure;

/// Reads how long an upstream asks clients to wait: `retry-after-ms`, else `Retry-After` in seconds or as a date (RFC
/// 9110 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let ms = text("retry-after-ms").and_then(|ms| ms.parse().ok());
    ms.map(Duration::from_millis)
        .or_else(|| metaclaw_chat::retry_after(text("retry-after")?, now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_in_each_of_its_forms() {
        for (name, value, wait) in [
            ("retry-after", "7", Some(7_000)),
            ("retry-after-ms", "250", Some(250)),
            ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", Some(7_000)),
            ("retry-after", "soon", None),
            ("x", "1", None),
        ] {
            let header = (http::HeaderName::from_static(name), value.parse().unwrap());
            let read = retry_after(&HeaderMap::from_iter([header]), 784_111_770_000);
            assert_eq!(read, wait.map(Duration::from_millis), "{value}");
        }
    }
}
