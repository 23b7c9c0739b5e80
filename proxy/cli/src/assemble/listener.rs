//! Who is asked what a message wishes, where the judge is no model that could say so.

use std::sync::Arc;

use anyhow::Context as _;
use metaclaw_learner::{Judge, JudgeConfig, JudgeKind, Listener};
use metaclaw_llm::AskParams;
use metaclaw_settings::{ModelAddress, Policy, address::elsewhere};

use super::{
    base_model::{BaseModel, called},
    compare::policy_client,
    learner::address,
    plan::Plan,
    purse::{Model, Purse},
};
use crate::compare::PolicyAddress;

/// The same message is to be heard the same way.
const TEMPERATURE: f64 = 0.0;
/// Room for a few wishes.
const MAX_TOKENS: u32 = 300;

/// The listener, and what the banner adds to where things go: the model of `llm.*` with a key of ours, else the policy
/// model. None where the judge hears, where `judge.kind` is `off`, where no wishes are heard, or no model can be asked.
pub(super) fn listener(
    plan: &Plan,
    (judge, settings): (&Judge, &JudgeConfig),
    purse: &Arc<Purse>,
    policy: Option<PolicyAddress>,
) -> anyhow::Result<Option<(Listener, String)>> {
    let (wishes, turns) = (&plan.loaded.config.wishes, &plan.loaded.config.turns);
    let is_wanted = wishes.enabled && turns.enabled && settings.kind != Some(JudgeKind::Off);
    if !is_wanted || judge.hears() {
        return Ok(None);
    }
    let params = AskParams {
        temperature: Some(TEMPERATURE),
        max_tokens: Some(MAX_TOKENS),
        ..AskParams::default()
    };
    let timeout = settings.timeout;
    let told = |place: String, model: &str| {
        format!(", what you type -> {place} ({model}: to hear wishes)")
    };
    if let Some(asked) = address(&ModelAddress::default(), &plan.loaded.config) {
        let client = asked.client(plan, timeout).context("llm")?;
        let told = told(elsewhere(asked.url), asked.model);
        let purse = Arc::clone(purse);
        let model = Model {
            client,
            params,
            purse,
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
    let model = BaseModel {
        http: policy_client(plan)?,
        address,
        params,
        timeout,
        called: called(&plan.policy),
    };
    Ok(Some((Listener::policy(Arc::new(model)), told)))
}
