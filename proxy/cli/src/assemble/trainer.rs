//! Who trains and serves the policy model: our own process, or a server that runs already.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use anyhow::Context as _;
use metaclaw_chat::Secret;
use metaclaw_control::{
    cloud_spend::Meter,
    compare::{BASE, PolicyAddress},
    home::Home,
    instance::TrainingRoom,
    status::{TrainerState, TrainerStatus},
};
use metaclaw_gateway::{Endpoint as ServingEndpoint, Serving};
use metaclaw_learner::NoTokenIds;
use metaclaw_llm::{http_client, loopback_client};
use metaclaw_settings::{Cloud, Config, Policy, address::host};
use metaclaw_trainer_api::{
    AdapterName, ApiKey, Endpoint, RemoteBackend, RemoteConfig, TrainingBackend,
};
use metaclaw_turns::TurnLog;
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use super::{
    adapters::{AdapterLoader, HEALTH_DEADLINE, KnownAdapters},
    background::Background,
    cloud::CloudSide,
    followers::{RemoteFollower, TrainerFollower},
    meter,
    models::PolicyModel,
};
use crate::{
    environment::Environment,
    installed,
    site::{Site, random_token},
    supervise::{Supervisor, TrainerProgram, TrainerSpec},
};

/// The training server, prepared: nothing runs yet.
pub(super) struct Training {
    pub(super) room: TrainingRoom,
    /// `None` if no policy model answers chats.
    pub(super) policy: Option<PolicyModel>,
    server: Server,
}

enum Server {
    None,
    Own(Supervisor, TrainerFollower),
    Elsewhere(RemoteFollower),
    Cloud(Box<CloudSide>, RemoteFollower),
}

struct Preparing<'a> {
    config: &'a Config,
    site: &'a Site,
    log: &'a TurnLog,
    serving: &'a Arc<Serving>,
}

// === impl Training ===

impl Training {
    /// Prepares the training server of the settings, and the pointers to its adapters. An adapter that nobody uses any
    /// more is unloaded on `tasks`.
    pub(super) fn prepare(
        config: &Config,
        policy: &Policy,
        site: &Site,
        log: &TurnLog,
        tasks: &TaskTracker,
    ) -> anyhow::Result<(Arc<Serving>, Self)> {
        let known: Arc<OnceLock<Arc<dyn TrainingBackend>>> = Arc::default();
        let (backend, tasks) = (Arc::clone(&known), tasks.clone());
        let serving = Serving::new(move |name: &str| {
            if let (Some(backend), Ok(name)) = (backend.get(), name.parse()) {
                tasks.spawn(unload(Arc::clone(backend), name));
            }
        });
        let preparing = Preparing {
            config,
            site,
            log,
            serving: &serving,
        };
        // Nothing goes to a service that was not allowed to.
        let training = match policy.that_serves(config) {
            Policy::None => Self {
                room: TrainingRoom::default(),
                policy: None,
                server: Server::None,
            },
            Policy::Remote { url, key } => preparing.elsewhere(url, key.as_ref())?,
            Policy::Cloud(cloud) => preparing.cloud(cloud)?,
            Policy::Local { model } => preparing.own(model)?,
        };
        if let Some(backend) = &training.room.backend {
            // It is set once, here.
            known.set(Arc::clone(backend)).ok();
        }
        Ok((serving, training))
    }

    pub(super) fn supervisor(self) -> Option<Supervisor> {
        match self.server {
            Server::Own(supervisor, _) => Some(supervisor),
            Server::None | Server::Elsewhere(_) | Server::Cloud(..) => None,
        }
    }

    /// Lets it run beside the chat. When our own training server ends for good, so does `process`.
    pub(super) fn start(
        self,
        background: &Background,
        process: &CancellationToken,
    ) -> TrainingRoom {
        let Background { tasks, ending } = background;
        if let Some(meter) = &self.room.meter {
            tasks.spawn(Arc::clone(meter).run(ending.clone()));
        }
        match self.server {
            Server::None => {}
            Server::Own(supervisor, follower) => {
                tasks.spawn(follower.run(ending.clone()));
                background.spawn_critical(process, supervisor.run(ending.clone()));
            }
            Server::Elsewhere(follower) => {
                tasks.spawn(follower.run(ending.clone()));
            }
            Server::Cloud(cloud, follower) => {
                tasks.spawn(follower.run(ending.clone()));
                tasks.spawn(cloud.run(ending.clone()));
            }
        }
        self.room
    }
}

// === impl Preparing ===

impl Preparing<'_> {
    fn elsewhere(&self, url: &str, key: Option<&Secret>) -> anyhow::Result<Training> {
        let endpoint = ServingEndpoint::new(url, key.cloned(), BASE)?;
        self.serving.set_policy(Some(endpoint));
        let trainer = Endpoint {
            url: url.to_owned(),
            key: key.map(|key| ApiKey::new(key.expose())),
        };
        let http = http_client(&self.site.roots)?;
        let model = self.config.rl.model.as_deref();
        let model = model.map(|model| model.to_string_lossy().into_owned());
        let backend = RemoteBackend::new(RemoteConfig {
            client: http.clone(),
            endpoint: Arc::new(move || Some(trainer.clone())),
            timeout: self.config.rl.timeout(),
            base_model: model.clone(),
        });
        let mut room = TrainingRoom::default();
        let follower = RemoteFollower {
            shown: None,
            model,
            ..self.follower(&mut room, Arc::new(backend), url, key.cloned())
        };
        Ok(Training {
            policy: Some(PolicyModel {
                http,
                address: follower.policy_address(),
                called: None,
            }),
            room,
            server: Server::Elsewhere(follower),
        })
    }

    /// A service that knows token ids only, and the chats in front of it.
    fn cloud(&self, cloud: &Cloud) -> anyhow::Result<Training> {
        let side = CloudSide::new(self.config, self.site, cloud)?;
        let meter = Meter::open(
            Arc::clone(&side.usage),
            self.site.home.cloud_spend(),
            meter::prices(&self.config.rl),
        );
        let mut room = TrainingRoom {
            meter: Some(Arc::new(meter)),
            ..TrainingRoom::default()
        };
        let (backend, key) = (Arc::new(side.backend.clone()), side.key.as_str().into());
        let follower = RemoteFollower {
            shown: Some(cloud.url.clone()),
            ..self.follower(&mut room, backend, &side.url, Some(key))
        };
        Ok(Training {
            policy: Some(PolicyModel {
                http: loopback_client()?,
                address: follower.policy_address(),
                called: Some(format!("{} at {}", cloud.model, host(&cloud.url))),
            }),
            room,
            server: Server::Cloud(Box::new(side), follower),
        })
    }

    fn own(&self, model: &Path) -> anyhow::Result<Training> {
        let spec = spec(self.config, self.site, model)?;
        let (key, http) = (spec.key.clone(), loopback_client()?);
        let serving = Arc::clone(self.serving);
        // The follower points the gateway at it again once the adapters are loaded.
        let on_address = Box::new(move |address: Option<_>| {
            if address.is_none() {
                serving.set_policy(None);
            }
        });
        let (supervisor, state) = Supervisor::new(spec, on_address);
        let (shown, watched) = (ApiKey::new(key.clone()), state.clone());
        let backend = RemoteBackend::new(RemoteConfig {
            client: http.clone(),
            endpoint: Arc::new(move || match *watched.borrow() {
                TrainerState::Ready { address, .. } => Some(Endpoint {
                    url: format!("http://{address}"),
                    key: Some(shown.clone()),
                }),
                TrainerState::Starting | TrainerState::Down { .. } | TrainerState::Ended => None,
            }),
            timeout: self.config.rl.timeout(),
            base_model: None,
        });
        let mut room = TrainingRoom {
            own: Some(state.clone()),
            ..TrainingRoom::default()
        };
        let follower = TrainerFollower {
            adapters: self.loader(&mut room, Arc::new(backend)),
            key: key.clone(),
            trainer: state.clone(),
            has_inference: self.config.rl.has_vllm(),
        };
        let address = PolicyAddress {
            url: None,
            trainer: Some(state),
            key: Some(key),
        };
        Ok(Training {
            policy: Some(PolicyModel {
                http,
                address,
                called: None,
            }),
            room,
            server: Server::Own(supervisor, follower),
        })
    }

    fn follower(
        &self,
        room: &mut TrainingRoom,
        backend: Arc<dyn TrainingBackend>,
        url: &str,
        key: Option<Secret>,
    ) -> RemoteFollower {
        let (status, watched) = watch::channel(TrainerStatus::Starting);
        room.elsewhere = Some(watched);
        RemoteFollower {
            adapters: self.loader(room, backend),
            url: url.to_owned(),
            shown: None,
            key,
            model: None,
            status,
            refuses: false,
        }
    }

    fn loader(&self, room: &mut TrainingRoom, backend: Arc<dyn TrainingBackend>) -> AdapterLoader {
        room.backend = Some(Arc::clone(&backend));
        AdapterLoader {
            serving: Arc::clone(self.serving),
            log: self.log.clone(),
            backend,
            lost: room.lost.clone(),
            context: room.context.clone(),
            known: KnownAdapters::default(),
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

fn spec(config: &Config, site: &Site, model: &Path) -> anyhow::Result<TrainerSpec> {
    let (own, path) = (std::env::current_exe()?, site.environment.get("PATH"));
    let found = TrainerProgram::find(&own, &installed::programs(&site.home), path)?;
    let checkpoints = checkpoint_dir(config, &site.home);
    make_private(&checkpoints)
        .with_context(|| format!("trainer.checkpoint_dir: {}", checkpoints.display()))?;
    let mut arguments = vec![
        "--parent-stdin".to_owned(),
        "--host=127.0.0.1".to_owned(),
        "--port=0".to_owned(),
        format!("--model={}", model.display()),
        format!("--checkpoint-dir={}", checkpoints.to_string_lossy()),
        format!("--cache-dir={}", site.environment.cache().to_string_lossy()),
    ];
    arguments.extend(config.trainer.flags());
    let rank = config.learner.rl.lora_rank;
    arguments.extend(config.rl.inference_flags(rank));
    let key = config.rl.inference_key.as_ref();
    let env = key
        .filter(|_| config.rl.has_vllm())
        .map(|key| ("METACLAW_INFERENCE_KEY", key.expose().to_owned()));
    Ok(TrainerSpec {
        program: found.program,
        arguments,
        key: random_token(),
        env: env.into_iter().collect(),
        n_threads: config.trainer.threads,
        cleared: cleared(&site.environment),
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

/// All of our own variables: the trainer gets everything by flag, and some hold keys that are not its business.
fn cleared(environment: &Environment) -> Vec<String> {
    let names = environment.variables.iter().map(|(name, _)| name);
    let ours = names.filter(|name| name.starts_with("METACLAW_"));
    ours.cloned().collect()
}

pub(crate) fn checkpoint_dir(config: &Config, home: &Home) -> PathBuf {
    let named = config.trainer.checkpoint_dir.clone();
    named.unwrap_or_else(|| home.trainer())
}
