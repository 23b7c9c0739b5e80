//! The proxy that agents are pointed at.

use anyhow::ensure;
use metaclaw_control::home::RunFile;
use metaclaw_settings::{Loaded, Policy};
use metaclaw_wiring::{Target, WiringError};

use crate::{
    commands::context::Context,
    wires::{target_of, wires_others},
};

pub(super) struct Goal {
    loaded: Loaded,
    policy: Policy,
    pub(super) running: Option<String>,
}

pub(super) fn with_hand(error: WiringError) -> anyhow::Error {
    let by_hand = match &error {
        WiringError::Layout { by_hand, .. } => Some(by_hand.clone()),
        _ => None,
    };
    match by_hand {
        Some(by_hand) => anyhow::anyhow!("{error}; by hand:\n{by_hand}"),
        None => error.into(),
    }
}

// === impl Goal ===

impl Goal {
    pub(super) fn load(context: &Context) -> anyhow::Result<Self> {
        let loaded = context.settings(None, Vec::new())?;
        let policy = Policy::from_config(&loaded.config, &context.environment.cache())?;
        let is_held = context.home.holder()?.is_some();
        let run: Option<RunFile> = if is_held {
            context.home.run_file()?
        } else {
            None
        };
        let running = run.map(|run| {
            run.base_url
                .trim_end_matches('/')
                .trim_end_matches("/v1")
                .to_owned()
        });
        Ok(Self {
            loaded,
            policy,
            running,
        })
    }

    pub(super) fn target(&self, agent: &str) -> Target {
        let config = &self.loaded.config;
        let target = target_of(agent, config, &self.policy, config.gateway.proxy.address());
        match &self.running {
            Some(origin) => Target {
                origin: origin.clone(),
                ..target
            },
            None => target,
        }
    }

    pub(super) fn check(&self, agent: &str) -> anyhow::Result<()> {
        let config = &self.loaded.config;
        ensure!(
            wires_others(config),
            "claw_type: none says that no agent is changed: set it to another value, or leave it out"
        );
        ensure!(
            self.policy.is_some() || config.has_upstream(),
            "nothing to relay yet: `metaclaw setup` asks whom MetaClaw asks"
        );
        let keys = &config.gateway.proxy.keys;
        let may_speak = keys
            .values()
            .any(|one| one.agents.iter().any(|own| own.as_str() == agent));
        ensure!(
            keys.is_empty() || may_speak || config.gateway.proxy.api_key.is_some(),
            "no key in proxy.keys may speak for {agent}: `metaclaw keys add {agent} --agent {agent}`"
        );
        Ok(())
    }
}
