//! The body of `POST /v1/completions`.

use metaclaw_trainer_terms::SamplerRequest;
use serde::Serialize;

/// Seeds are limited to the numbers that every JSON parser accepts.
const SEEDS: u64 = 0x7fff_ffff;

/// A request for continuations. Every field with a default is sent, because the server's defaults come from the model's
/// `generation_config.json`.
#[derive(Debug, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "fields of a body, named on the wire"
)]
pub(super) struct Completions<'a> {
    model: &'a str,
    prompt: &'a [u32],
    n: u32,
    max_tokens: usize,
    min_tokens: usize,
    temperature: f64,
    top_p: f64,
    top_k: usize,
    min_p: f64,
    repetition_penalty: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    stop_token_ids: &'a [u32],
    ignore_eos: bool,
    /// How many of the likeliest ids to return; 0 returns the sampled ids only.
    logprobs: usize,
    return_token_ids: bool,
    /// Uses ids instead of texts as keys of the most probable ids.
    return_tokens_as_token_ids: bool,
    stream: bool,
    stream_options: VllmStreamOptions,
}

#[derive(Debug, Serialize)]
struct VllmStreamOptions {
    include_usage: bool,
}

// === impl Completions ===

impl<'a> Completions<'a> {
    /// The body for replies of at most `max_tokens` tokens, by the base model or the adapter that the server calls
    /// `model`.
    pub(super) fn new(model: &'a str, request: &'a SamplerRequest, max_tokens: usize) -> Self {
        let sampling = request.sampling;
        Self {
            model,
            prompt: &request.prompt_ids,
            n: request.n,
            max_tokens,
            min_tokens: sampling.min_tokens.min(max_tokens),
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            min_p: sampling.min_p,
            repetition_penalty: sampling.repetition_penalty,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            seed: request.seed.map(|seed| seed & SEEDS),
            stop_token_ids: &request.stop_token_ids,
            ignore_eos: request.ignore_eos,
            logprobs: sampling.top_logprobs,
            return_token_ids: true,
            return_tokens_as_token_ids: true,
            stream: true,
            stream_options: VllmStreamOptions {
                include_usage: true,
            },
        }
    }
}
