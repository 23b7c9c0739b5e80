//! Models at the server: creates and loads them, and sends their calls in order.
//!
//! A run outlives its model: loading a checkpoint makes a new model, and unfinished calls on the old one do not matter
//! any more. A model is created when it is first needed, so that a run that continues from a checkpoint, or that only
//! asks the base model, does not create one in vain.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    bodies,
    futures::{self, Asker, PollLimits, SendOutcome},
    http::{Http, HttpRequest},
    session::{OpenSession, TinkerSessions, is_gone},
};
use crate::backend::Result;
use crate::{
    BackendError, RunId,
    tinker::{ModelId, SamplerId, json::Promise},
    wire::CreateRequest,
};

#[derive(Debug)]
pub(super) struct ModelCalls {
    pub(super) asker: Asker,
    pub(super) sessions: Arc<TinkerSessions>,
    pub(super) base_model: String,
    pub(super) places: HeldSamplers,
    pub(super) runs: ClientRuns,
}

#[derive(Debug, Default)]
pub(super) struct HeldSamplers {
    pub(super) held: tokio::sync::Mutex<BTreeMap<String, Place>>,
    pub(super) n_uses: AtomicU64,
    /// Models are made one at a time, so that after one is emptied, the next one gets the same slot.
    pub(super) making: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) model: ServerModel,
    pub(super) path: String,
    /// When it was last used, as a count of all uses.
    pub(super) used: u64,
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
    ) -> Result<&'s mut ServerModel> {
        let model = match state.model.take() {
            Some(model) => {
                let whose = self.http().whose(call);
                if model.session.is_over.get() {
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

    pub(super) async fn create_bare(&self, spec: &CreateRequest) -> Result<ServerModel> {
        let lora = bodies::lora(spec)?;
        let body = |session: &OpenSession| bodies::create_model(session, &self.base_model, lora);
        self.make("create_model", body).await
    }

    pub(super) async fn load(&self, spec: &CreateRequest, path: &str) -> Result<ServerModel> {
        let session = self.sessions.get().await?;
        if session.flags.creates_by_load.get() {
            let body = |session: &OpenSession| bodies::create_by_load(session, path);
            match self.make("load_weights", body).await {
                Err(error) if wants_model(&error) => session.flags.creates_by_load.set(false),
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
    pub(super) async fn load_into(&self, model: &mut ServerModel, path: &str) -> Result<()> {
        let body = |id: &ModelId, seq| bodies::load_into(id, seq, path);
        let _: Value = self.operate(model, "load_weights", body).await?;
        Ok(())
    }

    /// Has the server make a model, which is its call 0. A session that the server does not know is opened again, once.
    async fn make(
        &self,
        call: &'static str,
        body: impl Fn(&OpenSession) -> Value,
    ) -> Result<ServerModel> {
        let limits = self.asker.limits();
        let mut is_first = true;
        loop {
            let known = self.sessions.current().await.is_some();
            let session = self.sessions.get().await?;
            let request = HttpRequest::json(call, call, &body(&session))?;
            match futures::submit(self.http(), session.flags.dedupes, &request, limits).await {
                SendOutcome::Promised(promised) => {
                    let id = self.made(call, &promised, limits).await?;
                    return Ok(ServerModel {
                        session,
                        id,
                        next_seq: 1,
                        is_in_doubt: false,
                    });
                }
                SendOutcome::Refused(error)
                    if is_first && known && error.status().is_some_and(is_gone) =>
                {
                    session.is_over.set(true);
                    is_first = false;
                }
                SendOutcome::Refused(error) | SendOutcome::InDoubt(error) => return Err(error),
            }
        }
    }

    async fn made(
        &self,
        call: &'static str,
        promised: &Promise,
        limits: PollLimits,
    ) -> Result<ModelId> {
        let result = futures::result(self.http(), call, promised, limits).await?;
        let made: Value = result.json(self.http(), call)?;
        let named = made["model_id"].as_str().and_then(|id| id.parse().ok());
        let id = named.or_else(|| promised.model_id.clone());
        id.ok_or_else(|| self.http().whose(call).unreadable("it has no model_id"))
    }

    /// Sends a model's next call, and reads its result.
    ///
    /// # Errors
    /// Returns the server's errors. Unless the server refused the call, the model's content is uncertain from then on.
    pub(super) async fn operate<B: Serialize, T: DeserializeOwned>(
        &self,
        model: &mut ServerModel,
        call: &'static str,
        body: impl FnOnce(&ModelId, i32) -> B,
    ) -> Result<T> {
        let limits = self.asker.limits();
        let request = |id: &ModelId, seq| HttpRequest::json(call, call, &body(id, seq));
        let promised = self.send(model, request, limits).await?;
        let result = futures::result(self.http(), call, &promised, limits).await?;
        model.is_in_doubt = false;
        result.json(self.http(), call)
    }

    /// Sends a model's next call. The model's content is uncertain until the result is known.
    pub(super) async fn send(
        &self,
        model: &mut ServerModel,
        request: impl FnOnce(&ModelId, i32) -> Result<HttpRequest>,
        limits: PollLimits,
    ) -> Result<Promise> {
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

    pub(super) async fn unload(&self, model: ServerModel) {
        if model.session.is_over.get() {
            return;
        }
        let call = "unload_model";
        let Ok(request) =
            HttpRequest::json(call, call, &json!({"type": call, "model_id": model.id}))
        else {
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

/// The most runs that are kept. Beyond this the oldest open runs are dropped.
const MOST: usize = 256;

pub(super) type ClientRun = tokio::sync::Mutex<State>;

#[derive(Debug)]
pub(super) struct State {
    pub(super) spec: CreateRequest,
    pub(super) model: Option<ServerModel>,
    pub(super) step: u64,
    /// A sampler of these weights; none where they have moved since.
    pub(super) sampler: Option<Arc<ServerSampler>>,
    pub(super) used: Instant,
    /// The losses since the last step, and the number of their tokens.
    pub(super) loss: (f64, u64),
}

#[derive(Debug)]
pub(super) struct ServerModel {
    pub(super) session: Arc<OpenSession>,
    pub(super) id: ModelId,
    /// The number of the next call, from 1.
    pub(super) next_seq: i32,
    /// Whether its content is known. A call that was sent and not answered makes it uncertain.
    pub(super) is_in_doubt: bool,
}

#[derive(Debug)]
pub(super) struct ServerSampler {
    pub(super) session: Arc<OpenSession>,
    pub(super) id: SamplerId,
    next_seq: AtomicU64,
}

#[derive(Debug)]
pub(super) struct ClientRuns {
    next: AtomicU32,
    runs: Mutex<BTreeMap<RunId, Arc<ClientRun>>>,
}

// === impl State ===

impl State {
    pub(super) fn moved(&mut self) {
        self.sampler = None;
        self.loss = (0.0, 0);
    }
}

// === impl ServerSampler ===

impl ServerSampler {
    pub(super) fn new(session: Arc<OpenSession>, id: SamplerId) -> Self {
        let next_seq = AtomicU64::new(0);
        Self {
            session,
            id,
            next_seq,
        }
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq.fetch_add(1, Ordering::Relaxed)
    }
}

// === impl ClientRuns ===

impl ClientRuns {
    pub(super) fn new() -> Self {
        // A random part keeps ids of earlier processes apart from ours.
        let random = RandomState::new().build_hasher().finish();
        let first = u32::try_from(random & 0x7fff_ffff).unwrap_or(0);
        let (next, runs) = (AtomicU32::new(first), Mutex::default());
        Self { next, runs }
    }

    pub(super) fn open(&self, spec: CreateRequest) -> RunId {
        let id = RunId::from(self.next.fetch_add(1, Ordering::Relaxed));
        let run = Arc::new(ClientRun::new(State {
            spec,
            model: None,
            step: 0,
            sampler: None,
            used: Instant::now(),
            loss: (0.0, 0),
        }));
        let mut runs = self.runs.lock();
        if runs.len() >= MOST {
            runs.pop_first();
        }
        runs.insert(id.clone(), run);
        id
    }

    pub(super) fn get(&self, id: &RunId) -> Option<Arc<ClientRun>> {
        self.runs.lock().get(id).cloned()
    }

    /// Takes the model of a run that has been idle for this long, or whose model is in doubt: of these, the run that was
    /// used least recently. `None` if there is none, or if all are in use now. The run begins again at its checkpoint.
    pub(super) fn take_idle(&self, idle: Duration) -> Option<ServerModel> {
        let runs: Vec<Arc<ClientRun>> = self.runs.lock().values().cloned().collect();
        let free = runs.iter().filter_map(|run| run.try_lock().ok());
        let idle = free.filter(|state| {
            let model = state.model.as_ref();
            model.is_some_and(|model| model.is_in_doubt || state.used.elapsed() >= idle)
        });
        let mut longest = idle.min_by_key(|state| state.used)?;
        longest.moved();
        longest.model.take()
    }

    pub(super) fn close(&self, id: &RunId) -> Option<Arc<ClientRun>> {
        self.runs.lock().remove(id)
    }
}
