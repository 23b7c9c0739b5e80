//! The time of day, and how long a server asks its clients to wait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since 1970, or 0 if the machine's clock is before that.
pub fn now_ms() -> u64 {
    unix_ms(SystemTime::now())
}

/// Returns a time in Unix milliseconds, or 0 if it is before 1970.
pub fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, whole_ms)
}

/// Returns a duration in whole milliseconds.
pub fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The longest wait that a server may ask for. A date that is further away was compared with a clock that is behind.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// Parses `Retry-After` (RFC 9110 10.2.3), in seconds or as a date, which is compared with `now_ms`. A date in the past
/// is no wait. Seconds with a fraction are accepted too, because some servers send them. No wait is over a day.
pub fn retry_after(value: &str, now_ms: u64) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        let wait = Duration::try_from_secs_f64(seconds).ok()?;
        return Some(wait.min(LONGEST_WAIT));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let wait = unix_ms(date).saturating_sub(now_ms);
    Some(Duration::from_millis(wait).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date() {
        let now_ms = 784_111_770_000;
        let wait = |value| retry_after(value, now_ms).map(|wait| wait.as_millis());
        for (value, ms) in [
            ("7", Some(7_000)),
            (" 0.5 ", Some(500)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7_000)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("Mon, 06 Nov 2034 08:49:37 GMT", Some(86_400_000)),
            ("1e12", Some(86_400_000)),
            ("", None),
            ("soon", None),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("1e400", None),
        ] {
            assert_eq!(wait(value), ms, "{value}");
        }
    }
}
