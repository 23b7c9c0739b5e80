//! Bodies on their way in, for the routes for text and for those of training.
//!
//! A chat counts until it is read, a training call until it is answered: batches queue in their callers' memory and
//! not in ours.

mod pool;

use axum::extract::Request;

pub use self::pool::{Hold, Largest, Pool};
use crate::error::ApiError;

/// The request with its body read, and the place that it takes.
///
/// # Errors
/// 413 or 400 for a body that is too large, 503 where there is no room for it, 408 for one that comes too slowly.
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
