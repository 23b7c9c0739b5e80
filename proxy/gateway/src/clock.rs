//! The time of day, for the log.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 on a machine whose clock is before that.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
