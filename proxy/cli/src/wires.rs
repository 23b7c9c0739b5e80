//! Agents that `metaclaw wire` named. They use the proxy while it listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use metaclaw_control::home::Home;
use metaclaw_gateway::{GatewayConfig, UpstreamConfig};
use metaclaw_settings::{
    Config, Policy,
    address::{is_bedrock, user_folder},
};
use metaclaw_wiring::{
    AgentProfile, PROFILES, Surroundings, Target, WayBack, Wires, WiringError, profile,
};
use tracing::{info, warn};

use crate::environment::Environment;

/// The agent whose key OpenClaw sends, if several callers have keys.
const MAIN_AGENT: &str = "main";
/// The name under which agents use the policy model, which answers to every name.
const POLICY: &str = "metaclaw";

#[derive(Debug)]
pub(crate) struct WireLinks {
    wires: Wires,
    surroundings: Surroundings,
    /// The agents, each with the proxy as it reaches it. Empty at a start that changes no agent (`--no-wire`).
    targets: Vec<(&'static AgentProfile, Target)>,
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
        let is_wanted = is_wanted && wires_others(config);
        let targets = PROFILES.iter().filter(|_| is_wanted).map(|agent| {
            let target = target_of(&agent.id, config, policy, config.gateway.proxy.address());
            (agent, target)
        });
        Self {
            wires: wires(home),
            surroundings: surroundings(environment),
            targets: targets.collect(),
        }
    }

    pub(crate) fn point(&self, origin: &str) -> Option<String> {
        if self.targets.is_empty() {
            self.release();
        }
        let mut asking = Vec::new();
        let mut lines = Vec::new();
        for (agent, target) in &self.targets {
            let target = Target {
                origin: origin.to_owned(),
                ..target.clone()
            };
            match self.pointed(agent, &target) {
                Ok(true) => asking.push(agent.name.as_str()),
                Ok(false) => {}
                Err(error) => {
                    warn!(agent = agent.id, %error, "an agent could not be pointed at the proxy");
                    lines.push(format!("{} does not ask MetaClaw: {error}", agent.name));
                }
            }
        }
        lines.extend(self.unsupported());
        if !asking.is_empty() {
            let verb = if asking.len() == 1 { "asks" } else { "ask" };
            lines.push(format!(
                "{} {verb} MetaClaw; `metaclaw stop` puts the files back",
                asking.join(", ")
            ));
        }
        (!lines.is_empty()).then(|| lines.join("\n            "))
    }

    pub(crate) fn release(&self) {
        match release(&self.wires) {
            Ok(lines) => lines.iter().for_each(|said| info!("{said}")),
            Err(error) => {
                warn!(%error, "an agent's files are not put back: `metaclaw doctor --fix`");
            }
        }
    }

    /// Restores the files of agents that an earlier release wired and this one does not support. Returns a line for
    /// each.
    fn unsupported(&self) -> Vec<String> {
        let agents = self.wires.agents().unwrap_or_else(|error| {
            warn!(%error, "cannot list the records of wired agents");
            Vec::new()
        });
        let unknown = agents.iter().filter(|agent| profile(agent).is_none());
        let lines = unknown.map(|agent| {
            let why = match self.wires.unwire(agent) {
                Ok(_) => "it is no longer supported".to_owned(),
                Err(error) => error.to_string(),
            };
            format!(
                "{agent} does not ask MetaClaw: {why}; `metaclaw wire --show {agent}`, `metaclaw unwire {agent}`"
            )
        });
        lines.collect()
    }

    fn pointed(&self, agent: &AgentProfile, target: &Target) -> Result<bool, WiringError> {
        if self.wires.record(&agent.id)?.is_none() {
            return Ok(false);
        }
        if !self.wires.is_wired_to(&agent.id, target)? {
            self.wires.wire(agent, &self.surroundings, target)?;
            info!(agent = agent.id, "an agent is pointed at the proxy");
        }
        Ok(true)
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
        variables: environment.variables().to_vec(),
        home: user_folder(),
    }
}

pub(crate) fn target(config: &Config, policy: &Policy, proxy: SocketAddr) -> Target {
    target_of(MAIN_AGENT, config, policy, proxy)
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
    let may_speak =
        |one: &&metaclaw_gateway::KeyConfig| one.agents.iter().any(|own| own.as_str() == agent);
    let named = keys.clone().find(may_speak).or_else(|| keys.next());
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
    let names_upstreams = llm.api_base.is_none() && !config.gateway.upstreams.is_empty();
    Target {
        has_provider_key: llm.api_key.is_some() || policy.is_some() || names_upstreams || signs,
        model: (llm.model_id.clone()).or_else(|| policy.is_some().then(|| POLICY.to_owned())),
        upstream: llm.api_base.clone(),
        ..target
    }
}

/// Returns the upstream that answers this agent alone, with its name.
fn own_upstream<'a>(
    agent: &str,
    config: &'a GatewayConfig,
) -> Option<(&'a String, &'a UpstreamConfig)> {
    let mut agents = config.agents.iter();
    let (_, own) = agents.find(|(id, _)| id.as_str() == agent)?;
    let named = own.upstream.first()?;
    let (name, own) = config.upstreams.get_key_value(named)?;
    own.address().map(|_| (name, own))
}

pub(crate) fn origin(proxy: SocketAddr) -> String {
    let ip = match proxy.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, proxy.port()))
}
