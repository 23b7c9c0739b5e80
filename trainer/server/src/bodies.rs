//! Bodies on their way in, for the routes for text and for those of training.
//!
//! A chat counts until it is read, a training call until it is answered: batches queue in their callers' memory and
//! not in ours.

mod pool;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

pub(crate) use self::pool::{Hold, Largest, Pool};
use crate::{error::ApiError, state::App};

/// Reads the body of a request for text; what is larger than the model's context can be is refused as such.
pub(crate) async fn read_text(State(app): State<App>, request: Request, next: Next) -> Response {
    let most = app.limits.body.min(app.limits.text_bodies);
    let admitted = match app.host.largest_text(most) {
        Ok(largest) => admit(&app.text_bodies, largest, request).await,
        Err(error) => Err(error),
    };
    match admitted {
        Ok((request, hold)) => {
            // The request has its own.
            drop(hold);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// Reads the body of a training call.
pub(crate) async fn read_training(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let largest = Largest::of(app.limits.body);
    match admit(&app.training_bodies, largest, request).await {
        Ok((request, _until_it_is_answered)) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// The request with its body read, and the place that it takes.
async fn admit(
    pool: &Pool,
    largest: Largest,
    request: Request,
) -> Result<(Request, Hold), ApiError> {
    let (mut head, body) = request.into_parts();
    let (bytes, hold) = pool.read(body, largest).await?;
    head.extensions.insert(hold.clone());
    Ok((Request::from_parts(head, bytes.into()), hold))
}
