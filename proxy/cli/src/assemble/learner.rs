//! Who judges, and what the loop behind the chat is made of.

use std::sync::Arc;

use anyhow::Context as _;
use metaclaw_chat::Secret;
use metaclaw_gateway::{Privacy, Serving};
use metaclaw_learner::{Judge, JudgeKind, Learner, LearnerConfig, Parts};
use metaclaw_llm::{AskParams, ChatClient, LlmConfig, http_client};
use metaclaw_reward::Rules;
use metaclaw_skills::Library;
use metaclaw_trainer_api::TrainingBackend;
use metaclaw_turns::TurnLog;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    plan::Plan,
    purse::{Model, Purse},
};
use crate::{banner::JudgedWith, config::Config};

/// Votes differ: that is why there are several.
const TEMPERATURE: f32 = 0.6;
/// Room for a few sentences and the score.
const MAX_TOKENS: u32 = 1_024;

/// Where a judge model would be asked.
struct Address<'a> {
    url: &'a str,
    model: &'a str,
    key: Option<&'a Secret>,
}

/// The judge, what the banner says of it, and the model whose questions are counted.
pub(super) fn judge(
    plan: &Plan,
    config: &LearnerConfig,
    purse: &Arc<Purse>,
) -> anyhow::Result<(Judge, JudgedWith, Option<ChatClient>)> {
    let rules = Rules::compile(&config.judge.rules)?;
    let n_rules = config.judge.rules.len();
    let address = address(&plan.loaded.config);
    let asked = match (config.judge.kind, address) {
        (Some(JudgeKind::Off), _) => return Ok((Judge::nobody(), JudgedWith::Nobody, None)),
        (Some(JudgeKind::Rules), _) | (None, None) => None,
        (Some(JudgeKind::Llm), None) => anyhow::bail!(
            "judge.kind llm needs a model to ask: set judge.url and judge.model, or llm.api_base, llm.model_id and llm.api_key"
        ),
        (Some(JudgeKind::Llm) | None, Some(address)) => Some(address),
    };
    let Some(asked) = asked else {
        return Ok((Judge::Rules(rules), JudgedWith::Rules(n_rules), None));
    };
    let config_of_model = LlmConfig {
        url: asked.url.to_owned(),
        model: asked.model.to_owned(),
        key: asked.key.cloned(),
        timeout: config.judge.timeout,
    };
    let client = ChatClient::new(config_of_model, http_client(&plan.roots)?).context("judge")?;
    let model = Model {
        client: client.clone(),
        params: AskParams {
            temperature: Some(TEMPERATURE),
            max_tokens: Some(MAX_TOKENS),
        },
        purse: Arc::clone(purse),
    };
    let judge = Judge::Model {
        rules,
        model: Arc::new(model),
        votes: config.judge.votes,
    };
    let told = JudgedWith::Model {
        model: asked.model.to_owned(),
        url: asked.url.to_owned(),
    };
    Ok((judge, told, Some(client)))
}

/// Where to ask; none where there is no model, or only callers have its key.
fn address(config: &Config) -> Option<Address<'_>> {
    let (judge, llm) = (&config.judge, &config.llm);
    let model = judge.model.as_deref().or(llm.model_id.as_deref())?;
    match (&judge.url, &llm.api_base) {
        (Some(url), _) => Some(Address {
            url,
            model,
            key: judge.key.as_ref(),
        }),
        (None, Some(url)) => {
            let key = judge.key.as_ref().or(llm.api_key.as_ref())?;
            Some(Address {
                url,
                model,
                key: Some(key),
            })
        }
        (None, None) => None,
    }
}

/// Starts the loop behind the chat; the adapters that the log names serve when it returns.
pub(super) async fn start(
    config: LearnerConfig,
    (judge, library): (Judge, Option<Library>),
    log: &TurnLog,
    backend: Option<Arc<dyn TrainingBackend>>,
    (serving, privacy): (&Arc<Serving>, &Arc<Privacy>),
    (tasks, ending): (&TaskTracker, &CancellationToken),
) -> anyhow::Result<Learner> {
    let (serving, privacy) = (Arc::clone(serving), Arc::clone(privacy));
    let parts = Parts {
        is_off: Arc::new(move |agent| privacy.switch.is_off(agent)),
        config,
        log: log.clone(),
        backend,
        judge,
        library,
        // Until skills are written from what went wrong.
        skills_learn: false,
        on_swap: Arc::new(move |agent, adapter| serving.set(agent, Some(adapter.as_str()))),
    };
    Ok(Learner::start(parts, tasks, ending.clone()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layer, Loaded};

    /// Where a judge is asked with this configuration, for which model, with which key.
    fn asked(text: &str) -> Option<String> {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        let config = Loaded::new(vec![layer]).unwrap().config;
        let Address { url, model, key } = address(&config)?;
        let key = key.map_or("no key", |key| key.expose());
        Some(format!("{url} {model} {key}"))
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
}
