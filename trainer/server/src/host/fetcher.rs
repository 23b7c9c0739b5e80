//! A model that is given by its name at the hub is found in the cache, or fetched in the background.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use metaclaw_trainer_terms::ErrorCode;
use metaclaw_trainer_text::hub::{self, Hub, HubName, Progress};

use crate::{error::ApiError, fields::cut};
use parking_lot::Mutex;

const TELL_EVERY: Duration = Duration::from_secs(10);

/// Makes the hub's client, which takes certificates of the system's: only where something is to be fetched.
type MakeHub = Box<dyn Fn() -> Result<Hub> + Send + Sync>;

#[derive(derive_more::Debug)]
#[debug("Fetcher({cache:?})")]
pub(crate) struct Fetcher {
    cache: Option<PathBuf>,
    make: MakeHub,
    state: Arc<Mutex<State>>,
}

/// The state of downloads for callers. There is one base model, so there is one download at a time.
#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Running {
        model: String,
        far: String,
    },
    Failed {
        model: String,
        why: String,
    },
}

#[derive(Default)]
struct ProgressLog(Mutex<Option<Instant>>);

// === impl Fetcher ===

impl Fetcher {
    /// `cache` is where `huggingface_hub` keeps models; without one there are none.
    pub(crate) fn new(cache: Option<PathBuf>, make: MakeHub) -> Self {
        let state = Arc::default();
        Self { cache, make, state }
    }

    #[cfg(test)]
    pub(crate) fn none() -> Self {
        fn no_hub() -> Result<Hub> {
            anyhow::bail!("no hub in this test")
        }
        Self::new(None, Box::new(no_hub))
    }

    /// The folder of a model. Missing files are fetched first.
    ///
    /// # Errors
    /// In words: no cache, no such model, no room on the disk, and what else stops it.
    pub(crate) fn fetch_now(&self, model: &HubName) -> Result<PathBuf> {
        if let Some(folder) = self.whole(model) {
            return Ok(folder);
        }
        let hub = (self.make)()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let log = ProgressLog::default();
        let progress = |progress: Progress<'_>| log.tell(progress);
        Ok(runtime.block_on(hub.fetch_model(model, &progress))?)
    }

    fn whole(&self, model: &HubName) -> Option<PathBuf> {
        hub::whole(self.cache.as_deref()?, model)
    }

    /// The folder of a model that a caller requests. If it is missing, a download starts in the background.
    ///
    /// # Errors
    /// 503 `model_fetching` while it is fetched; 400 `base_model`, once, with why it could not be.
    pub(super) fn place(&self, model: &HubName) -> Result<PathBuf, ApiError> {
        if let Some(folder) = self.whole(model) {
            return Ok(folder);
        }
        let name = model.to_string();
        let mut state = self.state.lock();
        match &*state {
            State::Running { model, far } => {
                let text = format!("{model} is being fetched from the hub{far}: ask again later");
                return Err(ApiError::unavailable(text).with_code(ErrorCode::ModelFetching));
            }
            State::Failed { model, why } if *model == name => {
                let text = format!("base_model {:?}: {why}", cut(&name));
                // The next request tries again.
                *state = State::Idle;
                return Err(refused(text));
            }
            State::Failed { .. } | State::Idle => {}
        }
        let hub = (self.make)().map_err(|error| refused(format!("{error:#}")))?;
        hub.check_online(model)
            .map_err(|error| refused(format!("base_model {:?}: {error}", cut(&name))))?;
        *state = State::Running {
            model: name.clone(),
            far: String::new(),
        };
        let fetching = run(hub, model.clone(), Arc::clone(&self.state));
        #[expect(
            clippy::disallowed_methods,
            reason = "what came of a file stays when the process ends; the next one goes on there"
        )]
        tokio::spawn(fetching);
        let text = format!("{name} is being fetched from the hub: ask again later");
        Err(ApiError::unavailable(text).with_code(ErrorCode::ModelFetching))
    }
}

async fn run(hub: Hub, model: HubName, state: Arc<Mutex<State>>) {
    let log = ProgressLog::default();
    let progress = |progress: Progress<'_>| {
        log.tell(progress);
        if let State::Running { far, .. } = &mut *state.lock() {
            *far = format!(" ({})", words(progress));
        }
    };
    let fetched = hub.fetch_model(&model, &progress).await;
    let ended = match fetched {
        Ok(folder) => {
            tracing::info!(%model, folder = %folder.display(), "fetched from the hub");
            State::Idle
        }
        Err(error) => {
            tracing::warn!(%model, %error, "not fetched from the hub");
            State::Failed {
                model: model.to_string(),
                why: error.to_string(),
            }
        }
    };
    *state.lock() = ended;
}

fn words(progress: Progress<'_>) -> String {
    const MB: u64 = 1_000_000;
    let Progress { file, done, total } = progress;
    match total {
        Some(total) => format!("{file}: {} of {} MB", done / MB, total.div_ceil(MB)),
        None => format!("{file}: {} MB", done / MB),
    }
}

// === impl ProgressLog ===

impl ProgressLog {
    fn tell(&self, progress: Progress<'_>) {
        let mut last = self.0.lock();
        if last.is_none_or(|last| last.elapsed() >= TELL_EVERY) {
            *last = Some(Instant::now());
            tracing::info!("fetching {}", words(progress));
        }
    }
}

/// The hub that the environment names.
///
/// # Errors
/// No cache, or no certificates to know the hub by.
pub(crate) fn from_env(env: &impl Fn(&str) -> Option<String>) -> Result<Hub> {
    // A second provider is refused, which does no harm.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(30))
        .user_agent(concat!("metaclaw-trainer/", env!("CARGO_PKG_VERSION")))
        .build()
        .context("no client for the hub")?;
    Hub::from_env(client, env)
        .context("no folder for models of the hub: set HF_HOME, HF_HUB_CACHE or HOME")
}

/// The model's name at the hub; `None` if the model is given by a path.
pub(crate) fn hub_name(model: &Path) -> Option<HubName> {
    if model.exists() {
        return None;
    }
    model.to_str()?.parse().ok()
}

pub(super) fn refused(text: impl Into<String>) -> ApiError {
    ApiError::field("base_model", text)
}
