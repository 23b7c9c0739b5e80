//! The questions about a service that trains: which one, its address, the key, one of its models, prices.

use metaclaw_chat::Secret;
use metaclaw_settings::{Service, address::host, edit};
use metaclaw_trainer_text::hub::HubName;

use super::{
    interview::{Interview, NO_KEY, choice, is_key},
    models,
    offer::{Asked, Offered},
};

const ADDRESS: &str = "rl.tinker_base_url";
const KEY: &str = "rl.tinker_api_key";
const MODEL: &str = "rl.model";
const METHOD: &str = "rl.method";
const ACCEPTED: &str = "gate.accept_without";
/// Methods whose teacher has replies scored.
const TAUGHT: [&str; 4] = ["context_distillation", "redo", "opd", "hybrid"];
/// The tests of the gate that have replies scored.
const SCORING: &str = "[replies, capability, preference]";
/// The model that is preset where the service names none.
const USUAL: &str = "Qwen/Qwen3-8B";

// === impl Interview ===

impl Interview<'_> {
    /// Everything about a service that trains; whether one is to. `tries` says whether the service is asked for its models.
    pub(super) async fn cloud(&mut self, tries: bool) -> anyhow::Result<bool> {
        let before = Service::of(&self.loaded.config.rl);
        let question = "Train by a service (Tinker, MinT, Weaver, or a server with its API)? It costs money, and your conversations are sent to it";
        if !self.prompt.yes(question, before.is_some())? {
            return Ok(false);
        }
        let service = self.which_service(before)?;
        let (offer, answering) = self.service(service, tries).await?;
        self.service_model(&offer)?;
        if let Some(asked) = answering {
            self.method(&asked).await?;
        }
        self.prices()?;
        Ok(true)
    }

    fn which_service(&mut self, before: Option<Service>) -> anyhow::Result<Service> {
        let about = |service: Service| match service {
            Service::Tinker => "Tinker, or a server with its API (SkyRL, metaclaw-trainer)",
            Service::Mint | Service::Weaver => service.name(),
        };
        let choices = Service::ALL.map(|it| choice(it.word(), about(it)));
        let preset = before.unwrap_or(Service::Tinker).word();
        let chosen = self.prompt.choose("Which service", &choices, preset)?;
        let mut all = Service::ALL.into_iter();
        let service = all.find(|it| it.word() == chosen);
        self.answers.set("rl.backend", Some(chosen));
        Ok(service.unwrap_or(Service::Tinker))
    }

    /// Address and key, until the service says which models it has, or they are kept as they are. The models, none where
    /// they are not known; and whom to ask further, where it has answered.
    async fn service(
        &mut self,
        service: Service,
        tries: bool,
    ) -> anyhow::Result<(Vec<Offered>, Option<Asked>)> {
        loop {
            let url = self.service_address(service)?;
            let Some(key) = self.service_key(service, &url)? else {
                self.prompt.say(&format!(
                    "  without a key {} is not asked for its models; before metaclaw start, set {KEY} or the variable {}_API_KEY",
                    service.name_at(&url),
                    service.prefix()
                ))?;
                return Ok((Vec::new(), None));
            };
            if !tries {
                return Ok((Vec::new(), None));
            }
            let asked = Asked { service, url, key };
            match asked.models().await {
                Ok(offer) => return Ok((offer, Some(asked))),
                Err(error) => self.prompt.say(&format!("  {error:#}"))?,
            }
            if self.keeps()? {
                return Ok((Vec::new(), None));
            }
        }
    }

    /// The method, where the service cannot do what the usual one needs.
    async fn method(&mut self, asked: &Asked) -> anyhow::Result<()> {
        let Some(model) = self.answers.get(MODEL).map(str::to_owned) else {
            return Ok(());
        };
        if asked.scores(&model).await != Some(false) {
            return Ok(());
        }
        let service = asked.service.name();
        self.prompt.say(&format!(
            "  {service} does not say how likely a model finds a given reply. Method redo, the usual one, and three tests of an adapter need that (docs/training/tinker.md)."
        ))?;
        let question = "Learn by method binary_rl, and let an adapter serve that passes the test that remains (tools)";
        if !self.prompt.yes(question, true)? {
            return Ok(self.prompt.say(
                "  then nothing is trained, until rl.method and gate.accept_without say otherwise",
            )?);
        }
        let has_teacher = |method: &str| TAUGHT.iter().any(|it| method.contains(it));
        if self.answers.before(METHOD).is_none_or(has_teacher) {
            self.answers.set(METHOD, Some("binary_rl".to_owned()));
        }
        let accepted = edit::allowed(ACCEPTED, SCORING)?;
        self.answers.set(ACCEPTED, Some(accepted));
        Ok(())
    }

    /// Where the service is. Its own address is not written down.
    fn service_address(&mut self, service: Service) -> anyhow::Result<String> {
        let variables = self.context.environment.variables();
        let own = service.address_in(variables);
        let own = own.unwrap_or_else(|| service.address().to_owned());
        let is_same = Service::of(&self.loaded.config.rl) == Some(service);
        let known = self.answers.get(ADDRESS);
        let known = known.filter(|_| is_same || self.answers.is_given(ADDRESS));
        let preset = known.unwrap_or(&own).to_owned();
        loop {
            let given = self.prompt.ask("Its address", &preset)?;
            match edit::allowed(ADDRESS, &given) {
                Ok(value) => {
                    let is_written =
                        value != own || self.answers.before(ADDRESS) == Some(value.as_str());
                    let written = is_written.then(|| value.clone());
                    self.answers.set(ADDRESS, written);
                    return Ok(value);
                }
                Err(error) => self.prompt.say(&format!("  {error}"))?,
            }
        }
    }

    /// The key: what was typed, what the settings have for this address, or what the environment has.
    fn service_key(&mut self, service: Service, url: &str) -> anyhow::Result<Option<String>> {
        let kept = self.kept_key(url);
        let of_environment = service.key_in(self.context.environment.variables());
        let preset = kept.clone().or(of_environment);
        let question = match &preset {
            Some(key) => format!(
                "Key of the service (not shown; Enter takes {})",
                Secret::from(key.clone())
            ),
            None => "Key of the service (not shown; Enter for none yet)".to_owned(),
        };
        loop {
            let typed = self.prompt.secret(&question)?;
            if !is_key(&typed) {
                self.prompt.say(NO_KEY)?;
            } else if !typed.is_empty() {
                self.answers.set(KEY, Some(typed.clone()));
                return Ok(Some(typed));
            } else {
                // A key that is there for another address is not sent to this one.
                let written = kept.and_then(|_| {
                    let typed = self.answers.get(KEY);
                    typed.or_else(|| self.answers.before(KEY))
                });
                let written = written.map(str::to_owned);
                self.answers.set(KEY, written);
                return Ok(preset);
            }
        }
    }

    /// The key that was typed before, or that the settings have for the same host.
    fn kept_key(&self, url: &str) -> Option<String> {
        if let Some(typed) = self.answers.get(KEY).filter(|_| self.answers.is_given(KEY)) {
            return Some(typed.to_owned());
        }
        let rl = &self.loaded.config.rl;
        let before = Service::of(rl)?.address();
        let before = rl.tinker_base_url.as_deref().unwrap_or(before);
        let key = rl.tinker_api_key.as_ref();
        let key = key.filter(|_| host(before) == host(url))?;
        Some(key.expose().to_owned())
    }

    /// One of the service's models, by its number or its name; any name where the models are not known.
    fn service_model(&mut self, offer: &[Offered]) -> anyhow::Result<()> {
        for (n, model) in offer.iter().enumerate() {
            let context = model.context.map_or_else(String::new, |tokens| {
                format!("  ({tokens} tokens of context)")
            });
            let line = format!("  {:>2}  {}{context}", n + 1, model.name);
            self.prompt.say(&line)?;
        }
        let names: Vec<String> = offer.iter().map(|it| it.name.clone()).collect();
        let question = match names.as_slice() {
            [] => "Model to train, as the service names it",
            _ => "Model to train, by its number or name",
        };
        let usual = names
            .iter()
            .find(|it| *it == USUAL)
            .or_else(|| names.first());
        let usual = usual.map_or(USUAL, String::as_str);
        let preset = self.answers.before(MODEL).unwrap_or(usual).to_owned();
        loop {
            let given = self.prompt.ask(question, &preset)?;
            let number = given.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let name = number.and_then(|n| names.get(n)).unwrap_or(&given);
            if !names.is_empty() && !names.contains(name) {
                let said = format!("  {}", models::missed(name, &names));
                self.prompt.say(&said)?;
                if !self.keeps()? {
                    continue;
                }
            }
            match edit::allowed(MODEL, name) {
                Ok(value) => {
                    let is_at_hub = value.parse::<HubName>().is_ok();
                    self.answers.set(MODEL, Some(value));
                    if !is_at_hub {
                        let what = "Its tokenizer: a folder that has one, or a name at the Hugging Face hub";
                        self.optional("rl.tokenizer", what, "")?;
                    }
                    return Ok(());
                }
                Err(error) => self.prompt.say(&format!("  {error}"))?,
            }
        }
    }

    fn prices(&mut self) -> anyhow::Result<()> {
        self.prompt.say(
            "The service's price list says what a million tokens cost; with these three prices, status and report show what was spent.",
        )?;
        for (key, what) in [
            ("rl.price_train", "trained (Enter: not shown)"),
            ("rl.price_read", "read"),
            ("rl.price_sample", "sampled"),
        ] {
            self.optional(key, &format!("Price of a million tokens {what}"), "")?;
        }
        Ok(())
    }
}
