//! Training servers that speak Tinker's API: which one is meant, where it is, and by which key.

use std::path::PathBuf;

use metaclaw_chat::Secret;

use super::{Backend, BackendKind, Layer, Origin};

/// A service that speaks Tinker's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Tinker, and whoever serves its API as it is: SkyRL, `metaclaw-trainer`.
    Tinker,
    Mint,
    Weaver,
}

/// Where weights are trained by Tinker's API.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cloud {
    pub service: Service,
    /// Without a `/` at its end.
    pub url: String,
    pub key: Secret,
    pub project: Option<String>,
    /// As the server names it.
    pub model: String,
    /// A folder, a file, or a name at the Hugging Face hub.
    pub tokenizer: PathBuf,
}

/// What a service of Tinker's API lacks in the settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CloudError {
    /// A service without a key.
    #[error(
        "{name} needs a key: set rl.tinker_api_key, or the variable {variable}_API_KEY (docs/tinker.md)"
    )]
    NoKey {
        /// The service.
        name: &'static str,
        /// What its variables begin with.
        variable: &'static str,
    },
    /// A service without a model.
    #[error(
        "{name} needs the name of a model that it offers: set rl.model, as in Qwen/Qwen3-8B; `metaclaw setup` lists them"
    )]
    NoModel {
        /// The service.
        name: &'static str,
    },
}

// === impl Service ===

impl Service {
    const ALL: [Self; 3] = [Self::Tinker, Self::Mint, Self::Weaver];

    /// As people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tinker => "Tinker",
            Self::Mint => "MinT",
            Self::Weaver => "Weaver",
        }
    }

    /// What its variables of the environment begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Tinker => "TINKER",
            Self::Mint => "MINT",
            Self::Weaver => "WEAVER",
        }
    }

    /// Where it is, unless it is said otherwise.
    fn address(self) -> &'static str {
        match self {
            Self::Tinker => "https://tinker.thinkingmachines.dev/services/tinker-prod",
            Self::Mint => "https://mint.macaron.xin",
            Self::Weaver => "https://weaver-console.nex-agi.cn",
        }
    }

    /// The one that is meant; none where weights are trained otherwise. Variables of the environment alone choose none:
    /// they may be there for another program.
    pub(super) fn of(backend: &Backend) -> Option<Self> {
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
}

// === impl Cloud ===

impl Cloud {
    /// From the settings.
    ///
    /// # Errors
    /// [`CloudError`] where key or model is missing.
    pub(super) fn of(backend: &Backend, service: Service) -> Result<Self, CloudError> {
        let name = service.name();
        let key = backend.tinker_api_key.clone();
        let variable = service.prefix();
        let key = key.ok_or(CloudError::NoKey { name, variable })?;
        let model = backend.model.as_ref();
        let model = model.ok_or(CloudError::NoModel { name })?;
        let url = backend.tinker_base_url.as_deref();
        let url = url.unwrap_or_else(|| service.address());
        Ok(Self {
            service,
            url: url.trim_end_matches('/').to_owned(),
            key,
            project: backend.tinker_project.clone(),
            model: model.to_string_lossy().into_owned(),
            tokenizer: backend.tokenizer.clone().unwrap_or_else(|| model.clone()),
        })
    }
}

/// What of the environment the services' own programs read, as a layer below all others: `TINKER_API_KEY` and the like of
/// the service that `rl.backend` names, else of Tinker.
pub(super) fn variables(kind: BackendKind, variables: &[(String, String)]) -> Layer {
    let mut layer = Layer::empty(Origin::Environment);
    let service = match kind {
        BackendKind::Tinker => Service::Tinker,
        BackendKind::Mint => Service::Mint,
        BackendKind::Weaver => Service::Weaver,
        BackendKind::Auto | BackendKind::Local | BackendKind::Remote => return layer,
    };
    let others = Service::ALL.into_iter().filter(|it| *it != service);
    let keys = [
        ("rl.tinker_api_key", "API_KEY"),
        ("rl.tinker_base_url", "BASE_URL"),
    ];
    for (path, suffix) in keys {
        let value = |of: Service| {
            let name = format!("{}_{suffix}", of.prefix());
            let set = variables.iter().find(|(given, _)| *given == name);
            set.map(|(_, value)| value.clone())
                .filter(|it| !it.is_empty())
        };
        // The key of another service is of no use, but the original read them all.
        let own = value(service).or_else(|| others.clone().find_map(value));
        if let Some(value) = own {
            layer.set(path, &value.into());
        }
    }
    layer
}
