//! All upstreams, and the order in which they are asked.

use std::{collections::BTreeMap, iter, sync::Arc};

use metaclaw_chat::{AgentId, Mode};
use rustls::RootCertStore;

use super::policy::Policy;
use crate::{
    auth::Authenticator,
    config::{AgentRouting, ConfigError, GatewayConfig, POLICY},
    metrics::Answers,
    serving::Serving,
    upstream::{Upstream, UpstreamError},
};

#[derive(Debug)]
pub(crate) struct Upstreams {
    named: BTreeMap<String, Arc<Upstream>>,
    policy: Policy,
    order: Vec<String>,
    agents: BTreeMap<AgentId, AgentRouting>,
    mode: Mode,
    /// If it requires a key, callers send a key of this proxy, which is not meant for an upstream.
    authenticator: Arc<Authenticator>,
}

#[derive(Debug)]
pub(crate) struct Candidates {
    pub upstreams: Vec<Arc<Upstream>>,
    /// The error if there is none.
    pub nobody: UpstreamError,
}

// === impl Candidates ===

impl Candidates {
    /// Keeps one model, so that one model earns the outcome: the policy model, or the first of the others.
    pub(crate) fn keep_one_model(&mut self, by_policy: bool) {
        if by_policy {
            self.upstreams.retain(|upstream| upstream.is_policy());
        } else {
            self.upstreams.truncate(1);
        }
    }
}

// === impl Upstreams ===

impl Upstreams {
    pub(crate) fn new(
        config: &GatewayConfig,
        roots: &RootCertStore,
        serving: Arc<Serving>,
        authenticator: Arc<Authenticator>,
    ) -> Result<Self, ConfigError> {
        let mut named = BTreeMap::new();
        let (fail_over, environment) = (&config.routing.fail_over, &config.environment);
        for (name, own) in config.upstreams.iter().filter(|(name, _)| *name != POLICY) {
            let upstream = Upstream::new(name, own, fail_over, environment, roots)?
                .with_openrouter(&config.openrouter)
                .with_credentials(&config.aws);
            named.insert(name.clone(), Arc::new(upstream));
        }
        Ok(Self {
            named,
            policy: Policy::new(config, roots, serving)?,
            order: config.routing.order.clone(),
            agents: config.agents.clone(),
            mode: config.mode,
            authenticator,
        })
    }

    pub(super) fn passes_callers_keys(&self) -> bool {
        !self.authenticator.requires_key()
    }

    pub(crate) async fn watch_policy(&self) {
        self.policy.watch().await;
    }

    pub(crate) fn targets(&self, agent: &AgentId) -> Vec<Arc<Upstream>> {
        let target = |name: &str| match name {
            POLICY => self.policy.upstream().map(Arc::new),
            name => self.named.get(name).cloned(),
        };
        self.order_of(agent)
            .into_iter()
            .filter_map(target)
            .collect()
    }

    /// Returns the upstreams that can answer this chat, in order. Some read only text, and `has_media` returns whether
    /// there is anything else.
    pub(crate) fn candidates(
        &self,
        agent: &AgentId,
        has_media: impl FnOnce() -> bool,
    ) -> Candidates {
        let mut upstreams = self.targets(agent);
        let mut nobody = self.nobody(agent);
        if self.has_policy(agent) && has_media() {
            upstreams.retain(|upstream| upstream.capabilities.reads_media);
            nobody = UpstreamError::TextOnly;
        }
        Candidates { upstreams, nobody }
    }

    /// Checks whether any upstream can answer the chats of any agent.
    ///
    /// # Errors
    /// Returns why none can.
    pub(crate) fn is_ready(&self, answers: &Answers) -> Result<(), String> {
        let any = AgentId::default_agent();
        let agents = iter::once(&any).chain(self.agents.keys());
        let mut unable = BTreeMap::new();
        for upstream in agents.flat_map(|agent| self.targets(agent)) {
            match answers.unable(&upstream.name) {
                None => return Ok(()),
                Some(why) => unable.insert(upstream.name.clone(), why),
            };
        }
        if unable.is_empty() {
            return Err(self.nobody(&any).to_string());
        }
        let unable = unable.iter().map(|(name, why)| format!("{name}: {why}"));
        Err(unable.collect::<Vec<_>>().join("; "))
    }

    pub(crate) fn nobody(&self, agent: &AgentId) -> UpstreamError {
        UpstreamError::nobody(self.has_policy(agent))
    }

    /// Returns whether our own policy model is among those that answer this agent, even if it is down.
    pub(crate) fn has_policy(&self, agent: &AgentId) -> bool {
        self.order_of(agent).contains(&POLICY)
    }

    /// Returns the names of the upstreams for an agent's requests. Its own upstreams replace all others, so that its
    /// conversations never reach an upstream that its owner did not choose.
    fn order_of(&self, agent: &AgentId) -> Vec<&str> {
        let own = self.agents.get(agent);
        let mode = own.and_then(|own| own.mode).unwrap_or(self.mode);
        let own = own.map_or(&[][..], |own| &own.upstream);
        let of_all = self.order.iter();
        let general = of_all.filter(|name| own.is_empty() || *name == POLICY);
        let mut names: Vec<&str> = general.map(String::as_str).collect();
        if own.iter().any(|name| name == POLICY) {
            names.clear();
        }
        names.extend(own.iter().map(String::as_str));
        // An agent that the policy model should not answer is answered by it if there is no other upstream.
        let has_others = names.iter().any(|name| self.named.contains_key(*name));
        if mode == Mode::SkillsOnly && has_others {
            names.retain(|name| *name != POLICY);
        }
        names
    }
}
