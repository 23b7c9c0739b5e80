//! What leaves the machine, to whom: every place that a text may be sent to.

use metaclaw_chat::Mode;
use metaclaw_gateway::{AgentRouting, LLM, POLICY};
use metaclaw_settings::{Config, Policy, address::elsewhere};
use metaclaw_skills::ShareConfig;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JudgedWith {
    /// `judge.kind: off`.
    Nobody,
    /// A model could be asked, and is not: no weights learn, so nothing would use its verdicts.
    Unused,
    /// A model that hears wishes, and is asked for no verdict: nothing would use it.
    Hears {
        model: String,
        /// Where it is asked.
        url: String,
    },
    /// Configured rules; `n` of them.
    Rules(usize),
    /// A reward function of the owner's, at an address.
    Function { url: String },
    /// The policy model without its adapter, wherever that is.
    Base,
    /// A model at an address.
    Model {
        model: String,
        /// Where it is asked.
        url: String,
        /// The places and models that vote with it, in words.
        others: Vec<String>,
    },
}

/// Who may be asked, and where that is; none is our own trainer on this machine.
type AskedPlace<'a> = (&'a str, Option<&'a str>);

/// The line. `judge` and training are of no use where no turns are kept.
pub(super) fn egress(
    config: &Config,
    policy: &Policy,
    judge: &JudgedWith,
    keeps_turns: bool,
) -> String {
    let judge = match judge {
        _ if !keeps_turns => "nowhere (turns are not kept)".to_owned(),
        JudgedWith::Unused => "nowhere (nothing would use a verdict)".to_owned(),
        JudgedWith::Hears { model, url } => {
            let place = elsewhere(url);
            format!("{place} ({model}: what you type, to hear wishes; no verdicts)")
        }
        JudgedWith::Nobody => "nowhere (judge.kind off: nothing is judged)".to_owned(),
        JudgedWith::Rules(0) => "nowhere (no rules, no model: nothing is judged)".to_owned(),
        JudgedWith::Rules(n) => format!("nowhere ({n} rules)"),
        JudgedWith::Model { model, url, others } => {
            let first = format!("{} ({model})", elsewhere(url));
            let mut places = vec![first];
            places.extend(others.iter().cloned());
            places.join(" and ")
        }
        JudgedWith::Function { url } => format!("{} (your reward function)", elsewhere(url)),
        JudgedWith::Base => match policy {
            Policy::Remote { url, .. } => format!("{} (the base model)", elsewhere(url)),
            Policy::Cloud(_) if !policy.may_train(config) => {
                "nowhere (privacy.cloud_training_ok is not true)".to_owned()
            }
            Policy::Cloud(cloud) => format!("{} (the base model)", elsewhere(&cloud.url)),
            Policy::None | Policy::Local { .. } => "nowhere (the base model)".to_owned(),
        },
    };
    let training = match policy {
        _ if !keeps_turns => "nowhere".to_owned(),
        Policy::Remote { .. } | Policy::Cloud(_) if !policy.may_train(config) => {
            "nowhere (privacy.cloud_training_ok is not true)".to_owned()
        }
        Policy::Remote { url, .. } => elsewhere(url) + &trained(config),
        Policy::Cloud(cloud) => format!(
            "{}{} (conversations as token ids, wishes, and the adapters made of them)",
            elsewhere(&cloud.url),
            trained(config)
        ),
        Policy::None | Policy::Local { .. } => "nowhere".to_owned(),
    };
    let chat = chats(config, policy);
    let shared = shared(&config.skills.share);
    format!("chat -> {chat}, judge -> {judge}, training -> {training}{shared}")
}

/// Where skills go.
fn shared(share: &ShareConfig) -> String {
    let folder = share.folder.as_ref().map(|it| it.display().to_string());
    let endpoint = share.endpoint.as_ref().map(|it| format!(" at {it}"));
    let bucket = share.bucket.as_ref();
    let bucket = bucket.map(|it| format!("{it}{}", endpoint.unwrap_or_default()));
    let place = folder.or(bucket);
    place
        .map(|it| format!(", skills -> {it}"))
        .unwrap_or_default()
}

/// Where chats go, and those of agents for whom it is another place.
fn chats(config: &Config, policy: &Policy) -> String {
    let of_all = places(config, policy, None);
    let mut told = words(&of_all);
    for (agent, own) in &config.gateway.agents {
        let theirs = places(config, policy, Some(own));
        if theirs != of_all {
            told = format!("{told} (agent {agent}: {})", words(&theirs));
        }
    }
    told
}

/// Who may answer: as the gateway's `order_of`.
fn places<'a>(
    config: &'a Config,
    policy: &'a Policy,
    own: Option<&'a AgentRouting>,
) -> Vec<AskedPlace<'a>> {
    let mode = own.and_then(|own| own.mode).unwrap_or(config.learner.mode);
    let theirs = own.map_or(&[][..], |own| &own.upstream);
    let names_policy = theirs.iter().any(|name| name == POLICY);
    let of_all = config.gateway.routing.order.iter();
    let general = of_all.filter(|name| theirs.is_empty() || *name == POLICY && !names_policy);
    let names = general.chain(theirs).map(String::as_str);
    let place = |name: &'a str| match (name, policy) {
        (POLICY, _) if mode == Mode::SkillsOnly => None,
        (POLICY, Policy::None) => None,
        (POLICY, Policy::Local { .. }) => Some((name, None)),
        (POLICY, Policy::Remote { url, .. }) => Some((name, Some(url.as_str()))),
        (POLICY, Policy::Cloud(_)) if !policy.may_train(config) => None,
        (POLICY, Policy::Cloud(cloud)) => Some((name, Some(cloud.url.as_str()))),
        (name, _) => {
            let named = config
                .gateway
                .upstreams
                .get(name)
                .and_then(|it| it.address());
            let llm = config.llm.api_base.as_deref().filter(|_| name == LLM);
            Some((name, Some(llm.or(named)?)))
        }
    };
    names.filter_map(place).collect()
}

fn words(places: &[AskedPlace<'_>]) -> String {
    let told = |(name, url): &AskedPlace<'_>| match url {
        None => "nowhere".to_owned(),
        Some(url) if [POLICY, LLM].contains(name) => elsewhere(url),
        Some(url) => format!("{} (upstream {name})", elsewhere(url)),
    };
    let Some((first, others)) = places.split_first() else {
        return "nowhere".to_owned();
    };
    if others.is_empty() {
        return told(first);
    }
    let others: Vec<String> = others.iter().map(told).collect();
    let others = others.join(", then ");
    match first {
        (POLICY, None) => format!("{others} where the policy model cannot answer"),
        (POLICY, Some(_)) => format!(
            "{}, and {others} where the policy model cannot answer",
            told(first)
        ),
        _ => format!("{}, and {others} where that cannot answer", told(first)),
    }
}

/// Whose turns are trained on, where it is not everyone's.
fn trained(config: &Config) -> String {
    let is_trained =
        |own: &AgentRouting| own.mode.unwrap_or(config.learner.mode) != Mode::SkillsOnly;
    let chosen = |is: bool| {
        let agents = config.gateway.agents.iter();
        let agents = agents.filter(move |(_, own)| is_trained(own) == is);
        agents.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    match config.learner.mode {
        Mode::SkillsOnly => format!(" (agent {})", chosen(true).join(", ")),
        Mode::Auto | Mode::Rl if chosen(false).is_empty() => String::new(),
        Mode::Auto | Mode::Rl => format!(" (not of agent {})", chosen(false).join(", ")),
    }
}
