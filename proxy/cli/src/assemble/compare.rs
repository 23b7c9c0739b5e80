//! Whom `metaclaw compare` asks: who answers chats.

use metaclaw_llm::{HttpError, LlmConfig, http_client, loopback_client};

use super::{plan::Plan, trainer::TrainingSide};
use crate::{
    compare::{Comparer, PolicyAddress, Whom},
    config::Policy,
};

/// The policy model where there is one, else the model of `llm.*`.
pub(super) fn comparer(plan: &Plan, training: &TrainingSide) -> Result<Comparer, HttpError> {
    let llm = &plan.loaded.config.llm;
    let policy = |url: Option<String>, key: Option<String>| {
        Whom::Policy(PolicyAddress {
            url,
            trainer: training.state.clone(),
            key,
        })
    };
    let whom = match (&plan.policy, &llm.api_base, &llm.model_id) {
        (Policy::Local { .. }, ..) => policy(None, training.key.clone()),
        (Policy::Remote { url, key }, ..) => {
            let key = key.as_ref().map(|key| key.expose().to_owned());
            policy(Some(url.clone()), key)
        }
        (Policy::None, Some(url), Some(model)) => Whom::Llm(LlmConfig {
            url: url.clone(),
            model: model.clone(),
            key: llm.api_key.clone(),
            ..LlmConfig::default()
        }),
        (Policy::None, ..) => Whom::Nobody,
    };
    let http = match plan.policy {
        Policy::Local { .. } => loopback_client()?,
        Policy::Remote { .. } | Policy::None => http_client(&plan.roots)?,
    };
    Ok(Comparer { http, whom })
}
