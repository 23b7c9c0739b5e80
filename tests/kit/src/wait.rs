//! Waits for what happens elsewhere: in another process or thread.

use std::{fmt::Debug, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};

/// For everything that is over at once.
pub const SOON: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks at a state again and again until it is as wanted, and returns it.
///
/// # Panics
/// It is not so soon. The message says what was waited for, and the last state.
pub async fn until<S: Debug>(
    what: &str,
    state: impl AsyncFnMut() -> S,
    is_so: impl Fn(&S) -> bool,
) -> S {
    until_within(SOON, what, state, is_so).await
}

/// The same with another deadline.
pub async fn until_within<S: Debug>(
    within: Duration,
    what: &str,
    mut state: impl AsyncFnMut() -> S,
    is_so: impl Fn(&S) -> bool,
) -> S {
    let end = Instant::now() + within;
    let mut last = None;
    loop {
        let Ok(seen) = timeout_at(end, state()).await else {
            panic!("waited {within:?} for {what}; the last look has no end; before: {last:#?}");
        };
        if is_so(&seen) {
            return seen;
        }
        let is_late = Instant::now() >= end;
        assert!(
            !is_late,
            "waited {within:?} for {what}; last seen: {seen:#?}"
        );
        last = Some(seen);
        sleep(LOOK_EVERY).await;
    }
}

/// Fails unless the text has all of these parts.
#[track_caller]
pub fn has<T: AsRef<str>>(text: impl AsRef<str>, parts: impl IntoIterator<Item = T>) {
    let text = text.as_ref();
    for part in parts {
        let part = part.as_ref();
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}
