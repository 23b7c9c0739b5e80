//! A training server that speaks Tinker's API, and in front of it chat completions in this process: such a server knows
//! token ids only.
//!
//! The front listens on an address of this machine with a key of this run, so that for the gateway and for the learner it is
//! a policy server like our own trainer.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use metaclaw_llm::{http_client, http_client_with_brief_idle, loopback_client};
use metaclaw_settings::{Cloud, Config, Service};
use metaclaw_trainer_api::{
    ApiKey, BackendError, BackendFuture, Endpoint, ErrorCode, RemoteBackend, RemoteConfig,
    TrainingBackend,
    tinker::client::{
        Dialect, HEARTBEAT, LocalText, PATIENCE, TinkerBackend, TinkerConfig, TinkerUsage,
    },
    wire::{Sampled, TokenizeReply, TokenizeRequest},
};
use metaclaw_trainer_chat::{Front, Limits, Model, serve};
use metaclaw_trainer_text::{
    hub::{Hub, HubName, Progress},
    tokenizer::ChatTokenizer,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    environment::Environment,
    model_context,
    site::{Site, random_token},
};

/// Before a tokenizer, or a server's word about its models, is asked for again.
const AGAIN: Duration = Duration::from_secs(15);
/// The longest sequence of a model of which neither the server nor its config.json says.
const USUAL_CONTEXT: u32 = 32_768;

pub(super) struct CloudSide {
    pub(super) backend: TinkerBackend,
    pub(super) usage: Arc<TinkerUsage>,
    pub(super) url: String,
    pub(super) key: String,
    listener: TcpListener,
    text: Arc<CloudText>,
    model: String,
    tokenizer: PathBuf,
    environment: Environment,
    client: reqwest::Client,
}

#[derive(Debug)]
struct CloudText {
    tokenizer: OnceLock<Arc<ChatTokenizer>>,
    lacks: Mutex<String>,
    front: RemoteBackend,
    address: String,
}

/// Asks a service which models it offers, whatever `cloud` says of its model.
///
/// # Errors
/// Returns an error if it does not answer, or refuses.
pub(crate) async fn offered_models(
    config: &Config,
    site: &Site,
    cloud: &Cloud,
) -> anyhow::Result<Vec<String>> {
    let side = CloudSide::new(config, site, cloud)?;
    let mut offer = side.backend.offer().await?;
    offer.retain(|model| model.trainable != Some(false));
    let names = offer.into_iter().filter_map(|model| model.model_name);
    Ok(names.collect())
}

// === impl CloudSide ===

impl CloudSide {
    /// Prepares both; nothing is sent yet.
    pub(super) fn new(config: &Config, site: &Site, cloud: &Cloud) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .context("no address of this machine for the policy model's chats")?;
        listener.set_nonblocking(true)?;
        let address: SocketAddr = listener.local_addr()?;
        let (url, key) = (format!("http://{address}"), random_token());
        let endpoint = Endpoint {
            url: url.clone(),
            key: Some(ApiKey::new(key.clone())),
        };
        let front = RemoteBackend::new(RemoteConfig {
            client: loopback_client()?,
            endpoint: Arc::new(move || Some(endpoint.clone())),
            timeout: config.rl.timeout(),
            base_model: None,
        });
        let text = Arc::new(CloudText {
            tokenizer: OnceLock::new(),
            lacks: Mutex::new("it is being looked for".to_owned()),
            front,
            address: url.clone(),
        });
        let backend = TinkerBackend::new(TinkerConfig {
            client: http_client_with_brief_idle(&site.roots)?,
            url: cloud.url.clone(),
            key: ApiKey::new(cloud.key.expose()),
            project: cloud.project.clone(),
            base_model: cloud.model.clone(),
            dialect: match cloud.service {
                Service::Tinker => Dialect::Current,
                Service::Mint | Service::Weaver => Dialect::Json,
            },
            timeout: config.rl.timeout(),
            patience: PATIENCE,
            heartbeat: HEARTBEAT,
            folder: Some(site.home.learning().join("tinker")),
            keep: config.trainer.keep,
            text: Arc::clone(&text) as Arc<dyn LocalText>,
        });
        Ok(Self {
            usage: backend.usage(),
            backend,
            url,
            key,
            listener,
            text,
            model: cloud.model.clone(),
            tokenizer: cloud.tokenizer.clone(),
            environment: site.environment.clone(),
            client: http_client(&site.roots)?,
        })
    }

    /// Answers chats until `ending`; then the server is told that nothing more comes.
    pub(super) async fn run(self, ending: CancellationToken) {
        let backend = self.backend.clone();
        if let Some(ready) = ending.run_until_cancelled(self.model()).await {
            let front = Front::new(ready, Arc::new(backend.sampler()), Limits::default());
            match tokio::net::TcpListener::from_std(self.listener) {
                Ok(listener) => {
                    let key = ApiKey::new(self.key);
                    serve(listener, &front, &key, ending).await;
                }
                Err(error) => warn!(%error, "the policy model's chats cannot be answered"),
            }
        }
        backend.finish().await;
    }

    async fn model(&self) -> Model {
        loop {
            match self.load().await {
                Ok(model) => {
                    info!(
                        model = self.model,
                        context = model.context(),
                        "the policy model's tokenizer is loaded"
                    );
                    return model;
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    warn!(
                        model = self.model,
                        why, "the policy model cannot answer yet"
                    );
                    self.text.set_lacking(why);
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn load(&self) -> anyhow::Result<Model> {
        let client = self.client.clone();
        let folder = find(&self.tokenizer, &self.environment, client).await?;
        let load = move || {
            (
                ChatTokenizer::load(&folder),
                model_context::of_folder(&folder),
            )
        };
        let (tokenizer, trained) = tokio::task::spawn_blocking(load).await?;
        let tokenizer = Arc::new(tokenizer?);
        let offer = self.backend.offer().await?;
        let named = offer
            .iter()
            .find(|offer| offer.model_name.as_ref() == Some(&self.model));
        let context = named.and_then(|named| named.max_context_length);
        let context = context.or(trained).unwrap_or(USUAL_CONTEXT) as usize;
        let end_ids = tokenizer.end_ids();
        let model = Model::new(self.model.clone(), context, Arc::clone(&tokenizer))
            .with_fingerprint(self.backend.fingerprint())
            .with_end_ids(end_ids);
        self.text.tokenizer.set(tokenizer).ok();
        Ok(model)
    }
}

/// The folder of a tokenizer: it is one, or it is fetched by its name at the hub.
async fn find(
    tokenizer: &Path,
    environment: &Environment,
    client: reqwest::Client,
) -> anyhow::Result<PathBuf> {
    if tokenizer.is_dir() {
        return Ok(tokenizer.to_owned());
    }
    let name = tokenizer.to_string_lossy();
    let model: HubName = name
        .parse()
        .with_context(|| format!("rl.tokenizer {name} is no folder"))?;
    let variable = |name: &str| environment.get(name).map(str::to_owned);
    let hub =
        Hub::from_env(client, &variable).context("no folder for models: set HOME, or HF_HOME")?;
    let told = |progress: Progress<'_>| {
        debug!(
            file = progress.file,
            done = progress.done,
            "fetching the tokenizer"
        );
    };
    let fetched = hub.fetch(&model, &told).await;
    fetched.with_context(|| {
        format!(
            "the tokenizer of {model} cannot be fetched; rl.tokenizer may name a folder that has it"
        )
    })
}

// === impl CloudText ===

impl CloudText {
    fn set_lacking(&self, why: String) {
        *self.lacks.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn tokenizer(&self, call: &'static str) -> Result<&Arc<ChatTokenizer>, BackendError> {
        self.tokenizer.get().ok_or_else(|| {
            let lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
            BackendError::Status {
                call,
                url: self.address.clone(),
                status: 503,
                code: Some(ErrorCode::NoTokenizer),
                param: None,
                message: format!("the policy model's tokenizer is not here yet: {lacks}"),
            }
        })
    }
}

impl LocalText for CloudText {
    fn ready(&self) -> Result<(), BackendError> {
        self.tokenizer("tokenizer").map(|_| ())
    }

    fn end_ids(&self) -> Vec<u32> {
        let tokenizer = self.tokenizer.get();
        tokenizer.map(|one| one.end_ids()).unwrap_or_default()
    }

    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply> {
        Box::pin(async move {
            self.tokenizer("tokenize")?;
            self.front.tokenize(request).await
        })
    }

    fn decode(&self, ids: Vec<u32>) -> BackendFuture<'_, String> {
        Box::pin(async move { Ok(self.tokenizer("decode")?.decode(&ids)) })
    }

    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>> {
        self.front.sampled(reply_id)
    }
}
