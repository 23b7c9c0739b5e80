//! The agent that may be pointed at the proxy: from when it listens until it ends.

use std::net::SocketAddr;

use metaclaw_control::home::Home;
use metaclaw_settings::{Config, Policy};
use metaclaw_wiring::{Outcome, Surroundings, Target, Wiring, detect};
use tracing::{info, warn};

pub(crate) use crate::wires::{surroundings, target};
use crate::{
    environment::Environment,
    wires::{WireLinks, origin},
};

#[derive(Debug)]
pub(crate) struct AgentLink {
    wiring: Wiring,
    surroundings: Surroundings,
    target: Target,
    is_wanted: bool,
    others: WireLinks,
}

#[derive(Debug)]
pub(crate) struct Pointed {
    /// A line for a person.
    pub said: String,
    pub asks_us: bool,
}

pub(crate) fn wiring(home: &Home) -> Wiring {
    Wiring::new(home.wiring())
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
            others: WireLinks::new(home, environment, config, policy, is_wanted),
        }
    }

    /// Points the agent at the proxy, if its owner said yes once; what to tell of it.
    pub(crate) fn point(&self, proxy: SocketAddr) -> Option<Pointed> {
        let target = Target {
            origin: origin(proxy),
            ..self.target.clone()
        };
        let pointed = match self.pointed(&target) {
            Ok(pointed) => pointed,
            Err(error) => Some(left_alone(not_pointed(&error))),
        };
        match (pointed, self.others.point(&target.origin)) {
            (Some(mut pointed), Some(others)) => {
                pointed.said = format!("{}\n            {others}", pointed.said);
                Some(pointed)
            }
            (pointed, others) => pointed.or_else(|| others.map(left_alone)),
        }
    }

    pub(crate) fn release(&self) {
        self.others.release();
        match self.wiring.unwire() {
            Ok(outcome) => {
                if let Some(said) = outcome_text(&outcome) {
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
            let Some(found) = detect(&self.surroundings)? else {
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
        let models = self.wiring.record()?.and_then(|known| known.models());
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

/// Logs why OpenClaw is not wired, and returns the message for its owner, with the manual steps if its layout is
/// unknown.
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

pub(crate) fn outcome_text(outcome: &Outcome) -> Option<&'static str> {
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
