//! All upstreams, and the order in which they are asked.

use std::{collections::BTreeMap, iter, sync::Arc};

use arc_swap::ArcSwap;
use metaclaw_chat::{AgentId, Mode};
use rustls::RootCertStore;

use super::policy::Policy;
use crate::{
    auth::Authenticator,
    config::{AgentRoutes, AgentRouting, ConfigError, GatewayConfig, POLICY},
    metrics::Answers,
    serving::Serving,
    upstream::{Upstream, UpstreamError},
};

/// Which upstreams answer which agent. Upstreams and agents can be added while it is in use.
#[derive(Debug)]
pub struct Upstreams {
    named: ArcSwap<NamedUpstreams>,
    policy: Policy,
    order: Vec<String>,
    agents: AgentRoutes,
    roots: Arc<RootCertStore>,
    mode: Mode,
    /// If it requires a key, callers send a key of this proxy, which is not meant for an upstream.
    authenticator: Arc<Authenticator>,
}

type NamedUpstreams = BTreeMap<String, Arc<Upstream>>;

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
        roots: &Arc<RootCertStore>,
        serving: Arc<Serving>,
        authenticator: Arc<Authenticator>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            named: ArcSwap::from_pointee(named(config, roots)?),
            policy: Policy::new(config, roots, serving)?,
            order: config.routing.order.clone(),
            agents: Arc::new(ArcSwap::from_pointee(config.agents.clone())),
            roots: Arc::clone(roots),
            mode: config.mode,
            authenticator,
        })
    }

    /// Takes the upstreams and the agents of changed settings. Later requests use them; all other settings stay.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if a start with these settings would be refused. In that case nothing has changed.
    pub fn reroute(&self, config: &GatewayConfig) -> Result<(), ConfigError> {
        config.check()?;
        // First, so that no agent is sent to an upstream that is not here yet.
        self.named.store(Arc::new(named(config, &self.roots)?));
        self.agents.store(Arc::new(config.agents.clone()));
        Ok(())
    }

    pub(crate) fn agents(&self) -> AgentRoutes {
        Arc::clone(&self.agents)
    }

    pub(super) fn passes_callers_keys(&self) -> bool {
        !self.authenticator.requires_key()
    }

    pub(crate) async fn watch_policy(&self) {
        self.policy.watch().await;
    }

    pub(crate) fn targets(&self, agent: &AgentId) -> Vec<Arc<Upstream>> {
        let (named, agents) = (self.named.load(), self.agents.load());
        let target = |name: &str| match name {
            POLICY => self.policy.upstream().map(Arc::new),
            name => named.get(name).cloned(),
        };
        self.order_of(agents.get(agent), &named)
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
        let known = self.agents.load();
        let agents = iter::once(&any).chain(known.keys());
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
        let (named, agents) = (self.named.load(), self.agents.load());
        self.order_of(agents.get(agent), &named).contains(&POLICY)
    }

    /// Returns the names of the upstreams for an agent's requests. Its own upstreams replace all others, so that its
    /// conversations never reach an upstream that its owner did not choose.
    fn order_of<'a>(
        &'a self,
        own: Option<&'a AgentRouting>,
        named: &NamedUpstreams,
    ) -> Vec<&'a str> {
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
        let has_others = names.iter().any(|name| named.contains_key(*name));
        if mode == Mode::SkillsOnly && has_others {
            names.retain(|name| *name != POLICY);
        }
        names
    }
}

fn named(config: &GatewayConfig, roots: &RootCertStore) -> Result<NamedUpstreams, ConfigError> {
    let mut named = BTreeMap::new();
    let (fail_over, environment) = (&config.routing.fail_over, &config.environment);
    for (name, own) in config.upstreams.iter().filter(|(name, _)| *name != POLICY) {
        let upstream = Upstream::new(name, own, fail_over, environment, roots)?
            .with_openrouter(&config.openrouter)
            .with_credentials(&config.aws);
        named.insert(name.clone(), Arc::new(upstream));
    }
    Ok(named)
}
