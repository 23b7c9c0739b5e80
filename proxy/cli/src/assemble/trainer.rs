//! Who trains and serves the policy model: our own process, or a server that runs already.

use std::{
    fs::{self, DirBuilder},
    io,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use metaclaw_chat::Secret;
use metaclaw_gateway::{Endpoint as ServingEndpoint, Serving};
use metaclaw_learner::NoTokenIds;
use metaclaw_llm::{http_client, loopback_client};
use metaclaw_settings::{Config, Policy};
use metaclaw_trainer_api::{
    AdapterName, ApiKey, Endpoint, RemoteBackend, RemoteConfig, TrainingBackend,
};
use tokio::{sync::watch, time::timeout};
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::{cloud::CloudSide, plan::Plan};
use crate::{
    home::Home,
    supervise::{OnAddress, Supervisor, Trainer, TrainerSpec, TrainerState},
};

/// How long it may take a training server to say how it is.
pub(super) const HEALTH_DEADLINE: Duration = Duration::from_secs(3);
/// The base model's name at the training server, whatever its file is called.
pub(super) const BASE: &str = "base";
/// Variables that would change what the trainer does; it gets everything by flag.
const CLEARED: [&str; 11] = [
    "METACLAW_PORT",
    "METACLAW_CHECKPOINT_DIR",
    "METACLAW_TRAINING_DEVICES",
    "METACLAW_INFERENCE_DEVICES",
    "METACLAW_INFERENCE_BACKEND",
    "METACLAW_INFERENCE_URL",
    "METACLAW_INFERENCE_KEY",
    "METACLAW_INFERENCE_PYTHON",
    "METACLAW_INFERENCE_ARGS",
    "METACLAW_INFERENCE_MAX_RANK",
    "METACLAW_HOME",
];

/// The training server's current address, shared by its clients.
#[derive(Debug, Clone, Default)]
struct TrainerAddress(Arc<Mutex<Option<Endpoint>>>);

/// The training server's client, and its supervisor where the process is ours.
pub(super) struct TrainingSide {
    /// The client; none where no weights learn.
    pub backend: Option<Arc<dyn TrainingBackend>>,
    /// The process to keep.
    pub supervisor: Option<Supervisor>,
    pub state: Option<watch::Receiver<TrainerState>>,
    /// What it wants to be shown.
    pub key: Option<String>,
    /// Where it is and what it wants to be shown, where it is not ours.
    pub elsewhere: Option<(String, Option<Secret>)>,
    /// Of a server that speaks Tinker's API: what answers chats in front of it.
    pub cloud: Option<CloudSide>,
}

// === impl TrainingSide ===

impl TrainingSide {
    /// Prepares it; nothing runs yet.
    pub(super) fn new(plan: &Plan, serving: &Arc<Serving>) -> anyhow::Result<Self> {
        let address_cell = TrainerAddress::default();
        let nothing = Self {
            backend: None,
            supervisor: None,
            state: None,
            key: None,
            elsewhere: None,
            cloud: None,
        };
        match &plan.policy {
            Policy::None => Ok(nothing),
            Policy::Remote { url, key } => {
                let endpoint = ServingEndpoint::new(url, key.clone(), BASE)?;
                serving.set_policy(Some(endpoint));
                address_cell.set(Some(Endpoint {
                    url: url.clone(),
                    key: key.as_ref().map(|key| ApiKey::new(key.expose())),
                }));
                Ok(Self {
                    backend: Some(backend(plan, &address_cell, http_client(&plan.roots)?)),
                    elsewhere: Some((url.clone(), key.clone())),
                    ..nothing
                })
            }
            // Nothing goes there that was not allowed to.
            Policy::Cloud(_) if !plan.policy.may_train(&plan.loaded.config) => Ok(nothing),
            Policy::Cloud(cloud) => {
                let side = CloudSide::new(plan, cloud)?;
                Ok(Self {
                    backend: Some(Arc::new(side.backend.clone())),
                    elsewhere: Some((side.url.clone(), Some(Secret::from(side.key.clone())))),
                    cloud: Some(side),
                    ..nothing
                })
            }
            Policy::Local { model } => {
                let spec = spec(plan, model)?;
                let key = Some(spec.key.clone());
                let moved = on_address(spec.key.clone(), &address_cell, serving);
                let (supervisor, state) = Supervisor::new(spec, moved);
                Ok(Self {
                    backend: Some(backend(plan, &address_cell, loopback_client()?)),
                    supervisor: Some(supervisor),
                    state: Some(state),
                    key,
                    ..nothing
                })
            }
        }
    }
}

/// Refuses a training server from which nothing could be learned, as the community fork's. One that does not answer yet
/// is looked at again when there is something to train.
///
/// # Errors
/// When it answers, and is no server of ours.
pub(super) async fn refuse_forks(
    policy: &Policy,
    backend: &dyn TrainingBackend,
) -> anyhow::Result<()> {
    let Policy::Remote { url, .. } = policy else {
        return Ok(());
    };
    match timeout(HEALTH_DEADLINE, backend.health()).await {
        Ok(Ok(health)) if !health.capabilities.sampled => Err(anyhow::anyhow!(
            "rl.remote_url {url}: {NoTokenIds}; or set mode: skills_only"
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Takes adapters out of the trainer's memory that nobody uses any more.
#[derive(Debug, Clone)]
pub(super) struct Unloader {
    backend: Arc<OnceLock<Arc<dyn TrainingBackend>>>,
    tasks: TaskTracker,
}

// === impl Unloader ===

impl Unloader {
    /// Without a backend yet: [`Unloader::set`] gives it one.
    pub(super) fn new(tasks: TaskTracker) -> Self {
        let backend = Arc::default();
        Self { backend, tasks }
    }

    /// Who is to be told.
    pub(super) fn set(&self, backend: Option<&Arc<dyn TrainingBackend>>) {
        if let Some(backend) = backend {
            // Set once, when the app is built.
            self.backend.set(Arc::clone(backend)).ok();
        }
    }

    /// What the serving pointers call with the name of an idle adapter.
    pub(super) fn on_idle(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let it = self.clone();
        move |name| {
            if let (Some(backend), Ok(name)) = (it.backend.get(), name.parse()) {
                it.tasks.spawn(unload(Arc::clone(backend), name));
            }
        }
    }
}

async fn unload(backend: Arc<dyn TrainingBackend>, name: AdapterName) {
    let told = name.to_string();
    match backend.unload_adapter(name).await {
        Ok(_) => info!(
            adapter = told,
            "nobody uses this adapter any more: unloaded"
        ),
        // A failure costs memory only, and a trainer that was restarted has nothing loaded.
        Err(error) => debug!(adapter = told, %error, "this adapter was not unloaded"),
    }
}

/// Which model a training server elsewhere is to have, as it finds it; ours was started with its own.
pub(super) fn base_model(plan: &Plan) -> Option<String> {
    let model = plan.loaded.config.rl.model.as_deref();
    let model = model.filter(|_| matches!(plan.policy, Policy::Remote { .. }));
    model.map(|it| it.to_string_lossy().into_owned())
}

/// The client of the server at `address_cell`.
fn backend(
    plan: &Plan,
    address_cell: &TrainerAddress,
    client: reqwest::Client,
) -> Arc<dyn TrainingBackend> {
    let asked = address_cell.clone();
    Arc::new(RemoteBackend::new(RemoteConfig {
        client,
        endpoint: Arc::new(move || asked.get()),
        timeout: plan.loaded.config.rl.timeout(),
        base_model: base_model(plan),
    }))
}

// === impl TrainerAddress ===

impl TrainerAddress {
    fn get(&self) -> Option<Endpoint> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, endpoint: Option<Endpoint>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = endpoint;
    }
}

/// Publishes the trainer's address to its clients, and takes the policy model from the gateway when there is
/// none; `served` gives it back once the adapters are loaded.
fn on_address(key: String, address_cell: &TrainerAddress, serving: &Arc<Serving>) -> OnAddress {
    let (address_cell, serving) = (address_cell.clone(), Arc::clone(serving));
    Box::new(move |address: Option<SocketAddr>| {
        address_cell.set(address.map(|address| Endpoint {
            url: format!("http://{address}"),
            key: Some(ApiKey::new(key.clone())),
        }));
        if address.is_none() {
            serving.set_policy(None);
        }
    })
}

/// How to start our own trainer.
fn spec(plan: &Plan, model: &Path) -> anyhow::Result<TrainerSpec> {
    let config = &plan.loaded.config;
    let own = std::env::current_exe()?;
    let path = plan.environment.get("PATH");
    let Trainer { program, .. } = Trainer::find(&own, &plan.home.programs(), path)?;
    let folder = |path: PathBuf| path.to_string_lossy().into_owned();
    let checkpoints = checkpoint_dir(config, &plan.home);
    make_private(&checkpoints)
        .with_context(|| format!("trainer.checkpoint_dir: {}", checkpoints.display()))?;
    let mut arguments = vec![
        "--parent-stdin".to_owned(),
        "--host=127.0.0.1".to_owned(),
        "--port=0".to_owned(),
        format!("--model={}", model.display()),
        format!("--checkpoint-dir={}", folder(checkpoints)),
        format!("--cache-dir={}", folder(plan.environment.cache())),
    ];
    arguments.extend(config.trainer.flags());
    let rank = plan.loaded.config.learner.rl.lora_rank;
    arguments.extend(config.rl.inference_flags(rank));
    let key = config.rl.inference_key.as_ref();
    let key = key.filter(|_| config.rl.has_vllm());
    let env = key.map(|key| ("METACLAW_INFERENCE_KEY", key.expose().to_owned()));
    Ok(TrainerSpec {
        program,
        arguments,
        key: super::plan::random_token(),
        env: env.into_iter().collect(),
        n_threads: config.trainer.threads,
        cleared: cleared(plan),
    })
}

/// Makes the folder, or takes it from everybody but its owner: what lies in it was learned from private
/// talk. One of somebody else's stays as it is, and is told of.
fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & 0o077 != 0
        && let Err(error) = fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
    {
        warn!(folder = %folder.display(), %error, "others may read the adapters and checkpoints");
    }
    Ok(())
}

/// All of our own variables: some hold keys that are not the trainer's business.
fn cleared(plan: &Plan) -> Vec<String> {
    let ours = plan
        .environment
        .variables()
        .iter()
        .map(|(name, _)| name.clone());
    let ours = ours.filter(|name| name.starts_with(metaclaw_settings::ENV_PREFIX));
    ours.chain(CLEARED.map(str::to_owned)).collect()
}

/// Where adapters and checkpoints lie.
pub(crate) fn checkpoint_dir(config: &Config, home: &Home) -> PathBuf {
    let named = config.trainer.checkpoint_dir.clone();
    named.unwrap_or_else(|| home.trainer())
}
