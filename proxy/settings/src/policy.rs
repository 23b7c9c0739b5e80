//! Which model is trained, if any, and who trains it.

use std::path::{Path, PathBuf};

use metaclaw_chat::{Mode, Secret};

use super::{
    Backend, BackendKind, Cloud, Config, InertUse,
    cloud::{CloudError, Service},
    model_name,
};
use crate::address::is_here;

/// The demo model below the cache folder; `cargo xtask start` puts it there.
const DEMO: &str = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

/// The policy model of this run.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// None: requests go to `llm.*`, and no weights learn.
    None,
    /// Our own trainer, with this model.
    Local {
        /// A folder in Hugging Face form, or a GGUF file.
        model: PathBuf,
    },
    /// A training server that runs already.
    Remote { url: String, key: Option<Secret> },
    /// A training server that speaks Tinker's API.
    Cloud(Box<Cloud>),
}

/// Why the policy model that was asked for cannot be had.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(
        "{key}: no file or folder {}: give a folder in Hugging Face form, a GGUF file, or (trainer.model) the name of a model at the Hugging Face hub, as in Qwen/Qwen3-4B, which is fetched",
        path.display()
    )]
    Missing {
        /// The key that named it.
        key: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// The demo was never fetched.
    #[error(
        "trainer.model: the demo model is not at {}: `cargo xtask start` fetches it",
        path.display()
    )]
    NoDemo {
        /// Where it should be.
        path: PathBuf,
    },
    /// Mode `rl` with nothing to train.
    #[error(
        "mode rl needs a policy model: set trainer.model (a folder in Hugging Face form, a GGUF file, or demo), or mode: skills_only"
    )]
    NoModel,
    /// A service of Tinker's API that cannot be used as it is set.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// Who trains elsewhere says itself who answers.
    #[error(
        "rl.inference_backend and rl.inference_url are of our own trainer on this machine, and {trains} trains here: start vLLM there (metaclaw-trainer --inference-backend vllm, docs/operating/vllm.md), or leave them out"
    )]
    InferenceElsewhere {
        /// The address of who trains.
        trains: String,
    },
    /// vLLM on another machine than our trainer.
    #[error(
        "rl.inference_url {url}: vLLM loads adapters from this machine's disk, so it runs here, as at http://127.0.0.1:8001; for one on another machine run metaclaw-trainer there as well (rl.remote_url, docs/operating/vllm.md)"
    )]
    InferenceAway { url: String },
    /// Backend `remote` without an address.
    #[error("rl.backend remote needs rl.remote_url, as in http://127.0.0.1:8000")]
    NoAddress,
}

// === impl Policy ===

impl Policy {
    /// Reads it from the settings; `cache` is where the demo model lies.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when a model is asked for that is not there.
    pub fn from_config(config: &Config, cache: &Path) -> Result<Self, PolicyError> {
        let policy = Self::chosen(config, cache)?;
        let trains = match &policy {
            Self::Remote { url, .. } => url,
            Self::Cloud(cloud) => &cloud.url,
            Self::Local { .. } | Self::None => return here(config).map(|()| policy),
        };
        if config.rl.has_vllm() {
            let trains = trains.clone();
            return Err(PolicyError::InferenceElsewhere { trains });
        }
        Ok(policy)
    }

    fn chosen(config: &Config, cache: &Path) -> Result<Self, PolicyError> {
        let must_learn = config.has_mode(Mode::Rl);
        let may_learn = must_learn || config.has_mode(Mode::Auto);
        // Without training it answers only where nobody else can.
        if !may_learn && config.has_upstream() {
            return Ok(Self::None);
        }
        let backend = &config.rl;
        match (backend.kind, &backend.remote_url) {
            (BackendKind::Remote | BackendKind::Auto, Some(url)) => {
                return Ok(remote(backend, url));
            }
            (BackendKind::Remote, None) if may_learn => return Err(PolicyError::NoAddress),
            _ => {}
        }
        let is_chosen = backend.kind != BackendKind::Auto || config.trainer.model.is_none();
        if let Some(service) = Service::of(backend).filter(|_| is_chosen) {
            return Ok(Self::Cloud(Box::new(Cloud::of(backend, service)?)));
        }
        match (&config.trainer.model, &backend.model, must_learn) {
            (Some(model), _, _) if model == Path::new("demo") => demo(cache),
            // The trainer fetches it when it starts.
            (Some(model), _, _) if model_name::is_name(model) && !model.exists() => {
                Ok(Policy::Local {
                    model: model.clone(),
                })
            }
            (Some(model), _, _) => local("trainer.model", model),
            (None, Some(_), _) if without_effect(config).is_some() => Ok(Self::None),
            (None, Some(model), _) => local("rl.model", model),
            (None, None, true) => Err(PolicyError::NoModel),
            (None, None, false) => Ok(Self::None),
        }
    }

    /// The address of who trains, where that is not this machine.
    pub fn elsewhere(&self) -> Option<&str> {
        match self {
            Self::Remote { url, .. } if !is_here(url) => Some(url),
            Self::Cloud(cloud) if !is_here(&cloud.url) => Some(&cloud.url),
            Self::Remote { .. } | Self::Cloud(_) | Self::Local { .. } | Self::None => None,
        }
    }

    /// Whether texts may be sent to who trains: on this machine always, elsewhere if that was allowed.
    pub fn may_train(&self, config: &Config) -> bool {
        self.elsewhere().is_none() || config.privacy.cloud_training_ok == Some(true)
    }

    /// What serves: a service that may be sent nothing serves nothing.
    pub fn that_serves(&self, config: &Config) -> &Self {
        let is_withheld = matches!(self, Self::Cloud(_)) && !self.may_train(config);
        if is_withheld { &Self::None } else { self }
    }

    /// Whether requests go to a policy model.
    pub fn is_some(&self) -> bool {
        *self != Self::None
    }
}

/// What is to be said of a model of the Python original's: a name at a hub, which nobody fetches. Who has
/// somebody else to answer goes on without it; mode `rl` with nobody does not.
pub fn without_effect(config: &Config) -> Option<InertUse> {
    let model = config.rl.model.as_deref()?;
    let is_asked_for = config.trainer.model.is_none()
        && config.rl.remote_url.is_none()
        && Service::of(&config.rl).is_none();
    let can_do_without = config.has_upstream() || !config.has_mode(Mode::Rl);
    (is_asked_for && can_do_without && model_name::is_name(model) && !model.exists()).then(|| InertUse {
        key: "rl.model".to_owned(),
        reason: "nothing is fetched by this key, so no weights are trained: set trainer.model to this name to have the model fetched from the Hugging Face hub, or to a folder in Hugging Face form or a GGUF file",
    })
}

/// Our trainer and vLLM read the same folders.
fn here(config: &Config) -> Result<(), PolicyError> {
    let url = config.rl.inference_url.as_ref();
    match url.filter(|url| config.rl.has_vllm() && !is_here(url)) {
        Some(url) => Err(PolicyError::InferenceAway { url: url.clone() }),
        None => Ok(()),
    }
}

fn remote(backend: &Backend, url: &str) -> Policy {
    Policy::Remote {
        url: url.trim_end_matches('/').to_owned(),
        key: backend.remote_api_key.clone(),
    }
}

fn local(key: &'static str, model: &Path) -> Result<Policy, PolicyError> {
    if model.exists() {
        Ok(Policy::Local {
            model: model.to_owned(),
        })
    } else {
        Err(PolicyError::Missing {
            key,
            path: model.to_owned(),
        })
    }
}

fn demo(cache: &Path) -> Result<Policy, PolicyError> {
    let model = cache.join(DEMO);
    if model.is_file() {
        Ok(Policy::Local { model })
    } else {
        Err(PolicyError::NoDemo { path: model })
    }
}
