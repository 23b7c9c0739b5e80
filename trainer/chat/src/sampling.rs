//! Sampling parameters of requests: the fields that chats and sampling by ids share.

use metaclaw_trainer_api::wire::Stop;
use metaclaw_trainer_terms::{SamplerRequest, SamplingParams};
use serde::Deserialize;
use serde_json::Number;

use crate::error::ApiError;

/// The largest number of stop strings, because each is searched at every token.
const MAX_STOPS: usize = 16;

/// The fields, with their names in OpenAI's and vLLM's APIs. The sampler checks their ranges.
#[derive(Debug, Default, Deserialize)]
pub struct SamplingBody {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    repetition_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    seed: Option<Number>,
    stop: Option<Stop>,
    stop_token_ids: Option<Vec<u32>>,
    ignore_eos: Option<bool>,
    min_tokens: Option<usize>,
}

// === impl SamplingBody ===

impl SamplingBody {
    /// Fills in another route's defaults.
    #[must_use]
    pub fn or(mut self, temperature: f64, top_p: f64, top_k: i64) -> Self {
        self.temperature = self.temperature.or(Some(temperature));
        self.top_p = self.top_p.or(Some(top_p));
        self.top_k = self.top_k.or(Some(top_k));
        self
    }

    /// Makes the sampler's request, without the prompt. Missing fields get the policy's defaults.
    ///
    /// # Errors
    /// Answers 400, which names the value that the field cannot hold.
    pub fn request(self) -> Result<SamplerRequest, ApiError> {
        let default = SamplingParams::default();
        let or = |given: Option<f64>, default| given.unwrap_or(default);
        Ok(SamplerRequest {
            sampling: SamplingParams {
                temperature: or(self.temperature, default.temperature),
                top_p: or(self.top_p, default.top_p),
                top_k: self.top_k.map_or(Ok(default.top_k), top_k)?,
                min_p: or(self.min_p, default.min_p),
                repetition_penalty: or(self.repetition_penalty, default.repetition_penalty),
                presence_penalty: or(self.presence_penalty, default.presence_penalty),
                frequency_penalty: or(self.frequency_penalty, default.frequency_penalty),
                min_tokens: self.min_tokens.unwrap_or(default.min_tokens),
                top_logprobs: default.top_logprobs,
            },
            seed: self.seed.as_ref().map(seed).transpose()?,
            stop: stops(self.stop)?,
            stop_token_ids: self.stop_token_ids.unwrap_or_default(),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            ..SamplerRequest::default()
        })
    }
}

/// 0 and -1 switch it off, as clients of other servers write it.
fn top_k(value: i64) -> Result<usize, ApiError> {
    let k = if value == -1 { 0 } else { value };
    usize::try_from(k).map_err(|_| {
        let text = format!("top_k is {value}: at least 1, or 0 for all");
        ApiError::field("top_k", text)
    })
}

/// OpenAI's seeds are signed, ours are not.
fn seed(value: &Number) -> Result<u64, ApiError> {
    let signed = || value.as_i64().map(i64::cast_unsigned);
    value.as_u64().or_else(signed).ok_or_else(|| {
        let text = format!("seed is {value}: a whole number of 64 bits");
        ApiError::field("seed", text)
    })
}

fn stops(stop: Option<Stop>) -> Result<Vec<String>, ApiError> {
    let stops = stop.map(Stop::into_strings).unwrap_or_default();
    if stops.len() <= MAX_STOPS {
        return Ok(stops);
    }
    let text = format!("stop has {} strings: at most {MAX_STOPS}", stops.len());
    Err(ApiError::unsupported("stop", text))
}
