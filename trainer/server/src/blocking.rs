//! Work that takes long, on a thread for such.

use crate::error::{ApiError, Result};

/// Does work on a blocking thread.
///
/// # Errors
/// Returns the work's errors, and 500 if it failed inside.
pub(crate) async fn blocking<T: Send + 'static, E: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T>
where
    ApiError: From<E>,
{
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| ApiError::internal(format!("{what} failed: {error}")))?;
    Ok(done?)
}
