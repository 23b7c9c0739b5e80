//! Tells tests that the learner's tasks have done something, so that they wait for it without polling.
//!
//! Each question to the log or the training server counts, and each change of the status. A test and the tasks that it waits
//! for share one thread.

use std::time::Duration;

use tokio::sync::watch;

/// Longer than anything that a test waits for takes, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    static CHANGES: watch::Sender<u64> = watch::Sender::new(0);
}

pub(crate) fn made() {
    CHANGES.with(|changes| changes.send_modify(|n| *n += 1));
}

/// Waits until `look` finds something. It is asked again whenever a task has done something.
pub(crate) async fn found<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let mut changes = CHANGES.with(watch::Sender::subscribe);
    loop {
        changes.borrow_and_update();
        if let Some(found) = look().await {
            return found;
        }
        // The sender lives as long as the thread.
        let _ = changes.changed().await;
    }
}

pub(crate) async fn found_in_time<T>(look: impl AsyncFn() -> Option<T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, found(look)).await.ok()
}
