//! What a person is told at the start: where, what serves, what learns, what leaves the machine.

use std::{collections::BTreeMap, net::SocketAddr};

use metaclaw_chat::{AgentId, Mode};
use metaclaw_control::{home::origin, privacy, status::RunSummary};
use metaclaw_gateway::{LLM, POLICY, RelayOnly};
use metaclaw_settings::{
    Config, InertUse, Loaded, Policy,
    address::{host, is_bedrock, is_here},
};
use metaclaw_wiring::{OPENCLAW, remembering};

use self::egress::egress;
use crate::{
    asked::{Judging, judges_complaints},
    wires::{Pointed, is_answered},
};

mod egress;

/// More keys than this of one section are not named one by one.
const MANY: usize = 3;
/// What needs no weights: wishes stand at once, and what a model writes as a skill waits for its owner.
const BY_HAND: &str =
    "wishes from what you say, and skills that you write or accept, from the next session on";
const SKILLS_BY_HAND: &str = "skills that you write or accept, from the next session on";

/// What a start prints. All but the address and the agent is known before anything starts.
#[derive(Debug)]
pub(crate) struct Banner<'a> {
    pub loaded: &'a Loaded,
    pub policy: &'a Policy,
    pub about: &'a RunSummary,
    /// Where the settings came from.
    pub sources: &'a str,
    /// Who is only relayed.
    pub off: &'a RelayOnly,
    /// Where the proxy listens.
    pub proxy: SocketAddr,
    /// What became of the agent's own configuration; none where it is nobody's business.
    pub agent: Option<&'a Pointed>,
}

/// Returns which model serves, what learns, and which data leaves the machine. `chats` are the settings that route
/// chats, and `learning` those that learning uses.
///
/// # Errors
/// If a judge is configured that lacks what it needs.
pub(crate) fn about(
    chats: &Config,
    learning: &Config,
    policy: &Policy,
) -> anyhow::Result<RunSummary> {
    let judging = Judging::from_config(learning, policy)?;
    Ok(RunSummary {
        mode: learning.learner.mode.as_str().to_owned(),
        serves: serves(chats, policy),
        learns: learns(learning, policy, &judging),
        leaves: egress(chats, learning, policy, &judging),
        judges_complaints: judges_complaints(learning, policy),
        places: places(chats, policy),
    })
}

/// Returns where each upstream is.
fn places(config: &Config, policy: &Policy) -> BTreeMap<String, String> {
    let llm = config.llm.api_base.as_deref().map(|url| (LLM, url));
    // What is not elsewhere is here.
    let policy = policy.is_some().then(|| policy.elsewhere());
    let policy = policy.map(|url| (POLICY, url.unwrap_or("http://127.0.0.1")));
    let named = config.gateway.upstreams.iter();
    let named = named.filter_map(|(name, own)| Some((name.as_str(), own.address()?)));
    let place = |(name, url): (&str, &str)| {
        let place = if is_here(url) {
            "this machine"
        } else {
            host(url)
        };
        (name.to_owned(), place.to_owned())
    };
    named.chain(llm).chain(policy).map(place).collect()
}

fn serves(config: &Config, policy: &Policy) -> String {
    let first = match policy {
        Policy::Local { model } => {
            let name = model.file_name().unwrap_or(model.as_os_str());
            format!("{} on the local trainer", name.to_string_lossy())
        }
        Policy::Remote { url, .. } => format!("the training server at {}", host(url)),
        Policy::Cloud(cloud) if policy.may_train(config) => {
            let service = match cloud.service {
                service if service.is_at(&cloud.url) => service.name().to_owned(),
                service => format!("a server with {}'s API", service.name()),
            };
            format!("{} at {} ({service})", cloud.model, host(&cloud.url))
        }
        Policy::Cloud(cloud) => {
            let answers = upstreams(config, true).unwrap_or_else(|| {
                "nothing yet: `metaclaw setup` asks for a provider, or allow the training server (metaclaw config privacy.cloud_training_ok true)"
                    .to_owned()
            });
            return format!(
                "{answers}; {} at {} is sent nothing and does not answer (privacy.cloud_training_ok is not true)",
                cloud.model,
                host(&cloud.url)
            );
        }
        Policy::None => {
            return upstreams(config, true).unwrap_or_else(|| {
                "nothing yet: `metaclaw setup` asks for a provider, or for a model of your own"
                    .to_owned()
            });
        }
    };
    match upstreams(config, false) {
        Some(own) => format!("{first}, {own}"),
        None => first,
    }
}

/// Returns the upstreams of single agents, and those that answer all others if `of_all`.
fn upstreams(config: &Config, of_all: bool) -> Option<String> {
    let (llm, gateway) = (&config.llm, &config.gateway);
    let mut places = Vec::new();
    if let Some(url) = llm.api_base.as_ref().filter(|_| of_all) {
        let model = llm.model_id.as_deref();
        let named = model.unwrap_or("the model that your agent asks for");
        places.push(format!("{named} at {}", host(url)));
    }
    let own = gateway.agents.values().flat_map(|agent| &agent.upstream);
    let is_asked = |name: &String| {
        own.clone().any(|one| one == name) || of_all && gateway.routing.order.contains(name)
    };
    for (name, upstream) in &gateway.upstreams {
        if let Some(url) = upstream.address().filter(|_| is_asked(name)) {
            places.push(format!("{name} at {}", host(url)));
        }
    }
    (!places.is_empty()).then(|| places.join(", "))
}

const JUDGES_ITSELF: &str = "; the model judges its own replies, because no other judge is named (small models judge badly: llm.* with a key, or judge.*, names a better one)";
const NOT_JUDGED: &str = "; BUT NOTHING IS JUDGED, and only judged turns train: set judge.kind to base (the model judges its own replies), or llm.* with a key, whose model judges then (docs/training/judging.md)";

fn learns(config: &Config, policy: &Policy, judging: &Judging) -> String {
    let by_hand = if config.wishes.enabled {
        BY_HAND
    } else {
        SKILLS_BY_HAND
    };
    if !config.turns.enabled {
        return format!("nothing: turns are not kept (turns.enabled); {by_hand}");
    }
    let by_hand = format!("{by_hand}; {}", facts(config));
    format!("{by_hand}; {}", weights(config, policy, judging))
}

/// Returns for which agents facts are remembered.
fn facts(config: &Config) -> String {
    match config.memory.enabled {
        Some(true) => "facts that you tell, for every agent (memory.enabled)".to_owned(),
        Some(false) => "no facts (memory.enabled)".to_owned(),
        None => {
            let hosts: Vec<String> = remembering().map(|agent| agent.to_string()).collect();
            let hosts = hosts.join(", ");
            format!("facts that you tell, except to agents with a memory of their own ({hosts})")
        }
    }
}

fn weights(config: &Config, policy: &Policy, judging: &Judging) -> String {
    if !policy.may_train(config) {
        return "no weights (privacy.cloud_training_ok is not true)".to_owned();
    }
    let (mode, rl) = (config.learner.mode, &config.learner.rl);
    let (method, is_gated) = (&rl.method, config.learner.gate.enabled);
    let tested = if is_gated {
        ", and they serve once they pass the gate"
    } else {
        "; NOTHING TESTS THEM before they serve (gate.enabled is false)"
    };
    let has_rules = !config.learner.judge.rules.is_empty();
    let judged = match judging {
        Judging::Rules if !has_rules => NOT_JUDGED,
        Judging::Base if config.learner.judge.kind.is_none() => JUDGES_ITSELF,
        _ => "",
    };
    let is_asked_for = rl.manual_train_trigger || mode == Mode::Auto && !is_gated;
    match (mode, policy.is_some()) {
        (Mode::Rl | Mode::Auto, true) if is_asked_for => {
            format!("weights only when asked (`metaclaw train-step`, by {method}){tested}{judged}")
        }
        (Mode::Rl, true) => {
            format!("weights by {method}, whenever a batch is ready{tested}{judged}")
        }
        (Mode::Auto, true) => format!("weights by {method}, while you are away{tested}{judged}"),
        (Mode::SkillsOnly, true) if config.has_mode(Mode::Auto) || config.has_mode(Mode::Rl) => {
            format!("weights by {method}, of agents that have a mode of their own{tested}{judged}")
        }
        (Mode::SkillsOnly, _) => "no weights (mode skills_only)".to_owned(),
        (Mode::Auto | Mode::Rl, false) => {
            "no weights (trainer.model names no model to train)".to_owned()
        }
    }
}

fn together(keys: &[&str]) -> Vec<String> {
    let section = |key: &str| key.split_once('.').map(|(section, _)| section.to_owned());
    let mut names: Vec<String> = Vec::new();
    for key in keys {
        let alike = keys.iter().filter(|other| section(other) == section(key));
        let name = match (section(key), alike.count()) {
            (Some(section), n) if n > MANY => format!("{section}.* ({n} keys)"),
            _ => (*key).to_owned(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

// === impl Banner ===

impl Banner<'_> {
    pub(crate) fn text(&self) -> String {
        let RunSummary {
            mode,
            serves,
            learns,
            leaves,
            ..
        } = self.about;
        let mut lines = vec![
            format!("MetaClaw {} listens", env!("CARGO_PKG_VERSION")),
            format!("  base URL  {}/v1", origin(self.proxy)),
            format!("  settings  {} (mode {mode})", self.sources),
            format!("  serves    {serves}"),
            format!("  learns    {learns}"),
            format!("  leaves    {}", leaves.replace('\n', "\n            ")),
        ];
        lines.extend(
            self.agent
                .map(|agent| format!("  agent     {}", agent.said)),
        );
        lines.extend(privacy::off_text(self.off).map(|off| format!("  off       {off}")));
        lines.extend(self.without_effect());
        lines.push("  page      metaclaw ui  (opens it in your browser)".to_owned());
        lines.push(format!("  try       {}", self.try_line()));
        lines.join("\n")
    }

    fn without_effect(&self) -> Vec<String> {
        let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
        for InertUse { key, reason } in &self.loaded.inert {
            match by_reason.iter_mut().find(|(known, _)| known == reason) {
                Some((_, keys)) => keys.push(key),
                None => by_reason.push((reason, vec![key])),
            }
        }
        let line = |(reason, keys): (&str, Vec<&str>)| {
            format!("  no effect {}: {reason}", together(&keys).join(", "))
        };
        by_reason.into_iter().map(line).collect()
    }

    /// A command that works: somebody answers it, with a model that is there, and with a key if one is needed.
    fn try_line(&self) -> String {
        let asking = self.agent.map_or(&[][..], |agent| &agent.asking);
        match asking.iter().min_by_key(|agent| agent.id != OPENCLAW) {
            Some(agent) if agent.id == OPENCLAW => {
                return "openclaw agent --agent main -m \"Say hello.\"".to_owned();
            }
            Some(agent) => return format!("say something to {}, started anew", agent.name),
            None => {}
        }
        let config = &self.loaded.config;
        let upstreams = &config.gateway.upstreams;
        let anybody = AgentId::default_agent();
        if !upstreams.is_empty() && !is_answered(anybody.as_str(), config, self.policy) {
            return "metaclaw wire  (lists the agents that are here, and connects one)".to_owned();
        }
        let (llm, mut upstreams) = (&config.llm, upstreams.values());
        let is_keyed = config.gateway.proxy.requires_key();
        let key = is_keyed.then_some("$METACLAW_KEY");
        let passes_keys = |url: &str| llm.api_key.is_none() && !is_here(url) && !is_bedrock(url);
        let other = upstreams.find_map(|upstream| upstream.address());
        match (llm.api_base.as_deref(), other) {
            _ if self.policy.that_serves(config).is_some() => self.curl("default", key),
            (Some(url), _) if passes_keys(url) && is_keyed => format!(
                "metaclaw config llm.api_key KEY  (yours at {}: callers show one of ours, which goes nowhere; then start again)",
                host(url)
            ),
            (Some(url), _) if passes_keys(url) => {
                let (curl, place) = (self.curl("MODEL", Some("$API_KEY")), host(url));
                format!("{curl}  (MODEL: one that {place} has, API_KEY: yours there)")
            }
            (Some(_), _) if llm.model_id.is_some() => self.curl("default", key),
            (Some(url), _) | (None, Some(url)) => {
                let curl = self.curl("MODEL", key);
                format!("{curl}  (MODEL: one that {} has)", host(url))
            }
            (None, None) => "metaclaw setup  (asks for your provider; then start again)".to_owned(),
        }
    }

    fn curl(&self, model: &str, key: Option<&str>) -> String {
        let key = key.map(|key| format!(" -H \"authorization: Bearer {key}\""));
        let key = key.unwrap_or_default();
        format!(
            "curl -N {}/v1/chat/completions -H 'content-type: application/json'{key} \
             -d '{{\"model\":\"{model}\",\"stream\":true,\"max_tokens\":200,\"messages\":[{{\"role\":\"user\",\"content\":\"In one sentence: why do we need sleep?\"}}]}}'",
            origin(self.proxy)
        )
    }
}

#[cfg(test)]
mod tests;
