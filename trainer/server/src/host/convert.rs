//! Converts between the types of the API and the engine.

use metaclaw_engine::{
    head::TopTokens,
    lora::{LoraSpec, LoraTargets},
    loss::{Loss, LossSignal},
    optim::AdamConfig,
};
use metaclaw_trainer_api::{
    Datum, LossConfig, LossFn,
    wire::{CreateRequest, ForwardReply, OptimStepRequest},
};

use crate::error::ApiError;

/// Returns the loss with its constants.
pub(super) fn loss(name: LossFn, config: &LossConfig) -> Result<Loss, ApiError> {
    Loss::new(name, config).map_err(|error| ApiError::field("loss_fn_config", error.to_string()))
}

/// Missing fields have Tinker's defaults.
pub(super) fn adam(request: &OptimStepRequest) -> AdamConfig {
    let default = AdamConfig::default();
    let given = request.adam;
    AdamConfig {
        learning_rate: request.learning_rate,
        beta1: given.beta1.unwrap_or(default.beta1),
        beta2: given.beta2.unwrap_or(default.beta2),
        eps: given.eps.unwrap_or(default.eps),
        weight_decay: given.weight_decay.unwrap_or(default.weight_decay),
        grad_clip_norm: given.grad_clip_norm.unwrap_or(default.grad_clip_norm),
        skip_over: given.skip_over.unwrap_or(default.skip_over),
    }
}

/// Returns rank, alpha and targets of a new run.
pub(super) fn lora_spec(request: &CreateRequest) -> Result<LoraSpec, ApiError> {
    let default = LoraSpec::default();
    let targets = match &request.targets {
        None => default.targets,
        Some(names) => named(names)?,
    };
    Ok(LoraSpec {
        rank: i64::from(request.rank),
        alpha: request.lora_alpha.map_or(Ok(default.alpha), alpha)?,
        targets,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and within a u32"
)]
fn alpha(given: f64) -> Result<u32, ApiError> {
    if given.fract() == 0.0 && given >= 1.0 && given <= f64::from(u32::MAX) {
        return Ok(given as u32);
    }
    let text = format!("lora_alpha is {given}: a whole number of at least 1, as PEFT writes it");
    Err(ApiError::field("lora_alpha", text))
}

fn named(names: &[String]) -> Result<LoraTargets, ApiError> {
    let targets = LoraTargets::named(names.iter().map(String::as_str));
    targets.map_err(|error| ApiError::field("targets", error.to_string()))
}

/// Returns the sum of a loss over one datum's targets, from their log-probabilities in row-major order.
///
/// # Errors
/// Returns the name of a field that the loss reads and the datum lacks.
pub(super) fn loss_sum(loss: &Loss, datum: &Datum, logprobs: &[f32]) -> Result<f64, &'static str> {
    let parts = datum.parts();
    let (weights, sampled) = match loss.loss_fn() {
        LossFn::CrossEntropy => {
            let weights = parts.weights.as_ref().ok_or("weights")?;
            (weights.values(), None)
        }
        LossFn::ImportanceSampling | LossFn::Ppo | LossFn::Cispo | LossFn::Dro => {
            let advantages = parts.advantages.as_deref().ok_or("advantages")?;
            (
                advantages,
                Some(parts.logprobs.as_deref().ok_or("logprobs")?),
            )
        }
    };
    let terms = logprobs.iter().zip(weights).enumerate();
    let terms = terms.map(|(at, (logprob, weight))| {
        let sampled = sampled.and_then(|all| all.get(at)).copied();
        let signal = LossSignal {
            weight: *weight,
            sampled: sampled.unwrap_or_default(),
        };
        if loss.is_masked(signal) {
            return 0.0;
        }
        loss.term(f64::from(*logprob), signal).loss
    });
    Ok(terms.sum())
}

/// The log-probabilities, and the likeliest ids of each position as lists of lists.
pub(super) fn forward_reply(
    logprobs: Vec<Vec<Option<f32>>>,
    top: &[TopTokens],
    k: usize,
) -> ForwardReply {
    let computed = |all: Vec<Option<f32>>| all.into_iter().flatten().collect();
    let logprobs = logprobs.into_iter().map(computed).collect();
    if k == 0 {
        return ForwardReply {
            logprobs,
            ..ForwardReply::default()
        };
    }
    ForwardReply {
        logprobs,
        topk_ids: top.iter().map(|top| rows(&top.ids, k)).collect(),
        topk_logprobs: top.iter().map(|top| rows(&top.logprobs, k)).collect(),
    }
}

fn rows<T: Clone>(values: &[T], k: usize) -> Vec<Vec<T>> {
    values.chunks(k).map(<[T]>::to_vec).collect()
}
