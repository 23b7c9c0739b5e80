//! Finds which model is trained, if any, and which server trains it.

use std::path::{Path, PathBuf};

use metaclaw_chat::{Mode, Secret};

use super::{
    Backend, BackendKind, Cloud, Config, InertUse,
    cloud::{CloudError, Service},
    model_name,
};
use crate::address::is_here;

/// The demo model below the cache folder, where `cargo xtask start` puts it.
const DEMO: &str = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

/// The policy model of this run.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// There is none: requests go to `llm.*`, and no weights are trained.
    None,
    /// MetaClaw's own trainer, with this model.
    Local {
        /// A folder in Hugging Face form, or a GGUF file.
        model: PathBuf,
    },
    /// A training server that is already running.
    Remote { url: String, key: Option<Secret> },
    /// A training server with Tinker's API.
    Cloud(Box<Cloud>),
}

/// Why the requested policy model cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(
        "{key}: no file or folder {}: give a folder in Hugging Face form, a GGUF file, or (trainer.model) the name of a model at the Hugging Face hub, as in Qwen/Qwen3-4B, which is fetched. If it is on the machine of a training server, set rl.model and rl.remote_url, the server's address",
        path.display()
    )]
    Missing {
        /// The key that names it.
        key: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// The demo model was not downloaded.
    #[error(
        "trainer.model: the demo model is not at {}: `cargo xtask start` fetches it",
        path.display()
    )]
    NoDemo {
        /// Where it should be.
        path: PathBuf,
    },
    /// Mode `rl` without a model to train.
    #[error(
        "mode rl needs a policy model: set trainer.model (a folder in Hugging Face form, a GGUF file, or demo), or mode: skills_only"
    )]
    NoModel,
    /// A service with Tinker's API whose settings cannot be used.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// With an external training server, the settings must say which upstream answers.
    #[error(
        "rl.inference_backend and rl.inference_url are of our own trainer on this machine, and {trains} trains here: start vLLM there (metaclaw-trainer --inference-backend vllm, docs/operating/vllm.md), or leave them out"
    )]
    InferenceElsewhere {
        /// The address of the training server.
        trains: String,
    },
    /// vLLM is on another machine than MetaClaw's trainer.
    #[error(
        "rl.inference_url {url}: vLLM loads adapters from this machine's disk, so it runs here, as at http://127.0.0.1:8001; for one on another machine run metaclaw-trainer there as well (rl.remote_url, docs/operating/vllm.md)"
    )]
    InferenceAway { url: String },
    /// The backend is `remote`, without an address.
    #[error("rl.backend remote needs rl.remote_url, as in http://127.0.0.1:8000")]
    NoAddress,
}

// === impl Policy ===

impl Policy {
    /// Reads the policy from the settings; `cache` is the folder of the demo model.
    ///
    /// # Errors
    ///
    /// Returns `PolicyError` if the requested model is missing.
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
        // Without training, the policy model answers only if there is no other upstream.
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
            // The trainer downloads it when it starts.
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

    /// Returns the address of the training server, if it is not this machine.
    pub fn elsewhere(&self) -> Option<&str> {
        match self {
            Self::Remote { url, .. } if !is_here(url) => Some(url),
            Self::Cloud(cloud) if !is_here(&cloud.url) => Some(&cloud.url),
            Self::Remote { .. } | Self::Cloud(_) | Self::Local { .. } | Self::None => None,
        }
    }

    /// Returns whether texts may be sent to the training server: always on this machine, elsewhere if it was allowed.
    pub fn may_train(&self, config: &Config) -> bool {
        self.elsewhere().is_none() || config.privacy.cloud_training_ok == Some(true)
    }

    /// Returns the serving model: a service that may get no texts serves nothing.
    pub fn that_serves(&self, config: &Config) -> &Self {
        let is_withheld = matches!(self, Self::Cloud(_)) && !self.may_train(config);
        if is_withheld { &Self::None } else { self }
    }

    /// Returns whether requests go to a policy model.
    pub fn is_some(&self) -> bool {
        *self != Self::None
    }
}

/// Returns the message about a model name of the Python original: a name at a hub, which MetaClaw does not download. If
/// there is another upstream, the proxy continues without the model; mode `rl` without one fails.
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

/// MetaClaw's trainer and vLLM read the same folders.
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
