//! Sessions, their models and their samplers.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use metaclaw_trainer_api::{
    AdapterName, LossConfig,
    tinker::{
        ModelId, RequestId, SamplerId, TinkerPath, TinkerSessionId,
        json::{AdamParams, JsonDatum},
        proto,
    },
};
use metaclaw_trainer_terms::ErrorCode;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    lane::Lane,
    stored::{self, KnownAbout},
};
use crate::error::{ApiError, Result};

const MAX_SESSIONS: usize = 256;
/// The most open models. The engine closes runs beyond 8, and some of these belong to the REST API.
const MAX_MODELS: usize = 6;
/// Samplers of one session.
const MAX_SAMPLERS: usize = 4096;

#[derive(Debug)]
pub(crate) struct ModelCall {
    pub(crate) request: RequestId,
    pub(crate) work: Work,
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub(crate) enum Work {
    /// Begin, with fresh weights.
    Create { seed: Option<u64> },
    /// Begin, with saved ones.
    CreateFrom(WeightsLoad),
    /// Load saved weights.
    Load(WeightsLoad),
    /// Log-probabilities and, unless `forward_only`, gradients.
    Train {
        data: Data,
        loss_fn: String,
        config: Result<LossConfig, String>,
        forward_only: bool,
    },
    /// A step; the other optimisers are refused by their names.
    Step(Result<AdamParams, String>),
    /// Save the whole training state.
    Save {
        path: Option<String>,
        overwrite: bool,
        user_metadata: Option<Map<String, Value>>,
    },
    /// Save weights to sample from, under a name or for one sampler.
    SaveForSampler {
        path: Option<String>,
        sampler: Option<u32>,
    },
}

#[derive(Debug)]
pub(crate) struct WeightsLoad {
    pub(crate) path: String,
    pub(crate) optimizer: bool,
}

#[derive(Debug)]
pub(crate) enum Data {
    Proto(Vec<proto::ProtoDatum>),
    Json(Vec<JsonDatum>),
}

#[derive(Debug)]
pub(crate) struct SessionModel {
    pub(crate) id: ModelId,
    pub(crate) session: TinkerSessionId,
    pub(crate) lane: Lane<ModelCall>,
    /// Known from the beginning, or once its weights were loaded.
    pub(crate) about: KnownAbout,
    pub(crate) user_metadata: Option<Map<String, Value>>,
    used_ms: AtomicU64,
}

#[derive(Debug, Clone)]
pub(crate) struct SamplerWeights {
    /// The adapter; `None` is the base.
    pub(crate) adapter: Option<AdapterName>,
    /// The path; `None` is the base, or weights of this sampler alone.
    pub(crate) path: Option<TinkerPath>,
}

#[derive(Debug)]
struct Session {
    seen: Instant,
    samplers: HashMap<SamplerId, SamplerWeights>,
}

#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<TinkerSessionId, Session>,
    models: HashMap<ModelId, Arc<SessionModel>>,
}

#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) models: Vec<Arc<SessionModel>>,
    /// Adapters that only this session could use.
    pub(crate) adapters: Vec<AdapterName>,
}

fn now_ms() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

// === impl SessionModel ===

impl SessionModel {
    pub(crate) fn new(
        id: ModelId,
        session: TinkerSessionId,
        user_metadata: Option<Map<String, Value>>,
    ) -> Self {
        Self {
            id,
            session,
            lane: Lane::new(),
            about: KnownAbout::default(),
            user_metadata,
            used_ms: AtomicU64::new(now_ms()),
        }
    }

    /// When it was last asked for something, unix milliseconds.
    pub(crate) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }
}

// === impl Registry ===

impl Registry {
    /// A new session.
    ///
    /// # Errors
    /// 429 where there are too many.
    pub(crate) fn open_session(&self) -> Result<TinkerSessionId> {
        let id = stored::new_session()?;
        let mut inner = self.0.lock();
        if inner.sessions.len() >= MAX_SESSIONS {
            let text =
                format!("{MAX_SESSIONS} sessions are open: finish one, or wait until one expires");
            return Err(ApiError::busy(text));
        }
        let (seen, samplers) = (Instant::now(), HashMap::new());
        let session = Session { seen, samplers };
        inner.sessions.insert(id.clone(), session);
        Ok(id)
    }

    /// Notes that a session's client lives.
    ///
    /// # Errors
    /// 410 for one that is not open.
    pub(crate) fn touch(&self, id: &TinkerSessionId) -> Result<()> {
        let mut inner = self.0.lock();
        let session = inner.sessions.get_mut(id).ok_or_else(|| no_session(id))?;
        session.seen = Instant::now();
        Ok(())
    }

    /// Puts a new model into its session; the one that is there already where the id was taken.
    ///
    /// # Errors
    /// 410 for a session that is not open, 429 where there are too many models.
    pub(crate) fn add_model(&self, model: SessionModel) -> Result<(Arc<SessionModel>, bool)> {
        let mut inner = self.0.lock();
        let session = inner.sessions.get_mut(&model.session);
        let session = session.ok_or_else(|| no_session(&model.session))?;
        session.seen = Instant::now();
        if let Some(there) = inner.models.get(&model.id) {
            return Ok((Arc::clone(there), false));
        }
        if inner.models.len() >= MAX_MODELS {
            let text = format!(
                "{MAX_MODELS} models are open, which is as many as this server holds: finish a session, or wait until one expires"
            );
            return Err(ApiError::busy(text));
        }
        let model = Arc::new(model);
        inner.models.insert(model.id.clone(), Arc::clone(&model));
        Ok((model, true))
    }

    /// A model, whose session lives by being asked.
    ///
    /// # Errors
    /// 404 for one that is not open.
    pub(crate) fn model(&self, id: &ModelId) -> Result<Arc<SessionModel>> {
        let mut inner = self.0.lock();
        let model = inner.models.get(id).map(Arc::clone).ok_or_else(|| {
            let text = format!(
                "model {id} is not open here: its session ended, or the server was started anew; load its last checkpoint"
            );
            ApiError::not_found(ErrorCode::RunNotFound, text)
        })?;
        model.used_ms.store(now_ms(), Ordering::Relaxed);
        if let Some(session) = inner.sessions.get_mut(&model.session) {
            session.seen = Instant::now();
        }
        Ok(model)
    }

    pub(crate) fn models(&self) -> Vec<Arc<SessionModel>> {
        self.0.lock().models.values().map(Arc::clone).collect()
    }

    pub(crate) fn remove_model(&self, id: &ModelId) -> Option<Arc<SessionModel>> {
        self.0.lock().models.remove(id)
    }

    /// Gives a sampler its weights. The same id with other weights follows them.
    ///
    /// # Errors
    /// 410 for a session that is not open, 429 where it has too many.
    pub(crate) fn add_sampler(
        &self,
        session: &TinkerSessionId,
        sampler: SamplerId,
        weights: SamplerWeights,
    ) -> Result<()> {
        let mut inner = self.0.lock();
        let found = inner.sessions.get_mut(session);
        let found = found.ok_or_else(|| no_session(session))?;
        found.seen = Instant::now();
        if found.samplers.len() >= MAX_SAMPLERS && !found.samplers.contains_key(&sampler) {
            let text = format!("session {session} has {MAX_SAMPLERS} samplers: begin another");
            return Err(ApiError::busy(text));
        }
        found.samplers.insert(sampler, weights);
        Ok(())
    }

    /// A sampler's weights; its session lives by being asked.
    ///
    /// # Errors
    /// 404 for one that there is not.
    pub(crate) fn sampler(&self, id: &SamplerId) -> Result<SamplerWeights> {
        let unknown = || {
            let text = format!(
                "sampler {id} is not open here: its session ended, or the server was started anew"
            );
            ApiError::not_found(ErrorCode::SamplerNotFound, text)
        };
        let (session, _) = id.parts().ok_or_else(unknown)?;
        let mut inner = self.0.lock();
        let session = inner.sessions.get_mut(&session).ok_or_else(unknown)?;
        session.seen = Instant::now();
        session.samplers.get(id).cloned().ok_or_else(unknown)
    }

    /// Sessions that sent neither a heartbeat nor a call for `idle`, even if they have work under way.
    pub(crate) fn expired(&self, idle: Duration) -> Vec<TinkerSessionId> {
        let inner = self.0.lock();
        let is_silent = |session: &Session| session.seen.elapsed() >= idle;
        let sessions = inner.sessions.iter();
        let silent = sessions.filter(|(_, session)| is_silent(session));
        silent.map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn end(&self, id: &TinkerSessionId) -> Option<Left> {
        let mut inner = self.0.lock();
        let session = inner.sessions.remove(id)?;
        let models = inner.models.extract_if(|_, model| model.session == *id);
        let weights = session.samplers.into_values();
        let adapters = weights.filter_map(|weights| weights.adapter);
        Some(Left {
            models: models.map(|(_, model)| model).collect(),
            adapters: adapters.filter(stored::is_ephemeral).collect(),
        })
    }
}

fn no_session(id: &TinkerSessionId) -> ApiError {
    let text = format!("session {id} is not open here: it ended, or the server was started anew");
    ApiError::gone(text)
}
