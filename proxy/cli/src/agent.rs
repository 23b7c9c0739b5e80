//! The agent that may be pointed at the proxy: from when it listens until it ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use metaclaw_control::home::Home;
use metaclaw_settings::{Config, Policy, address::user_folder};
use metaclaw_wiring::{Agent, DetectError, Found, Outcome, Surroundings, Target, Wiring, detect};
use tracing::{info, warn};

use crate::environment::Environment;

/// Whose key is taken where several callers have one.
const MAIN_AGENT: &str = "main";

/// What is needed to point an agent at us, and to put it back.
#[derive(Debug)]
pub(crate) struct AgentLink {
    wiring: Wiring,
    surroundings: Surroundings,
    target: Target,
    is_wanted: bool,
}

/// What became of the agent.
#[derive(Debug)]
pub(crate) struct Pointed {
    /// A line for a person.
    pub said: String,
    pub asks_us: bool,
}

/// What is known of agents that are pointed at the proxy of a home.
pub(crate) fn wiring(home: &Home) -> Wiring {
    Wiring::new(home.wiring())
}

/// Where agents are looked for.
pub(crate) fn surroundings(environment: &Environment) -> Surroundings {
    Surroundings {
        variables: environment.variables().to_vec(),
        home: user_folder(),
    }
}

/// The first agent that has a configuration.
pub(crate) fn find(surroundings: &Surroundings) -> Result<Option<Found>, DetectError> {
    for agent in Agent::ALL {
        if let Some(found) = detect(agent, surroundings)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The proxy as an agent reaches it.
pub(crate) fn target(config: &Config, policy: &Policy, proxy: SocketAddr) -> Target {
    let listen = &config.gateway.proxy;
    let mut keys = listen.keys.values();
    let is_main = |it: &&metaclaw_gateway::KeyConfig| {
        it.agents.iter().any(|agent| agent.as_str() == MAIN_AGENT)
    };
    let named = keys.clone().find(is_main).or_else(|| keys.next());
    let names_upstreams = config.llm.api_base.is_none() && !config.gateway.upstreams.is_empty();
    Target {
        origin: origin(proxy),
        key: (listen.api_key.clone()).or_else(|| named.map(|it| it.key.clone())),
        has_provider_key: config.llm.api_key.is_some() || policy.is_some() || names_upstreams,
        names_model: config.llm.model_id.is_some() || policy.is_some(),
    }
}

// === impl AgentLink ===

impl AgentLink {
    /// `is_wanted`: nothing was said against it (`--no-wire`, `claw_type: none`).
    pub(crate) fn new(
        home: &Home,
        environment: &Environment,
        config: &Config,
        policy: &Policy,
        is_wanted: bool,
    ) -> Self {
        Self {
            wiring: wiring(home),
            surroundings: surroundings(environment),
            target: target(config, policy, config.gateway.proxy.address()),
            is_wanted: is_wanted && config.wires_agent(),
        }
    }

    /// Points the agent at the proxy, if its owner said yes once; what to tell of it.
    pub(crate) fn point(&self, proxy: SocketAddr) -> Option<Pointed> {
        let target = Target {
            origin: origin(proxy),
            ..self.target.clone()
        };
        match self.pointed(&target) {
            Ok(pointed) => pointed,
            Err(error) => Some(left_alone(not_pointed(&error))),
        }
    }

    /// Puts back what was there, if anything was changed.
    pub(crate) fn release(&self) {
        match self.wiring.unwire() {
            Ok(outcome) => {
                if let Some(said) = told(&outcome) {
                    info!("OpenClaw: {said}");
                }
            }
            Err(error) => warn!(%error, "OpenClaw's file is not put back: `metaclaw doctor --fix`"),
        }
    }

    fn pointed(&self, target: &Target) -> anyhow::Result<Option<Pointed>> {
        let Some(record) = self.wiring.record()? else {
            return Ok(None);
        };
        if !(self.is_wanted && self.wiring.is_wired_to(target)?) {
            // What a crash left is put back first.
            self.wiring.unwire()?;
            if !self.is_wanted {
                return Ok(None);
            }
            let Some(found) = find(&self.surroundings)? else {
                return Ok(Some(left_alone("OpenClaw's file is gone".to_owned())));
            };
            if !record.is_of(&found) {
                return Ok(Some(left_alone(format!(
                    "OpenClaw asks {}/{} now, and is left alone: `metaclaw start --yes` relays that",
                    found.provider, found.model
                ))));
            }
            self.wiring.wire(&found, target)?;
        }
        let models = self.wiring.record()?.and_then(|it| it.models());
        Ok(models.map(|it| {
            info!(ours = it.ours, former = it.former, "OpenClaw asks us first");
            let said = format!(
                "OpenClaw asks {}, and {} where that fails; `metaclaw stop` puts its file back",
                it.ours, it.former
            );
            Pointed {
                said,
                asks_us: true,
            }
        }))
    }
}

fn left_alone(said: String) -> Pointed {
    let asks_us = false;
    Pointed { said, asks_us }
}

/// `http://` and the address at which this machine reaches us.
fn origin(proxy: SocketAddr) -> String {
    let ip = match proxy.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, proxy.port()))
}

/// What is said of an agent that is not pointed at us, with what to do by hand.
fn not_pointed(error: &anyhow::Error) -> String {
    let by_hand = match error.downcast_ref() {
        Some(metaclaw_wiring::WiringError::Layout { by_hand, .. }) => {
            let indented = by_hand.replace('\n', "\n            ");
            format!("; by hand:\n            {indented}")
        }
        _ => String::new(),
    };
    warn!(%error, "OpenClaw does not ask us");
    format!("OpenClaw does not ask us: {error}{by_hand}")
}

/// What became of the agent's file; nothing where nothing was done.
pub(crate) fn told(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Nothing => None,
        Outcome::Wired => Some("it asks MetaClaw first"),
        Outcome::Restored => Some("its file is byte for byte as it was"),
        Outcome::TakenBack => {
            Some("its file was written by others since: only MetaClaw's keys were taken out")
        }
        Outcome::Gone => Some("its file is gone, nothing to put back"),
    }
}
