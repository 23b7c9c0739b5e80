//! `POST /v1/sample` and `GET /v1/sampled/{reply id}`.

use axum::{
    Json,
    extract::{Path, State},
};
use metaclaw_trainer_api::wire::{SampleReply, SampleRequest, Sampled, SampledSequence};

use crate::{
    chat::{stops, temperature, top_k, top_p},
    error::ApiError,
    host::{Draw, Event, Sampling},
    json::JsonBody,
    state::App,
};

/// The most continuations of one request.
const MAX_SAMPLES: u32 = 64;

/// Continuations of given ids, one after the other; each finds the prompt in the cache.
pub(crate) async fn sample(
    State(app): State<App>,
    JsonBody(request): JsonBody<SampleRequest>,
) -> Result<Json<SampleReply>, ApiError> {
    let mut draw = draw(&app, &request)?;
    let _place = app.queue.enter()?;
    let mut sequences = Vec::new();
    for at in 0..request.num_samples {
        draw.sampling.seed = request.seed.map(|seed| seed.wrapping_add(u64::from(at)));
        sequences.push(one(&app, draw.clone()).await?);
    }
    Ok(Json(SampleReply { sequences }))
}

fn draw(app: &App, request: &SampleRequest) -> Result<Draw, ApiError> {
    if request.tokens.is_empty() {
        let text = "tokens is empty: at least one token";
        return Err(ApiError::field("tokens", text));
    }
    if !(1..=MAX_SAMPLES).contains(&request.num_samples) {
        let text = format!(
            "num_samples is {}: from 1 to {MAX_SAMPLES}",
            request.num_samples
        );
        return Err(ApiError::field("num_samples", text));
    }
    if request.max_tokens == 0 {
        return Err(ApiError::field("max_tokens", "max_tokens is 0: at least 1"));
    }
    let room = app.host.room_after(request.tokens.len())?;
    Ok(Draw {
        prompt_ids: request.tokens.clone(),
        adapter: app.models.resolve(request.model.as_deref(), &app.host)?,
        max_tokens: room.min(request.max_tokens as usize),
        sampling: Sampling {
            temperature: temperature(request.temperature)?,
            top_p: top_p(request.top_p)?,
            top_k: top_k(request.top_k)?,
            seed: request.seed,
            stop: stops(request.stop.clone())?,
        },
    })
}

async fn one(app: &App, draw: Draw) -> Result<SampledSequence, ApiError> {
    let mut generation = app.host.generate(draw).await?;
    let mut sequence = SampledSequence {
        tokens: Vec::new(),
        logprobs: Vec::new(),
        sampling_logprobs: Vec::new(),
        stop_reason: String::new(),
    };
    loop {
        match generation.next().await? {
            Event::Token(token) => {
                sequence.tokens.push(token.id);
                sequence.logprobs.push(token.logprob);
                sequence.sampling_logprobs.push(token.sampling_logprob);
            }
            Event::End(end) => {
                end.reason.clone_into(&mut sequence.stop_reason);
                return Ok(sequence);
            }
        }
    }
}

/// What was sampled for a reply.
pub(crate) async fn sampled(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Sampled>, ApiError> {
    let found = app.sampled.get(&id).ok_or_else(|| {
        ApiError::not_found(
            "sampled_not_found",
            format!("nothing is kept of a reply {id:?}: records are of complete replies, and kept for 15 minutes or until newer ones need the room"),
        )
    })?;
    Ok(Json(Sampled::clone(&found)))
}
