//! Agents that `metaclaw wire` named. They use the proxy while it listens.

use std::net::SocketAddr;

use anyhow::{anyhow, ensure};
use metaclaw_control::home::{Home, origin};
use metaclaw_gateway::{AgentRouting, GatewayConfig, KeyConfig, LLM, UpstreamConfig};
use metaclaw_settings::{
    Config, Policy,
    address::{is_bedrock, user_folder},
};
use metaclaw_wiring::{
    AgentProfile, Models, OPENCLAW, PROFILES, Surroundings, Target, WayBack, Wires, WiringError,
    detect, profile,
};
use tracing::{info, warn};

use crate::environment::Environment;

/// The name that OpenClaw sends.
pub(crate) const MAIN_AGENT: &str = "main";
/// The name under which agents use the policy model, which answers to every name.
const POLICY: &str = "metaclaw";
/// The banner's lines about agents go on below their first one.
const INDENT: &str = "\n            ";

#[derive(Debug)]
pub(crate) struct WireLinks {
    wires: Wires,
    surroundings: Surroundings,
    /// The agents, each with the proxy as it reaches it. Empty at a start that changes no agent (`--no-wire`).
    targets: Vec<(&'static AgentProfile, Target)>,
}

/// What a start has to say of the agents.
#[derive(Debug)]
pub(crate) struct Pointed {
    pub said: String,
    /// The agents that use the proxy.
    pub asking: Vec<&'static AgentProfile>,
}

pub(crate) fn wires(home: &Home) -> Wires {
    Wires::new(home.wiring())
}

// === impl WireLinks ===

impl WireLinks {
    /// `is_wanted` is false with `--no-wire`.
    pub(crate) fn new(
        home: &Home,
        environment: &Environment,
        config: &Config,
        policy: &Policy,
        is_wanted: bool,
    ) -> Self {
        let is_meant = |agent: &&AgentProfile| match agent.id.as_str() {
            OPENCLAW => config.wires_agent(),
            _ => wires_others(config),
        };
        let agents = PROFILES.iter().filter(|agent| is_wanted && is_meant(agent));
        let proxy = config.gateway.proxy.address();
        let targets = agents.map(|agent| (agent, target_of(agent.caller(), config, policy, proxy)));
        Self {
            wires: wires(home),
            surroundings: surroundings(environment),
            targets: targets.collect(),
        }
    }

    /// Points the agents that their owner wired at the proxy, and restores the files of all others.
    pub(crate) fn point(&self, proxy: SocketAddr) -> Option<Pointed> {
        let mut lines = Vec::new();
        let (mut asking, mut others) = (Vec::new(), Vec::new());
        for (agent, target) in &self.targets {
            let target = Target {
                origin: origin(proxy),
                ..target.clone()
            };
            match self.pointed(agent, &target) {
                Ok(false) if self.surroundings.has(agent) => {
                    others.push(format!("{} (`metaclaw wire {}`)", agent.name, agent.id));
                }
                Ok(false) => {}
                Ok(true) => {
                    asking.push(*agent);
                    let alone = || format!("{} asks MetaClaw", agent.name);
                    let asks = order_text(&self.wires, agent).unwrap_or_else(alone);
                    lines.push(format!("{asks}; `metaclaw stop` puts its files back"));
                }
                Err(error) => {
                    warn!(agent = agent.id, %error, "an agent could not be pointed at the proxy");
                    let error = error.to_string().replace('\n', INDENT);
                    lines.push(format!("{} does not ask MetaClaw: {error}", agent.name));
                }
            }
        }
        lines.extend(self.release_others());
        if !others.is_empty() {
            lines.push(format!("found and not connected: {}", others.join(", ")));
        }
        let said = lines.join(INDENT);
        (!said.is_empty()).then_some(Pointed { said, asking })
    }

    pub(crate) fn release(&self) {
        match release(&self.wires) {
            Ok(lines) => lines.iter().for_each(|said| info!("{said}")),
            Err(error) => {
                warn!(%error, "an agent's files are not put back: `metaclaw doctor --fix`");
            }
        }
    }

    /// Restores the files of agents that are not to be wired now. Returns a line for each that an earlier release wired
    /// and this one does not support.
    fn release_others(&self) -> Vec<String> {
        let agents = self.wires.agents().unwrap_or_else(|error| {
            warn!(%error, "cannot list the records of wired agents");
            Vec::new()
        });
        let is_target = |id: &String| self.targets.iter().any(|(agent, _)| agent.id == *id);
        let lines = agents.iter().filter(|id| !is_target(id)).filter_map(|id| {
            let why = match self.wires.unwire(id) {
                Ok(_) => "it is no longer supported".to_owned(),
                Err(error) => {
                    warn!(agent = id, %error, "its files are not put back: `metaclaw doctor --fix`");
                    error.to_string()
                }
            };
            profile(id).is_none().then(|| format!(
                "{id} does not ask MetaClaw: {why}; `metaclaw wire --show {id}`, `metaclaw unwire {id}`"
            ))
        });
        lines.collect()
    }

    fn pointed(&self, agent: &AgentProfile, target: &Target) -> anyhow::Result<bool> {
        let Some(record) = self.wires.record(&agent.id)? else {
            return Ok(false);
        };
        if self.wires.is_wired_to(&agent.id, target)? {
            return Ok(true);
        }
        self.wires.unwire(&agent.id).map_err(with_hand)?;
        if agent.id == OPENCLAW
            && let Some(found) = detect(&self.surroundings)?
        {
            ensure!(
                record.is_of(&found),
                "its model has changed to {}/{}, so its files stay unchanged; run `metaclaw start --yes` to relay to that model",
                found.provider,
                found.model
            );
        }
        let wired = self.wires.wire(agent, &self.surroundings, target);
        wired.map_err(with_hand)?;
        info!(agent = agent.id, "an agent is pointed at the proxy");
        Ok(true)
    }
}

/// Returns which model the agent asks first and which next, if its own model stays the next one.
pub(crate) fn order_text(wires: &Wires, agent: &AgentProfile) -> Option<String> {
    let record = wires.record(&agent.id).ok()??;
    let Models { ours, former } = record.models()?;
    Some(format!(
        "{} asks {ours}, and {former} where that fails",
        agent.name
    ))
}

/// Adds to an error what to write by hand.
pub(crate) fn with_hand(error: WiringError) -> anyhow::Error {
    match &error {
        WiringError::Layout { by_hand, .. } => anyhow!("{error}; by hand:\n{by_hand}"),
        _ => error.into(),
    }
}

pub(crate) fn wires_others(config: &Config) -> bool {
    config.claw_type.as_deref() != Some("none")
}

/// Restores the files of all agents. Returns a line for each agent that was changed. An error is returned after all
/// agents were tried.
pub(crate) fn release(wires: &Wires) -> Result<Vec<String>, WiringError> {
    let mut lines = Vec::new();
    let mut failure = None;
    for agent in wires.agents()? {
        match wires.unwire(&agent) {
            Ok(back) => lines.extend(restored_text(&agent, &back)),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(lines), Err)
}

pub(crate) fn agent_name(agent: &str) -> &str {
    profile(agent).map_or(agent, |known| &known.name)
}

pub(crate) fn restored_text(agent: &str, back: &WayBack) -> Option<String> {
    let mut said = Vec::new();
    if !back.restored.is_empty() {
        said.push(format!(
            "{} as before, byte for byte",
            named(&back.restored)
        ));
    }
    if !back.taken_back.is_empty() {
        said.push(format!(
            "{} written by others since: only MetaClaw's keys were taken out",
            named(&back.taken_back)
        ));
    }
    if !back.left.is_empty() {
        let left = back.left.join(", ");
        said.push(format!(
            "{left}: changed by others since, and left as it is"
        ));
    }
    if !back.gone.is_empty() {
        said.push(format!("{} gone, nothing to put back", named(&back.gone)));
    }
    (!said.is_empty()).then(|| format!("{}: {}", agent_name(agent), said.join("; ")))
}

fn named(files: &[std::path::PathBuf]) -> String {
    let paths = files.iter().map(|file| file.display().to_string());
    let verb = if files.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", paths.collect::<Vec<_>>().join(", "))
}

pub(crate) fn surroundings(environment: &Environment) -> Surroundings {
    Surroundings {
        variables: environment.variables.clone(),
        home: environment.get("HOME").map_or_else(user_folder, Into::into),
    }
}

/// Returns the proxy as an agent of this name reaches it. If several callers have keys, it uses one that is valid for
/// this agent.
pub(crate) fn target_of(
    agent: &str,
    config: &Config,
    policy: &Policy,
    proxy: SocketAddr,
) -> Target {
    let listen = &config.gateway.proxy;
    let mut keys = listen.keys.values();
    let named = keys.clone().find(|key| may_speak(key, agent));
    let named = named.or_else(|| keys.next());
    let key = (listen.api_key.clone()).or_else(|| named.map(|named| named.key.clone()));
    let target = Target {
        origin: origin(proxy),
        key,
        has_provider_key: false,
        is_own: false,
        model: None,
        upstream: None,
        context_window: config.context_window.filter(|n| *n > 0),
    };
    if let Some((name, own)) = own_upstream(agent, &config.gateway) {
        return Target {
            has_provider_key: !own.keys.is_empty() || is_bedrock(&own.url),
            is_own: name == agent,
            model: own.model.clone(),
            upstream: Some(own.url.clone()),
            ..target
        };
    }
    let llm = &config.llm;
    let signs = llm.api_base.as_deref().is_some_and(is_bedrock);
    let names_upstreams = llm.api_base.is_none() && is_answered(agent, config, policy);
    Target {
        has_provider_key: llm.api_key.is_some() || policy.is_some() || names_upstreams || signs,
        model: (llm.model_id.clone()).or_else(|| policy.is_some().then(|| POLICY.to_owned())),
        upstream: llm.api_base.clone(),
        ..target
    }
}

pub(crate) fn may_speak(key: &KeyConfig, agent: &str) -> bool {
    key.agents.iter().any(|own| own.as_str() == agent)
}

/// Returns whether the settings name somebody who answers this agent.
pub(crate) fn is_answered(agent: &str, config: &Config, policy: &Policy) -> bool {
    policy.is_some() || addresses(agent, config).next().is_some()
}

/// Returns the addresses that this agent's chats may go to, in order, without that of a policy model.
pub(crate) fn addresses<'a>(agent: &str, config: &'a Config) -> impl Iterator<Item = &'a str> {
    let gateway = &config.gateway;
    let own = routing_of(agent, gateway).map(|own| &own.upstream);
    let names = own
        .filter(|own| !own.is_empty())
        .unwrap_or(&gateway.routing.order);
    names.iter().filter_map(|name| match name.as_str() {
        LLM => config.llm.api_base.as_deref(),
        name => gateway.upstreams.get(name)?.address(),
    })
}

pub(crate) fn routing_of<'a>(agent: &str, config: &'a GatewayConfig) -> Option<&'a AgentRouting> {
    let mut agents = config.agents.iter();
    agents.find(|(id, _)| id.as_str() == agent).map(|it| it.1)
}

/// Returns the upstream that answers this agent alone, with its name.
fn own_upstream<'a>(
    agent: &str,
    config: &'a GatewayConfig,
) -> Option<(&'a String, &'a UpstreamConfig)> {
    let named = routing_of(agent, config)?.upstream.first()?;
    let (name, own) = config.upstreams.get_key_value(named)?;
    own.address().map(|_| (name, own))
}
