//! Samplers and what they draw.

mod draw;

use std::sync::Arc;

use axum::{
    Json as Reply,
    extract::{Path, State},
};
use futures_util::future::try_join_all;
use metaclaw_engine::generate::PromptToken;
use metaclaw_trainer_api::{
    AdapterName,
    tinker::{
        RequestId, SampleOutput, SamplerId, Sequence, StopReason, TinkerPath, TopK, WeightsKind,
        json::{CreateSamplingSession, Promise, SampleCall, SamplerInfo, SamplingSession},
    },
};
use metaclaw_trainer_terms::{ErrorCode, FinishReason, SampleEvent};

use self::draw::{Scoring, TinkerDraw, draw};
use super::{
    body::Json,
    futures::{PromiseOpening, PromiseOutcome},
    registry::SamplerWeights,
    stored,
};
use crate::{error::ApiError, host::Generation, state::TrainerApp};

/// `POST create_sampling_session`.
pub(crate) async fn create(
    State(app): State<TrainerApp>,
    Json { body, .. }: Json<CreateSamplingSession>,
) -> Result<Reply<SamplingSession>, ApiError> {
    let weights = weights(&app, body.model_path.as_deref(), body.base_model.as_deref()).await?;
    let (session, n) = (&body.session_id, body.sampling_session_seq_id);
    let sampler = SamplerId::of(session, n)
        .map_err(|error| ApiError::field("session_id", error.to_string()))?;
    let registry = &app.tinker.registry;
    registry.add_sampler(session, sampler.clone(), weights)?;
    Ok(Reply(SamplingSession {
        sampling_session_id: sampler,
    }))
}

/// The weights that a path or a base model stands for.
async fn weights(
    app: &TrainerApp,
    path: Option<&str>,
    base: Option<&str>,
) -> Result<SamplerWeights, ApiError> {
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
    let path: TinkerPath = path
        .parse()
        .map_err(|error| ApiError::field("model_path", format!("{error}")))?;
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
    Ok(SamplerWeights {
        adapter: Some(adapter),
        path: Some(path),
    })
}

/// `GET samplers/{id}`.
pub(crate) async fn sampler(
    State(app): State<TrainerApp>,
    Path(id): Path<String>,
) -> Result<Reply<SamplerInfo>, ApiError> {
    let sampler_id: SamplerId = id
        .parse()
        .map_err(|error| ApiError::field("sampler_id", format!("{error}")))?;
    let weights = app.tinker.registry.sampler(&sampler_id)?;
    Ok(Reply(SamplerInfo {
        sampler_id,
        base_model: app.host.base().to_owned(),
        model_path: weights.path.map(|path| path.to_string()),
    }))
}

/// `POST asample`.
pub(crate) async fn asample(
    State(app): State<TrainerApp>,
    Json { body, sent }: Json<SampleCall>,
) -> Result<Reply<Promise>, ApiError> {
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
        app.tinker
            .futures
            .worked_on(&request_id, task.abort_handle());
    }
    Ok(Reply(promise))
}

/// The id of a sampler's call. A repeated call has the same id.
fn request_id(body: &SampleCall) -> Result<RequestId, ApiError> {
    let id = match (&body.sampling_session_id, body.seq_id) {
        (Some(sampler), Some(seq)) => format!("{sampler}:{seq}"),
        _ => format!("sample:{:016x}", rand::random::<u64>()),
    };
    id.parse()
        .map_err(|error| ApiError::field("sampling_session_id", format!("{error}")))
}

async fn sample(app: &TrainerApp, draw: TinkerDraw) -> Result<SampleOutput, ApiError> {
    let places = Arc::clone(&app.tinker.samples).acquire_many_owned(draw.n);
    let _place = places
        .await
        .map_err(|_| ApiError::unavailable("the server ends"))?;
    let n_prompt = draw.request.prompt_ids.len();
    let mut generations = app.host.generate(draw.request, draw.n).await?;
    let prompt = match generations.first_mut() {
        Some(first) => first.prompt().await,
        None => None,
    };
    let drawn = generations.into_iter().map(|it| whole(it, draw.top_k));
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
    let (logprobs, top): (Vec<_>, Vec<_>) = known.map(|it| (it.logprob, it.top)).unzip();
    if scoring.logprobs {
        let unknown = std::iter::repeat_n(None, n_unknown);
        output.prompt_logprobs = Some(unknown.chain(logprobs.into_iter().map(Some)).collect());
    }
    if scoring.top_k {
        let unknown = std::iter::repeat_n(None, n_unknown);
        output.topk_prompt_logprobs = Some(unknown.chain(top.into_iter().map(Some)).collect());
    }
}

/// A whole continuation, and how many ids of its prompt were not computed again.
async fn whole(mut generation: Generation, top_k: bool) -> Result<(Sequence, usize), ApiError> {
    let (mut tokens, mut logprobs) = (Vec::new(), Vec::new());
    let mut top: Vec<Option<TopK>> = Vec::new();
    loop {
        match generation.next(0).await? {
            SampleEvent::Token { token, .. } => {
                tokens.push(token.id);
                logprobs.push(token.logprob);
                if top_k {
                    top.push(Some(token.top));
                }
            }
            SampleEvent::End { end, .. } => {
                let stop_reason = match end.reason {
                    FinishReason::Length => StopReason::Length,
                    FinishReason::Stop => StopReason::Stop,
                };
                let sequence = Sequence {
                    stop_reason,
                    tokens,
                    logprobs: Some(logprobs),
                    topk_logprobs: top_k.then_some(top),
                };
                return Ok((sequence, end.n_cached));
            }
        }
    }
}
