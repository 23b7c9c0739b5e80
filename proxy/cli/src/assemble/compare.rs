//! Whom `metaclaw compare` asks: who answers chats.

use metaclaw_control::compare::{ComparedModel, Comparer, MAX_ANSWER, PolicyAddress};
use metaclaw_llm::{AskParams, HttpError, LlmConfig, http_client, loopback_client};
use metaclaw_settings::Policy;

use super::{
    openrouter::extra_parts, plan::StartPlan, trainer::TrainingSide, upstreams::credentials,
};

/// The policy model where there is one, else the model of `llm.*`.
pub(super) fn comparer(plan: &StartPlan, training: &TrainingSide) -> anyhow::Result<Comparer> {
    let llm = &plan.loaded.config.llm;
    let whom = match (policy_address(plan, training), &llm.api_base, &llm.model_id) {
        (Some(address), ..) => ComparedModel::Policy(address),
        (None, Some(url), Some(model)) => ComparedModel::Llm(Box::new(LlmConfig {
            url: url.clone(),
            model: model.clone(),
            key: llm.api_key.clone(),
            extra: extra_parts(url, &plan.loaded.config.gateway.openrouter),
            aws: credentials(&plan.environment),
            ..LlmConfig::default()
        })),
        (None, ..) => ComparedModel::Nobody,
    };
    let http = policy_client(plan)?;
    let params = params(plan, &whom);
    Ok(Comparer { http, whom, params })
}

/// How a new chat is drawn that names no sampling, so that the answers are those which an agent would get.
fn params(plan: &StartPlan, whom: &ComparedModel) -> AskParams {
    let plain = AskParams {
        max_tokens: Some(MAX_ANSWER),
        ..AskParams::default()
    };
    if !matches!(whom, ComparedModel::Policy(_)) {
        return plain;
    }
    let serving = &plan.loaded.config.gateway.serving;
    AskParams {
        temperature: serving.temperature,
        top_p: serving.top_p,
        ..plain
    }
}

/// Where the policy model is; none where there is none.
pub(super) fn policy_address(plan: &StartPlan, training: &TrainingSide) -> Option<PolicyAddress> {
    let (url, key) = match &plan.policy {
        Policy::Local { .. } => (None, training.key.clone()),
        Policy::Remote { url, key } => {
            let key = key.as_ref().map(|key| key.expose().to_owned());
            (Some(url.clone()), key)
        }
        Policy::Cloud(_) => {
            let cloud = training.cloud.as_ref()?;
            (Some(cloud.url.clone()), Some(cloud.key.clone()))
        }
        Policy::None => return None,
    };
    let trainer = training.state.clone();
    Some(PolicyAddress { url, trainer, key })
}

/// What it is asked by.
pub(super) fn policy_client(plan: &StartPlan) -> Result<reqwest::Client, HttpError> {
    match plan.policy {
        Policy::Local { .. } | Policy::Cloud(_) => loopback_client(),
        Policy::Remote { .. } | Policy::None => http_client(&plan.roots),
    }
}
