//! Who is asked what a message wishes, where the judge is no model that could say so.

use std::sync::Arc;

use anyhow::Context as _;
use metaclaw_control::{compare::PolicyAddress, token_budget::TokenBudget};
use metaclaw_learner::{Judge, JudgeConfig, JudgeKind, Listener};
use metaclaw_llm::AskParams;
use metaclaw_settings::{ModelAddress, Policy, address::elsewhere};

use super::{
    base_model::{UnadaptedModel, called},
    budgeted_model::BudgetedModel,
    compare::policy_client,
    learner::address,
    plan::StartPlan,
    whole_answer::ROOM,
};

/// The same message is to be heard the same way.
const TEMPERATURE: f64 = 0.0;

/// The listener, and what the banner adds to where things go: the model of `llm.*` with a key of ours, else the policy
/// model. None where the judge hears, where `judge.kind` is `off`, where no wishes are heard, or no model can be asked.
pub(super) fn listener(
    plan: &StartPlan,
    judge: &Judge,
    settings: &JudgeConfig,
    budget: &Arc<TokenBudget>,
    policy: Option<PolicyAddress>,
) -> anyhow::Result<Option<(Listener, String)>> {
    let config = &plan.loaded.config;
    let reads = config.wishes.enabled || config.memory.enabled;
    let is_wanted = reads && config.turns.enabled && settings.kind != Some(JudgeKind::Off);
    if !is_wanted || judge.hears() {
        return Ok(None);
    }
    let params = AskParams {
        temperature: Some(TEMPERATURE),
        max_tokens: Some(ROOM),
        ..AskParams::default()
    };
    let timeout = settings.timeout;
    let what = match (config.wishes.enabled, config.memory.enabled) {
        (true, true) => "to hear wishes and facts",
        (false, true) => "to hear facts",
        (_, false) => "to hear wishes",
    };
    let told = |place: String, model: &str| format!(", what you type -> {place} ({model}: {what})");
    if let Some(asked) = address(&ModelAddress::default(), &plan.loaded.config) {
        let client = asked.client(plan, timeout).context("llm")?;
        let told = told(elsewhere(asked.url), asked.model);
        let budget = Arc::clone(budget);
        let model = BudgetedModel {
            client,
            params,
            budget,
        };
        return Ok(Some((Listener::Model(Arc::new(model)), told)));
    }
    let Some(address) = policy else {
        return Ok(None);
    };
    let told = match &plan.policy {
        Policy::Remote { url, .. } => told(elsewhere(url), "the base model"),
        Policy::Cloud(cloud) => told(elsewhere(&cloud.url), "the base model"),
        Policy::None | Policy::Local { .. } => String::new(),
    };
    let model = UnadaptedModel {
        http: policy_client(plan)?,
        address,
        params,
        timeout,
        called: called(&plan.policy),
    };
    Ok(Some((Listener::policy(Arc::new(model)), told)))
}
