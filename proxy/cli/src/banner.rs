//! What a person is told at the start: where, what serves, what learns, what leaves the machine.

use std::net::SocketAddr;

use metaclaw_chat::Mode;
use metaclaw_control::{privacy, status::RunSummary};
use metaclaw_gateway::RelayOnly;
use metaclaw_learner::LearnerConfig;
use metaclaw_settings::{
    Config, InertUse, Policy,
    address::{elsewhere, host, is_bedrock, is_here},
};

pub(crate) use self::egress::JudgedWith;
use self::egress::egress;

mod egress;

/// More keys than this of one section are not named one by one.
const MANY: usize = 3;
/// What needs no weights: wishes stand at once, and what a model writes as a skill waits for its owner.
const BY_HAND: &str =
    "wishes from what you say, and skills that you write or accept, from the next session on";
/// The same where no wish is heard.
const SKILLS_BY_HAND: &str = "skills that you write or accept, from the next session on";

/// All that the banner is made of.
#[derive(Debug)]
pub(crate) struct Banner<'a> {
    /// Where the proxy listens.
    pub proxy: SocketAddr,
    /// Whether callers must show a key.
    pub keyed: bool,
    pub about: &'a RunSummary,
    /// Who is only relayed.
    pub off: &'a RelayOnly,
    /// Keys that were set and do nothing.
    pub inert: &'a [InertUse],
    /// Where the settings came from.
    pub config: &'a str,
    /// What became of the agent's own configuration; none where it is nobody's business.
    pub agent: Option<&'a str>,
    /// What may be asked first.
    pub first: First<'a>,
}

/// What a person may ask first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First<'a> {
    /// Whatever name is asked for, somebody answers.
    Any,
    /// The model has to be one that is there.
    ModelAt(&'a str),
    /// The caller's own key is passed on to this address, so there has to be one.
    OwnKeyFor(&'a str),
    /// An agent asks us already.
    Agent,
    Nothing,
}

// === impl First ===

impl<'a> First<'a> {
    pub(crate) fn of(config: &'a Config, policy: &Policy) -> Self {
        let policy = policy.that_serves(config);
        let url = config.llm.api_base.as_deref();
        let others = || {
            config
                .gateway
                .upstreams
                .values()
                .find_map(|it| it.address())
        };
        match (policy, url) {
            (Policy::Local { .. } | Policy::Remote { .. } | Policy::Cloud(_), _) => Self::Any,
            (Policy::None, Some(url))
                if config.llm.api_key.is_none() && !is_here(url) && !is_bedrock(url) =>
            {
                Self::OwnKeyFor(url)
            }
            (Policy::None, Some(_)) if config.llm.model_id.is_some() => Self::Any,
            (Policy::None, url) => url.or_else(others).map_or(Self::Nothing, Self::ModelAt),
        }
    }
}

/// What serves, what learns and what leaves the machine, from what was decided at the start.
pub(crate) fn about(
    config: &Config,
    policy: &Policy,
    judge: &JudgedWith,
    training: &LearnerConfig,
) -> RunSummary {
    RunSummary {
        mode: config.learner.mode.as_str().to_owned(),
        serves: serves(config, policy),
        learns: learns(config, policy, judge, training),
        leaves: egress(config, policy, judge, true),
    }
}

/// Adds where calendars are fetched.
pub(crate) fn with_calendars(about: RunSummary, addresses: &[&str]) -> RunSummary {
    let mut hosts: Vec<String> = addresses.iter().map(|it| elsewhere(it)).collect();
    hosts.sort();
    hosts.dedup();
    if hosts.is_empty() {
        return about;
    }
    let leaves = format!("{}, calendar <- {}", about.leaves, hosts.join(", "));
    RunSummary { leaves, ..about }
}

/// The same where no wishes are heard.
pub(crate) fn without_wishes(about: RunSummary) -> RunSummary {
    let learns = about.learns.replace(BY_HAND, SKILLS_BY_HAND);
    RunSummary { learns, ..about }
}

/// The same where no turns are kept.
pub(crate) fn of_nothing_new(about: RunSummary, config: &Config, policy: &Policy) -> RunSummary {
    RunSummary {
        leaves: egress(config, policy, &JudgedWith::Unused, false),
        learns: format!("nothing: turns are not kept (turns.enabled); {BY_HAND}"),
        ..about
    }
}

fn serves(config: &Config, policy: &Policy) -> String {
    match policy {
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
            let upstreams = upstreams(config);
            let answers = upstreams.unwrap_or_else(|| {
                "nothing yet: set llm.api_base, or allow the training server (metaclaw config privacy.cloud_training_ok true)"
                    .to_owned()
            });
            format!(
                "{answers}; {} at {} is sent nothing and does not answer (privacy.cloud_training_ok is not true)",
                cloud.model,
                host(&cloud.url)
            )
        }
        Policy::None => upstreams(config).unwrap_or_else(|| {
            "nothing yet: set llm.api_base, or trainer.model for a model of your own".to_owned()
        }),
    }
}

/// Who answers where there is no policy model; none where nobody does.
fn upstreams(config: &Config) -> Option<String> {
    if let Some(url) = config.llm.api_base.as_deref() {
        let model = config.llm.model_id.as_deref();
        let model = model.unwrap_or("the model that is asked for");
        return Some(format!("{model} at {}", host(url)));
    }
    let named = config.gateway.upstreams.iter().filter_map(|(name, it)| {
        let url = it.address()?;
        Some(format!("{name} at {}", host(url)))
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// What keeps weights from learning where no judge is set.
const NOT_JUDGED: &str = "; BUT NOTHING IS JUDGED, and only judged turns train: set judge.kind to base (the model judges its own replies), or llm.* with a key, whose model judges then (docs/training/judging.md)";

fn learns(
    config: &Config,
    policy: &Policy,
    judge: &JudgedWith,
    training: &LearnerConfig,
) -> String {
    let method = &training.rl.method;
    if !policy.may_train(config) {
        return format!("no weights (privacy.cloud_training_ok is not true); {BY_HAND}");
    }
    let tested = if training.gate.enabled {
        ", and they serve once they pass the gate"
    } else {
        "; NOTHING TESTS THEM before they serve (gate.enabled is false)"
    };
    let judged = match judge {
        JudgedWith::Rules(0) => NOT_JUDGED,
        _ => "",
    };
    let tested = format!("{tested}{judged}");
    let is_manual = training.rl.manual_train_trigger;
    match (config.learner.mode, policy.is_some()) {
        (Mode::Rl | Mode::Auto, true) if is_manual => format!(
            "weights only when asked (`metaclaw train-step`, by {method}){tested}; {BY_HAND}"
        ),
        (Mode::Rl, true) => {
            format!("weights by {method}, whenever a batch is ready{tested}; {BY_HAND}")
        }
        (Mode::Auto, true) if training.gate.enabled => {
            format!("weights by {method}, while you are away{tested}; {BY_HAND}")
        }
        (Mode::Auto, true) => format!(
            "weights only when asked (`metaclaw train-step`, by {method}){tested}; {BY_HAND}"
        ),
        (Mode::Auto, false) => format!(
            "no weights, because no policy model is configured (mode auto works as skills_only); {BY_HAND}"
        ),
        (Mode::SkillsOnly, true) if config.has_mode(Mode::Auto) || config.has_mode(Mode::Rl) => {
            format!(
                "weights by {method}, of agents that have a mode of their own{tested}; {BY_HAND}"
            )
        }
        (Mode::SkillsOnly, _) => format!("no weights (mode skills_only); {BY_HAND}"),
        (Mode::Rl, false) => format!(
            "no weights, because there is no policy model (mode rl works as skills_only); {BY_HAND}"
        ),
    }
}

/// Keys of one section as one, where they are many.
fn together(keys: &[&str]) -> Vec<String> {
    let section = |key: &str| key.split_once('.').map(|(section, _)| section.to_owned());
    let mut told: Vec<String> = Vec::new();
    for key in keys {
        let n_alike = keys.iter().filter(|it| section(it) == section(key)).count();
        let said = match section(key) {
            Some(section) if n_alike > MANY => format!("{section}.* ({n_alike} keys)"),
            _ => (*key).to_owned(),
        };
        if !told.contains(&said) {
            told.push(said);
        }
    }
    told
}

// === impl Banner ===

impl Banner<'_> {
    /// The whole of it.
    pub(crate) fn text(&self) -> String {
        let RunSummary {
            mode,
            serves,
            learns,
            leaves,
        } = self.about;
        let mut lines = vec![
            format!("MetaClaw {} listens", env!("CARGO_PKG_VERSION")),
            format!("  base URL  http://{}/v1", self.proxy),
            format!("  settings  {} (mode {mode})", self.config),
            format!("  serves    {serves}"),
            format!("  learns    {learns}"),
            format!("  leaves    {leaves}"),
        ];
        lines.extend(self.agent.map(|it| format!("  agent     {it}")));
        let off = privacy::told(self.off);
        lines.extend(off.map(|told| format!("  off       {told}")));
        lines.extend(self.without_effect());
        lines.push("  look      metaclaw ui  (the page in your browser)".to_owned());
        lines.push(format!("  try       {}", self.try_line()));
        lines.join("\n")
    }

    /// Keys that do nothing, together by reason.
    fn without_effect(&self) -> Vec<String> {
        let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
        for InertUse { key, reason } in self.inert {
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

    /// A command that works.
    fn try_line(&self) -> String {
        let ours = "$METACLAW_KEY";
        let key = self.keyed.then_some(ours);
        match self.first {
            First::Agent => "openclaw agent --agent main -m \"Say hello.\"".to_owned(),
            First::Any => self.curl("default", key),
            First::ModelAt(url) => {
                format!(
                    "{}  (MODEL: one that {} has)",
                    self.curl("MODEL", key),
                    host(url)
                )
            }
            First::OwnKeyFor(url) if self.keyed => {
                format!(
                    "metaclaw config llm.api_key KEY  (yours at {}: callers show one of ours, which goes nowhere; then start again)",
                    host(url)
                )
            }
            First::OwnKeyFor(url) => {
                let curl = self.curl("MODEL", Some("$API_KEY"));
                format!(
                    "{curl}  (MODEL: one that {} has, API_KEY: yours there)",
                    host(url)
                )
            }
            First::Nothing => {
                "metaclaw setup  (asks for your provider; then start again)".to_owned()
            }
        }
    }

    fn curl(&self, model: &str, key: Option<&str>) -> String {
        let key = key.map(|key| format!(" -H \"authorization: Bearer {key}\""));
        let key = key.unwrap_or_default();
        format!(
            "curl -N http://{}/v1/chat/completions -H 'content-type: application/json'{key} \
             -d '{{\"model\":\"{model}\",\"stream\":true,\"max_tokens\":200,\"messages\":[{{\"role\":\"user\",\"content\":\"In one sentence: why do we need sleep?\"}}]}}'",
            self.proxy
        )
    }
}

#[cfg(test)]
mod tests;
