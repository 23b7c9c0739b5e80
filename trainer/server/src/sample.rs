//! `POST /v1/sample`.

use axum::Json;
use futures_util::future::try_join_all;
use metaclaw_engine::generate::GenerateRequest;
use metaclaw_trainer_api::wire::{SampleReply, SampleRequest, SampledSequence};
use metaclaw_trainer_chat::SamplingBody;
use metaclaw_trainer_terms::SamplerError;

use crate::error::Result;
use crate::{
    error::ApiError,
    host::Generation,
    json::{self, Asked, ReadApiJson},
    state::TrainerApp,
};

const MAX_SAMPLES: u32 = 64;

#[derive(Debug)]
pub(crate) struct SampleBody {
    own: SampleRequest,
    sampling: SamplingBody,
}

impl ReadApiJson for SampleBody {
    const ROUTE: &'static str = "POST /v1/sample";

    fn read(body: &[u8]) -> Result<Self> {
        let (own, sampling) = (json::parse(body)?, json::parse(body)?);
        Ok(Self { own, sampling })
    }
}

pub(crate) async fn sample(Asked(app, body): Asked<SampleBody>) -> Result<Json<SampleReply>> {
    let n = body.own.num_samples;
    let draw = draw(&app, body).await?;
    let _place = app.front.queue().enter(n)?;
    let generations = app.host.generate(draw, n).await?;
    let sequences = try_join_all(generations.into_iter().map(whole)).await?;
    Ok(Json(SampleReply { sequences }))
}

async fn draw(app: &TrainerApp, body: SampleBody) -> Result<GenerateRequest> {
    let own = body.own;
    if !(1..=MAX_SAMPLES).contains(&own.num_samples) {
        let n = own.num_samples;
        let text = format!("num_samples is {n}: from 1 to {MAX_SAMPLES}");
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

async fn whole(generation: Generation) -> Result<SampledSequence, SamplerError> {
    let (tokens, end) = generation.whole().await?;
    let texts = tokens.iter().filter_map(|token| token.text.as_deref());
    Ok(SampledSequence {
        text: texts.collect(),
        tokens: tokens.iter().map(|token| token.id).collect(),
        logprobs: tokens.iter().map(|token| token.logprob).collect(),
        sampling_logprobs: tokens.iter().map(|token| token.sampling_logprob).collect(),
        stop_reason: end.reason.as_str().to_owned(),
    })
}
