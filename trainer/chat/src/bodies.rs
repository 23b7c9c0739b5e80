//! Request bodies, for the routes for text and for those of training.
//!
//! A chat's body counts until it is read, and a training call's until it is answered. So batches queue in their
//! callers' memory and not in ours.

mod pool;

use axum::extract::Request;

pub use self::pool::{Hold, Largest, Pool};
use crate::error::ApiError;

/// Returns the request with its body read, and the permit that the body holds.
///
/// # Errors
/// Answers 413 or 400 for a body that is too large, 503 if there is no room for it, and 408 for one that arrives too
/// slowly.
pub async fn admit(
    pool: &Pool,
    largest: Largest,
    request: Request,
) -> Result<(Request, Hold), ApiError> {
    let (mut head, body) = request.into_parts();
    let (bytes, hold) = pool.read(body, largest).await?;
    head.extensions.insert(hold.clone());
    Ok((Request::from_parts(head, bytes.into()), hold))
}
