//! The gateway's settings: `proxy.*`, `upstreams.*`, `openrouter.*`, `routing.*`, `agents.*`, `compat.*`, `serving.*`.

mod openrouter;
mod upstreams;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use metaclaw_aws::CredentialSource;
use metaclaw_chat::{AgentId, Mode, Secret, Size, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

pub(crate) use self::upstreams::AgentRoutes;
pub use self::{
    openrouter::{DataPolicy, OpenRouterConfig, OpenRouterRoute},
    upstreams::{
        AgentRouting, EnvironmentProxies, LLM, POLICY, Provider, RoutingConfig, UpstreamConfig,
    },
};

/// The lowest temperature above 0 that policy servers take.
const MIN_TEMPERATURE: f64 = 1e-3;

/// Settings of the gateway, read from the root of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GatewayConfig {
    pub proxy: ProxyConfig,
    /// The proxies of the environment. This is no setting.
    #[serde(skip)]
    pub environment: EnvironmentProxies,
    /// The source of AWS credentials, by the environment. This is no setting.
    #[serde(skip)]
    pub aws: CredentialSource,
    /// Model servers by name. The one that `llm.*` makes is called [`LLM`].
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    pub routing: RoutingConfig,
    /// The most tokens of a prompt, estimated at four bytes a token. The proxy drops the oldest messages of a longer
    /// one (docs/operating/upstreams.md). 0 never drops any.
    pub max_context_tokens: usize,
    pub openrouter: OpenRouterConfig,
    /// Whether the policy model answers an agent. The learner documents this key.
    #[schemars(skip)]
    pub mode: Mode,
    pub agents: BTreeMap<AgentId, AgentRouting>,
    pub compat: CompatConfig,
    pub serving: ServingConfig,
    pub privacy: PrivacyConfig,
    /// From `turns.durability: strict`: a stream ends for the agent only when the log has its turn.
    #[serde(skip)]
    pub strict: bool,
    /// From `turns.enabled: false`: replies are passed on without a copy.
    #[serde(skip)]
    pub unrecorded: bool,
}

/// `proxy.*`: the address for agents, and limits on requests and memory.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProxyConfig {
    /// The IP address that the proxy listens on. An address that other machines can reach needs proxy.api_key or
    /// proxy.keys.
    #[default(IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    /// The port that the proxy listens on. 0 takes a free port, which the banner shows.
    #[default(30_000)]
    pub port: u16,
    /// The key that callers of any agent must show. Without it, callers on this machine need no key.
    #[schemars(length(min = 1))]
    pub api_key: Option<Secret>,
    /// The largest request body that the proxy reads as a whole. Bodies that only pass through have no limit.
    #[default(Size::mib(32))]
    pub max_body: Size,
    /// Memory for all request bodies together. Beyond it, the proxy answers 503.
    #[default(Size::mib(256))]
    pub body_memory: Size,
    /// How many replies may run at once. Beyond it, the proxy answers 503.
    #[schemars(range(min = 1))]
    #[default(2_000)]
    pub max_streams: usize,
    /// Memory for all captured requests and replies together. Beyond it, a reply is relayed and MetaClaw does not
    /// learn from it.
    #[default(Size::mib(64))]
    pub capture_memory: Size,
    /// How long running replies may continue after the order to stop.
    #[default(Span::secs(30))]
    pub drain: Span,
    /// Web sites whose pages may call the proxy, as in `https://chat.example` or 'null'. Pages of this machine may
    /// always, and so may any page that shows a key.
    pub allow_origins: Vec<String>,
    /// Keys of single agents, by a name of the owner's choice.
    pub keys: BTreeMap<String, KeyConfig>,
}

/// `proxy.keys.<name>`: a key, and the agents that its holder may speak for.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct KeyConfig {
    /// A key that callers of some agents must show. `metaclaw keys add NAME` makes one.
    #[schemars(length(min = 1))]
    pub key: Secret,
    /// The agents that the holder of this key may speak for. The first one counts if a caller names none.
    #[schemars(length(min = 1))]
    pub agents: Vec<AgentId>,
}

/// `compat.*`: what counts as an errand of the client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CompatConfig {
    /// Follows the Python original's rule: a session header without a turn type means a side turn.
    pub session_implies_side: bool,
    /// Regular expressions for side turns. The proxy matches them against the last text of the user, in addition to
    /// the built-in ones.
    pub side_patterns: Vec<String>,
}

/// `serving.*`: how the policy model serves.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServingConfig {
    /// How long an idle session keeps its adapter and its lessons.
    #[default(Span::mins(10))]
    pub pin_idle: Span,
    /// The temperature of chats with the policy model that name none: 0, or 0.001 to 2. Without it, the server's
    /// default (0.7 at our trainer). Verdicts train only on replies sampled at 0.3 to 1.2.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// The top_p of chats with the policy model that name none. Without it, the server's default (1 at our trainer).
    /// Verdicts do not train on replies sampled below 1.
    #[schemars(range(min = 0.001, max = 1.0))]
    pub top_p: Option<f64>,
}

const PHRASES: &str = include_str!("../data/off_record.txt");

/// `privacy.*`.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PrivacyConfig {
    /// Phrases by which the owner puts a session off the record. From such a phrase on, nothing of the session is
    /// kept. The header X-MetaClaw-Learn: no does the same.
    #[default(PHRASES.lines().map(str::to_owned).collect())]
    pub phrases: Vec<String>,
}

/// Why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The proxy could be used from other machines without a key.
    #[error(
        "proxy.host {host} can be reached from other machines and no key is set: set proxy.api_key, make one with `metaclaw keys add`, or set proxy.host to 127.0.0.1"
    )]
    OpenToAll { host: IpAddr },
    /// A key has no agents.
    #[error("proxy.keys.{name}.agents is empty: name the agents that this key may speak for")]
    NoAgents { name: String },
    /// Two settings have the same key.
    #[error("proxy.keys.{name}.key is {other} as well: each must be another")]
    SameKey {
        name: String,
        /// The other setting with this key.
        other: String,
    },
    /// A body of the largest allowed length would never fit.
    #[error(
        "proxy.body_memory {memory} is less than proxy.max_body {max_body}: it must hold at least one"
    )]
    BodyMemory {
        /// `proxy.body_memory`.
        memory: Size,
        /// `proxy.max_body`.
        max_body: Size,
    },
    /// A setting has a value that is not allowed.
    #[error("{key}: {reason}")]
    Invalid {
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting names an upstream that does not exist.
    #[error("{key}: {name:?} is no upstream; the upstreams are {known}")]
    UnknownUpstream {
        /// The key that names it.
        key: String,
        name: String,
        /// The names that there are.
        known: String,
    },
    /// An upstream has the name of our own model.
    #[error(
        "upstreams.policy: this name stands for the policy model, of which only the deadlines connect, first_byte and idle can be set; choose another"
    )]
    ReservedName,
    /// The address or the kind of a proxy is unknown.
    #[error(
        "upstreams.{name}: {given} is no proxy that can be used: http://host:port, socks5://host:port, or none (upstreams.{name}.proxy, else the environment's)"
    )]
    Proxy {
        name: String,
        /// What was given, without a password.
        given: String,
    },
    /// A text is not an origin.
    #[error(
        "proxy.allow_origins: {given:?} is no origin: it must be as in https://chat.example or http://host:8080, or \"null\" or file://"
    )]
    Origin { given: String },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {reason}")]
    Tls { reason: String },
}

// === impl ConfigError ===

impl ConfigError {
    pub(crate) fn invalid(key: impl Into<String>, reason: &impl ToString) -> Self {
        let (key, reason) = (key.into(), reason.to_string());
        Self::Invalid { key, reason }
    }
}

// === impl GatewayConfig ===

impl GatewayConfig {
    /// Checks values that depend on each other, and values that their types cannot exclude.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]; addresses and patterns are checked where they are read, in [`crate::Gateway::new`].
    pub fn check(&self) -> Result<(), ConfigError> {
        self.proxy.check()?;
        self.serving.check()?;
        for (name, upstream) in &self.upstreams {
            if let Some(field) = upstream.zero_deadline() {
                let reason = "0 is not allowed, because nothing would be in time: give a longer time, or leave it out";
                let key = format!("upstreams.{name}.{field}");
                return Err(ConfigError::invalid(key, &reason));
            }
        }
        let policy = self.upstreams.get(POLICY);
        if policy.is_some_and(|policy| !policy.is_deadlines()) {
            return Err(ConfigError::ReservedName);
        }
        self.check_names("routing.order".to_owned(), &self.routing.order)?;
        let mut agents = self.agents.iter();
        agents.try_for_each(|(id, agent)| {
            self.check_names(format!("agents.{id}.upstream"), &agent.upstream)
        })
    }

    fn check_names(&self, key: String, names: &[String]) -> Result<(), ConfigError> {
        let is_known = |name: &&String| *name == POLICY || self.upstreams.contains_key(*name);
        // `llm` is in the default order, whether or not it was configured.
        let unknown = |name: &&String| !is_known(name) && *name != LLM;
        let Some(name) = names.iter().find(unknown).cloned() else {
            return Ok(());
        };
        let others = self.upstreams.keys().map(String::as_str);
        let others = others.filter(|name| *name != LLM);
        let all: Vec<&str> = [POLICY, LLM].into_iter().chain(others).collect();
        let known = all.join(", ");
        Err(ConfigError::UnknownUpstream { key, name, known })
    }
}

// === impl ProxyConfig ===

impl ProxyConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !self.host.is_loopback() && !self.requires_key() {
            return Err(ConfigError::OpenToAll { host: self.host });
        }
        let (memory, max_body) = (self.body_memory, self.max_body);
        if memory.0 < max_body.0 {
            return Err(ConfigError::BodyMemory { memory, max_body });
        }
        self.check_keys()
    }

    /// Checks that each key has agents, and that no two settings have the same key.
    fn check_keys(&self) -> Result<(), ConfigError> {
        let of_all = self.api_key.iter();
        let of_all = of_all.map(|key| ("proxy.api_key".to_owned(), key));
        let mut seen: Vec<(String, &Secret)> = of_all.collect();
        for (name, KeyConfig { key, agents }) in &self.keys {
            let name = name.clone();
            if agents.is_empty() {
                return Err(ConfigError::NoAgents { name });
            }
            if let Some((other, _)) = seen.iter().find(|(_, other)| *other == key) {
                let other = other.clone();
                return Err(ConfigError::SameKey { name, other });
            }
            seen.push((format!("proxy.keys.{name}.key"), key));
        }
        Ok(())
    }

    /// Returns whether callers must show a key.
    pub fn requires_key(&self) -> bool {
        self.api_key.is_some() || !self.keys.is_empty()
    }

    /// Returns the address and port to listen on.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }
}

// === impl ServingConfig ===

impl ServingConfig {
    /// Returns the sampling parameters for chats with the policy model that do not set them.
    pub(crate) fn sampling(&self) -> Vec<(&'static str, f64)> {
        let fields = [("temperature", self.temperature), ("top_p", self.top_p)];
        let set = |(name, value): (_, Option<f64>)| Some((name, value?));
        fields.into_iter().filter_map(set).collect()
    }

    /// Checks the temperature, because the server would refuse every chat that does not set its own.
    fn check(&self) -> Result<(), ConfigError> {
        match self.temperature {
            Some(given) if given > 0.0 && given < MIN_TEMPERATURE => {
                let reason = format!(
                    "{given} is not allowed: 0 takes the likeliest token, else from {MIN_TEMPERATURE} to 2"
                );
                Err(ConfigError::invalid("serving.temperature", &reason))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: &str) -> String {
        let config: GatewayConfig = serde_json::from_str(config).unwrap();
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn an_empty_section_is_the_defaults_and_they_are_fine() {
        let config: GatewayConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(config, GatewayConfig::default());
        config.check().unwrap();
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_words() {
        insta::assert_snapshot!(refused(r#"{"proxy":{"host":"0.0.0.0"}}"#), @"proxy.host 0.0.0.0 can be reached from other machines and no key is set: set proxy.api_key, make one with `metaclaw keys add`, or set proxy.host to 127.0.0.1");
        insta::assert_snapshot!(refused(r#"{"proxy":{"body_memory":"16 MiB"}}"#), @"proxy.body_memory 16 MiB is less than proxy.max_body 32 MiB: it must hold at least one");
        insta::assert_snapshot!(refused(r#"{"proxy":{"keys":{"phone":{"key":"k","agents":[]}}}}"#), @"proxy.keys.phone.agents is empty: name the agents that this key may speak for");
        insta::assert_snapshot!(refused(r#"{"proxy":{"api_key":"k","keys":{"phone":{"key":"k","agents":["main"]}}}}"#), @"proxy.keys.phone.key is proxy.api_key as well: each must be another");
        insta::assert_snapshot!(refused(r#"{"proxy":{"keys":{"a":{"key":"k","agents":["a"]},"b":{"key":"k","agents":["b"]}}}}"#), @"proxy.keys.b.key is proxy.keys.a.key as well: each must be another");
        insta::assert_snapshot!(refused(r#"{"routing":{"order":["polcy"]},"upstreams":{"mine":{"url":"x"}}}"#), @r#"routing.order: "polcy" is no upstream; the upstreams are policy, llm, mine"#);
        insta::assert_snapshot!(refused(r#"{"agents":{"work":{"upstream":["yours"]}},"upstreams":{"mine":{"url":"x"}}}"#), @r#"agents.work.upstream: "yours" is no upstream; the upstreams are policy, llm, mine"#);
        insta::assert_snapshot!(refused(r#"{"upstreams":{"policy":{"connect":"0 s"}}}"#), @"upstreams.policy.connect: 0 is not allowed, because nothing would be in time: give a longer time, or leave it out");
        insta::assert_snapshot!(refused(r#"{"upstreams":{"mine":{"url":"x","idle":"0 ms"}}}"#), @"upstreams.mine.idle: 0 is not allowed, because nothing would be in time: give a longer time, or leave it out");
        insta::assert_snapshot!(refused(r#"{"serving":{"temperature":0.0005}}"#), @"serving.temperature: 0.0005 is not allowed: 0 takes the likeliest token, else from 0.001 to 2");
        insta::assert_snapshot!(refused(r#"{"upstreams":{"policy":{"url":"x"}}}"#), @"upstreams.policy: this name stands for the policy model, of which only the deadlines connect, first_byte and idle can be set; choose another");
    }

    #[test]
    fn keys_are_never_shown_in_full() {
        let config: GatewayConfig =
            serde_json::from_str(r#"{"proxy":{"api_key":"sk-0123456789abcd"}}"#).unwrap();
        let shown = format!("{config:?}");
        assert!(shown.contains("sk-…abcd"), "{shown}");
        assert!(!shown.contains("0123456789"), "{shown}");
    }
}
