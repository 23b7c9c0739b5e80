//! Clients: configuration, sessions, promises, and the server's capabilities.

use std::time::Duration;

use axum::{
    Json as Reply,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use metaclaw_trainer_api::tinker::{
    PROTOBUF, TinkerSessionId,
    json::{
        CancelFuture, ClientConfig, ClientConfigRequest, CreateSession, CreatedSession,
        DynamicConfig, FinishSession, HealthStatus, Heartbeat, HeartbeatReply, QueueState,
        RetrieveFuture, ServerCapabilities, SupportedModel, TryAgain,
    },
};
use prost::Message as _;

use super::{
    body::{self, Call},
    futures::{Found, PromiseOutcome},
    stored, work,
};
use crate::error::Result;
use crate::{error::ApiError, fields::parsed, state::TrainerApp};

/// The interval at which a client asks for [`DynamicConfig`] again.
const REFRESH_S: u32 = 300;
/// The interval at which expired sessions are searched.
const LOOK: Duration = Duration::from_secs(2);

/// `POST client/config`. SDK 0.24 and older are asked to behave like newer ones.
pub(crate) async fn client_config(Call { .. }: Call<ClientConfigRequest>) -> Reply<ClientConfig> {
    Reply(ClientConfig {
        parallel_fwdbwd_chunks: Some(true),
        proto_write_fwdbwd: Some(true),
        fwd_via_fwdbwd: Some(true),
        create_model_via_load_weights: Some(true),
        ..ClientConfig::default()
    })
}

pub(crate) async fn dynamic_config(Call { .. }: Call<ClientConfigRequest>) -> Reply<DynamicConfig> {
    Reply(DynamicConfig {
        refresh_interval_sec: REFRESH_S,
        sample_cancel_enabled: true,
    })
}

pub(crate) async fn healthz() -> Reply<HealthStatus> {
    status("ok")
}

/// `POST telemetry`: accepted and dropped.
pub(crate) async fn telemetry() -> Reply<HealthStatus> {
    status("accepted")
}

fn status(word: &str) -> Reply<HealthStatus> {
    let status = word.to_owned();
    Reply(HealthStatus { status })
}

/// `GET get_server_capabilities`: the model that is loaded.
pub(crate) async fn capabilities(State(app): State<TrainerApp>) -> Reply<ServerCapabilities> {
    let model = app.host.model().ok().map(|model| SupportedModel {
        model_name: Some(app.host.base().to_owned()),
        max_context_length: u32::try_from(model.context()).ok(),
        trainable: Some(true),
        sampleable: Some(true),
    });
    Reply(ServerCapabilities {
        supported_models: model.into_iter().collect(),
    })
}

pub(crate) async fn create_session(
    Call { app, .. }: Call<CreateSession>,
) -> Result<Reply<CreatedSession>> {
    watch(&app);
    let session_id = app.tinker.registry.open_session()?;
    tracing::info!(session = %session_id, "session opened");
    Ok(Reply(CreatedSession {
        session_id,
        info_message: None,
        warning_message: None,
        error_message: None,
    }))
}

fn watch(app: &TrainerApp) {
    if app.tinker.watched.set(()).is_err() {
        return;
    }
    let weak = app.downgrade();
    app.tinker.tasks.spawn(async move {
        let mut look = tokio::time::interval(LOOK);
        loop {
            look.tick().await;
            let Some(app) = weak.upgrade() else { return };
            let idle = app.tinker.limits.session_idle;
            for session in app.tinker.registry.expired(idle) {
                tracing::info!(%session, ?idle, "session expired: its client is silent");
                end(&app, &session).await;
            }
        }
    });
}

/// Ends a session: its models give their memory back, weights that only it could sample from are deleted.
async fn end(app: &TrainerApp, session: &TinkerSessionId) {
    let Some(left) = app.tinker.registry.end(session) else {
        return;
    };
    for model in &left.models {
        work::close(app, model);
    }
    for adapter in left.adapters {
        app.host.unload(&adapter);
        // An adapter that a sample still reads is deleted at the next start.
        if let Err(error) = app.host.delete_adapter(adapter).await {
            tracing::warn!(%session, %error, "weights of an ended session stay for now");
        }
    }
}

pub(crate) async fn heartbeat(
    Call { app, body, .. }: Call<Heartbeat>,
) -> Result<Reply<HeartbeatReply>> {
    app.tinker.registry.touch(&body.session_id)?;
    Ok(Reply(HeartbeatReply {}))
}

/// `POST sessions/{id}/finish`. A session that has ended counts as finished.
pub(crate) async fn finish(
    Path(id): Path<String>,
    Call { app, body, .. }: Call<FinishSession>,
) -> Result<StatusCode> {
    let session: TinkerSessionId = parsed("session_id", &id)?;
    tracing::info!(%session, reason = ?body.reason, "session finished");
    end(&app, &session).await;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST retrieve_future`: waits for a while, then answers 408, and the client asks again.
pub(crate) async fn retrieve(
    headers: HeaderMap,
    Call { app, body, .. }: Call<RetrieveFuture>,
) -> Result<Response> {
    let id = body.request_id;
    // A waiting client is alive, even if it sends no heartbeat.
    if let Some(session) = stored::session_of(&id) {
        let _ = app.tinker.registry.touch(&session);
    }
    let limits = &app.tinker.limits;
    let hold = limits.hold.min(limits.session_idle / 2);
    match app.tinker.futures.wait(&id, hold).await {
        Found::Done(outcome) => Ok(answer(&outcome, body::takes_protobuf(&headers))),
        Found::Pending => {
            let again = TryAgain {
                request_id: id,
                queue_state: QueueState::Active,
                queue_state_reason: None,
            };
            Ok((StatusCode::REQUEST_TIMEOUT, Reply(again)).into_response())
        }
        Found::Gone => Err(ApiError::gone(format!(
            "nothing is known of request {id}: results are kept for {} s, and not beyond the server's end",
            limits.keep.time.as_secs()
        ))),
    }
}

fn answer(outcome: &PromiseOutcome, protobuf: bool) -> Response {
    let bytes = |bytes: Vec<u8>| ([(header::CONTENT_TYPE, PROTOBUF)], bytes).into_response();
    match outcome {
        PromiseOutcome::Json(value) => Reply(value).into_response(),
        PromiseOutcome::Failed(failed) => Reply(failed).into_response(),
        PromiseOutcome::Train(output) if protobuf => bytes(output.to_proto().encode_to_vec()),
        PromiseOutcome::Train(output) => Reply(output.to_json()).into_response(),
        PromiseOutcome::Sample(output, _) if protobuf => bytes(output.to_proto().encode_to_vec()),
        PromiseOutcome::Sample(output, ids) => Reply(output.to_json(ids)).into_response(),
    }
}

/// `POST cancel_future`: ends a sample. A change of a model is not cancelled, because later calls depend on it.
pub(crate) async fn cancel(Call { app, body, .. }: Call<CancelFuture>) -> StatusCode {
    app.tinker.futures.cancel(&body.request_id);
    StatusCode::NO_CONTENT
}
