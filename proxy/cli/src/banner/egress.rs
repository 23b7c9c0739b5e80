//! What leaves the machine, to whom: every place that a text may be sent to.

use std::{collections::BTreeSet, iter};

use metaclaw_chat::{Mode, Secret};
use metaclaw_gateway::{AgentRouting, LLM, POLICY};
use metaclaw_llm::LlmConfig;
use metaclaw_settings::{Config, Policy, address::elsewhere};
use metaclaw_skills::ShareConfig;

use crate::asked::{Hearing, Judging, skill_writer};

const GOOGLE_CALENDAR: &str = "https://www.googleapis.com";

const BASE: &str = "the base model";

/// Who may be asked, and where that is; none is our own trainer on this machine.
type AskedPlace<'a> = (&'a str, Option<&'a str>);

pub(super) fn egress(config: &Config, policy: &Policy, judging: &Judging) -> String {
    let chat = chats(config, policy);
    let writer = skill_writer(config);
    let judge = judged(config, policy, judging, writer.is_some());
    let training = trained(config, policy);
    let shared = shared(&config.skills.share);
    let calendars = calendars(config);
    let written = writer.map(|model| format!(", skill writing -> {}", named(&model)));
    let written = written.unwrap_or_default();
    let heard = heard(config, policy, judging);
    format!(
        "chat -> {chat}, judge -> {judge}, training -> {training}{shared}{calendars}{written}{heard}"
    )
}

fn named(model: &LlmConfig) -> String {
    format!("{} ({})", elsewhere(&model.url), model.model)
}

fn judged(config: &Config, policy: &Policy, judging: &Judging, writes_skills: bool) -> String {
    let trains = policy.is_some() && config.learner.learns() && policy.may_train(config);
    let is_used = trains || writes_skills;
    match judging {
        _ if !config.turns.enabled => "nowhere (turns are not kept)".to_owned(),
        Judging::Models { first, .. } if !is_used && config.wishes.enabled => format!(
            "{} ({}: what you type, to hear wishes; no verdicts)",
            elsewhere(&first.url),
            first.model
        ),
        Judging::Models { .. } | Judging::Base if !is_used => {
            "nowhere (nothing would use a verdict)".to_owned()
        }
        Judging::Models { first, others } => {
            let places = iter::once(&**first).chain(others).map(named);
            places.collect::<Vec<_>>().join(" and ")
        }
        Judging::Nobody => "nowhere (judge.kind off: nothing is judged)".to_owned(),
        Judging::Rules => match config.learner.judge.rules.len() {
            0 => "nowhere (no rules, no model: nothing is judged)".to_owned(),
            n => format!("nowhere ({n} rules)"),
        },
        Judging::Function(url) => format!("{} (your reward function)", elsewhere(url)),
        Judging::Base => match policy {
            Policy::Remote { url, .. } => format!("{} (the base model)", elsewhere(url)),
            Policy::Cloud(_) if !policy.may_train(config) => {
                "nowhere (privacy.cloud_training_ok is not true)".to_owned()
            }
            Policy::Cloud(cloud) => format!("{} (the base model)", elsewhere(&cloud.url)),
            Policy::None | Policy::Local { .. } => "nowhere (the base model)".to_owned(),
        },
    }
}

fn trained(config: &Config, policy: &Policy) -> String {
    match policy {
        Policy::Remote { .. } | Policy::Cloud(_) if !config.turns.enabled => "nowhere".to_owned(),
        Policy::Remote { .. } | Policy::Cloud(_) if !policy.may_train(config) => {
            "nowhere (privacy.cloud_training_ok is not true)".to_owned()
        }
        Policy::Remote { url, .. } => elsewhere(url) + &whose_turns(config),
        Policy::Cloud(cloud) => format!(
            "{}{} (conversations as token ids, wishes, and the adapters made of them)",
            elsewhere(&cloud.url),
            whose_turns(config)
        ),
        Policy::None | Policy::Local { .. } => "nowhere".to_owned(),
    }
}

fn calendars(config: &Config) -> String {
    let scheduler = &config.scheduler;
    let google = scheduler.calendar.enabled.then_some(GOOGLE_CALENDAR);
    let addresses = scheduler.ics.iter().map(Secret::expose);
    let fetched = addresses
        .filter(|place| place.contains("://"))
        .chain(google);
    let hosts: BTreeSet<String> = fetched.map(elsewhere).collect();
    if hosts.is_empty() {
        return String::new();
    }
    let hosts: Vec<String> = hosts.into_iter().collect();
    format!(", calendar <- {}", hosts.join(", "))
}

fn heard(config: &Config, policy: &Policy, judging: &Judging) -> String {
    let what = match (config.wishes.enabled, config.memory.enabled) {
        (true, true) => "to hear wishes and facts",
        (false, true) => "to hear facts",
        (_, false) => "to hear wishes",
    };
    let (url, model) = match (Hearing::from_config(config, policy, judging), policy) {
        (Some(Hearing::Model(model)), _) => (model.url, model.model),
        (Some(Hearing::Policy), Policy::Remote { url, .. }) => (url.clone(), BASE.to_owned()),
        (Some(Hearing::Policy), Policy::Cloud(cloud)) => (cloud.url.clone(), BASE.to_owned()),
        (Some(Hearing::Policy), Policy::None | Policy::Local { .. }) | (None, _) => {
            return String::new();
        }
    };
    format!(", what you type -> {} ({model}: {what})", elsewhere(&url))
}

fn shared(share: &ShareConfig) -> String {
    match (&share.folder, &share.bucket, &share.endpoint) {
        (Some(folder), ..) => format!(", skills -> {}", folder.display()),
        (None, Some(bucket), Some(endpoint)) => format!(", skills -> {bucket} at {endpoint}"),
        (None, Some(bucket), None) => format!(", skills -> {bucket}"),
        (None, None, _) => String::new(),
    }
}

fn chats(config: &Config, policy: &Policy) -> String {
    let of_all = places(config, policy, None);
    let mut text = words(&of_all);
    for (agent, own) in &config.gateway.agents {
        let theirs = places(config, policy, Some(own));
        if theirs != of_all {
            text = format!("{text} (agent {agent}: {})", words(&theirs));
        }
    }
    text
}

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
            let upstream = config.gateway.upstreams.get(name);
            let named = upstream.and_then(|upstream| upstream.address());
            let llm = config.llm.api_base.as_deref().filter(|_| name == LLM);
            Some((name, Some(llm.or(named)?)))
        }
    };
    names.filter_map(place).collect()
}

fn words(places: &[AskedPlace<'_>]) -> String {
    let place = |(name, url): &AskedPlace<'_>| match url {
        None => "nowhere".to_owned(),
        Some(url) if [POLICY, LLM].contains(name) => elsewhere(url),
        Some(url) => format!("{} (upstream {name})", elsewhere(url)),
    };
    let Some((first, others)) = places.split_first() else {
        return "nowhere".to_owned();
    };
    if others.is_empty() {
        return place(first);
    }
    let named: Vec<String> = others.iter().map(place).collect();
    let others = named.join(", then ");
    match first {
        (POLICY, None) => format!("{others} where the policy model cannot answer"),
        (POLICY, Some(_)) => format!(
            "{}, and {others} where the policy model cannot answer",
            place(first)
        ),
        _ => format!("{}, and {others} where that cannot answer", place(first)),
    }
}

fn whose_turns(config: &Config) -> String {
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
