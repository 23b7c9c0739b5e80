//! Waits for what another process does: a line of its log, a file, its end, an answer. The other process tells a test
//! nothing of it, so each wait looks again and again until a deadline. All waits of the tests are here.

use std::time::Duration;

use anyhow::{Context as _, Result};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until `is_true`.
///
/// # Errors
/// It is not true `within` that time.
pub async fn until(within: Duration, mut is_true: impl AsyncFnMut() -> bool) -> Result<()> {
    found(within, async || Ok(is_true().await.then_some(()))).await
}

/// Waits until `look` finds something.
///
/// # Errors
/// Nothing is found `within` that time, or `look` fails.
pub async fn found<T>(
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let watch = async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let found = tokio::time::timeout(within, watch).await;
    found.with_context(|| format!("waited in vain for {within:?}"))?
}
