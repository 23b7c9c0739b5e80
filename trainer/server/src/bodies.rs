//! Limits the bodies of training calls: they count until they are answered, so that batches wait in their callers'
//! memory and not in the server's.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use metaclaw_trainer_chat::bodies::{Largest, admit};

use crate::state::TrainerApp;

/// Reads the body of a training call.
pub(crate) async fn read_training(
    State(app): State<TrainerApp>,
    request: Request,
    next: Next,
) -> Response {
    let largest = Largest::of(app.limits.body);
    match admit(&app.training_bodies, largest, request).await {
        Ok((request, _until_it_is_answered)) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}
