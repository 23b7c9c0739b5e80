//! `upstreams.*`, `routing.*` and `agents.*`: the model servers, and which of them answers.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use metaclaw_chat::{AgentId, Mode, Secret, Span};
use metaclaw_dialects::Api;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::failure::Failure;

/// The name in `routing.order` that stands for our own policy model.
pub const POLICY: &str = "policy";
/// The name of the upstream that `llm.*` makes.
pub const LLM: &str = "llm";

/// `HTTP_PROXY` and its like, for upstreams without a `proxy` of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentProxies {
    /// For `http://`.
    pub http: Option<Secret>,
    /// For `https://`.
    pub https: Option<Secret>,
    /// For both, if they have none of their own.
    pub all: Option<Secret>,
    /// Hosts and networks that are reached without a proxy: `NO_PROXY`.
    pub no: String,
}

/// `upstreams.<name>`: a chat API that requests can go to.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UpstreamConfig {
    /// The base address of a model server besides llm.*, with or without /v1. You choose the server's name; llm stands
    /// for the server of llm.* itself.
    #[schemars(url)]
    pub url: String,
    /// The API of the server, and how it expects its key.
    pub dialect: Provider,
    /// Keys of the server. The proxy uses them in turn, and rests one that the server refuses. Without any, the
    /// caller's own authorization is passed on.
    pub keys: Vec<Secret>,
    /// The model to ask for. Without it, the caller's model name is passed on.
    pub model: Option<String>,
    /// The longest wait for a connection, including TLS and the greeting of a proxy.
    #[default(Span::secs(10))]
    pub connect: Span,
    /// The longest wait for the first byte of a reply, once the request is sent. Without it, there is no limit.
    pub first_byte: Option<Span>,
    /// The longest silence within a reply. Without it, there is no limit. A whole reply never has one.
    pub idle: Option<Span>,
    /// How long an idle connection is kept. It must be shorter than the server keeps it: uvicorn and Node close theirs
    /// after 5 s.
    #[default(Span::secs(4))]
    pub pool_idle: Span,
    /// The chat APIs that the server has. The proxy translates requests into one of them. Without it, the proxy goes by
    /// the dialect, and by the server's answers.
    #[schemars(length(min = 1))]
    pub speaks: Option<Vec<Api>>,
    /// The api-version of an Azure deployment, as in 2024-10-21. An address that ends in /openai/v1 needs none.
    pub api_version: Option<String>,
    /// Moves tool calls and thinking that the models write as text (Qwen, Kimi, Gemma) into their fields. The policy model
    /// always has this.
    pub tool_calls_in_text: bool,
    /// The proxy on the way to the server: http://host:port or socks5://host:port, with user:password@ if needed, or
    /// none. Without it, the environment decides (HTTPS_PROXY, NO_PROXY).
    pub proxy: Option<Secret>,
    /// A PEM file of certificates to trust for this server, in addition to those of this machine.
    #[schemars(extend("format" = "path"))]
    pub ca: Option<PathBuf>,
}

/// `upstreams.<name>.dialect`: whose API an upstream has, or copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// OpenAI, and most others.
    #[default]
    Openai,
    /// Anthropic's messages API.
    Anthropic,
    /// Azure's edition of OpenAI.
    Azure,
    /// vLLM, which is asked for token ids.
    Vllm,
}

/// `routing.*`: who answers.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RoutingConfig {
    /// The names of upstreams in order of preference. The first one that is available answers. policy is our own
    /// model.
    #[schemars(length(min = 1))]
    #[default(vec![POLICY.to_owned(), LLM.to_owned()])]
    pub order: Vec<String>,
    /// The classes of failure after which the next key or upstream is asked, before the first byte of a reply
    /// (docs/operating/upstreams.md).
    pub fail_over: Vec<Failure>,
    /// Repairs histories: restores from the log what a client dropped and the upstream requires (signatures, thinking),
    /// and removes what another upstream added (docs/operating/translation.md).
    #[default(true)]
    pub mend_history: bool,
}

/// `agents.<id>`: what is different for one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentRouting {
    /// Its mode; without one, that of all. The learner documents this key.
    #[schemars(skip)]
    pub mode: Option<Mode>,
    /// The upstreams that answer this agent: one name or several. They replace those of routing.order, except policy.
    /// Text in a user's message that names the agent is not enough to use them.
    #[schemars(length(min = 1))]
    pub upstream: Vec<String>,
}

/// `agents.*`, which can change while it is in use.
pub(crate) type AgentRoutes = Arc<ArcSwap<BTreeMap<AgentId, AgentRouting>>>;

// === impl UpstreamConfig ===

impl UpstreamConfig {
    /// Returns its address, if it has one of its own. The address of `llm` may be in `llm.api_base`.
    pub fn address(&self) -> Option<&str> {
        (!self.url.is_empty()).then_some(&*self.url)
    }

    /// Returns the name of a deadline of 0, which nothing can meet.
    pub(super) fn zero_deadline(&self) -> Option<&'static str> {
        let deadlines = [
            ("connect", Some(self.connect)),
            ("first_byte", self.first_byte),
            ("idle", self.idle),
        ];
        let is_zero = |given: Option<Span>| given.is_some_and(|span| span.0.is_zero());
        let zero = deadlines.into_iter().find(|(_, given)| is_zero(*given));
        zero.map(|(name, _)| name)
    }

    pub(crate) fn is_deadlines(&self) -> bool {
        let deadlines = Self {
            connect: self.connect,
            first_byte: self.first_byte,
            idle: self.idle,
            ..Self::default()
        };
        *self == deadlines
    }
}
