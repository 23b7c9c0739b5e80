//! Samplers and what they draw.

use axum::{
    Json as Reply,
    extract::{Path, State},
};
use futures_util::future::try_join_all;
use metaclaw_engine::{
    generate::{GenerateRequest, PromptLogprobs, PromptToken},
    sampler::SamplingParams,
};
use metaclaw_trainer_api::{
    AdapterName,
    tinker::{
        RequestId, SampleOutput, SamplerId, Sequence, StopReason, TinkerPath, WeightsKind,
        json::{
            CreateSamplingSession, Promise, SampleCall, SampleStop, SamplerInfo, SamplingSession,
            TinkerSamplingParams,
        },
    },
};
use metaclaw_trainer_terms::{ErrorCode, FinishReason};

use super::{
    body::Call,
    futures::{PromiseOpening, PromiseOutcome},
    registry::SamplerWeights,
    stored,
};
use crate::error::Result;
use crate::{error::ApiError, fields::parsed, host::Generation, state::TrainerApp};

pub(crate) async fn create(
    Call { app, body, .. }: Call<CreateSamplingSession>,
) -> Result<Reply<SamplingSession>> {
    let weights = weights(&app, body.model_path.as_deref(), body.base_model.as_deref()).await?;
    let (session, n) = (&body.session_id, body.sampling_session_seq_id);
    let id = SamplerId::of(session, n);
    let id = id.map_err(|error| ApiError::field("session_id", error.to_string()))?;
    let registry = &app.tinker.registry;
    registry.add_sampler(session, id.clone(), weights)?;
    Ok(Reply(SamplingSession {
        sampling_session_id: id,
    }))
}

async fn weights(
    app: &TrainerApp,
    path: Option<&str>,
    base: Option<&str>,
) -> Result<SamplerWeights> {
    if let Some(base) = base {
        app.host.load_base(base).await?;
    }
    let Some(path) = path else {
        if base.is_none() {
            let text = "base_model or model_path is needed: the base that is loaded, or tinker://RUN/sampler_weights/NAME";
            return Err(ApiError::field("model_path", text));
        }
        return Ok(SamplerWeights {
            adapter: None,
            path: None,
        });
    };
    let path: TinkerPath = parsed("model_path", path)?;
    if path.kind != WeightsKind::Sampler {
        let text = format!(
            "model_path {path} is not to sample from: tinker://RUN/sampler_weights/NAME, as save_weights_for_sampler answers it"
        );
        return Err(ApiError::field("model_path", text));
    }
    let adapter = AdapterName::from(&stored::flat(&path)?);
    if !app.host.has_adapter(&adapter) {
        let text = format!("there are no weights {path} here");
        return Err(ApiError::not_found(ErrorCode::CheckpointNotFound, text));
    }
    let (adapter, path) = (Some(adapter), Some(path));
    Ok(SamplerWeights { adapter, path })
}

pub(crate) async fn sampler(
    State(app): State<TrainerApp>,
    Path(id): Path<String>,
) -> Result<Reply<SamplerInfo>> {
    let sampler_id: SamplerId = parsed("sampler_id", &id)?;
    let weights = app.tinker.registry.sampler(&sampler_id)?;
    Ok(Reply(SamplerInfo {
        sampler_id,
        base_model: app.host.base().to_owned(),
        model_path: weights.path.map(|path| path.to_string()),
    }))
}

pub(crate) async fn asample(Call { app, body, sent }: Call<SampleCall>) -> Result<Reply<Promise>> {
    let weights = match &body.sampling_session_id {
        Some(sampler) => app.tinker.registry.sampler(sampler)?,
        None => weights(&app, body.model_path.as_deref(), body.base_model.as_deref()).await?,
    };
    let request_id = request_id(&body)?;
    let draw = draw(&app, body, weights.adapter)?;
    let ids: Vec<String> = (0..draw.n).map(|at| format!("{request_id}:{at}")).collect();
    let promise = Promise {
        request_id: request_id.clone(),
        model_id: None,
        sample_sequence_ids: Some(ids.clone()),
    };
    let room = app.tinker.room(sent.n_bytes, false)?;
    if let PromiseOpening::New = app.tinker.futures.open(promise.clone(), sent.hash)? {
        let id = request_id.clone();
        let own = app.clone();
        let task = app.tinker.tasks.spawn(async move {
            let outcome = match sample(&own, draw).await {
                Ok(output) => PromiseOutcome::Sample(output, ids),
                Err(error) => PromiseOutcome::failed(&error),
            };
            drop(room);
            own.tinker.futures.finish(&id, outcome);
        });
        let futures = &app.tinker.futures;
        futures.worked_on(&request_id, task.abort_handle());
    }
    Ok(Reply(promise))
}

/// The id of a sampler's call. A repeated call has the same id.
fn request_id(body: &SampleCall) -> Result<RequestId> {
    let id = match (&body.sampling_session_id, body.seq_id) {
        (Some(sampler), Some(seq)) => format!("{sampler}:{seq}"),
        _ => format!("sample:{:016x}", rand::random::<u64>()),
    };
    parsed("sampling_session_id", &id)
}

async fn sample(app: &TrainerApp, draw: TinkerDraw) -> Result<SampleOutput> {
    let places = app.tinker.samples.acquire_many(draw.n).await;
    let _place = places.map_err(|_| ApiError::unavailable("the server ends"))?;
    let n_prompt = draw.request.prompt_ids.len();
    let mut generations = app.host.generate(draw.request, draw.n).await?;
    let prompt = match generations.first_mut() {
        Some(first) => first.prompt().await,
        None => None,
    };
    let drawn = generations
        .into_iter()
        .map(|generation| whole(generation, draw.top_k));
    let drawn = try_join_all(drawn).await?;
    let n_cached = drawn.first().map_or(0, |(_, n_cached)| *n_cached);
    let mut output = SampleOutput {
        sequences: drawn.into_iter().map(|(sequence, _)| sequence).collect(),
        n_cached: u32::try_from(n_cached).unwrap_or(u32::MAX),
        ..SampleOutput::default()
    };
    if let Some(scoring) = draw.scoring {
        // A continuation that failed before has returned its error.
        let prompt = prompt.ok_or_else(|| ApiError::internal("the prompt has no scores"))?;
        put_scores(&mut output, scoring, prompt, n_prompt);
    }
    Ok(output)
}

/// Adds one entry for each prompt token. The first token has none, nor have those before `from`.
fn put_scores(
    output: &mut SampleOutput,
    scoring: Scoring,
    prompt: Vec<PromptToken>,
    n_prompt: usize,
) {
    let n_unknown = (scoring.from + 1).min(n_prompt);
    let known = prompt.into_iter().skip(scoring.from);
    let (logprobs, top): (Vec<_>, Vec<_>) = known.map(|token| (token.logprob, token.top)).unzip();
    if scoring.logprobs {
        let unknown = std::iter::repeat_n(None, n_unknown);
        output.prompt_logprobs = Some(unknown.chain(logprobs.into_iter().map(Some)).collect());
    }
    if scoring.top_k {
        let unknown = std::iter::repeat_n(None, n_unknown);
        output.topk_prompt_logprobs = Some(unknown.chain(top.into_iter().map(Some)).collect());
    }
}

async fn whole(generation: Generation, top_k: bool) -> Result<(Sequence, usize)> {
    let (tokens, end) = generation.whole().await?;
    let sequence = Sequence {
        stop_reason: match end.reason {
            FinishReason::Length => StopReason::Length,
            FinishReason::Stop => StopReason::Stop,
        },
        tokens: tokens.iter().map(|token| token.id).collect(),
        logprobs: Some(tokens.iter().map(|token| token.logprob).collect()),
        topk_logprobs: top_k.then(|| tokens.into_iter().map(|token| Some(token.top)).collect()),
    };
    Ok((sequence, end.n_cached))
}

#[derive(Debug, Clone, Copy)]
struct Scoring {
    /// The index of the first scored token, counted from the second token on.
    from: usize,
    top_k: bool,
    logprobs: bool,
}

#[derive(Debug)]
struct TinkerDraw {
    request: GenerateRequest,
    n: u32,
    top_k: bool,
    scoring: Option<Scoring>,
}

/// Reads the sampling settings.
///
/// # Errors
/// Returns 400 with the field.
fn draw(app: &TrainerApp, body: SampleCall, adapter: Option<AdapterName>) -> Result<TinkerDraw> {
    refuse_unbuilt(&body)?;
    let max = app.tinker.limits.n_samples;
    if !(1..=max).contains(&body.num_samples) {
        let text = format!("num_samples is {}: from 1 to {max}", body.num_samples);
        return Err(ApiError::field("num_samples", text));
    }
    let (top_k, prompt_top) = (body.topk_sample_logprobs, body.topk_prompt_logprobs);
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
    request.prompt_logprobs = scoring.map(|_| PromptLogprobs {
        top: prompt_top as usize,
    });
    app.host.check_draw(request.clone(), tinkers_name)?;
    Ok(TinkerDraw {
        request,
        n: body.num_samples,
        top_k: top_k > 0,
        scoring,
    })
}

fn tinkers_name(field: &'static str) -> &'static str {
    match field {
        "top_logprobs" => "topk_sample_logprobs",
        "prompt_logprobs" => "topk_prompt_logprobs",
        other => other,
    }
}

fn refuse_unbuilt(body: &SampleCall) -> Result<()> {
    let field = if body.target_prompt_logprobs.is_some() {
        "target_prompt_logprobs"
    } else if body.prompt_alt_tokens_k > 0 {
        "prompt_alt_tokens_k"
    } else if body.record_stability_info == Some(true) {
        "record_stability_info"
    } else {
        return Ok(());
    };
    let text = format!("{field} is not built here: leave it out");
    Err(ApiError::unsupported(field, text))
}

fn scoring(body: &SampleCall) -> Result<Option<Scoring>> {
    let logprobs = body.prompt_logprobs == Some(true);
    let top_k = body.topk_prompt_logprobs > 0;
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
fn drawn_by(params: TinkerSamplingParams) -> Result<GenerateRequest> {
    let (mut stop, mut stop_token_ids) = (Vec::new(), Vec::new());
    let ignore_eos = params.stop.is_some();
    match params.stop {
        None => {}
        Some(SampleStop::Text(text)) => stop.push(text),
        Some(SampleStop::Texts(texts)) => stop = texts,
        Some(SampleStop::Tokens(ids)) => stop_token_ids = ids,
    }
    stop.retain(|text| !text.is_empty());
    let k = if params.top_k == -1 { 0 } else { params.top_k };
    let top_k = usize::try_from(k).map_err(|_| {
        let text = format!("top_k is {k}: 1 or more, or -1 for all");
        ApiError::field("top_k", text)
    })?;
    Ok(GenerateRequest {
        max_tokens: params.max_tokens.map_or(usize::MAX, |n| n as usize),
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
