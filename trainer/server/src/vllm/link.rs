//! A vLLM server, and what is known of it: whether it answers, with which model, which adapters it has.

use std::{path::PathBuf, sync::Arc, time::Duration};

use metaclaw_engine::generate::GenerateRequest;
use metaclaw_trainer_api::{
    AdapterName, ApiKey,
    vllm::{VllmClient, VllmModels},
    wire::{Inference, InferenceState},
};
use metaclaw_trainer_terms::{ErrorCode, SamplerError, SamplerFailure};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    adapters::{Adapters, Loaded},
    proof::{self, Precision},
};
use crate::host::Host;

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked at while what it answers is not what the engine computes.
const LOOK_AT_REFUSED: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct LinkConfig {
    /// As in `http://127.0.0.1:8000`.
    pub(crate) url: String,
    pub(crate) key: Option<ApiKey>,
    pub(crate) max_rank: Option<u32>,
    /// Where the folders are that it loads adapters from. It must find them by the same path.
    pub(crate) folder: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(super) client: VllmClient,
    pub(super) host: Arc<Host>,
    adapters: Adapters,
    max_rank: Option<u32>,
    state: Mutex<State>,
    /// Whoever looks at it, loads or unloads does so alone.
    turn: tokio::sync::Mutex<()>,
}

/// What is known of it.
#[derive(Debug, Clone)]
enum State {
    /// It does not answer.
    Away { why: String },
    /// It answers, and is not to be asked.
    Refused { why: String },
    /// It serves the model that is trained here.
    Ready(Arc<Ready>),
}

#[derive(Debug)]
pub(super) struct Ready {
    /// What it calls the base model.
    pub(super) base: String,
    pub(super) context: usize,
    precision: Precision,
}

// === impl Link ===

impl Link {
    /// Nothing is asked before [`Link::follow`].
    pub(crate) fn new(config: LinkConfig, http: reqwest::Client, host: Arc<Host>) -> Self {
        Self {
            client: VllmClient::new(http, &config.url, config.key),
            host,
            adapters: Adapters::new(config.folder),
            max_rank: config.max_rank,
            state: Mutex::new(State::Away {
                why: "it was not asked yet".to_owned(),
            }),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) async fn follow(&self, ending: CancellationToken) {
        let follow = async {
            loop {
                self.check().await;
                let pause = match self.state() {
                    State::Refused { .. } => LOOK_AT_REFUSED,
                    State::Away { .. } | State::Ready(_) => LOOK_EVERY,
                };
                tokio::time::sleep(pause).await;
            }
        };
        ending.run_until_cancelled(follow).await;
    }

    /// The longest sequence that it takes, in tokens; none while it may not be asked.
    pub(crate) fn context(&self) -> Option<usize> {
        match self.state() {
            State::Ready(ready) => Some(ready.context),
            State::Away { .. } | State::Refused { .. } => None,
        }
    }

    pub(crate) fn health(&self) -> Inference {
        let (state, why) = match self.state() {
            State::Away { why } => (InferenceState::Away, Some(why)),
            State::Refused { why } => (InferenceState::Refused, Some(why)),
            State::Ready(_) => (InferenceState::Ready, None),
        };
        Inference {
            url: self.client.url().to_owned(),
            state,
            why,
            command: None,
            log: None,
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        matches!(self.state(), State::Away { .. })
    }

    /// The server, if it may be asked.
    ///
    /// # Errors
    /// [`SamplerFailure::Unavailable`], saying why not.
    pub(super) fn ready(&self) -> Result<Arc<Ready>, SamplerError> {
        match self.state() {
            State::Ready(ready) => Ok(ready),
            State::Away { why } => {
                let text = format!("the policy model is not served at the moment: {why}");
                Err(SamplerError::new(SamplerFailure::Unavailable, text))
            }
            State::Refused { why } => {
                let refused = SamplerError::new(SamplerFailure::Unavailable, why);
                Err(refused.with_code(ErrorCode::InferenceRefused))
            }
        }
    }

    /// It has no adapters any more, and may have another model: it was started anew, or is about to be.
    pub(super) fn lost(&self, why: String) {
        let mut state = self.state.lock();
        if matches!(*state, State::Ready(_)) {
            tracing::warn!(url = self.client.url(), why, "vLLM does not serve any more");
        }
        *state = State::Away { why };
        drop(state);
        self.adapters.clear();
    }

    pub(super) fn holds(&self, served: &str) -> bool {
        self.adapters.holds(served)
    }

    /// What a failure of its was: the end of its engine is told with a 500, as others are. Then whoever asked may ask elsewhere.
    pub(super) async fn away_or(&self, error: SamplerError) -> SamplerError {
        let Err(away) = self.client.health().await else {
            return error;
        };
        self.lost(away.to_string());
        match self.ready() {
            Err(away) => away,
            Ok(_) => error,
        }
    }

    pub(super) async fn check(&self) {
        let _turn = self.turn.lock().await;
        if let Err(no_model) = self.host.model() {
            return self.lost(no_model.to_string());
        }
        if let Err(error) = self.client.health().await {
            return self.lost(error.to_string());
        }
        if let Err(error) = match self.state() {
            State::Ready(_) => self.tidy().await,
            State::Away { .. } | State::Refused { .. } => self.greet().await,
        } {
            let why = error.to_string();
            if error.failure() == SamplerFailure::Unavailable {
                return self.lost(why);
            }
            tracing::error!(why, "vLLM is not asked");
            self.set(State::Refused { why });
        }
    }

    async fn greet(&self) -> Result<(), SamplerError> {
        let models = self.client.models().await?;
        self.adapters.clear();
        self.unload_strays(&models).await?;
        self.adapters.sweep();
        let precision = proof::base(&self.client, &self.host, &models.base).await?;
        let (base, context) = (models.base, models.context);
        let url = self.client.url();
        tracing::info!(url, base, context, ?precision, "vLLM serves");
        self.set(State::Ready(Arc::new(Ready {
            base,
            context,
            precision,
        })));
        Ok(())
    }

    /// Unloads what was deleted here and what nobody asks for, and deletes folders that nobody reads.
    async fn tidy(&self) -> Result<(), SamplerError> {
        for name in self.adapters.names() {
            if !self.host.has_adapter(&name) {
                self.unload_now(&name).await;
            }
        }
        self.adapters.bury();
        self.unload_strays(&self.client.models().await?).await
    }

    async fn unload_strays(&self, models: &VllmModels) -> Result<(), SamplerError> {
        for (served, root) in &models.adapters {
            if self.adapters.is_stray(served, root) {
                tracing::info!(served, "nobody asks vLLM for this adapter: unloaded");
                self.client.unload_adapter(served).await?;
            }
        }
        Ok(())
    }

    /// An adapter, loaded and proved. One that is there already is not looked at again, unless its content has changed.
    ///
    /// # Errors
    /// `adapter_refused` or another code of the engine's for one that is not to serve; [`SamplerFailure::Unavailable`] while the
    /// server does not answer.
    pub(super) async fn adapter(
        &self,
        name: &AdapterName,
        ready: &Ready,
    ) -> Result<Arc<Loaded>, SamplerError> {
        let (folder, sha256, step) = self.host.saved_adapter(name)?;
        if let Some(loaded) = self.adapters.get(name, sha256.as_deref()) {
            return Ok(loaded);
        }
        let _turn = self.turn.lock().await;
        if let Some(loaded) = self.adapters.get(name, sha256.as_deref()) {
            return Ok(loaded);
        }
        self.try_by_engine(name).await?;
        // Some megabytes at most where the file system has no hard links.
        let copied = self.adapters.copy(name, &folder, sha256, step);
        let loaded = copied.map_err(|error| unreadable(name, &error))?;
        self.check_rank(name, &loaded)?;
        self.load(name, &loaded).await?;
        let served = loaded.served.as_str();
        if let Err(error) =
            proof::adapter(&self.client, &self.host, name, served, ready.precision).await
        {
            self.unload_served(served).await;
            return Err(error);
        }
        let loaded = Arc::new(loaded);
        if let Some(old) = self.adapters.put(name.clone(), Arc::clone(&loaded)) {
            self.unload_served(&old.served).await;
        }
        Ok(loaded)
    }

    /// The engine refuses what vLLM loads without a word: weights of another base or shape, and what is no number.
    async fn try_by_engine(&self, name: &AdapterName) -> Result<(), SamplerError> {
        let request = GenerateRequest {
            prompt_ids: vec![0],
            adapter: Some(name.clone()),
            max_tokens: 1,
            ..GenerateRequest::default()
        };
        for generation in self.host.generate(request, 1).await? {
            generation.whole().await?;
        }
        Ok(())
    }

    fn check_rank(&self, name: &AdapterName, loaded: &Loaded) -> Result<(), SamplerError> {
        let rank = loaded.rank().map_err(|error| unreadable(name, &error))?;
        match self.max_rank {
            Some(max) if rank > max => {
                let text = format!(
                    "adapter {name} has rank {rank}, and vLLM was started for ranks up to {max}: raise --inference-max-rank"
                );
                Err(SamplerError::field("model", text).with_code(ErrorCode::AdapterRefused))
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn load(&self, name: &AdapterName, loaded: &Loaded) -> Result<(), SamplerError> {
        let load = self.client.load_adapter(&loaded.served, &loaded.folder);
        let Err(error) = load.await else {
            tracing::info!(adapter = %name, served = loaded.served, "loaded in vLLM");
            return Ok(());
        };
        // Its engine's end and an adapter that it cannot use are both told with a 500.
        self.client.health().await?;
        match error.failure() {
            SamplerFailure::Unavailable | SamplerFailure::Unauthorized | SamplerFailure::Busy => {
                Err(error)
            }
            _ => {
                let text = format!("adapter {name} is refused: {error}");
                Err(SamplerError::field("model", text).with_code(ErrorCode::AdapterRefused))
            }
        }
    }

    /// Has an adapter loaded and proved before anybody asks for it.
    ///
    /// # Errors
    /// As [`Link::adapter`].
    pub(crate) async fn load_adapter(&self, name: &AdapterName) -> Result<(), SamplerError> {
        let ready = self.ready()?;
        self.adapter(name, &ready).await.map(|_| ())
    }

    /// Unloads an adapter; whether it was there. Running replies end with it.
    pub(crate) async fn unload(&self, name: &AdapterName) -> bool {
        let _turn = self.turn.lock().await;
        self.unload_now(name).await
    }

    async fn unload_now(&self, name: &AdapterName) -> bool {
        let Some(loaded) = self.adapters.take(name) else {
            return false;
        };
        self.unload_served(&loaded.served).await;
        true
    }

    /// What is not unloaded now is the next time that vLLM is looked at.
    async fn unload_served(&self, served: &str) {
        match self.client.unload_adapter(served).await {
            Ok(()) => tracing::info!(served, "unloaded in vLLM"),
            Err(error) => tracing::debug!(served, %error, "not unloaded in vLLM"),
        }
    }

    fn state(&self) -> State {
        self.state.lock().clone()
    }

    fn set(&self, state: State) {
        *self.state.lock() = state;
    }
}

fn unreadable(name: &AdapterName, error: &std::io::Error) -> SamplerError {
    let text = format!("adapter {name} cannot be given to vLLM: {error}");
    SamplerError::new(SamplerFailure::Internal, text)
}
