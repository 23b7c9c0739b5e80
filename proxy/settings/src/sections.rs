//! The settings that no room owns: how the command itself works.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use metaclaw_chat::{Secret, Size, Span};
use metaclaw_gateway::{KeyConfig, LLM, POLICY};
use metaclaw_learner::ReportTo;
use serde::{Deserialize, Serialize};

/// `mode`: whether the weights learn, and when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// When a batch is ready and the owner is away; without a policy model like `skills_only`.
    #[default]
    Auto,
    /// When a batch is ready.
    Rl,
    SkillsOnly,
}

/// `llm.*`: the model that answers where no policy model does.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Llm {
    pub api_base: Option<String>,
    /// Model to ask for.
    pub model_id: Option<String>,
    pub api_key: Option<Secret>,
    /// Whose address, and whose key of `metaclaw auth`.
    pub provider: Option<String>,
    /// Which of the two that `metaclaw auth` keeps comes first.
    pub auth_method: AuthMethod,
}

/// `llm.auth_method`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// `llm.api_key`, else what `metaclaw auth` keeps.
    #[default]
    ApiKey,
    /// A token that `metaclaw auth` keeps, else `llm.api_key`.
    OauthToken,
}

/// `judge.*` and `evolver.*`: where a model is that learning asks, when it is not `llm.*`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelAddress {
    pub url: Option<String>,
    pub model: Option<String>,
    pub key: Option<Secret>,
    pub api_version: Option<String>,
    pub timeout: Option<Span>,
}

/// `opd.*`: a larger model that says how likely it finds what the policy sampled.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Opd {
    pub enabled: bool,
    /// Of its API, as in `http://127.0.0.1:8082/v1`.
    pub teacher_url: Option<String>,
    pub teacher_model: Option<String>,
    pub teacher_api_key: Option<Secret>,
    /// What its word weighs beside a verdict's.
    pub kl_penalty_coef: f32,
}

/// `proxy.host`, `proxy.port`, `proxy.api_key`: where callers come in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Listen {
    /// Address to listen on.
    pub host: IpAddr,
    /// 0 takes a free one.
    pub port: u16,
    /// What callers must show.
    pub api_key: Option<Secret>,
    /// Keys of single agents.
    pub keys: BTreeMap<String, KeyConfig>,
}

/// `upstreams.<name>`, as far as others than the gateway ask there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Upstream {
    /// Its address; `llm` may have it in `llm.api_base`.
    pub url: Option<String>,
    /// As in `azure`.
    pub dialect: Option<String>,
    pub api_version: Option<String>,
}

/// `routing.order`: who is asked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Routing {
    pub order: Vec<String>,
}

/// `privacy.cloud_training_ok`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Consent {
    /// Whether texts may be sent to another machine to train on; none until that was asked.
    pub cloud_training_ok: Option<bool>,
}

/// `agents.<id>.mode`, `agents.<id>.upstream`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Agent {
    /// Without one, that of all.
    pub mode: Option<Mode>,
    /// Whom it is answered by, in place of all others but the policy model.
    pub upstream: Vec<String>,
}

/// `rl.backend` and where it is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Backend {
    #[serde(rename = "backend")]
    pub kind: BackendKind,
    /// The policy model, where `trainer.model` names none.
    pub model: Option<PathBuf>,
    /// Address of a training server that runs already.
    pub remote_url: Option<String>,
    pub remote_api_key: Option<Secret>,
    /// For one call, in seconds.
    pub remote_timeout_s: u64,
    /// Who answers chats with the policy model that our trainer trains.
    #[serde(rename = "inference_backend")]
    pub inference: InferenceBackend,
    /// Address of a vLLM server that runs already.
    pub inference_url: Option<String>,
    pub inference_key: Option<Secret>,
    /// What starts vLLM otherwise.
    pub inference_python: Option<PathBuf>,
    /// More flags for it.
    pub inference_args: Option<String>,
    /// Key at a training server that speaks Tinker's API.
    pub tinker_api_key: Option<Secret>,
    pub tinker_base_url: Option<String>,
    pub tinker_project: Option<String>,
    /// Where the tokenizer of its model is.
    pub tokenizer: Option<PathBuf>,
    /// What a million tokens cost there: trained on, read, sampled.
    pub price_train: Option<f64>,
    pub price_read: Option<f64>,
    pub price_sample: Option<f64>,
    pub price_currency: String,
    /// Where the numbers of steps go; none is the home folder's own place.
    pub log_dir: Option<PathBuf>,
    pub report_to: Vec<ReportTo>,
}

/// `rl.inference_backend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InferenceBackend {
    /// vLLM where an address is given, else the engine.
    #[default]
    Auto,
    /// The trainer's own engine.
    Builtin,
    /// A vLLM server, found or started.
    Vllm,
}

/// `rl.backend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// Remote where an address is given, by Tinker's API where a key or an address of such a server is, else local.
    #[default]
    Auto,
    /// A trainer that we start and keep.
    Local,
    /// A training server that runs already.
    Remote,
    /// One that speaks Tinker's API: the service of that name, SkyRL, or `metaclaw-trainer`.
    Tinker,
    /// MinT, which speaks it as well.
    Mint,
    /// Weaver, which speaks it as well.
    Weaver,
}

/// `trainer.*`: the local trainer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Trainer {
    /// The policy model: a path, or `demo`.
    pub model: Option<PathBuf>,
    /// Numbers of the base model.
    pub dtype: Dtype,
    /// How its matrices are rounded.
    pub quantization: Quantization,
    /// What it is computed on, as the trainer's flags have it; none is a GPU if libtorch sees one.
    pub devices: Option<String>,
    /// Of the engine; 0: one a physical core.
    pub threads: usize,
    pub checkpoint_dir: Option<PathBuf>,
    /// Checkpoints of each agent that stay besides those that serve.
    pub keep: usize,
    /// Beside the weights; none is what is free.
    pub memory: Option<Size>,
    /// Requests for text that may wait or run.
    pub max_queue: u16,
    /// Where `metaclaw trainer install` takes the training server from: an address or a file.
    pub archive: Option<String>,
}

/// `trainer.dtype`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    #[default]
    Auto,
    Bf16,
    F16,
    F32,
}

/// `trainer.quantization`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantization {
    #[default]
    None,
    Int8,
}

// === impl Trainer ===

impl Trainer {
    /// What our trainer is started with besides places.
    pub fn flags(&self) -> Vec<String> {
        let dtype = self.dtype.flag().map(|it| format!("--dtype={it}"));
        let memory = self.memory.map(|it| format!("--memory={}", it.0));
        let counts = [
            format!("--keep={}", self.keep),
            format!("--max-queue={}", self.max_queue),
        ];
        let quantization = match self.quantization {
            Quantization::None => None,
            Quantization::Int8 => Some("--quantization=int8".to_owned()),
        };
        let devices = self
            .devices
            .iter()
            .flat_map(|it| ["training", "inference"].map(|what| format!("--{what}-devices={it}")));
        let flags = counts.into_iter().chain(dtype).chain(memory);
        flags.chain(quantization).chain(devices).collect()
    }
}

impl Default for Trainer {
    fn default() -> Self {
        Self {
            model: None,
            dtype: Dtype::default(),
            quantization: Quantization::default(),
            devices: None,
            threads: 0,
            checkpoint_dir: None,
            keep: 5,
            memory: None,
            max_queue: 256,
            archive: None,
        }
    }
}

// === impl Mode ===

impl Mode {
    /// As it stands in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Rl => "rl",
            Self::SkillsOnly => "skills_only",
        }
    }
}

// === impl Opd ===

impl Default for Opd {
    fn default() -> Self {
        Self {
            enabled: false,
            teacher_url: None,
            teacher_model: None,
            teacher_api_key: None,
            kl_penalty_coef: 1.0,
        }
    }
}

// === impl Listen ===

impl Default for Listen {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 30_000,
            api_key: None,
            keys: BTreeMap::new(),
        }
    }
}

impl Listen {
    /// Whether callers must show a key.
    pub fn requires_key(&self) -> bool {
        self.api_key.is_some() || !self.keys.is_empty()
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }
}

// === impl Routing ===

impl Default for Routing {
    fn default() -> Self {
        Self {
            order: [POLICY, LLM].map(str::to_owned).into(),
        }
    }
}

// === impl Backend ===

impl Default for Backend {
    fn default() -> Self {
        Self {
            kind: BackendKind::default(),
            model: None,
            remote_url: None,
            remote_api_key: None,
            remote_timeout_s: 600,
            inference: InferenceBackend::default(),
            inference_url: None,
            inference_key: None,
            inference_python: None,
            inference_args: None,
            tinker_api_key: None,
            tinker_base_url: None,
            tinker_project: None,
            tokenizer: None,
            price_train: None,
            price_read: None,
            price_sample: None,
            price_currency: "USD".to_owned(),
            log_dir: None,
            report_to: vec![ReportTo::Jsonl],
        }
    }
}

impl Backend {
    /// Whether vLLM answers chats in the engine's place.
    pub fn has_vllm(&self) -> bool {
        match self.inference {
            InferenceBackend::Auto => self.inference_url.is_some(),
            InferenceBackend::Builtin => false,
            InferenceBackend::Vllm => true,
        }
    }

    /// The trainer's flags for vLLM, where it answers chats; `rank` is that of the adapters.
    pub fn inference_flags(&self, rank: u32) -> Vec<String> {
        if !self.has_vllm() {
            return Vec::new();
        }
        let url = self.inference_url.as_ref();
        let python = self.inference_python.as_ref();
        let more = self.inference_args.as_ref();
        let named = [
            url.map(|it| format!("--inference-url={it}")),
            python.map(|it| format!("--inference-python={}", it.display())),
            more.map(|it| format!("--inference-args={it}")),
            // Of one that runs it says itself which ranks it takes.
            url.is_none()
                .then(|| format!("--inference-max-rank={rank}")),
        ];
        let first = "--inference-backend=vllm".to_owned();
        std::iter::once(first)
            .chain(named.into_iter().flatten())
            .collect()
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.remote_timeout_s)
    }
}

// === impl Dtype ===

impl Dtype {
    /// As the trainer's flag takes it; none where the trainer chooses.
    pub fn flag(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Bf16 => Some("bf16"),
            Self::F16 => Some("f16"),
            Self::F32 => Some("f32"),
        }
    }
}
