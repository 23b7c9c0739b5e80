//! An asample request in the engine's form.

use metaclaw_engine::{
    generate::{GenerateRequest, PromptLogprobs},
    sampler::SamplingParams,
};
use metaclaw_trainer_api::{
    AdapterName,
    tinker::json::{SampleCall, SampleStop, TinkerSamplingParams as Params},
};

use crate::{error::ApiError, state::TrainerApp};

/// The prompt's tokens that are scored: none, all, or the last ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scoring {
    /// The index of the first scored token, counted from the second token on.
    pub(super) from: usize,
    /// Whether the likeliest ids are returned.
    pub(super) top_k: bool,
    pub(super) logprobs: bool,
}

/// The sampling request.
#[derive(Debug)]
pub(super) struct TinkerDraw {
    pub(super) request: GenerateRequest,
    pub(super) n: u32,
    pub(super) top_k: bool,
    pub(super) scoring: Option<Scoring>,
}

/// Reads the sampling settings.
///
/// # Errors
/// Returns 400 with the field.
pub(super) fn draw(
    app: &TrainerApp,
    body: SampleCall,
    adapter: Option<AdapterName>,
) -> Result<TinkerDraw, ApiError> {
    refuse_unbuilt(&body)?;
    let max = app.tinker.limits.n_samples;
    if !(1..=max).contains(&body.num_samples) {
        let text = format!("num_samples is {}: from 1 to {max}", body.num_samples);
        return Err(ApiError::field("num_samples", text));
    }
    let (top_k, prompt_top) = (
        body.topk_sample_logprobs,
        body.topk_prompt_logprobs as usize,
    );
    let scoring = scoring(&body)?;
    let tokens = body.prompt.into_tokens();
    let tokens = tokens.map_err(|why| ApiError::unsupported("prompt", format!("prompt: {why}")))?;
    let room = app.host.model()?.room_after(tokens.len());
    let room = room.map_err(|error| error.with_param("prompt"))?;
    let mut request = drawn_by(body.sampling_params)?;
    request.sampling.top_logprobs = top_k as usize;
    request.max_tokens = request.max_tokens.min(room);
    request.prompt_ids = tokens;
    request.adapter = adapter;
    request.prompt_logprobs = scoring.map(|_| PromptLogprobs { top: prompt_top });
    app.host.check_draw(request.clone(), tinkers_name)?;
    Ok(TinkerDraw {
        request,
        n: body.num_samples,
        top_k: top_k > 0,
        scoring,
    })
}

/// Returns Tinker's name of an engine's parameter.
fn tinkers_name(field: &'static str) -> &'static str {
    match field {
        "top_logprobs" => "topk_sample_logprobs",
        "prompt_logprobs" => "topk_prompt_logprobs",
        other => other,
    }
}

fn refuse_unbuilt(body: &SampleCall) -> Result<(), ApiError> {
    let unbuilt = [
        (
            "target_prompt_logprobs",
            body.target_prompt_logprobs.is_some(),
        ),
        ("prompt_alt_tokens_k", body.prompt_alt_tokens_k > 0),
        (
            "record_stability_info",
            body.record_stability_info == Some(true),
        ),
    ];
    match unbuilt.into_iter().find(|(_, is_asked)| *is_asked) {
        Some((field, _)) => {
            let text = format!("{field} is not built here: leave it out");
            Err(ApiError::unsupported(field, text))
        }
        None => Ok(()),
    }
}

fn scoring(body: &SampleCall) -> Result<Option<Scoring>, ApiError> {
    let (logprobs, top_k) = (
        body.prompt_logprobs == Some(true),
        body.topk_prompt_logprobs > 0,
    );
    if !logprobs && !top_k {
        return Ok(None);
    }
    let n = body.prompt.n_tokens().saturating_sub(1);
    let from = match body.prompt_logprobs_last_n {
        None => 0,
        Some(last) if last >= 1 && last as usize <= n => n - last as usize,
        Some(last) => {
            let text = format!("prompt_logprobs_last_n is {last}: from 1 to {n}");
            return Err(ApiError::field("prompt_logprobs_last_n", text));
        }
    };
    Ok(Some(Scoring {
        from,
        top_k,
        logprobs,
    }))
}

/// Without `stop` the model's own tokens end a continuation. A given `stop` takes their place, and an empty list means
/// no stop at all.
fn drawn_by(params: Params) -> Result<GenerateRequest, ApiError> {
    let (mut stop, mut stop_token_ids) = (Vec::new(), Vec::new());
    let ignore_eos = params.stop.is_some();
    match params.stop {
        None => {}
        Some(SampleStop::Text(text)) => stop.push(text),
        Some(SampleStop::Texts(texts)) => stop = texts,
        Some(SampleStop::Tokens(ids)) => stop_token_ids = ids,
    }
    stop.retain(|text| !text.is_empty());
    let top_k = if params.top_k == -1 { 0 } else { params.top_k };
    let top_k = usize::try_from(top_k).map_err(|_| {
        let text = format!("top_k is {top_k}: 1 or more, or -1 for all");
        ApiError::field("top_k", text)
    })?;
    let max_tokens = params.max_tokens.map_or(usize::MAX, |n| n as usize);
    Ok(GenerateRequest {
        max_tokens,
        sampling: SamplingParams {
            temperature: params.temperature,
            top_p: params.top_p,
            top_k,
            ..SamplingParams::default()
        },
        seed: params.seed.map(i64::cast_unsigned),
        stop,
        stop_token_ids,
        ignore_eos,
        ..GenerateRequest::default()
    })
}
