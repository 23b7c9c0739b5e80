//! `POST /v1/sample`.

use axum::{Json, extract::State};
use futures_util::future::try_join_all;
use metaclaw_engine::generate::GenerateRequest;
use metaclaw_trainer_api::wire::{SampleReply, SampleRequest, SampledSequence};
use metaclaw_trainer_chat::SamplingBody;
use metaclaw_trainer_terms::{SampleEvent, SamplerError};

use crate::{
    error::ApiError,
    fields::{self, Field},
    host::Generation,
    json::{self, ApiJson, ReadApiJson},
    state::TrainerApp,
};

/// The largest number of continuations of one request.
const MAX_SAMPLES: u32 = 64;

/// The fork's fields, and additional sampling settings.
#[derive(Debug)]
pub(crate) struct SampleBody {
    own: SampleRequest,
    sampling: SamplingBody,
}

impl ReadApiJson for SampleBody {
    const FIELDS: &'static [Field] = fields::SAMPLE;

    fn read(body: &[u8]) -> Result<Self, ApiError> {
        Ok(Self {
            own: json::parse(body)?,
            sampling: json::parse(body)?,
        })
    }
}

/// Samples continuations of the given ids and returns all of them together.
pub(crate) async fn sample(
    State(app): State<TrainerApp>,
    ApiJson(body): ApiJson<SampleBody>,
) -> Result<Json<SampleReply>, ApiError> {
    let n = body.own.num_samples;
    let draw = draw(&app, body).await?;
    let _place = app.front.queue().enter(n)?;
    let generations = app.host.generate(draw, n).await?;
    let sequences = try_join_all(generations.into_iter().map(whole)).await?;
    Ok(Json(SampleReply { sequences }))
}

async fn draw(app: &TrainerApp, body: SampleBody) -> Result<GenerateRequest, ApiError> {
    let own = body.own;
    if !(1..=MAX_SAMPLES).contains(&own.num_samples) {
        let text = format!(
            "num_samples is {}: from 1 to {MAX_SAMPLES}",
            own.num_samples
        );
        return Err(ApiError::field("num_samples", text));
    }
    let room = app.host.model()?.room_after(own.tokens.len())?;
    let adapter = app.front.resolve(own.model.as_deref()).await?;
    let sampling = body.sampling.or(own.temperature, own.top_p, own.top_k);
    Ok(GenerateRequest {
        prompt_ids: own.tokens,
        adapter,
        max_tokens: room.min(own.max_tokens as usize),
        ..sampling.request()?.into()
    })
}

async fn whole(mut generation: Generation) -> Result<SampledSequence, SamplerError> {
    let mut sequence = SampledSequence {
        tokens: Vec::new(),
        logprobs: Vec::new(),
        sampling_logprobs: Vec::new(),
        stop_reason: String::new(),
        text: String::new(),
    };
    loop {
        match generation.next(0).await? {
            SampleEvent::Token { token, .. } => {
                sequence.tokens.push(token.id);
                sequence.logprobs.push(token.logprob);
                sequence.sampling_logprobs.push(token.sampling_logprob);
                sequence.text += token.text.as_deref().unwrap_or_default();
            }
            SampleEvent::End { end, .. } => {
                end.reason.as_str().clone_into(&mut sequence.stop_reason);
                return Ok(sequence);
            }
        }
    }
}
