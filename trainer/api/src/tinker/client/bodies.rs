//! The requests of this client, as the wire has them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::session::OpenSession;
use crate::backend::Result;
use crate::{
    BackendError, Datum, LossConfig,
    tinker::{
        ModelId, SamplerId,
        json::{
            AdamParams, CreateSamplingSession, ForwardBackwardInput, LoraConfig, ModelInput,
            SampleCall, SampleStop, TensorData, TinkerSamplingParams,
        },
        tensor::WireTensor as _,
        to_json,
    },
    wire::{CreateRequest, OptimStepRequest, SampleRequest, Stop},
};

/// Projections of attention and of the MLP: each is adapted as a whole or not at all.
const ATTENTION: [&str; 4] = ["q_proj", "k_proj", "v_proj", "o_proj"];
const MLP: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
const HEAD: &str = "lm_head";
/// The one alpha that there is.
const ALPHA: f64 = 32.0;
pub(super) const OWNER: &str = "metaclaw_owner";
pub(super) const STEP: &str = "metaclaw_step";
pub(super) const MANIFEST: &str = "metaclaw_manifest";

/// The LoRA settings of a run in Tinker's form: rank, seed, and whether attention and MLP are adapted.
///
/// # Errors
/// [`BackendError::Request`] where a run asks for what Tinker's API cannot say.
pub(super) fn lora(spec: &CreateRequest) -> Result<LoraConfig> {
    let unsaid = |why: String| BackendError::Request {
        call: "create_model",
        why,
    };
    if let Some(alpha) = spec.lora_alpha
        && alpha.to_bits() != ALPHA.to_bits()
    {
        return Err(unsaid(format!(
            "rl.lora_alpha is {alpha}: this API has alpha {ALPHA}, whatever the rank"
        )));
    }
    let given = spec.targets.as_deref().unwrap_or_default();
    let is_named = |name: &String| [&ATTENTION[..], &MLP, &[HEAD]].concat().contains(&&**name);
    if let Some(other) = given.iter().find(|name| !is_named(name)) {
        let why = format!("rl.targets has {other}: this API has no name for it");
        return Err(unsaid(why));
    }
    let has = |names: &[&str]| {
        let is_given = |name: &&&str| given.iter().any(|target| target == **name);
        let n = names.iter().filter(is_given).count();
        if n == 0 || n == names.len() {
            return Ok(n > 0);
        }
        let (given, names) = (given.join("+"), names.join("+"));
        Err(unsaid(format!(
            "rl.targets has {given}: this API adapts {names} together, or none of them"
        )))
    };
    let is_open = spec.targets.is_none();
    Ok(LoraConfig {
        rank: spec.rank,
        seed: seed(spec.seed),
        train_unembed: has(&[HEAD])?,
        train_attn: is_open || has(&ATTENTION)?,
        train_mlp: is_open || has(&MLP)?,
    })
}

pub(super) fn create_model(session: &OpenSession, base: &str, lora: LoraConfig) -> Value {
    json!({
        "type": "create_model", "session_id": session.id, "model_seq_id": session.next_model(),
        "base_model": base, "lora_config": lora,
    })
}

pub(super) fn create_by_load(session: &OpenSession, path: &str) -> Value {
    json!({
        "type": "load_weights", "session_id": session.id, "model_seq_id": session.next_model(),
        "path": path, "optimizer": true,
    })
}

pub(super) fn load_into(model: &ModelId, n: i32, path: &str) -> Value {
    json!({"type": "load_weights", "model_id": model, "seq_id": n, "path": path, "optimizer": true})
}

pub(super) fn input(datums: &[Datum], loss_fn: &str, config: &LossConfig) -> ForwardBackwardInput {
    ForwardBackwardInput {
        data: datums.iter().map(to_json).collect(),
        loss_fn: loss_fn.to_owned(),
        loss_fn_config: Some(config.clone()).filter(|config| !config.is_empty()),
    }
}

/// Gives each sequence of a policy loss weights: 1 where it has an advantage.
pub(super) fn weigh(input: &mut ForwardBackwardInput, datums: &[Datum]) {
    for (wire, datum) in input.data.iter_mut().zip(datums) {
        let parts = datum.parts();
        if let (None, Some(advantages)) = (&parts.weights, &parts.advantages) {
            let weights = advantages
                .iter()
                .map(|advantage| f32::from(u8::from(*advantage != 0.0)));
            let weights: Vec<f32> = weights.collect();
            let weights = TensorData::of(&weights, &[advantages.len()]);
            wire.loss_fn_inputs.insert("weights".to_owned(), weights);
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
    let name = ["forward_backward_input", "forward_input"][usize::from(is_forward)];
    let input = serde_json::to_value(input)?;
    Ok(json!({name: input, "model_id": model, "seq_id": n}))
}

pub(super) fn optim_step(model: &ModelId, n: i32, request: &OptimStepRequest) -> Value {
    let usual = AdamParams::default();
    let adam = request.adam;
    let params = AdamParams {
        learning_rate: request.learning_rate,
        beta1: adam.beta1.unwrap_or(usual.beta1),
        beta2: adam.beta2.unwrap_or(usual.beta2),
        eps: adam.eps.unwrap_or(usual.eps),
        weight_decay: adam.weight_decay.unwrap_or(usual.weight_decay),
        grad_clip_norm: adam.grad_clip_norm.unwrap_or(usual.grad_clip_norm),
    };
    json!({"type": "optim_step", "model_id": model, "seq_id": n, "adam_params": params})
}

pub(super) fn no_step(model: &ModelId, n: i32) -> Value {
    let params = AdamParams {
        learning_rate: 0.0,
        ..AdamParams::default()
    };
    json!({"type": "optim_step", "model_id": model, "seq_id": n, "adam_params": params})
}

pub(super) fn save(
    model: &ModelId,
    n: i32,
    name: &str,
    metadata: &BTreeMap<&str, String>,
) -> Value {
    json!({
        "type": "save_weights", "model_id": model, "seq_id": n, "path": name, "overwrite": false,
        "user_metadata": metadata,
    })
}

pub(super) fn save_named(
    model: &ModelId,
    n: i32,
    name: &str,
    metadata: &BTreeMap<&str, String>,
) -> Value {
    json!({
        "type": "save_weights_for_sampler", "model_id": model, "seq_id": n, "path": name,
        "kind": "snapshot", "user_metadata": metadata,
    })
}

pub(super) fn save_unnamed(model: &ModelId, n: i32, sampler: u32) -> Value {
    json!({
        "type": "save_weights_for_sampler", "model_id": model, "seq_id": n,
        "sampling_session_seq_id": sampler, "kind": "snapshot",
    })
}

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
    let texts = request.stop.clone().map(Stop::into_strings);
    let texts = texts.filter(|texts| !texts.is_empty());
    let ends = Some(end_ids).filter(|ids| !ids.is_empty());
    let params = TinkerSamplingParams {
        max_tokens: Some(request.max_tokens),
        seed: seed(request.seed),
        stop: texts
            .map(SampleStop::Texts)
            .or_else(|| ends.map(SampleStop::Tokens)),
        temperature: request.temperature,
        top_k: top_k(request.top_k),
        top_p: request.top_p,
    };
    bare_sample(request.tokens.clone(), request.num_samples, params)
}

/// Every server takes seeds within 31 bits.
pub(super) fn seed(seed: Option<u64>) -> Option<i64> {
    i64::try_from(seed? & 0x7fff_ffff).ok()
}

/// Off is 0 here, and -1 in Tinker's API.
pub(super) fn top_k(k: i64) -> i64 {
    if k == 0 { -1 } else { k }
}

/// A prompt that is looked at; the token that is drawn after it is of no matter.
pub(super) fn score(prompt: Vec<u32>) -> SampleCall {
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
        ..SampleCall::default()
    }
}

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
            targets: Some(targets.iter().map(|name| (*name).to_owned()).collect()),
            ..CreateRequest::default()
        }
    }

    #[test]
    fn a_shape_that_the_api_cannot_say_is_refused_in_words() {
        let all = lora(&spec(&[&ATTENTION[..], &MLP[..]].concat())).unwrap();
        assert!(all.train_attn && all.train_mlp && !all.train_unembed);
        let attention = lora(&spec(&ATTENTION)).unwrap();
        assert!(attention.train_attn && !attention.train_mlp);
        let head = lora(&spec(&["lm_head"])).unwrap();
        assert!(head.train_unembed && !head.train_attn);
        let open = lora(&CreateRequest::default()).unwrap();
        assert!(open.train_attn && open.train_mlp && !open.train_unembed);
        insta::assert_snapshot!(
            lora(&spec(&["q_proj", "v_proj"])).unwrap_err(),
            @"create_model: cannot write the request: rl.targets has q_proj+v_proj: this API adapts q_proj+k_proj+v_proj+o_proj together, or none of them"
        );
        insta::assert_snapshot!(
            lora(&spec(&["in_proj_z"])).unwrap_err(),
            @"create_model: cannot write the request: rl.targets has in_proj_z: this API has no name for it"
        );
        let other = CreateRequest {
            lora_alpha: Some(16.0),
            ..CreateRequest::default()
        };
        insta::assert_snapshot!(lora(&other).unwrap_err(), @"create_model: cannot write the request: rl.lora_alpha is 16: this API has alpha 32, whatever the rank");
    }
}
