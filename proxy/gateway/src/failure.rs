//! Why an upstream did not answer, and how long it asks clients to wait.

use std::time::Duration;

use http::HeaderMap;
pub use metaclaw_dialects::Failure;

/// Reads how long an upstream asks clients to wait: `retry-after-ms`, else `Retry-After` in seconds or as a date (RFC
/// 9110 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let ms = text("retry-after-ms").and_then(|it| it.parse().ok());
    ms.map(Duration::from_millis)
        .or_else(|| metaclaw_chat::retry_after(text("retry-after")?, now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_in_each_of_its_forms() {
        let wait = |name: &'static str, value: &'static str| {
            let header = (http::HeaderName::from_static(name), value.parse().unwrap());
            retry_after(&HeaderMap::from_iter([header]), 784_111_770_000)
        };
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(
            wait("retry-after-ms", "250"),
            Some(Duration::from_millis(250))
        );
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(wait("retry-after", date), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after", "soon"), None);
        assert_eq!(wait("x", "1"), None);
    }
}
