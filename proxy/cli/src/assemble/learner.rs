//! Who judges, and what the loop behind the chat is made of.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, ensure};
use metaclaw_aws::CredentialSource;
use metaclaw_chat::{Secret, Span};
use metaclaw_control::{
    compare::PolicyAddress, home::Home, replays::Replays, token_budget::TokenBudget,
};
use metaclaw_gateway::{LLM, OpenRouterConfig, Provider};
use metaclaw_learner::{
    Ask, Judge, JudgeKind, LearnerConfig, Recorder, RewardFunction, WandbClient,
};
use metaclaw_llm::{AskParams, ChatClient, LlmConfig, http_client, is_azure};
use metaclaw_reward::Rules;
use metaclaw_settings::{
    Config, ModelAddress,
    address::{elsewhere, is_bedrock, is_bedrocks_messages},
    overridden,
};

use super::{
    base_model::{UnadaptedModel, called},
    budgeted_model::BudgetedModel,
    compare::policy_client,
    function::Function,
    openrouter::extra_parts,
    plan::StartPlan,
    upstreams::credentials,
    whole_answer::ROOM,
};
use crate::banner::JudgedWith;

/// Votes differ: that is why there are several.
const TEMPERATURE: f64 = 0.6;
const NO_MODEL: &str = "judge.kind llm needs a model to ask: set judge.url and judge.model, or llm.api_base, llm.model_id and llm.api_key";

/// Where a model would be asked.
pub(super) struct AskAddress<'a> {
    pub(super) url: &'a str,
    pub(super) model: &'a str,
    key: Option<&'a Secret>,
    azure: bool,
    api_version: Option<&'a str>,
}

/// The judge, what the banner says of it, and the models whose questions are counted. `policy` is where the policy model
/// is, if there is one.
pub(super) fn judge(
    plan: &StartPlan,
    config: &LearnerConfig,
    budget: &Arc<TokenBudget>,
    policy: Option<PolicyAddress>,
) -> anyhow::Result<(Judge, JudgedWith, Vec<ChatClient>)> {
    let rules = Rules::compile(&config.judge.rules)?;
    let n_rules = config.judge.rules.len();
    let all = &plan.loaded.config;
    let params = AskParams {
        temperature: Some(TEMPERATURE),
        max_tokens: Some(ROOM),
        ..AskParams::default()
    };
    let by_model = |model: Arc<dyn Ask>, others, is_base| Judge::Model {
        rules: rules.clone(),
        model,
        others,
        votes: config.judge.votes,
        policy: config.judge.policy,
        is_base,
    };
    let voters = all.judge.voters();
    let asked = match config.judge.kind {
        Some(JudgeKind::Off) => return Ok((Judge::nobody(), JudgedWith::Nobody, Vec::new())),
        Some(JudgeKind::Http) => {
            let url = all.judge.address.url.clone();
            let url = url.context("judge.kind http needs judge.url: where your reward function is asked, as in http://127.0.0.1:8900/score (docs/extending/reward-functions.md)")?;
            let key = all.judge.address.key.as_ref();
            let function = Function::new(plan, &url, key, config.judge.timeout);
            let function = function.context("judge.url")?;
            let function = Arc::new(RewardFunction::new(Arc::new(function)));
            let judge = Judge::Function { rules, function };
            return Ok((judge, JudgedWith::Function { url }, Vec::new()));
        }
        Some(JudgeKind::Base) => {
            let address = policy.context("judge.kind base needs a policy model to ask without its adapter: set trainer.model, or rl.remote_url")?;
            let base = UnadaptedModel {
                http: policy_client(plan)?,
                address,
                params,
                timeout: config.judge.timeout,
                called: called(&plan.policy),
            };
            let judge = by_model(Arc::new(base), Vec::new(), true);
            return Ok((judge, JudgedWith::Base, Vec::new()));
        }
        Some(JudgeKind::Rules) => Vec::new(),
        Some(JudgeKind::Llm) | None => judge_addresses(&voters, all)?,
    };
    let Some((first, others)) = asked.split_first() else {
        ensure!(config.judge.kind != Some(JudgeKind::Llm), NO_MODEL);
        return Ok((Judge::Rules(rules), JudgedWith::Rules(n_rules), Vec::new()));
    };
    let client = |asked: &AskAddress<'_>| asked.client(plan, config.judge.timeout);
    let clients: anyhow::Result<Vec<ChatClient>> = asked.iter().map(client).collect();
    let clients = clients.context("judge")?;
    let model = |client: &ChatClient| -> Arc<dyn Ask> {
        Arc::new(BudgetedModel {
            client: client.clone(),
            params: params.clone(),
            budget: Arc::clone(budget),
        })
    };
    let mut models = clients.iter().map(model);
    let voter = models.next().context(NO_MODEL)?;
    let judge = by_model(voter, models.collect(), false);
    let place = |other: &AskAddress<'_>| format!("{} ({})", elsewhere(other.url), other.model);
    let told = JudgedWith::Model {
        model: first.model.to_owned(),
        url: first.url.to_owned(),
        others: others.iter().map(place).collect(),
    };
    Ok((judge, told, clients))
}

/// Where the models are that vote: none where there is none at all.
fn judge_addresses<'a>(
    voters: &'a [ModelAddress],
    all: &'a Config,
) -> anyhow::Result<Vec<AskAddress<'a>>> {
    let mut names = all.judge.models.keys();
    let mut found = Vec::new();
    for voter in voters {
        match (address(voter, all), names.next()) {
            (Some(address), _) => found.push(address),
            (None, None) => {}
            (None, Some(name)) => anyhow::bail!(
                "judge.models.{name} names no model that can be asked: set its url and model, or judge.url and judge.model"
            ),
        }
    }
    Ok(found)
}

/// A client of the model that judges by the settings, whatever else `judge.kind` says.
pub(crate) fn judge_client(all: &Config, http: reqwest::Client) -> anyhow::Result<ChatClient> {
    let voters = all.judge.voters();
    let asked = voters.first().and_then(|it| address(it, all)).context(
        "there is no model to judge with: set judge.url and judge.model, or llm.api_base, llm.model_id and llm.api_key",
    )?;
    let config = asked.config(all.learner.judge.timeout, &all.gateway.openrouter);
    Ok(ChatClient::new(config, http)?)
}

/// Where to ask; none where there is no model, or only callers have its key.
pub(super) fn address<'a>(own: &'a ModelAddress, config: &'a Config) -> Option<AskAddress<'a>> {
    let llm = &config.llm;
    let model = own.model.as_deref().or(llm.model_id.as_deref())?;
    let api_version = own.api_version.as_deref();
    match (&own.url, &llm.api_base) {
        (Some(url), _) => Some(AskAddress {
            url,
            model,
            key: own.key.as_ref(),
            azure: api_version.is_some() || is_azure(url),
            api_version,
        }),
        // A judge is asked in chat completions.
        (None, Some(url)) if is_bedrocks_messages(url) => None,
        (None, Some(url)) => {
            let key = own.key.as_ref().or(llm.api_key.as_ref());
            // Requests to Bedrock are signed by credentials that are nobody else's.
            if key.is_none() && !is_bedrock(url) {
                return None;
            }
            let described = config.gateway.upstreams.get(LLM);
            let speaks_azure = described.is_some_and(|it| it.dialect == Provider::Azure);
            Some(AskAddress {
                url,
                model,
                key,
                azure: speaks_azure || api_version.is_some() || is_azure(url),
                api_version: api_version
                    .or_else(|| described.and_then(|it| it.api_version.as_deref())),
            })
        }
        (None, None) => None,
    }
}

// === impl AskAddress ===

impl AskAddress<'_> {
    pub(super) fn client(&self, plan: &StartPlan, timeout: Span) -> anyhow::Result<ChatClient> {
        let config = LlmConfig {
            aws: credentials(&plan.environment),
            ..self.config(timeout, &plan.loaded.config.gateway.openrouter)
        };
        Ok(ChatClient::new(config, http_client(&plan.roots)?)?)
    }

    fn config(&self, timeout: Span, openrouter: &OpenRouterConfig) -> LlmConfig {
        LlmConfig {
            url: self.url.to_owned(),
            model: self.model.to_owned(),
            key: self.key.cloned(),
            timeout,
            azure: self.azure,
            api_version: self.api_version.map(str::to_owned),
            extra: extra_parts(self.url, openrouter),
            aws: CredentialSource::default(),
        }
    }
}

/// Where the numbers of steps are written. With a key of Weights & Biases they go there too.
pub(super) fn recorder(plan: &StartPlan) -> Recorder {
    let has_key = plan.environment.get("WANDB_API_KEY").is_some();
    let client = WandbClient {
        python: "python3".into(),
        project: "metaclaw".to_owned(),
        folder: figures(plan),
    };
    let report_to = &plan.loaded.config.rl.report_to;
    Recorder::with_live(figures(plan), report_to, has_key.then_some(client))
}

/// Replays of this home.
pub(super) fn replays(plan: &StartPlan) -> Replays {
    let report_to = &plan.loaded.config.rl.report_to;
    let numbers = figures(plan).join("replays");
    Replays::new(plan.home.replay(), numbers, report_to, overridden)
}

/// The folder of the figures of steps.
pub(super) fn figures(plan: &StartPlan) -> PathBuf {
    step_figures(&plan.loaded.config, &plan.home)
}

/// The folder of the figures of steps, by the settings of a home.
pub(crate) fn step_figures(config: &Config, home: &Home) -> PathBuf {
    let named = config.rl.log_dir.clone();
    named.unwrap_or_else(|| home.learning())
}

#[cfg(test)]
mod tests {
    use super::*;
    use metaclaw_settings::{Layer, Loaded};

    /// Where a judge is asked with this configuration, for which model, with which key.
    fn asked(text: &str) -> Option<String> {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        let config = Loaded::new(vec![layer]).unwrap().config;
        let AskAddress {
            url,
            model,
            key,
            azure,
            api_version,
        } = address(&config.judge.address, &config)?;
        let key = key.map_or("no key", |key| key.expose());
        let azure = if azure { " azure" } else { "" };
        let version = api_version.map(|it| format!(" {it}")).unwrap_or_default();
        Some(format!("{url} {model} {key}{azure}{version}"))
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
    }

    #[test]
    fn several_judges_take_what_they_leave_out_from_the_section() {
        let layer = |text: &str| Layer::text("config.yaml".into(), text).unwrap();
        let config = |text: &str| Loaded::new(vec![layer(text)]).unwrap().config;
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
        let voters = all.judge.voters();
        let asked = judge_addresses(&voters, &all).unwrap();
        let asked = asked.iter().map(|it| {
            let key = it.key.map_or("no key", |key| key.expose());
            format!("{} {} {key}", it.url, it.model)
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
        let voters = all.judge.voters();
        let error = judge_addresses(&voters, &all).err().unwrap().to_string();
        assert!(error.starts_with("judge.models.one names no"), "{error}");
    }
}
