//! `upstreams.*`, `routing.*`, `agents.*`: who can answer, and who does.

use std::path::PathBuf;

use metaclaw_chat::{Secret, Span};
use metaclaw_dialects::Api;
use serde::Deserialize;

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
    /// For either, where it has none.
    pub all: Option<Secret>,
    /// Hosts and networks that are reached without: `NO_PROXY`.
    pub no: String,
}

/// `upstreams.<name>`: a chat API that requests can go to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct UpstreamConfig {
    /// Its base address, with or without `/v1`, or with the whole route of its chats.
    pub url: String,
    /// How it wants its key, and what it speaks.
    pub dialect: Provider,
    /// The chat APIs that it speaks, where its dialect does not say it rightly.
    pub speaks: Option<Vec<Api>>,
    /// Its edition of Azure's API, as in `2024-10-21`.
    pub api_version: Option<String>,
    /// Its models write tool calls and thinking as text, to be put into the fields where they belong.
    pub tool_calls_in_text: bool,
    /// Its keys; without one, the caller's own authorisation passes.
    pub keys: Vec<Secret>,
    /// Model to ask for; without one, the caller's own name passes.
    pub model: Option<String>,
    /// Deadline of a connection.
    pub connect: Span,
    /// Deadline of the reply's first byte, from when the request has gone up; none by default, as models think.
    pub first_byte: Option<Span>,
    /// Longest silence inside a reply; none by default, for the same reason.
    pub idle: Option<Span>,
    /// How long an idle connection is kept: shorter than its server does, or a request meets one that is
    /// being closed. uvicorn and Node close theirs after 5 s.
    pub pool_idle: Span,
    /// The proxy on the way to it: `http://host:port`, `socks5://host:port`, either with a user and a
    /// password, or `none`; without one, that of the environment.
    pub proxy: Option<Secret>,
    /// A file of certificates that it is trusted by, beside those of this machine.
    pub ca: Option<PathBuf>,
}

/// `upstreams.<name>.dialect`: whose API an upstream has, or copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// OpenAI, and most others.
    #[default]
    Openai,
    Anthropic,
    /// Azure's edition of OpenAI.
    Azure,
    /// vLLM, which is asked for token ids.
    Vllm,
}

/// `routing.*`: who answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct RoutingConfig {
    /// Names of upstreams, the first that can answer does; [`POLICY`] is our own model.
    pub order: Vec<String>,
    /// Classes of failure upon which the next one is asked, before the first byte of a reply; none
    /// by default, as agents retry by themselves.
    pub fail_over: Vec<Failure>,
    /// What a client lost of its history and an upstream asks for is put back from the log, and what another upstream
    /// made is taken out, where a request would otherwise be refused.
    pub mend_history: bool,
}

/// `mode`, for all or for one agent. Here it decides who is served by the policy model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The weights learn while the user is away.
    #[default]
    #[serde(alias = "madmax")]
    Auto,
    /// The weights learn when a batch is ready.
    Rl,
    SkillsOnly,
}

/// `agents.<id>`: what is different for one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AgentOverrides {
    /// Its mode; without one, that of all.
    pub mode: Option<Mode>,
    /// Its upstreams, in order, in place of all others; [`POLICY`] may be among them.
    pub upstream: Vec<String>,
}

// === impl UpstreamConfig ===

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            dialect: Provider::default(),
            speaks: None,
            api_version: None,
            tool_calls_in_text: false,
            proxy: None,
            ca: None,
            keys: Vec::new(),
            model: None,
            connect: Span::secs(10),
            first_byte: None,
            idle: None,
            pool_idle: Span::secs(4),
        }
    }
}

impl UpstreamConfig {
    /// Whether it says no more than the deadlines.
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

// === impl RoutingConfig ===

impl Default for RoutingConfig {
    fn default() -> Self {
        Self {
            order: vec![POLICY.to_owned(), LLM.to_owned()],
            fail_over: Vec::new(),
            mend_history: true,
        }
    }
}
