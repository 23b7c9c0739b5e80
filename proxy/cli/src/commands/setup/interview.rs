//! The questions, one after the other: who has the model, its address, the key, the model, the port.

use std::net::TcpListener;

use metaclaw_chat::Secret;
use metaclaw_settings::{Loaded, edit, providers};
use metaclaw_wiring::Found;

use super::{
    answers::SetupAnswers,
    detected,
    models::{self, ModelServer, OfferedModels},
};
use crate::{
    agent::wiring,
    commands::context::Context,
    prompt::{PromptChoice, TerminalPrompt},
};

/// The answer that no provider is to be asked.
const NOBODY: &str = "none";
/// More models than this are not listed.
const MAX_LISTED: usize = 12;

/// The answer to a text that is no key.
pub(super) const NO_KEY: &str = "  this is no key: it has spaces or characters that are not ASCII";

pub(super) struct Interview<'a> {
    pub prompt: TerminalPrompt,
    pub answers: SetupAnswers,
    pub loaded: &'a Loaded,
    pub context: &'a Context,
    /// The agent of this machine.
    pub agent: Option<&'a Found>,
}

// === impl Interview ===

impl Interview<'_> {
    /// Asks everything; `tries` says whether answers are tried. The answers, and whether the agent may be pointed at
    /// us.
    pub(super) async fn run(mut self, tries: bool) -> anyhow::Result<(SetupAnswers, bool)> {
        self.prompt.say(
            "Enter takes what stands in brackets. Nothing is written before the last question.",
        )?;
        if let Some(agent) = self.agent {
            self.prompt.say(&detected::told(agent))?;
        }
        self.mode()?;
        let may_be_nobody = self.answers.get("mode") != Some("skills_only");
        let mut has_provider = self.provider(may_be_nobody)?;
        if has_provider {
            self.server(tries).await?;
        }
        self.lessons()?;
        self.port()?;
        if self.answers.get("mode") != Some("skills_only") {
            let trains = self.training(tries).await?;
            while !trains && !has_provider {
                self.prompt
                    .say("Without a model to train, somebody else has to answer your chats.")?;
                has_provider = self.provider(false)?;
                self.server(tries).await?;
            }
        }
        let may_wire = self.wiring()?;
        Ok((self.answers, may_wire))
    }

    fn mode(&mut self) -> anyhow::Result<()> {
        if self.answers.is_given("mode") {
            return Ok(());
        }
        let choices = [
            ("skills_only", "wishes and skills are learned, no weights"),
            ("auto", "weights as well, while you are away"),
            (
                "rl",
                "weights as well, whenever a batch is ready: also while you chat",
            ),
        ];
        let choices = choices.map(|(name, about)| choice(name, about));
        let preset = self.answers.before("mode").unwrap_or("skills_only");
        let preset = preset.to_owned();
        let mode = self.prompt.choose("What is to learn", &choices, &preset)?;
        self.answers.set("mode", Some(mode));
        Ok(())
    }

    /// Who answers, and whether anybody does beside the model that is trained.
    fn provider(&mut self, may_be_nobody: bool) -> anyhow::Result<bool> {
        let is_given = |key| self.answers.get(key).is_some() && self.answers.is_given(key);
        if is_given("llm.provider") || is_given("llm.api_base") {
            self.answers.complete();
            return Ok(true);
        }
        let mut choices: Vec<PromptChoice> = providers::PROVIDERS
            .iter()
            .map(|it| choice(it.name, it.title))
            .collect();
        choices.push(choice("custom", "another, by its address"));
        if may_be_nobody {
            choices.push(choice(
                NOBODY,
                "no provider: the model to train, asked for below, answers every chat",
            ));
        }
        let base = self.answers.get("llm.api_base").map(str::to_owned);
        let of_base = match &base {
            Some(base) => providers::at(base).map_or("custom", |it| it.name),
            None => "openai",
        };
        let named = self.answers.get("llm.provider");
        let preset = named.filter(|name| choices.iter().any(|it| it.name == *name));
        let preset = preset.unwrap_or(of_base).to_owned();
        let chosen = self.prompt.choose("Who has the model", &choices, &preset)?;
        if chosen == NOBODY {
            for key in ["llm.provider", "llm.api_base", "llm.model_id"] {
                self.answers.set(key, None);
            }
            return Ok(false);
        }
        if let Some(known) = providers::named(&chosen)
            && (chosen != preset || base.is_none())
        {
            // Another provider, another address: the next question presets it.
            self.answers
                .set("llm.api_base", Some(known.api_base.to_owned()));
        }
        self.answers.set("llm.provider", Some(chosen));
        Ok(true)
    }

    /// Address, key and model, until they work together or are kept as they are.
    async fn server(&mut self, tries: bool) -> anyhow::Result<()> {
        let mut listed = None;
        loop {
            self.value("llm.api_base", "Its address", "https://api.example.com/v1")?;
            self.key()?;
            if !tries {
                break;
            }
            let base = self.answers.get("llm.api_base").unwrap_or_default();
            let server = ModelServer {
                base: base.to_owned(),
                key: self.answers.key(self.loaded).map(Secret::from),
            };
            let seen = models::ask(&server).await;
            self.prompt.say(&format!("  {seen}"))?;
            if !seen.is_failure() || self.keeps()? {
                listed = Some(seen);
                break;
            }
        }
        self.answers.take_dialect();
        self.model(listed.as_ref())
    }

    /// The key: what flags gave, what is kept, or what is typed.
    fn key(&mut self) -> anyhow::Result<()> {
        let kept = self.answers.key(self.loaded).map(Secret::from);
        let preset = kept.clone().or_else(|| self.answers.found_key());
        let question = match &preset {
            Some(key) => format!("Key (not shown; Enter keeps {key}, - is none)"),
            None => "Key (not shown; Enter for none: what callers show passes)".to_owned(),
        };
        loop {
            let typed = self.prompt.secret(&question)?;
            let key = match (typed.as_str(), &preset) {
                ("", preset) => preset.as_ref().map(|key| key.expose().to_owned()),
                ("-", _) => None,
                (typed, _) => Some(typed.to_owned()),
            };
            if !key.as_deref().is_none_or(is_key) {
                self.prompt.say(NO_KEY)?;
                continue;
            }
            let is_as_before = key.as_deref() == kept.as_ref().map(Secret::expose);
            if !is_as_before {
                self.answers.set("llm.api_key", key);
            }
            return Ok(());
        }
    }

    fn model(&mut self, seen: Option<&OfferedModels>) -> anyhow::Result<()> {
        let listed = match seen {
            Some(OfferedModels::Listed(models)) => models.as_slice(),
            _ => &[],
        };
        if (1..=MAX_LISTED).contains(&listed.len()) {
            self.prompt.say(&format!("  {}", listed.join(", ")))?;
        }
        let usual = self.answers.get("llm.provider").and_then(providers::named);
        let usual = usual.map_or("", |it| it.model);
        let usual = match listed {
            [] => usual,
            models if models.iter().any(|it| it == usual) => usual,
            models => models[0].as_str(),
        };
        loop {
            self.value("llm.model_id", "Model", usual)?;
            let model = self.answers.get("llm.model_id").unwrap_or_default();
            if listed.is_empty() || listed.iter().any(|it| it == model) {
                return Ok(());
            }
            let said = format!("  {}", models::missed(model, listed));
            self.prompt.say(&said)?;
            if self.keeps()? {
                return Ok(());
            }
        }
    }

    fn port(&mut self) -> anyhow::Result<()> {
        loop {
            self.value("proxy.port", "Port to listen on", "30000")?;
            let port = self.answers.get("proxy.port").unwrap_or_default();
            let is_ours = self.context.home.run_file().ok().flatten();
            let is_ours = is_ours.is_some_and(|it| it.base_url.contains(&format!(":{port}/")));
            let host = self.loaded.config.gateway.proxy.host;
            let number: u16 = port.parse().unwrap_or_default();
            let taken = TcpListener::bind((host, number)).err();
            match taken.filter(|_| !is_ours) {
                None => return Ok(()),
                Some(error) => self
                    .prompt
                    .say(&format!("  {host}:{number} cannot be had: {error}"))?,
            }
            if self.keeps()? {
                return Ok(());
            }
        }
    }

    /// Whether the agent may be pointed at us: asked once for each model that it asks.
    fn wiring(&mut self) -> anyhow::Result<bool> {
        let record = wiring(&self.context.home).record()?;
        let is_settled = |agent: &&Found| record.as_ref().is_some_and(|it| it.is_of(agent));
        let wires = self.loaded.config.wires_agent();
        let Some(agent) = self.agent.filter(|it| wires && !is_settled(it)) else {
            return Ok(false);
        };
        let question = format!(
            "Point {0} at MetaClaw while it runs (two keys in {1}, put back at its end)",
            agent.agent.name(),
            agent.file.display()
        );
        Ok(self.prompt.yes(&question, true)?)
    }

    /// One value, asked until it is allowed; what flags or the settings say is preset.
    pub(super) fn value(&mut self, key: &str, question: &str, usual: &str) -> anyhow::Result<()> {
        let preset = self.answers.get(key).unwrap_or(usual).to_owned();
        loop {
            let given = self.prompt.ask(question, &preset)?;
            match edit::allowed(key, &given) {
                Ok(value) => {
                    self.answers.set(key, Some(value));
                    return Ok(());
                }
                Err(error) => self.prompt.say(&format!("  {error}"))?,
            }
        }
    }

    /// Whether an answer that failed is kept all the same.
    pub(super) fn keeps(&mut self) -> anyhow::Result<bool> {
        Ok(self.prompt.yes("  Keep it all the same", false)?)
    }
}

/// Whether a text may be a key.
pub(super) fn is_key(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}

pub(super) fn choice(name: &str, about: &str) -> PromptChoice {
    PromptChoice {
        name: name.to_owned(),
        about: about.to_owned(),
    }
}
