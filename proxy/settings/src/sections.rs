//! All settings together, and the structs of those that no other crate owns.

use std::{
    collections::BTreeMap,
    fs::{DirEntry, read_dir},
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use metaclaw_chat::{Mode, Secret, Size, Span};
use metaclaw_gateway::GatewayConfig;
use metaclaw_learner::{LearnerConfig, ReportTo};
use metaclaw_llm::BudgetConfig;
use metaclaw_schedule::SchedulerConfig;
use metaclaw_skills::{MemoryConfig, SkillsConfig, WishesConfig};
use metaclaw_turns::TurnsConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// All settings, each section as the crate declares it that uses it. The gateway and the learner read several sections.
///
/// Single values are within their bounds, because [`crate::Loaded`] checks them against the schema of these structs
/// before it reads one of them; there is no other way from a file to a `Config`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// The agent whose configuration file is changed while the proxy runs, if you agreed at a start
    /// (docs/using/openclaw.md). With none, no file is ever changed. Without it, openclaw is meant.
    #[schemars(extend("enum" = ["openclaw", "none"]))]
    pub claw_type: Option<String>,
    /// With false, no agent's file is ever changed, as with claw_type: none.
    pub configure_openclaw: Option<bool>,
    /// The model's context window in tokens, which the proxy writes into OpenClaw's configuration. Without it, or with
    /// 0, OpenClaw uses the value of its own configuration.
    pub context_window: Option<u64>,
    pub llm: Llm,
    pub turns: TurnsConfig,
    pub wishes: WishesConfig,
    pub skills: SkillsConfig,
    pub memory: MemoryConfig,
    pub judge: JudgeSettings,
    pub budget: BudgetConfig,
    pub evolver: EvolverSettings,
    pub rl: Backend,
    pub opd: OpdSettings,
    pub trainer: Trainer,
    pub scheduler: SchedulerConfig,
    pub privacy: Consent,
    pub ui: PageSettings,
    pub log: LogSettings,
    #[serde(skip)]
    pub gateway: GatewayConfig,
    #[serde(skip)]
    pub learner: LearnerConfig,
}

/// `llm.*`: the model that answers where no policy model does.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Llm {
    /// The address of an OpenAI-compatible API, as in `https://api.openai.com/v1`.
    #[schemars(url)]
    pub api_base: Option<String>,
    /// The model to ask for. Without it, the caller's model name is passed on.
    pub model_id: Option<String>,
    /// The key. Without it, the key that `metaclaw auth` keeps is used. Without any, the caller's own authorization is
    /// passed on and never kept.
    pub api_key: Option<Secret>,
    /// The provider (docs/operating/upstreams.md). It gives the address if llm.api_base is not set, and says which key of
    /// `metaclaw auth` is used.
    #[schemars(extend("format" = "provider"))]
    pub provider: Option<String>,
    /// The region of Amazon Bedrock, for llm.provider, judge.provider and evolver.provider. Without it, AWS_REGION of
    /// the environment, else us-east-1.
    pub bedrock_region: Option<String>,
    /// Which credential comes first. With oauth_token, the token that `metaclaw auth paste-token` keeps for llm.provider
    /// comes before llm.api_key.
    pub auth_method: AuthMethod,
}

/// Which credential of `llm.*` comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// `llm.api_key`, else what `metaclaw auth` keeps.
    #[default]
    ApiKey,
    /// A token that `metaclaw auth` keeps, else `llm.api_key`.
    OauthToken,
}

/// The address of a model that learning asks, in `judge.*` and `evolver.*`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelAddress {
    /// The provider, as in llm.provider. It gives the address if the url is not set and the key is. bedrock needs no key.
    /// azure takes both from AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY of the environment.
    #[schemars(extend("format" = "provider"))]
    pub provider: Option<String>,
    /// The address of the model's API. Without it, llm.api_base.
    #[schemars(url)]
    pub url: Option<String>,
    /// The model to ask for. Without it, llm.model_id.
    pub model: Option<String>,
    /// The key. If the url is not set either, llm.api_key is the default.
    pub key: Option<Secret>,
    /// The api-version of an Azure deployment, as in 2024-10-21. Without it, upstreams.llm.api_version, if the url is not
    /// set either.
    pub api_version: Option<String>,
}

/// `judge.*`: where the judge model is, or where several are.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JudgeSettings {
    #[serde(flatten)]
    pub address: ModelAddress,
    /// Several models that vote together, by names of the owner's choice.
    pub models: BTreeMap<String, JudgeModel>,
}

/// `judge.models.<name>`: one of several judge models.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JudgeModel {
    /// The address of one of several judge models, whose name you choose. They vote in turn, and the majority decides.
    /// Without it, judge.url.
    #[schemars(url)]
    pub url: Option<String>,
    /// The model to ask for. Without it, judge.model.
    pub model: Option<String>,
    /// The key. If the url is not set either, judge.key is the default.
    pub key: Option<Secret>,
    /// The api-version of an Azure deployment. If the url is not set either, judge.api_version is the default.
    pub api_version: Option<String>,
}

/// `evolver.*`: the model that writes skills from what went wrong.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EvolverSettings {
    #[serde(flatten)]
    pub address: ModelAddress,
    /// The deadline of one answer.
    #[default(Span::secs(120))]
    pub timeout: Span,
}

/// `opd.*`: a larger model that says how likely it finds what the policy sampled.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpdSettings {
    /// Has a larger model rate the probability of each sampled token, in addition to what the verdict reinforces. It works
    /// with rl.method metaclaw, binary_rl and grpo (docs/training/methods.md).
    pub enabled: bool,
    /// The address of the larger model's API, as in `http://127.0.0.1:8082/v1`. It must have POST /completions with
    /// echo and logprobs, as vLLM does.
    #[schemars(url)]
    pub teacher_url: Option<String>,
    /// The name of the larger model. It must have the tokenizer of the policy model.
    pub teacher_model: Option<String>,
    /// The key for opd.teacher_url. Without it, requests have none.
    pub teacher_api_key: Option<Secret>,
    /// The weight of the larger model's ratings: the advantage of each token grows by this times the difference of its
    /// and the policy's log-probability.
    #[schemars(range(min = 0.0))]
    #[default(1.0)]
    pub kl_penalty_coef: f32,
}

/// What the owner agreed to: `privacy.cloud_training_ok`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Consent {
    /// Allows chats to be sent to a training server on another machine. A start asks once. With false, that server serves
    /// and does not train.
    pub cloud_training_ok: Option<bool>,
}

/// `log.*`: what the running process reports.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LogSettings {
    /// How much the running process reports. debug and trace are for MetaClaw's own parts; `metaclaw start -v` and -vv
    /// are the same for one start. RUST_LOG, if it is set, decides instead, as in RUST_LOG=metaclaw_learner=debug.
    #[schemars(extend("enum" = ["error", "warn", "info", "debug", "trace"]))]
    #[default("info")]
    pub level: String,
}

/// `ui.*`: the page that shows what was learned.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PageSettings {
    /// The IP address at which browsers reach the page. With 0.0.0.0, other machines reach it too, for example from a
    /// container. Nobody sees anything without the link of `metaclaw ui`.
    #[default(IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    /// The port of the page. Without it, the proxy's port plus 80, as in 30080. 0 takes a free port, which
    /// `metaclaw ui` prints.
    pub port: Option<u16>,
}

/// `rl.backend` and where it is.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Backend {
    /// Who trains. auto takes remote if rl.remote_url is set, one of tinker, mint and weaver if rl.tinker_api_key or
    /// rl.tinker_base_url is set, and local otherwise (docs/training/tinker.md).
    #[serde(rename = "backend")]
    pub kind: BackendKind,
    /// Whether weights are trained. It counts only if mode is not set: false is mode skills_only.
    pub enabled: Option<bool>,
    /// The policy model, if trainer.model is not set: a folder in Hugging Face form or a GGUF file. With rl.backend
    /// tinker, mint or weaver, the name at the server, as in Qwen/Qwen3-8B; without it, llm.model_id, if it is offered
    /// there. With rl.remote_url, a name or a path there.
    #[schemars(extend("format" = "path"))]
    pub model: Option<PathBuf>,
    /// The address of the training server with rl.backend remote. It serves as well, and loads rl.model if it has no
    /// model.
    #[schemars(url)]
    pub remote_url: Option<String>,
    /// The key of the training server at rl.remote_url.
    pub remote_api_key: Option<Secret>,
    /// The deadline of one call to the training server, in seconds.
    #[schemars(range(min = 1, max = 86_400))]
    #[default(600)]
    pub remote_timeout_s: u64,
    /// What answers chats with the policy model: builtin, the engine of our trainer; vllm, a server at rl.inference_url
    /// or one that the trainer starts; auto, vllm if rl.inference_url is set, else builtin (docs/operating/vllm.md).
    #[serde(rename = "inference_backend")]
    pub inference: InferenceBackend,
    /// The address of a running vLLM server on this machine that has the policy model, as in `http://127.0.0.1:8001`.
    #[schemars(url)]
    pub inference_url: Option<String>,
    /// The key of the vLLM server at rl.inference_url.
    pub inference_key: Option<Secret>,
    /// A Python that has vLLM, to start the server with. Without it, python3.
    #[schemars(extend("format" = "path"))]
    pub inference_python: Option<PathBuf>,
    /// More flags for the vLLM server that is started, as in --gpu-memory-utilization 0.5.
    pub inference_args: Option<String>,
    /// The key of a training server with Tinker's API. Without it, TINKER_API_KEY, MINT_API_KEY or WEAVER_API_KEY of the
    /// environment.
    pub tinker_api_key: Option<Secret>,
    /// The address of the server with Tinker's API. Without it, TINKER_BASE_URL, MINT_BASE_URL or WEAVER_BASE_URL of
    /// the environment, else the service's own.
    #[schemars(url)]
    pub tinker_base_url: Option<String>,
    /// The project at the service that sessions belong to. Without it, the service's default.
    pub tinker_project: Option<String>,
    /// The tokenizer of a service's model: a folder with tokenizer.json or tiktoken.model, or a name at the Hugging
    /// Face hub. Without it, rl.model.
    #[schemars(extend("format" = "path"))]
    pub tokenizer: Option<PathBuf>,
    /// The price of a million trained tokens, from the service's price list. Without it, no price is shown.
    #[schemars(range(min = 0.0))]
    pub price_train: Option<f64>,
    /// The price of a million prompt tokens.
    #[schemars(range(min = 0.0))]
    pub price_read: Option<f64>,
    /// The price of a million sampled tokens.
    #[schemars(range(min = 0.0))]
    pub price_sample: Option<f64>,
    /// The currency of rl.price_*.
    #[default("USD")]
    pub price_currency: String,
    /// The folder of the metrics files. Without it, learning in the home folder.
    #[schemars(extend("format" = "path"))]
    pub log_dir: Option<PathBuf>,
    /// Where the metrics of each step are written. jsonl writes a line to steps.jsonl, tensorboard event files; an empty
    /// list writes nothing (docs/operating/metrics.md).
    #[default(vec![ReportTo::Jsonl])]
    pub report_to: Vec<ReportTo>,
    /// The address of a function that computes the advantages of rollouts, in place of rl.rollouts.advantage
    /// (docs/extending/advantages.md).
    #[schemars(url)]
    pub advantages: Option<String>,
}

/// Who answers chats with the policy model: `rl.inference_backend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Who trains the policy model: `rl.backend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// Remote where an address is given, by Tinker's API where a key or an address of such a server is, else local.
    #[default]
    Auto,
    /// A trainer that we start and keep.
    Local,
    /// A training server that runs already.
    Remote,
    /// A server with Tinker's API: the service of that name, SkyRL, or `metaclaw-trainer`.
    Tinker,
    /// MinT, which has Tinker's API as well.
    Mint,
    /// Weaver, which has Tinker's API as well.
    Weaver,
}

/// `trainer.*`: the local trainer.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Trainer {
    /// The policy model: a folder in Hugging Face form, a GGUF file, a name at the Hugging Face hub (as in Qwen/Qwen3-4B),
    /// which is fetched, or demo. Without it, rl.model.
    #[schemars(extend("format" = "path"))]
    pub model: Option<PathBuf>,
    /// The number format of the base model.
    pub dtype: Dtype,
    /// How the base model is quantized. int8 stores each weight in 8 bits, which takes a quarter to a half of the memory
    /// and replies faster. A GPU does not reply with it.
    pub quantization: Quantization,
    /// The devices of the trainer: cpu, a GPU's number, or several as "0,1". Without it, a GPU if libtorch sees one.
    pub devices: Option<String>,
    /// The threads of the engine. 0 takes one for each physical core.
    #[schemars(range(max = 1_024))]
    pub threads: usize,
    /// The folder of checkpoints. Without it, trainer in the home folder.
    #[schemars(extend("format" = "path"))]
    pub checkpoint_dir: Option<PathBuf>,
    /// How many checkpoints of each agent are kept with their adapters, besides those that serve. Older ones are deleted
    /// after a step.
    #[schemars(range(min = 1, max = 1_000))]
    #[default(5)]
    pub keep: usize,
    /// Memory besides the weights. Half of it is for keys and values (at most two contexts or 1 GiB), the rest for
    /// training. Without it, all free memory.
    pub memory: Option<Size>,
    /// How many text requests may wait or run at once. Beyond it, the trainer answers 429.
    #[schemars(range(min = 1))]
    #[default(256)]
    pub max_queue: u16,
    /// Where `metaclaw trainer install` takes the training server from: the address or file of its release archive, in
    /// which {version} stands for the version of this program.
    pub archive: Option<String>,
}

/// The number format of the base model: `trainer.dtype`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    #[default]
    Auto,
    Bf16,
    F16,
    F32,
}

/// How the base model is quantized: `trainer.quantization`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quantization {
    #[default]
    None,
    Int8,
}

// === impl Config ===

impl Config {
    /// Whether an agent may be pointed at the proxy, once its owner said yes.
    pub fn wires_agent(&self) -> bool {
        let is_meant = self.claw_type.as_deref().is_none_or(|it| it == "openclaw");
        is_meant && self.configure_openclaw != Some(false)
    }

    /// Whether any agent is in `mode`, or all are.
    pub fn has_mode(&self, mode: Mode) -> bool {
        let own = self.learner.agents.values().filter_map(|agent| agent.mode);
        own.chain([self.learner.mode]).any(|set| set == mode)
    }

    /// What to say of a folder of skills that is not there, or has none.
    pub fn missing_skills(&self) -> Option<String> {
        let folder = self.skills.dir.as_deref()?;
        // Our own lock file does not count.
        let is_visible = |entry: DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
        let has_any = read_dir(folder).is_ok_and(|all| all.flatten().any(is_visible));
        (!has_any).then(|| {
            let folder = folder.display();
            format!("skills.dir: there is nothing in {folder}, so no agent is given a skill")
        })
    }

    /// Whether somebody beside a policy model can answer.
    pub fn has_upstream(&self) -> bool {
        let upstreams = &self.gateway.upstreams;
        self.llm.api_base.is_some() || upstreams.values().any(|it| it.address().is_some())
    }
}

// === impl PageSettings ===

impl PageSettings {
    /// How far the page's port is from the proxy's.
    const DISTANCE: u16 = 80;

    /// The port of the page of a proxy whose own port is `proxy`; 0 takes a free one, as the proxy itself does with 0.
    pub fn port_beside(&self, proxy: u16) -> u16 {
        let beside = proxy.checked_add(Self::DISTANCE).filter(|_| proxy > 0);
        self.port.or(beside).unwrap_or_default()
    }
}

// === impl Trainer ===

impl Trainer {
    /// What our trainer is started with besides places.
    pub fn flags(&self) -> Vec<String> {
        let dtype = self.dtype.flag().map(|dtype| format!("--dtype={dtype}"));
        let memory = self.memory.map(|memory| format!("--memory={}", memory.0));
        let counts = [
            format!("--keep={}", self.keep),
            format!("--max-queue={}", self.max_queue),
        ];
        let quantization = match self.quantization {
            Quantization::None => None,
            Quantization::Int8 => Some("--quantization=int8".to_owned()),
        };
        let devices = self.devices.iter().flat_map(|devices| {
            ["training", "inference"].map(|what| format!("--{what}-devices={devices}"))
        });
        let flags = counts.into_iter().chain(dtype).chain(memory);
        flags.chain(quantization).chain(devices).collect()
    }
}

// === impl JudgeSettings ===

impl JudgeSettings {
    /// The addresses of the models that vote, each with what it takes from the others of `judge.*`. There is at least one,
    /// which may be empty.
    pub fn voters(&self) -> Vec<ModelAddress> {
        if self.models.is_empty() {
            return vec![self.address.clone()];
        }
        let models = self.models.values();
        models.map(|model| model.beside(&self.address)).collect()
    }
}

// === impl JudgeModel ===

impl JudgeModel {
    /// Where it is asked, if `all` says what it leaves out. The key of one address is not for another.
    fn beside(&self, all: &ModelAddress) -> ModelAddress {
        let is_there = self.url.is_none() || self.url == all.url;
        ModelAddress {
            provider: all.provider.clone().filter(|_| self.url.is_none()),
            url: self.url.clone().or_else(|| all.url.clone()),
            model: self.model.clone().or_else(|| all.model.clone()),
            key: self
                .key
                .clone()
                .or_else(|| all.key.clone().filter(|_| is_there)),
            api_version: self
                .api_version
                .clone()
                .or_else(|| all.api_version.clone().filter(|_| is_there)),
        }
    }
}

// === impl Backend ===

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
            url.map(|url| format!("--inference-url={url}")),
            python.map(|python| format!("--inference-python={}", python.display())),
            more.map(|more| format!("--inference-args={more}")),
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
