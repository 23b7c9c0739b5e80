//! Asks the questions in order: who has the model, its address, the key, the model if nothing says it, the mode if a
//! model is trained, and whether to wire the agent.

use metaclaw_settings::{address::host, edit, providers};
use metaclaw_wiring::{Credential, Found, OPENCLAW};

use super::answers::{ADDRESS, KEY, MODE, MODEL, PROVIDER, SetupAnswers};
use crate::{
    commands::{
        context::Context,
        models::{ModelList, ModelServer, lists, missed},
    },
    prompt::{PromptChoice, TerminalPrompt},
    wires::wires,
};

const NOBODY: &str = "none";
const CUSTOM: &str = "custom";
const TRAINED: &str = "trainer.model";
const NO_MODEL: &str = "-";
const MAX_LISTED: usize = 12;

const TRAINED_WHEN: [(&str, &str); 3] = [
    ("auto", "while you are away (recommended)"),
    (
        "rl",
        "whenever enough replies are judged, also while you work",
    ),
    (
        "skills_only",
        "never: MetaClaw learns wishes and skills alone",
    ),
];

pub(super) struct Interview<'a> {
    pub prompt: TerminalPrompt,
    pub answers: SetupAnswers<'a>,
    pub context: &'a Context,
    /// The agent of this machine.
    pub agent: Option<&'a Found>,
    /// Whether the address and the key are tested at the provider.
    pub tries: bool,
}

// === impl Interview ===

impl<'a> Interview<'a> {
    /// Asks everything. Returns the answers, and whether the agent may be pointed at the proxy.
    pub(super) async fn run(mut self) -> anyhow::Result<(SetupAnswers<'a>, bool)> {
        self.prompt.say(
            "Press Enter to take the answer in brackets. Nothing is written before the last question.",
        )?;
        if let Some(agent) = self.agent {
            self.prompt.say(&describe(agent))?;
        }
        if self.provider()? {
            self.server().await?;
        } else {
            self.own_model()?;
        }
        let may_wire = self.wiring()?;
        Ok((self.answers, may_wire))
    }

    /// Asks who answers chats. Returns whether it is a provider.
    fn provider(&mut self) -> anyhow::Result<bool> {
        let is_given = |key| self.answers.is_given(key);
        if is_given(PROVIDER) || is_given(ADDRESS) {
            self.answers.complete();
            return Ok(true);
        }
        let known = providers::PROVIDERS.iter();
        let mut choices: Vec<PromptChoice<'_>> = known
            .map(|provider| PromptChoice {
                name: provider.name,
                about: provider.title,
            })
            .collect();
        choices.push(PromptChoice {
            name: CUSTOM,
            about: "another, by its address",
        });
        choices.push(PromptChoice {
            name: NOBODY,
            about: "no provider: a model that is trained here answers every chat",
        });
        let address = self.answers.get(ADDRESS);
        let named = self.answers.get(PROVIDER);
        let named = named.filter(|name| choices.iter().any(|choice| choice.name == *name));
        let preset = match (named, &address) {
            (Some(name), _) => name,
            (None, Some(address)) => providers::at(address)
                .map_or(CUSTOM, |known| known.name)
                .to_owned(),
            (None, None) => "openai".to_owned(),
        };
        let chosen = self.prompt.choose("Which provider", &choices, &preset)?;
        if chosen == NOBODY {
            for key in [PROVIDER, ADDRESS, MODEL] {
                self.answers.set(key, None);
            }
            return Ok(false);
        }
        match (providers::named(&chosen), address) {
            (Some(known), Some(address)) if chosen == preset => {
                if host(&address) == host(known.api_base) {
                    self.answers.set(ADDRESS, Some(address));
                }
            }
            (Some(known), _) => self.answers.set(ADDRESS, Some(known.api_base.to_owned())),
            (None, _) => {}
        }
        self.answers.set(PROVIDER, Some(chosen));
        Ok(true)
    }

    /// Asks for the address, the key and the model, until they work together or the person keeps them. A known address
    /// is asked for only if it does not work.
    async fn server(&mut self) -> anyhow::Result<()> {
        let mut is_address_known = self.answers.is_given(ADDRESS);
        let list = loop {
            if !is_address_known {
                self.value(ADDRESS, "Its address", "https://api.example.com/v1")?;
            }
            is_address_known = false;
            self.key()?;
            if !self.tries {
                break None;
            }
            let server = ModelServer {
                base: self.answers.get(ADDRESS).unwrap_or_default(),
                key: self.answers.key(),
            };
            let list = server.models().await;
            self.prompt.say(&format!("  {}", server.describe(&list)))?;
            if !server.would_fail(&list) || self.keeps()? {
                break Some(list);
            }
        };
        self.answers.take_dialect();
        match list {
            Some(ModelList::Listed(models)) => self.model(&models),
            _ => self.model(&[]),
        }
    }

    /// Asks for the key. Enter keeps the key that the flags, the settings or the agent gave.
    fn key(&mut self) -> anyhow::Result<()> {
        let kept = self.answers.key();
        let preset = kept.clone().or_else(|| self.answers.found_key());
        let question = match &preset {
            Some(key) => format!("API key (not shown; Enter keeps {key}, - for none)"),
            None => {
                "API key (not shown; Enter for none: the key of your agent is passed on)".to_owned()
            }
        };
        let key = loop {
            let typed = self.prompt.secret(&question)?;
            if !typed.bytes().all(|b| b.is_ascii_graphic()) {
                self.prompt
                    .say("  this is no key: it has spaces or characters that are not ASCII")?;
                continue;
            }
            break match typed.as_str() {
                "" => preset,
                "-" => None,
                _ => Some(typed.into()),
            };
        };
        if key != kept {
            let key = key.map(|key| key.expose().to_owned());
            self.answers.set(KEY, key);
        }
        Ok(())
    }

    /// Asks for the model, unless a flag, the agent or a list of one says it.
    fn model(&mut self, listed: &[String]) -> anyhow::Result<()> {
        let is_there = |name: &str| listed.is_empty() || lists(listed, name);
        let only = listed.first().filter(|_| listed.len() == 1).cloned();
        let is_open = self.answers.is_given(MODEL) || self.answers.before(MODEL).is_none();
        let known = self.answers.get(MODEL).or(only);
        if let Some(known) = known.filter(|known| is_open && is_there(known)) {
            self.prompt.say(&format!("  the model is {known}"))?;
            self.answers.set(MODEL, Some(known));
            return Ok(());
        }
        if (1..=MAX_LISTED).contains(&listed.len()) {
            self.prompt.say(&format!("  {}", listed.join(", ")))?;
        }
        let hint = format!("  {NO_MODEL} for none: each agent keeps its own model");
        self.prompt.say(&hint)?;
        let provider = self.answers.get(PROVIDER);
        let known = provider.as_deref().and_then(providers::named);
        let usual = known.map_or("", |provider| provider.model);
        let usual = match listed.first() {
            Some(first) if !is_there(usual) => first,
            _ => usual,
        };
        loop {
            let model = self.value(MODEL, "Model", usual)?;
            if model == NO_MODEL {
                self.answers.set(MODEL, None);
                return Ok(());
            }
            if is_there(&model) {
                return Ok(());
            }
            self.prompt.say(&format!("  {}", missed(&model, listed)))?;
            if self.keeps()? {
                return Ok(());
            }
        }
    }

    /// Asks for the model that is trained.
    fn own_model(&mut self) -> anyhow::Result<()> {
        let what = "Model to train: a folder in Hugging Face form, a GGUF file, or demo";
        self.value(TRAINED, what, "demo")?;
        let choices = TRAINED_WHEN.map(|(name, about)| PromptChoice { name, about });
        // With a model to train, the former mode is no reason to train nothing.
        let mode = self.answers.get(MODE).filter(|mode| mode == "rl");
        let preset = mode.unwrap_or_else(|| "auto".to_owned());
        let chosen = self
            .prompt
            .choose("When are its weights trained", &choices, &preset)?;
        self.answers.set(MODE, Some(chosen));
        Ok(())
    }

    /// Asks whether the agent may be pointed at the proxy, once for each model that the agent asks.
    fn wiring(&mut self) -> anyhow::Result<bool> {
        let record = wires(&self.context.home).record(OPENCLAW)?;
        let is_settled = |agent: &&Found| record.as_ref().is_some_and(|record| record.is_of(agent));
        let wires = self.answers.loaded.config.wires_agent();
        let Some(agent) = self.agent.filter(|agent| wires && !is_settled(agent)) else {
            return Ok(false);
        };
        let question = format!(
            "Point OpenClaw at MetaClaw while it runs (two keys in {}, put back at its end)",
            agent.file.display()
        );
        Ok(self.prompt.yes(&question, Some(true))?)
    }

    fn value(&mut self, key: &str, question: &str, usual: &str) -> anyhow::Result<String> {
        let preset = self.answers.get(key).unwrap_or_else(|| usual.to_owned());
        loop {
            let given = self.prompt.ask(question, &preset)?;
            match edit::allowed(key, &given) {
                Ok(value) => {
                    self.answers.set(key, Some(value.clone()));
                    return Ok(value);
                }
                Err(error) => self.prompt.say(&format!("  {error}"))?,
            }
        }
    }

    fn keeps(&mut self) -> anyhow::Result<bool> {
        Ok(self.prompt.yes("  Keep it all the same", Some(false))?)
    }
}

fn describe(found: &Found) -> String {
    let key = match &found.credential {
        Credential::Key { key, from } => format!("key {key}, {from}"),
        Credential::Reference(_) | Credential::Login => {
            "by a login of its own, which passes through us where no key is given".to_owned()
        }
    };
    format!(
        "OpenClaw asks {} at {} today ({key}): these values are preset.",
        found.model, found.base_url
    )
}
