//! What leaves the machine: each server or folder elsewhere that may get something, and what it gets.

use metaclaw_chat::{Mode, Secret};
use metaclaw_gateway::{AgentRouting, LLM, POLICY};
use metaclaw_llm::LlmConfig;
use metaclaw_settings::{
    Config, Policy,
    address::{host, is_here},
};
use metaclaw_skills::ShareConfig;

use crate::asked::{Hearing, Judging, hearer, skill_writer, uses_verdicts};

const GOOGLE_CALENDAR: &str = "https://www.googleapis.com";

/// Who may be asked, and where that is; none is our own trainer on this machine.
type AskedPlace<'a> = (&'a str, Option<&'a str>);

/// The receivers on other machines in the order of their first mention, each with what it gets.
#[derive(Debug, Default)]
struct Receivers(Vec<(String, Vec<String>)>);

/// Returns a line for each receiver.
pub(super) fn egress(
    chats: &Config,
    config: &Config,
    policy: &Policy,
    judging: &Judging,
) -> String {
    let mut receivers = Receivers::default();
    receivers.of_chats(chats, policy);
    // Agents with providers of their own share the models of learning.
    let mut agents = chats.gateway.agents.values();
    let has_own = agents.any(|agent| !agent.upstream.is_empty());
    let (of, to) = if has_own {
        (" of every agent", " to any agent")
    } else {
        ("", "")
    };
    receivers.of_judging(config, policy, judging, &format!("turns{of} to judge"));
    receivers.of_training(config, policy);
    if let Some(writer) = skill_writer(config) {
        let what = format!("failed turns{of}, to write skills from");
        receivers.of_model(&writer, &what);
    }
    receivers.of_hearing(config, policy, judging, to);
    receivers.of_sharing(&config.skills.share);
    receivers.of_calendars(config);
    let nothing = if policy.that_serves(chats).is_some() || chats.has_upstream() {
        "nothing: all models are on this machine"
    } else {
        "nothing: there is no model to ask yet"
    };
    receivers.text().unwrap_or_else(|| nothing.to_owned())
}

// === impl Receivers ===

impl Receivers {
    fn text(&self) -> Option<String> {
        let lines = self.0.iter();
        let lines = lines.map(|(receiver, what)| format!("{receiver}: {}", what.join("; ")));
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn add(&mut self, receiver: &str, what: String) {
        match self.0.iter_mut().find(|(known, _)| known == receiver) {
            Some((_, all)) if all.contains(&what) => {}
            Some((_, all)) => all.push(what),
            None => self.0.push((receiver.to_owned(), vec![what])),
        }
    }

    /// Notes what a server gets. What stays on this machine is no egress.
    fn add_server(&mut self, url: &str, what: String) {
        if !is_here(url) {
            self.add(host(url), what);
        }
    }

    fn of_model(&mut self, model: &LlmConfig, what: &str) {
        self.add_server(&model.url, format!("{what} ({})", model.model));
    }

    fn of_policy(&mut self, policy: &Policy, what: String) {
        if let Some(url) = policy.elsewhere() {
            self.add(host(url), what);
        }
    }

    fn of_chats(&mut self, config: &Config, policy: &Policy) {
        let of_all = places(config, policy, None);
        self.of_places(&of_all, "chats");
        for (agent, own) in &config.gateway.agents {
            let theirs = places(config, policy, Some(own));
            if theirs != of_all {
                self.of_places(&theirs, &format!("chats of agent {agent}"));
            }
        }
    }

    fn of_places(&mut self, places: &[AskedPlace<'_>], chats: &str) {
        let mut places = places.iter();
        let Some((first, url)) = places.next() else {
            return;
        };
        if let Some(url) = url {
            self.add_server(url, chats.to_owned());
        }
        let first = match url {
            Some(url) if *first != POLICY => host(url),
            _ => "the policy model",
        };
        for url in places.filter_map(|(_, url)| *url) {
            self.add_server(url, format!("{chats} that {first} cannot answer"));
        }
    }

    fn of_judging(&mut self, config: &Config, policy: &Policy, judging: &Judging, judged: &str) {
        if !config.turns.enabled {
            return;
        }
        let is_used = uses_verdicts(config, policy);
        match judging {
            Judging::Models { first, others } if is_used => {
                for model in [&**first].into_iter().chain(others) {
                    self.of_model(model, judged);
                }
            }
            Judging::Function(url) => {
                self.add_server(url, format!("{judged}, by your reward function"));
            }
            Judging::Base if is_used && policy.may_train(config) => {
                self.of_policy(policy, judged.to_owned());
            }
            Judging::Models { .. } | Judging::Base | Judging::Nobody | Judging::Rules => {}
        }
    }

    fn of_training(&mut self, config: &Config, policy: &Policy) {
        if config.turns.enabled && policy.may_train(config) {
            self.of_policy(policy, format!("turns{} to train on", whose_turns(config)));
        }
    }

    fn of_hearing(&mut self, config: &Config, policy: &Policy, judging: &Judging, to: &str) {
        let heard = match (config.wishes.enabled, config.memory.is_on()) {
            (true, true) => "wishes and facts",
            (true, false) => "wishes",
            (false, true) => "facts",
            (false, false) => return,
        };
        let what = format!("what you type{to}, to detect {heard}");
        match hearer(config, policy, judging) {
            Some(Hearing::Model(model)) => self.of_model(&model, &what),
            Some(Hearing::Policy) => self.of_policy(policy, what),
            None => {}
        }
    }

    fn of_sharing(&mut self, share: &ShareConfig) {
        let receiver = match (&share.folder, &share.bucket, &share.endpoint) {
            (Some(folder), ..) => folder.display().to_string(),
            (None, Some(bucket), Some(endpoint)) => format!("{bucket} at {endpoint}"),
            (None, Some(bucket), None) => bucket.clone(),
            (None, None, _) => return,
        };
        self.add(&receiver, "shared skills".to_owned());
    }

    fn of_calendars(&mut self, config: &Config) {
        let scheduler = &config.scheduler;
        let google = scheduler.calendar.enabled.then_some(GOOGLE_CALENDAR);
        let addresses = scheduler.ics.iter().map(Secret::expose);
        let fetched = addresses.filter(|place| place.contains("://"));
        for url in fetched.chain(google) {
            self.add_server(
                url,
                "requests for your calendar, without any text".to_owned(),
            );
        }
    }
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

fn whose_turns(config: &Config) -> String {
    let is_trained =
        |own: &AgentRouting| own.mode.unwrap_or(config.learner.mode) != Mode::SkillsOnly;
    let chosen = |is: bool| {
        let agents = config.gateway.agents.iter();
        let agents = agents.filter(move |(_, own)| is_trained(own) == is);
        agents.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    match config.learner.mode {
        Mode::SkillsOnly => format!(" of agent {}", chosen(true).join(", ")),
        Mode::Auto | Mode::Rl if chosen(false).is_empty() => String::new(),
        Mode::Auto | Mode::Rl => format!(" (but not of agent {})", chosen(false).join(", ")),
    }
}
