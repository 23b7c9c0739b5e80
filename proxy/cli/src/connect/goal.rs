//! The proxy that agents are pointed at, and who answers each of them there.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use http::Uri;
use metaclaw_chat::{Mode, Secret};
use metaclaw_control::home::RunFile;
use metaclaw_gateway::AgentRouting;
use metaclaw_settings::{
    Loaded, Origin, Policy,
    address::{host, is_here},
    edit,
};
use metaclaw_wiring::{AgentProfile, Api, AskedToday, Found, Target};

use crate::{
    commands::{
        context::Context,
        setup::answers::{MODE, SetupAnswers},
    },
    wires::{addresses, is_answered, may_speak, routing_of, target_of, wires_others},
};

#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) context: Context,
    pub(crate) file: PathBuf,
    pub(crate) loaded: Loaded,
    pub(crate) policy: Policy,
    /// The origin of the proxy, if it runs.
    pub(crate) running: Option<String>,
}

/// Returns a model and an address, in words.
pub(crate) fn asks_text(model: Option<&str>, url: &str) -> String {
    format!("{} at {}", model.unwrap_or("its own model"), host(url))
}

// === impl Goal ===

impl Goal {
    pub(crate) fn load(context: &Context) -> anyhow::Result<Self> {
        let is_held = context.home.holder()?.is_some();
        let run: Option<RunFile> = if is_held {
            context.home.run_file()?
        } else {
            None
        };
        let origin = run.map(|run| run.origin().to_owned());
        Self::of_file(context, context.settings_file(), origin)
    }

    pub(crate) fn of_file(
        context: &Context,
        file: PathBuf,
        running: Option<String>,
    ) -> anyhow::Result<Self> {
        let loaded = context.settings_of(file.clone())?;
        let policy = Policy::from_config(&loaded.config, &context.environment.cache())?;
        let context = context.clone();
        Ok(Self {
            context,
            file,
            loaded,
            policy,
            running,
        })
    }

    pub(crate) fn target(&self, agent: &str) -> Target {
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

    /// Returns the proxy as the agent reaches it if the proxy relays to the agent's own provider.
    pub(crate) fn own_target(&self, agent: &str, asks: &AskedToday) -> Target {
        Target {
            has_provider_key: asks.key.is_some() && !asks.sends_login,
            is_own: true,
            model: None,
            upstream: Some(asks.url.clone()),
            ..self.target(agent)
        }
    }

    pub(crate) fn check(&self, agent: &str) -> anyhow::Result<()> {
        let config = &self.loaded.config;
        ensure!(
            wires_others(config),
            "claw_type: none says that no agent is changed: set it to another value, or leave it out"
        );
        ensure!(
            is_answered(agent, config, &self.policy),
            "nothing to relay yet: `metaclaw setup` asks whom MetaClaw asks"
        );
        let keys = &config.gateway.proxy.keys;
        let has_key = keys.values().any(|key| may_speak(key, agent));
        ensure!(
            keys.is_empty() || has_key || config.gateway.proxy.api_key.is_some(),
            "no key in proxy.keys may speak for {agent}: `metaclaw keys add {agent} --agent {agent}`"
        );
        Ok(())
    }

    fn routing(&self, agent: &str) -> Option<&AgentRouting> {
        routing_of(agent, &self.loaded.config.gateway)
    }

    /// Returns whether the owner's settings name other upstreams for the agent. Then nothing is asked or changed.
    pub(crate) fn is_settled(&self, agent: &AgentProfile) -> bool {
        let own = self.routing(agent.caller());
        let own = own.map_or(&[][..], |own| &own.upstream);
        own.iter().any(|name| *name != agent.id)
    }

    /// Returns who would answer the agent by the settings, if that is not what it asks today.
    pub(crate) fn other_answer(&self, agent: &AgentProfile, asks: &AskedToday) -> Option<String> {
        let config = &self.loaded.config;
        let own = self.routing(agent.caller());
        let mode = own.and_then(|own| own.mode).unwrap_or(config.learner.mode);
        if self.policy.is_some() && mode != Mode::SkillsOnly {
            return Some("the model that MetaClaw trains".to_owned());
        }
        if own.is_some_and(|own| own.upstream.contains(&agent.id)) {
            return None;
        }
        let Target {
            has_provider_key,
            model,
            ..
        } = self.target(agent.caller());
        let url = addresses(agent.caller(), config).next()?;
        let is_same = host(url) == host(&asks.url) && model.is_none() && !has_provider_key;
        let model = model.unwrap_or_else(|| "the model that it names".to_owned());
        (!is_same).then(|| format!("{model} at {}", host(url)))
    }

    /// Checks that the proxy can relay to what the agent asks.
    pub(crate) fn check_address(
        &self,
        agent: &AgentProfile,
        asks: &AskedToday,
    ) -> anyhow::Result<()> {
        let (name, place) = (&agent.name, host(&asks.url));
        let url: Uri = (asks.url.parse().ok())
            .filter(|url: &Uri| url.query().is_none() && !asks.url.contains('@'))
            .with_context(|| format!("the settings of {name} have an address at {place} that MetaClaw cannot use. Set one like https://api.openai.com/v1, without a query or a password. Nothing was changed"))?;
        let ours: Uri = self.target(agent.caller()).origin.parse()?;
        let is_ours =
            url.port_u16() == ours.port_u16() && (is_here(&asks.url) || url.host() == ours.host());
        ensure!(
            !is_ours,
            "{name} asks MetaClaw itself ({place}). MetaClaw did not write that address, so it does not know the provider of {name}. Replace the address in the settings of {name} by its provider's, or remove it, and wire {name} again"
        );
        Ok(())
    }

    /// Writes into the settings that the agent's own provider answers it.
    pub(crate) fn keep(&mut self, agent: &AgentProfile, asks: &AskedToday) -> anyhow::Result<()> {
        let (name, upstream, caller) = (&agent.name, &agent.id, agent.caller());
        let needs_key = self.loaded.config.gateway.proxy.requires_key();
        if asks.sends_login && needs_key {
            bail!(
                "{name} cannot keep its own login: callers must show a key of MetaClaw's (proxy.api_key, proxy.keys), and what they show is not passed on. With --replace-model, MetaClaw's model answers"
            );
        }
        if !asks.sends_login && asks.key.is_none() && !is_here(&asks.url) {
            bail!(
                "{name} cannot keep its own model: its key for {} stands in none of the files that MetaClaw reads. `metaclaw setup` asks for it",
                host(&asks.url)
            );
        }
        let key = asks.key.as_ref().filter(|_| !asks.sends_login);
        let keys = key.map(|key| serde_json::to_string(&[Secret::expose(key)]));
        let dialect = (asks.api == Api::AnthropicMessages).then(|| "anthropic".to_owned());
        let of_upstream = |field: &str| format!("upstreams.{upstream}.{field}");
        let mut changes = vec![
            (of_upstream("url"), Some(asks.url.clone())),
            (of_upstream("dialect"), dialect),
            (of_upstream("keys"), keys.transpose()?),
            (format!("agents.{caller}.upstream"), Some(upstream.clone())),
        ];
        if self.policy.is_some() {
            let mode = Mode::SkillsOnly.as_str().to_owned();
            changes.push((format!("agents.{caller}.mode"), Some(mode)));
        }
        self.write(changes)
    }

    /// Writes what OpenClaw asks as `llm.*`, which answers every agent that has no upstream of its own, and learns.
    pub(crate) fn adopt(&mut self, found: &Found) -> anyhow::Result<()> {
        let changes = SetupAnswers::of_agent(&self.loaded, found).changes();
        self.write(changes)
    }

    /// Takes out of the settings that the agent's own provider answers it.
    pub(crate) fn replace(&mut self, agent: &AgentProfile) -> anyhow::Result<()> {
        self.reload()?;
        let own = self.routing(agent.caller());
        if own.is_some_and(|own| own.upstream == [agent.id.as_str()]) {
            edit::unset_in_file(&self.file, &format!("agents.{}.upstream", agent.caller()))?;
            self.reload()?;
        }
        Ok(())
    }

    fn write(&mut self, mut changes: Vec<(String, Option<String>)>) -> anyhow::Result<()> {
        let is_there = |key: &str| matches!(self.loaded.origin(key), Some(Origin::File(_)));
        changes.retain(|(key, value)| value.is_some() || is_there(key));
        self.context.home.create()?;
        // Without a model to train, nothing else is done in another mode.
        if self.loaded.origin(MODE).is_none() && !self.policy.is_some() {
            changes.insert(
                0,
                (MODE.to_owned(), Some(Mode::SkillsOnly.as_str().to_owned())),
            );
        }
        edit::answer_in_file(&self.file, &changes)?;
        self.reload()
    }

    fn reload(&mut self) -> anyhow::Result<()> {
        let running = self.running.take();
        *self = Self::of_file(&self.context, self.file.clone(), running)?;
        Ok(())
    }
}
