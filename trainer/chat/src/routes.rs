//! The routes of a front, for a server with further routes, or with everything for a separate listener.

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Request, State},
    middleware::{self, Next},
    response::Response,
    routing::{get, post},
};
use metaclaw_trainer_api::{ApiKey, wire::Sampled};
use metaclaw_trainer_terms::ErrorCode;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    answers, auth, bodies, chat, connections, error::ApiError, fields, front::Front, models,
    tokenize,
};

/// `POST /v1/chat/completions`, `POST /tokenize`, `GET /v1/models` and `GET /v1/sampled/{id}`. They do not check the
/// key: the server adds [`auth::require_key`].
pub fn routes(front: &Front) -> Router {
    let text = Router::new()
        .route("/v1/chat/completions", post(chat::completions))
        .route("/tokenize", post(tokenize::tokenize))
        .route_layer(middleware::from_fn_with_state(front.clone(), read_text));
    Router::new()
        .route("/v1/models", get(models::list))
        .route("/v1/sampled/{id}", get(sampled))
        .merge(text)
        .with_state(front.clone())
}

/// Returns these routes with all layers: a panic becomes a 500, the key is required, and bodies are limited.
pub fn router(front: &Front, key: &ApiKey) -> Router {
    routes(front)
        .route_layer(middleware::from_fn_with_state(
            Some(key.clone()),
            auth::require_key,
        ))
        .method_not_allowed_fallback(answers::wrong_method)
        .fallback(answers::unknown_route)
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn(answers::catch_panic))
}

/// Serves a front on a separate listener, until `ending`, then until the last running request is answered.
pub async fn serve(listener: TcpListener, front: &Front, key: &ApiKey, ending: CancellationToken) {
    connections::serve(listener, router(front, key), ending).await;
}

/// Reads the body of a request for text. A body that is larger than the model's context allows is refused with that
/// reason.
///
/// # Errors
/// Returns the answer to a body that is not taken.
pub async fn read_text(
    State(front): State<Front>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let largest = front.model()?.largest_text(front.most());
    // The request has its own permit.
    let (request, _) = bodies::admit(front.bodies(), largest, request).await?;
    Ok(next.run(request).await)
}

async fn sampled(
    State(front): State<Front>,
    Path(id): Path<String>,
) -> Result<Json<Sampled>, ApiError> {
    let found = front.sampled().get(&id).ok_or_else(|| {
        let shown = fields::cut(&id);
    let text = format!("nothing is kept of a reply {shown:?}: records are of complete replies, and kept for 15 minutes or until newer ones need the room"); ApiError::not_found(ErrorCode::SampledNotFound, text)
    })?;
    Ok(Json(Sampled::clone(&found)))
}
