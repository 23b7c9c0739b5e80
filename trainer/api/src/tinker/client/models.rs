//! Models at the server: creates and loads them, and sends their calls in order.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::{
    bodies,
    futures::{self, Asker, PollLimits, Result_, SendOutcome},
    held::HeldSamplers,
    http::{Http, HttpRequest},
    runs::{ClientRuns, ServerModel, State},
    session::{OpenSession, TinkerSessions, is_gone},
};
use crate::{
    BackendError,
    tinker::{ModelId, json::Promise},
    wire::CreateRequest,
};

/// Creates models, and sends their calls.
#[derive(Debug)]
pub(super) struct ModelCalls {
    pub(super) asker: Asker,
    pub(super) sessions: Arc<TinkerSessions>,
    pub(super) base_model: String,
    pub(super) places: HeldSamplers,
    pub(super) runs: ClientRuns,
}

/// Whether a server follows Tinker's rules, as a model's id shows: requests of one number are carried out once, and
/// what a model saves does not change when it is trained. Ids of such models are `{session}:train:{n}`; SkyRL's are
/// not.
pub(super) fn follows_api(id: &ModelId) -> bool {
    id.parts().is_some()
}

// === impl ModelCalls ===

impl ModelCalls {
    pub(super) fn http(&self) -> &Http {
        &self.asker.http
    }

    /// Returns the run's model, and creates it if there is none.
    ///
    /// # Errors
    /// Returns the server's errors, and `run_not_found` if the earlier model is gone or its content is uncertain.
    pub(super) async fn standing<'s>(
        &self,
        call: &'static str,
        state: &'s mut State,
    ) -> Result<&'s mut ServerModel, BackendError> {
        let model = match state.model.take() {
            Some(model) => {
                let whose = self.http().whose(call);
                if model.session.is_over() {
                    return Err(whose.run_not_found("its session is over"));
                }
                if model.is_in_doubt {
                    self.unload(model).await;
                    let why = "a call of it was not answered: it begins again at its checkpoint";
                    return Err(whose.run_not_found(why));
                }
                model
            }
            None => self.create(&state.spec).await?,
        };
        state.used = Instant::now();
        Ok(state.model.insert(model))
    }

    /// A new model with fresh weights, as the server makes it.
    pub(super) async fn create_bare(
        &self,
        spec: &CreateRequest,
    ) -> Result<ServerModel, BackendError> {
        let call = "create_model";
        let limits = self.asker.limits();
        let lora = bodies::lora(spec);
        let lora = lora.map_err(|why| BackendError::Request { call, why })?;
        let (session, promised) = self
            .in_session(limits, |session| {
                let body = bodies::create_model(session, &self.base_model, lora);
                HttpRequest::json(call, call, &body)
            })
            .await?;
        let id = self.made(call, &promised, limits).await?;
        Ok(ServerModel::new(session, id, 0))
    }

    /// Creates a model with the weights and the optimiser of a checkpoint.
    pub(super) async fn load(
        &self,
        spec: &CreateRequest,
        path: &str,
    ) -> Result<ServerModel, BackendError> {
        let session = self.sessions.get().await?;
        if session.flags.creates_by_load() {
            match self.create_by_load(path).await {
                Err(error) if wants_model(&error) => session.flags.set_loads_into_models(),
                made => return made,
            }
        }
        let mut model = self.create_to_load(spec).await?;
        self.load_into(&mut model, path).await?;
        Ok(model)
    }

    /// Replaces a model's weights and optimiser.
    ///
    /// # Errors
    /// Returns the server's errors.
    pub(super) async fn load_into(
        &self,
        model: &mut ServerModel,
        path: &str,
    ) -> Result<(), BackendError> {
        let call = "load_weights";
        let loaded = self
            .operate(model, call, |id, seq| {
                HttpRequest::json(call, call, &bodies::load_into(id, seq, path))
            })
            .await?;
        let _: Value = loaded.json(self.http(), call)?;
        Ok(())
    }

    async fn create_by_load(&self, path: &str) -> Result<ServerModel, BackendError> {
        let call = "load_weights";
        let limits = self.asker.limits();
        let (session, promised) = self
            .in_session(limits, |session| {
                HttpRequest::json(call, call, &bodies::create_by_load(session, path))
            })
            .await?;
        let id = self.made(call, &promised, limits).await?;
        // The load is its call 0.
        Ok(ServerModel::new(session, id, 0))
    }

    /// Sends a request within a session; a session that the server does not know is opened again, once.
    async fn in_session(
        &self,
        limits: PollLimits,
        request: impl Fn(&OpenSession) -> Result<HttpRequest, BackendError>,
    ) -> Result<(Arc<OpenSession>, Promise), BackendError> {
        let mut is_first = true;
        loop {
            let known = self.sessions.current().await.is_some();
            let session = self.sessions.get().await?;
            let request = request(&session)?;
            match futures::submit(self.http(), session.flags.dedupes, &request, limits).await {
                SendOutcome::Promised(promised) => return Ok((session, promised)),
                SendOutcome::Refused(error)
                    if is_first && known && error.status().is_some_and(is_gone) =>
                {
                    session.end();
                    is_first = false;
                }
                SendOutcome::Refused(error) | SendOutcome::InDoubt(error) => return Err(error),
            }
        }
    }

    /// Returns the id of a promised model.
    async fn made(
        &self,
        call: &'static str,
        promised: &Promise,
        limits: PollLimits,
    ) -> Result<ModelId, BackendError> {
        let result = futures::result(self.http(), call, promised, limits).await?;
        let made: Value = result.json(self.http(), call)?;
        let id = made["model_id"].as_str().and_then(|id| id.parse().ok());
        let id = id.or_else(|| promised.model_id.clone());
        id.ok_or_else(|| self.http().whose(call).unreadable("it has no model_id"))
    }

    /// Sends a model's next call and waits for its result.
    ///
    /// # Errors
    /// Returns the server's errors. Unless the server refused the call, the model's content is uncertain from then on.
    pub(super) async fn operate(
        &self,
        model: &mut ServerModel,
        call: &'static str,
        request: impl FnOnce(&ModelId, i32) -> Result<HttpRequest, BackendError>,
    ) -> Result<Result_, BackendError> {
        let limits = self.asker.limits();
        let promised = self.send(model, request, limits).await?;
        let result = self.fetch(call, &promised, limits).await?;
        model.is_in_doubt = false;
        Ok(result)
    }

    /// Sends a model's next call. The model's content is uncertain until the result is known.
    pub(super) async fn send(
        &self,
        model: &mut ServerModel,
        request: impl FnOnce(&ModelId, i32) -> Result<HttpRequest, BackendError>,
        limits: PollLimits,
    ) -> Result<Promise, BackendError> {
        let was_in_doubt = model.is_in_doubt;
        let request = request(&model.id, model.next_seq)?;
        model.is_in_doubt = true;
        let dedupes = model.session.flags.dedupes && follows_api(&model.id);
        match futures::submit(self.http(), dedupes, &request, limits).await {
            SendOutcome::Promised(promised) => {
                model.next_seq += 1;
                Ok(promised)
            }
            SendOutcome::Refused(error) if error.status().is_some_and(is_gone) => Err(self
                .http()
                .whose(request.call)
                .run_not_found(&error.to_string())),
            SendOutcome::Refused(error) => {
                // The request was not accepted, so the number is free.
                model.is_in_doubt = was_in_doubt;
                Err(error)
            }
            SendOutcome::InDoubt(error) => Err(error),
        }
    }

    pub(super) async fn fetch(
        &self,
        call: &'static str,
        promised: &Promise,
        limits: PollLimits,
    ) -> Result<Result_, BackendError> {
        futures::result(self.http(), call, promised, limits).await
    }

    /// Tells the server that a model is not needed any more.
    pub(super) async fn unload(&self, model: ServerModel) {
        if model.session.is_over() {
            return;
        }
        let call = "unload_model";
        let Ok(request) = HttpRequest::json(call, call, &bodies::unload(&model.id)) else {
            return;
        };
        // The model is dropped with its session.
        if let Err(error) = self.http().send(&request).await {
            tracing::debug!(model = %model.id, %error, "not unloaded");
        }
    }
}

/// Returns whether a server refused to create a model by loading, because it loads only into existing models.
fn wants_model(error: &BackendError) -> bool {
    let is_refused = matches!(error.status(), Some(400 | 422));
    is_refused && error.to_string().contains("model_id")
}
