//! Whom learning asks, by the settings alone: for verdicts, for wishes, and for skills.

use anyhow::{Context as _, bail};
use http::HeaderValue;
use metaclaw_chat::Span;
use metaclaw_gateway::{LLM, OpenRouterConfig, Provider};
use metaclaw_learner::JudgeKind;
use metaclaw_llm::{ExtraParts, LlmConfig, is_azure};
use metaclaw_settings::{
    Config, ModelAddress, Policy,
    address::{host, is_bedrock, is_bedrocks_messages},
};
use serde_json::Value;

const NO_MODEL: &str = "judge.kind llm needs a model to ask: set judge.url and judge.model, or llm.api_base, llm.model_id and llm.api_key";

/// Who gives verdicts where no rule does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judging {
    /// `judge.kind: off`: rules neither.
    Nobody,
    /// Rules alone.
    Rules,
    /// The owner's reward function, at an address.
    Function(String),
    /// The policy model without its adapter.
    Base,
    /// Models that vote. The first one hears wishes as well.
    Models {
        first: Box<LlmConfig>,
        others: Vec<LlmConfig>,
    },
}

/// Who hears wishes and facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hearing {
    Model(Box<LlmConfig>),
    Policy,
}

// === impl Judging ===

impl Judging {
    /// # Errors
    /// If what `judge.kind` needs is not set.
    pub(crate) fn from_config(config: &Config, policy: &Policy) -> anyhow::Result<Self> {
        let kind = config.learner.judge.kind;
        Ok(match kind {
            Some(JudgeKind::Off) => Self::Nobody,
            Some(JudgeKind::Rules) => Self::Rules,
            Some(JudgeKind::Base) => Self::Base,
            Some(JudgeKind::Http) => {
                let url = config.judge.address.url.clone();
                Self::Function(url.context("judge.kind http needs judge.url: where your reward function is asked, as in http://127.0.0.1:8900/score (docs/extending/reward-functions.md)")?)
            }
            Some(JudgeKind::Llm) | None => {
                let mut models = voters(config)?.into_iter();
                match models.next() {
                    Some(first) => Self::Models {
                        first: Box::new(first),
                        others: models.collect(),
                    },
                    None if kind.is_some() => bail!(NO_MODEL),
                    None if needs_verdicts(config, policy) => Self::Base,
                    None => Self::Rules,
                }
            }
        })
    }
}

/// Returns whether anybody uses the verdict of a model: weights learn from every turn, and skills from failures.
pub(crate) fn uses_verdicts(config: &Config, policy: &Policy) -> bool {
    let trains = policy.is_some() && config.learner.learns() && policy.may_train(config);
    trains || skill_writer(config).is_some()
}

/// Returns whether a model, or the owner's reward function, judges what may be a complaint.
pub(crate) fn judges_complaints(config: &Config, policy: &Policy) -> bool {
    match Judging::from_config(config, policy) {
        Ok(Judging::Function(_)) => true,
        Ok(Judging::Models { .. } | Judging::Base) => uses_verdicts(config, policy),
        Ok(Judging::Nobody | Judging::Rules) | Err(_) => false,
    }
}

/// Returns whether weights are trained although the settings name no judge, as in the Python original's configurations.
fn needs_verdicts(config: &Config, policy: &Policy) -> bool {
    let learner = &config.learner;
    learner.learns()
        && learner.judge.rules.is_empty()
        && policy.is_some()
        && policy.may_train(config)
}

// === impl Hearing ===

impl Hearing {
    /// Returns the model of `llm.*` if its key is configured, else the policy model. Returns `None` if wishes and memory
    /// are off, or if the judge's model detects them.
    pub(crate) fn from_config(config: &Config, policy: &Policy, judging: &Judging) -> Option<Self> {
        let is_wanted = config.turns.enabled && (config.wishes.enabled || config.memory.is_on());
        if !is_wanted || matches!(judging, Judging::Nobody | Judging::Models { .. }) {
            return None;
        }
        let timeout = config.learner.judge.timeout;
        match chat_model(&ModelAddress::default(), config, timeout) {
            Some(model) => Some(Self::Model(Box::new(model))),
            None => policy.that_serves(config).is_some().then_some(Self::Policy),
        }
    }
}

/// Returns who hears what is typed to any agent: the judge's model, or another.
pub(crate) fn hearer(config: &Config, policy: &Policy, judging: &Judging) -> Option<Hearing> {
    let is_wanted = config.turns.enabled && (config.wishes.enabled || config.memory.is_on());
    match judging {
        Judging::Models { first, .. } => is_wanted.then(|| Hearing::Model(first.clone())),
        _ => Hearing::from_config(config, policy, judging),
    }
}

pub(crate) fn skill_writer(config: &Config) -> Option<LlmConfig> {
    let skills = &config.skills;
    let is_wanted = skills.enabled && skills.auto_evolve && config.turns.enabled;
    let (own, timeout) = (&config.evolver.address, config.evolver.timeout);
    chat_model(own, config, timeout).filter(|_| is_wanted && skills.evolution_every_n_turns > 0)
}

/// The model that judges by the settings, whatever else `judge.kind` says.
///
/// # Errors
/// If there is none.
pub(crate) fn first_voter(config: &Config) -> anyhow::Result<LlmConfig> {
    voters(config)?.into_iter().next().context(
        "there is no model to judge with: set judge.url and judge.model, or llm.api_base, llm.model_id and llm.api_key",
    )
}

fn voters(config: &Config) -> anyhow::Result<Vec<LlmConfig>> {
    let mut names = config.judge.models.keys();
    let mut models = Vec::new();
    for voter in config.judge.voters() {
        let name = names.next();
        match (
            chat_model(&voter, config, config.learner.judge.timeout),
            name,
        ) {
            (Some(model), _) => models.push(model),
            (None, None) => {}
            (None, Some(name)) => bail!(
                "judge.models.{name} names no model that can be asked: set its url and model, or judge.url and judge.model"
            ),
        }
    }
    Ok(models)
}

/// A model, with what it takes from `llm.*`. `None` if there is no model, or only callers have its key.
fn chat_model(own: &ModelAddress, config: &Config, timeout: Span) -> Option<LlmConfig> {
    let llm = &config.llm;
    let mut model = LlmConfig {
        model: own.model.clone().or_else(|| llm.model_id.clone())?,
        key: own.key.clone(),
        timeout,
        api_version: own.api_version.clone(),
        ..LlmConfig::default()
    };
    if let Some(url) = &own.url {
        model.url.clone_from(url);
    } else {
        model.url = llm.api_base.clone()?;
        model.key = model.key.or_else(|| llm.api_key.clone());
        // A judge is asked in chat completions.
        if is_bedrocks_messages(&model.url) {
            return None;
        }
        // Requests to Bedrock are signed by credentials that are nobody else's.
        if model.key.is_none() && !is_bedrock(&model.url) {
            return None;
        }
        if let Some(described) = config.gateway.upstreams.get(LLM) {
            model.azure = described.dialect == Provider::Azure;
            model.api_version = model.api_version.or_else(|| described.api_version.clone());
        }
    }
    let is_named = own.provider.as_deref() == Some("azure");
    model.azure |= is_named || own.api_version.is_some() || is_azure(&model.url);
    model.extra = extra_parts(&model.url, &config.gateway.openrouter);
    Some(model)
}

/// What a model at this address is told besides the chat. No other model than the one that was chosen may judge, so
/// OpenRouter is not told which others it may ask.
pub(crate) fn extra_parts(url: &str, openrouter: &OpenRouterConfig) -> ExtraParts {
    let name = host(url).split(':').next().unwrap_or_default();
    if !OpenRouterConfig::is_host(name) {
        return ExtraParts::default();
    }
    let text = |value: HeaderValue| value.to_str().map(str::to_owned).ok();
    let headers = openrouter.headers();
    let provider = openrouter.provider(None).map(Value::Object);
    ExtraParts {
        headers: headers
            .filter_map(|(name, value)| Some((name.to_string(), text(value)?)))
            .collect(),
        fields: provider
            .map(|provider| ("provider".to_owned(), provider))
            .into_iter()
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_settings::{Layer, Loaded};

    use super::*;

    fn config(text: &str) -> Config {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        Loaded::new(vec![layer]).unwrap().config
    }

    fn asked(text: &str) -> Option<String> {
        let config = config(text);
        let model = chat_model(&config.judge.address, &config, Span::secs(60))?;
        let key = model.key.as_ref().map_or("no key", |key| key.expose());
        let azure = if model.azure { " azure" } else { "" };
        let version = model.api_version.map(|version| format!(" {version}"));
        let version = version.unwrap_or_default();
        Some(format!(
            "{} {} {key}{azure}{version}",
            model.url, model.model
        ))
    }

    #[test]
    fn a_judge_is_asked_with_a_key_of_ours_or_not_at_all() {
        let llm = "llm: {api_base: 'https://a.example/v1', model_id: big, api_key: k1}\n";
        assert_eq!(asked(llm).unwrap(), "https://a.example/v1 big k1");
        // The callers' keys pass through: there is none to judge with.
        let through = "llm: {api_base: 'https://a.example/v1', model_id: big}\n";
        assert_eq!(asked(through), None);
        // The key of one address is not for another.
        let own = format!("{llm}judge: {{url: 'http://127.0.0.1:9/v1', model: small}}\n");
        assert_eq!(asked(&own).unwrap(), "http://127.0.0.1:9/v1 small no key");
        let other = format!("{llm}judge: {{model: small, key: k2}}\n");
        assert_eq!(asked(&other).unwrap(), "https://a.example/v1 small k2");
        assert_eq!(asked("judge: {kind: llm}\n"), None);
    }

    #[test]
    fn azure_is_asked_as_for_chats() {
        let llm = "llm: {api_base: 'https://a.example', model_id: big, api_key: k1}\nupstreams: {llm: {dialect: azure, api_version: v1}}\n";
        assert_eq!(asked(llm).unwrap(), "https://a.example big k1 azure v1");
        let own = format!("{llm}judge: {{api_version: v2}}\n");
        assert_eq!(asked(&own).unwrap(), "https://a.example big k1 azure v2");
        let other = format!("{llm}judge: {{url: 'https://b.example/v1', model: small, key: k3}}\n");
        assert_eq!(asked(&other).unwrap(), "https://b.example/v1 small k3");
        let host = "judge: {url: 'https://x.openai.azure.com/openai/v1', model: m, key: k}\n";
        assert!(asked(host).unwrap().ends_with(" azure"));
        let named = "judge: {provider: azure, url: 'https://own.example', model: m, key: k}\n";
        assert!(asked(named).unwrap().ends_with(" azure"));
    }

    #[test]
    fn several_judges_take_what_they_leave_out_from_the_section() {
        let all = config(
            "judge:
  url: 'https://a.example/v1'
  key: k1
  models:
    one: {model: m1}
    three: {model: m3, url: 'https://c.example/v1'}
    two: {model: m2, url: 'https://b.example/v1', key: k2}
",
        );
        let asked = voters(&all).unwrap().into_iter().map(|model| {
            let key = model.key.as_ref().map_or("no key", |key| key.expose());
            format!("{} {} {key}", model.url, model.model)
        });
        assert_eq!(
            asked.collect::<Vec<_>>(),
            [
                "https://a.example/v1 m1 k1",
                "https://c.example/v1 m3 no key",
                "https://b.example/v1 m2 k2",
            ]
        );
        let all = config("judge: {models: {one: {model: m1}}}\n");
        let error = voters(&all).unwrap_err().to_string();
        assert!(error.starts_with("judge.models.one names no"), "{error}");
    }

    #[test]
    fn a_judge_at_openrouter_is_asked_by_its_settings() {
        let openrouter = serde_json::json!({
            "app_name": "Mine", "data_policy": "deny", "fallback_models": ["other"]
        });
        let openrouter = serde_json::from_value(openrouter).unwrap();
        let extra = extra_parts("https://openrouter.ai/api/v1", &openrouter);
        assert_eq!(extra.headers["x-title"], "Mine");
        let fields = Value::Object(extra.fields);
        let expected = serde_json::json!({"provider": {"data_collection": "deny"}});
        assert_eq!(fields, expected);
        let extra = extra_parts("https://openrouter.ai.example/v1", &openrouter);
        assert_eq!(extra, ExtraParts::default());
    }
}
