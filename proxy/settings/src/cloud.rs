//! Training servers with Tinker's API: which one is used, its address, and its key.

use std::path::{Path, PathBuf};

use metaclaw_chat::Secret;
use metaclaw_trainer_text::hub::HubName;
use strsim::damerau_levenshtein;

use crate::{
    address::host,
    environment,
    sections::{Backend, BackendKind},
};

const FILES: [&str; 2] = ["tokenizer.json", "tiktoken.model"];

/// A service with Tinker's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Tinker, and other servers with the same API, such as SkyRL and `metaclaw-trainer`.
    Tinker,
    Mint,
    Weaver,
}

/// The service at which weights are trained by Tinker's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cloud {
    pub service: Service,
    /// It has no `/` at its end.
    pub url: String,
    pub key: Secret,
    pub project: Option<String>,
    /// The model's name at the server.
    pub model: String,
    /// A folder, or a name at the Hugging Face hub.
    pub tokenizer: PathBuf,
}

/// What the settings lack for a service with Tinker's API.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// A service without a key.
    #[error(
        "{name} needs a key: set rl.tinker_api_key, or the variable {variable}_API_KEY (docs/training/tinker.md){hint}"
    )]
    NoKey {
        /// The service's or server's name.
        name: String,
        /// The prefix of its environment variables.
        variable: &'static str,
        /// Another remedy.
        hint: &'static str,
    },
    /// A service without a model.
    #[error(
        "{} needs the name of a model that it offers: set rl.model{offer}",
        unnamed.service.name_at(&unnamed.url)
    )]
    NoModel {
        /// The service, with an empty name of its model.
        unnamed: Box<Cloud>,
        /// What it offers, in words.
        offer: String,
    },
    /// A tokenizer that cannot be found.
    #[error(
        "rl.tokenizer: {} is not allowed: give a folder that has tokenizer.json or tiktoken.model, or a model's name at the Hugging Face hub, as in Qwen/Qwen3-8B",
        path.display()
    )]
    Tokenizer { path: PathBuf },
    /// There is no `rl.tokenizer`, and the hub has no tokenizer under the model's name.
    #[error(
        "rl.tokenizer is missing: rl.model {} is neither a name at the Hugging Face hub nor a folder that has a tokenizer; give a folder that has tokenizer.json or tiktoken.model, or a name at the hub, as in Qwen/Qwen3-8B",
        model.display()
    )]
    NoTokenizer {
        /// The value of `rl.model`.
        model: PathBuf,
    },
}

// === impl Service ===

impl Service {
    pub const ALL: [Self; 3] = [Self::Tinker, Self::Mint, Self::Weaver];

    /// Returns the service's name in `rl.backend`.
    pub fn word(self) -> &'static str {
        self.column(0)
    }

    /// Returns the service's common name.
    pub fn name(self) -> &'static str {
        self.column(1)
    }

    /// Returns the prefix of its environment variables.
    pub fn prefix(self) -> &'static str {
        self.column(2)
    }

    /// Returns its default address.
    pub fn address(self) -> &'static str {
        self.column(3)
    }

    /// Returns one column of its row in `services.txt`; a test reads all of them.
    fn column(self, n: usize) -> &'static str {
        let lines = include_str!("../data/services.txt").lines();
        let mut rows = lines.filter(|line| !line.starts_with('#'));
        let row = rows.nth(self as usize).unwrap_or_default();
        row.split('|').nth(n).map(str::trim).unwrap_or_default()
    }

    /// Describes who runs this address: the service, or another server with the same API.
    pub fn name_at(self, url: &str) -> String {
        if self.is_at(url) {
            self.name().to_owned()
        } else {
            format!("the training server at {}", host(url))
        }
    }

    /// Returns whether an address is the service's own.
    pub fn is_at(self, url: &str) -> bool {
        let host = host(url);
        let name = host.split(':').next().unwrap_or(host);
        let before = name.strip_suffix(self.column(4));
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    }

    /// Returns the selected service, or `None` if weights are trained in another way. Environment variables alone
    /// select none, because they may be there for another program.
    pub fn of(backend: &Backend) -> Option<Self> {
        let key = backend.tinker_api_key.as_ref().map(Secret::expose);
        let url = backend.tinker_base_url.as_deref();
        match backend.kind {
            BackendKind::Tinker => Some(Self::Tinker),
            BackendKind::Mint => Some(Self::Mint),
            BackendKind::Weaver => Some(Self::Weaver),
            BackendKind::Local | BackendKind::Remote => None,
            BackendKind::Auto => {
                let at = |word: &str| url.is_some_and(|url| url.contains(word));
                if key.is_some_and(|key| key.starts_with("sk-mint-")) || at("mint.") {
                    Some(Self::Mint)
                } else if at("weaver") {
                    Some(Self::Weaver)
                } else {
                    (key.is_some() || url.is_some()).then_some(Self::Tinker)
                }
            }
        }
    }

    /// Returns the service's key from the environment.
    pub fn key_in(self, variables: &[(String, String)]) -> Option<String> {
        self.variable("API_KEY", variables)
    }

    /// Returns the service's address from the environment.
    pub fn address_in(self, variables: &[(String, String)]) -> Option<String> {
        self.variable("BASE_URL", variables)
    }

    /// Returns its own variable, else that of another service: another service's key is of no use, but the Python
    /// original read them all.
    fn variable(self, suffix: &str, variables: &[(String, String)]) -> Option<String> {
        let own_first = [self].into_iter().chain(Self::ALL);
        let mut names = own_first.map(|service| format!("{}_{suffix}", service.prefix()));
        let found = names.find_map(|name| environment::given(variables, &name));
        found.map(str::to_owned)
    }
}

// === impl Cloud ===

impl Cloud {
    /// Describes the service and its address: `Tinker at HOST`, `the training server at HOST`.
    pub fn who(&self) -> String {
        let name = self.service.name_at(&self.url);
        if self.service.is_at(&self.url) {
            format!("{name} at {}", host(&self.url))
        } else {
            name
        }
    }

    /// Reads the service from the settings.
    ///
    /// # Errors
    /// Returns [`CloudError`] if the key or the model is missing, or no tokenizer can be found for the model.
    pub(super) fn of(backend: &Backend, service: Service) -> Result<Self, CloudError> {
        let url = backend.tinker_base_url.as_deref();
        let url = url.unwrap_or_else(|| service.address());
        let key = backend.tinker_api_key.clone();
        let key = key.ok_or_else(|| CloudError::NoKey {
            name: service.name_at(url),
            variable: service.prefix(),
            hint: if service.is_at(url) {
                ""
            } else {
                "; if it asks for none, set tml-none"
            },
        })?;
        let unnamed = Self {
            service,
            url: url.trim_end_matches('/').to_owned(),
            key,
            project: backend.tinker_project.clone(),
            model: String::new(),
            tokenizer: PathBuf::new(),
        };
        let Some(model) = &backend.model else {
            return Err(unnamed.without_model(", as in Qwen/Qwen3-8B".to_owned()));
        };
        Ok(Self {
            model: model.to_string_lossy().into_owned(),
            tokenizer: tokenizer(backend.tokenizer.as_deref(), model)?,
            ..unnamed
        })
    }

    /// Chooses the model that `llm.*` asks for, if the service offers it under this name or this last part of a name.
    ///
    /// # Errors
    /// Returns [`CloudError::NoModel`] with what is offered, and what of it is nearest.
    pub fn choose(self, offered: &[String], llms: Option<&str>) -> Result<String, CloudError> {
        let short = |name: &str| name.rsplit('/').next().unwrap_or(name).to_lowercase();
        let distance = |one: &str, other: &str| damerau_levenshtein(&short(one), &short(other));
        let all = offered.join(", ");
        let by_distance = |one: &&String| llms.map(|llms| (distance(one, llms), *one != llms));
        let offer = match (offered.iter().min_by_key(by_distance), llms) {
            (None, _) => ", as its documentation names them".to_owned(),
            (Some(_), None) => format!(" to one of {all}"),
            (Some(one), Some(llms)) if distance(one, llms) == 0 => return Ok(one.clone()),
            (Some(one), Some(llms)) => {
                format!(" to one of {all}; the nearest to llm.model_id {llms} is {one}")
            }
        };
        Err(self.without_model(offer))
    }

    fn without_model(self, offer: String) -> CloudError {
        let unnamed = Box::new(self);
        CloudError::NoModel { unnamed, offer }
    }
}

fn tokenizer(given: Option<&Path>, model: &Path) -> Result<PathBuf, CloudError> {
    let path = given.unwrap_or(model);
    let has_files = FILES.iter().any(|file| path.join(file).is_file());
    let is_at_hub = !path.exists() && path.to_string_lossy().parse::<HubName>().is_ok();
    let path = path.to_owned();
    if has_files || is_at_hub {
        Ok(path)
    } else if given.is_some() {
        Err(CloudError::Tokenizer { path })
    } else {
        Err(CloudError::NoTokenizer { model: path })
    }
}

#[cfg(test)]
mod tests;
