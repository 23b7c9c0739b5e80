//! The requests of this client, as the wire has them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::session::OpenSession;
use crate::{
    Datum, LossConfig,
    tinker::{
        ModelId, SamplerId,
        json::{
            AdamParams, CreateModel, CreateSamplingSession, ForwardBackwardInput, LoadWeights,
            LoraConfig, ModelInput, OptimStep, SampleCall, SampleStop, SaveForSampler, SaveWeights,
            TensorData, TinkerSamplingParams, UnloadModel,
        },
        to_json,
    },
    wire::{CreateRequest, OptimStepRequest, SampleRequest},
};

/// Projections of attention and of the MLP: each is adapted as a whole or not at all.
const ATTENTION: [&str; 4] = ["q_proj", "k_proj", "v_proj", "o_proj"];
const MLP: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
/// The one alpha that there is.
const ALPHA: f64 = 32.0;
/// Seeds are passed on within what every server takes.
const SEEDS: u64 = 0x7fff_ffff;

/// Marks of what belongs to metaclaw in a server's lists.
pub(super) const OWNER: &str = "metaclaw_owner";
pub(super) const STEP: &str = "metaclaw_step";
pub(super) const MANIFEST: &str = "metaclaw_manifest";

fn seq(n: i32) -> Option<u32> {
    u32::try_from(n).ok()
}

/// The LoRA settings of a run in Tinker's form: rank, seed, and whether attention and MLP are adapted.
///
/// # Errors
/// In words, where a run asks for what Tinker's API cannot say.
pub(super) fn lora(spec: &CreateRequest) -> Result<LoraConfig, String> {
    if let Some(alpha) = spec.lora_alpha
        && alpha.to_bits() != ALPHA.to_bits()
    {
        return Err(format!(
            "rl.lora_alpha is {alpha}: this API has alpha {ALPHA}, whatever the rank"
        ));
    }
    let has = |names: &[&str]| match &spec.targets {
        None => Ok(true),
        Some(given) => {
            let n = names
                .iter()
                .filter(|name| given.iter().any(|it| it == *name))
                .count();
            if n == 0 || n == names.len() {
                return Ok(n > 0);
            }
            Err(format!(
                "rl.targets has {}: this API adapts {} together, or none of them",
                given.join("+"),
                names.join("+")
            ))
        }
    };
    Ok(LoraConfig {
        rank: spec.rank,
        seed: spec.seed.and_then(|it| i64::try_from(it & SEEDS).ok()),
        train_unembed: false,
        train_attn: has(&ATTENTION)?,
        train_mlp: has(&MLP)?,
    })
}

pub(super) fn create_model(session: &OpenSession, base: &str, lora: LoraConfig) -> CreateModel {
    CreateModel {
        session_id: session.id.clone(),
        model_seq_id: session.next_model(),
        base_model: base.to_owned(),
        user_metadata: None,
        lora_config: Some(lora),
        optimizer_config: None,
    }
}

fn load(path: &str) -> LoadWeights {
    LoadWeights {
        model_id: None,
        seq_id: None,
        session_id: None,
        model_seq_id: None,
        base_model: None,
        user_metadata: None,
        path: path.to_owned(),
        optimizer: true,
        optimizer_config: None,
    }
}

pub(super) fn create_by_load(session: &OpenSession, path: &str) -> LoadWeights {
    LoadWeights {
        session_id: Some(session.id.clone()),
        model_seq_id: Some(session.next_model()),
        ..load(path)
    }
}

pub(super) fn load_into(model: &ModelId, n: i32, path: &str) -> LoadWeights {
    LoadWeights {
        model_id: Some(model.clone()),
        seq_id: seq(n),
        ..load(path)
    }
}

pub(super) fn unload(model: &ModelId) -> UnloadModel {
    UnloadModel {
        model_id: model.clone(),
    }
}

pub(super) fn input(datums: &[Datum], loss_fn: &str, config: &LossConfig) -> ForwardBackwardInput {
    ForwardBackwardInput {
        data: datums.iter().map(to_json).collect(),
        loss_fn: loss_fn.to_owned(),
        loss_fn_config: Some(config.clone()).filter(|it| !it.is_empty()),
    }
}

/// Gives each sequence of a policy loss weights: 1 where it has an advantage.
pub(super) fn weigh(input: &mut ForwardBackwardInput, datums: &[Datum]) {
    for (it, datum) in input.data.iter_mut().zip(datums) {
        let parts = datum.parts();
        if let (None, Some(advantages)) = (&parts.weights, &parts.advantages) {
            let weights = advantages.iter().map(|it| f32::from(u8::from(*it != 0.0)));
            let weights: Vec<f32> = weights.collect();
            let weights = TensorData::of(&weights, &[advantages.len()]);
            it.loss_fn_inputs.insert("weights".to_owned(), weights);
        }
    }
}

/// The JSON body of a pass. The two calls name their input differently.
pub(super) fn pass(
    model: &ModelId,
    n: i32,
    is_forward: bool,
    input: &ForwardBackwardInput,
) -> Result<Value, serde_json::Error> {
    let name = if is_forward {
        "forward_input"
    } else {
        "forward_backward_input"
    };
    let mut body = Map::new();
    body.insert(name.to_owned(), serde_json::to_value(input)?);
    body.insert("model_id".to_owned(), model.as_str().into());
    body.insert("seq_id".to_owned(), n.into());
    Ok(Value::Object(body))
}

pub(super) fn optim_step(model: &ModelId, n: i32, request: &OptimStepRequest) -> OptimStep {
    let usual = AdamParams::default();
    let adam = request.adam;
    OptimStep {
        model_id: model.clone(),
        seq_id: seq(n),
        adam_params: Some(AdamParams {
            learning_rate: request.learning_rate,
            beta1: adam.beta1.unwrap_or(usual.beta1),
            beta2: adam.beta2.unwrap_or(usual.beta2),
            eps: adam.eps.unwrap_or(usual.eps),
            weight_decay: adam.weight_decay.unwrap_or(usual.weight_decay),
            grad_clip_norm: adam.grad_clip_norm.unwrap_or(usual.grad_clip_norm),
        }),
        optimizer_params: None,
    }
}

/// A step that changes no weights.
pub(super) fn no_step(model: &ModelId, n: i32) -> OptimStep {
    OptimStep {
        model_id: model.clone(),
        seq_id: seq(n),
        adam_params: Some(AdamParams {
            learning_rate: 0.0,
            ..AdamParams::default()
        }),
        optimizer_params: None,
    }
}

pub(super) fn save(
    model: &ModelId,
    n: i32,
    name: &str,
    metadata: &BTreeMap<&str, String>,
) -> SaveWeights {
    SaveWeights {
        model_id: model.clone(),
        path: Some(name.to_owned()),
        seq_id: seq(n),
        ttl_seconds: None,
        overwrite: false,
        user_metadata: Some(texts(metadata)),
    }
}

fn texts(metadata: &BTreeMap<&str, String>) -> Map<String, Value> {
    let text = |(key, value): (&&str, &String)| ((*key).to_owned(), Value::from(value.as_str()));
    metadata.iter().map(text).collect()
}

/// Weights to sample from, under a name.
pub(super) fn save_named(
    model: &ModelId,
    n: i32,
    name: &str,
    metadata: &BTreeMap<&str, String>,
) -> SaveForSampler {
    SaveForSampler {
        model_id: model.clone(),
        path: Some(name.to_owned()),
        sampling_session_seq_id: None,
        kind: Some("snapshot".to_owned()),
        seq_id: seq(n),
        ttl_seconds: None,
        user_metadata: Some(texts(metadata)),
    }
}

/// Weights to sample from, for this session alone.
pub(super) fn save_unnamed(model: &ModelId, n: i32, sampler: u32) -> SaveForSampler {
    SaveForSampler {
        model_id: model.clone(),
        path: None,
        sampling_session_seq_id: Some(sampler),
        kind: Some("snapshot".to_owned()),
        seq_id: seq(n),
        ttl_seconds: None,
        user_metadata: None,
    }
}

/// The base model, or saved weights, to sample from.
pub(super) fn sampler(
    session: &OpenSession,
    base: &str,
    path: Option<&str>,
) -> CreateSamplingSession {
    CreateSamplingSession {
        session_id: session.id.clone(),
        sampling_session_seq_id: session.next_sampler(),
        base_model: path.is_none().then(|| base.to_owned()),
        model_path: path.map(str::to_owned),
    }
}

/// The body of a request for continuations. If it has no stops of its own, a reply ends at one of `end_ids`, because
/// not every server knows the model's own.
pub(super) fn sample(request: &SampleRequest, end_ids: Vec<u32>) -> SampleCall {
    let stop = request.stop.clone().map(crate::wire::Stop::into_strings);
    let stop = stop.filter(|it| !it.is_empty()).map(SampleStop::Texts);
    let end = Some(end_ids).filter(|ids| !ids.is_empty());
    let seed = request.seed.map(|it| it & SEEDS);
    bare_sample(
        request.tokens.clone(),
        request.num_samples,
        TinkerSamplingParams {
            max_tokens: Some(request.max_tokens),
            seed: seed.and_then(|it| i64::try_from(it).ok()),
            stop: stop.or_else(|| end.map(SampleStop::Tokens)),
            temperature: request.temperature,
            top_k: if request.top_k == 0 {
                -1
            } else {
                request.top_k
            },
            top_p: request.top_p,
        },
    )
}

/// A prompt that is looked at; the token that is drawn after it is of no matter.
pub(super) fn look(prompt: Vec<u32>) -> SampleCall {
    let params = TinkerSamplingParams {
        max_tokens: Some(1),
        ..TinkerSamplingParams::default()
    };
    SampleCall {
        prompt_logprobs: Some(true),
        ..bare_sample(prompt, 1, params)
    }
}

pub(super) fn bare_sample(
    prompt: Vec<u32>,
    num_samples: u32,
    sampling_params: TinkerSamplingParams,
) -> SampleCall {
    SampleCall {
        num_samples,
        prompt: ModelInput::of(prompt),
        sampling_params,
        base_model: None,
        model_path: None,
        sampling_session_id: None,
        seq_id: None,
        prompt_logprobs: None,
        topk_prompt_logprobs: 0,
        topk_sample_logprobs: 0,
        target_prompt_logprobs: None,
        prompt_alt_tokens_k: 0,
        prompt_logprobs_last_n: None,
        record_stability_info: None,
    }
}

/// A sampler's next call.
pub(super) fn numbered(sample: &SampleCall, id: &SamplerId, n: u64) -> SampleCall {
    SampleCall {
        sampling_session_id: Some(id.clone()),
        seq_id: Some(n),
        ..sample.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(targets: &[&str]) -> CreateRequest {
        CreateRequest {
            targets: Some(targets.iter().map(|it| (*it).to_owned()).collect()),
            ..CreateRequest::default()
        }
    }

    #[test]
    fn a_shape_that_the_api_cannot_say_is_refused_in_words() {
        let all = lora(&spec(&[&ATTENTION[..], &MLP[..]].concat())).unwrap();
        assert!(all.train_attn && all.train_mlp && !all.train_unembed);
        let attention = lora(&spec(&ATTENTION)).unwrap();
        assert!(attention.train_attn && !attention.train_mlp);
        insta::assert_snapshot!(
            lora(&spec(&["q_proj", "v_proj"])).unwrap_err(),
            @"rl.targets has q_proj+v_proj: this API adapts q_proj+k_proj+v_proj+o_proj together, or none of them"
        );
        let other = CreateRequest {
            lora_alpha: Some(16.0),
            ..CreateRequest::default()
        };
        insta::assert_snapshot!(lora(&other).unwrap_err(), @"rl.lora_alpha is 16: this API has alpha 32, whatever the rank");
    }
}
