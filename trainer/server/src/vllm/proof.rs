//! Whether vLLM computes with the weights that the engine has.
//!
//! vLLM samples a few tokens, and the engine scores them. In float32 on both sides the log-probabilities differ by rounding alone
//! (at most 1e-4 nats where it was measured); in bfloat16 by 0.04 in the mean and 0.43 at most. Which of the two it is, the base
//! model shows.

use futures_util::StreamExt as _;
use metaclaw_engine::generate::{GenerateRequest, PromptLogprobs};
use metaclaw_trainer_api::{AdapterName, vllm::VllmClient};
use metaclaw_trainer_terms::{
    ErrorCode, SampleEvent, SamplerError, SamplerFailure, SamplerRequest, SamplingParams,
};

use crate::host::Host;

const TEXT: &str =
    "The captain looked at the map, counted the islands twice, and said to the crew: we will need";
/// Tokens that are sampled.
const N: usize = 16;
/// The most ids of the text that are used: the context may be short.
const N_PROMPT: usize = 32;
/// Not 1, so that a server that tells the log-probabilities of the distribution drawn from is found out.
const TEMPERATURE: f64 = 0.7;
/// Nats at most where both sides compute in float32.
const EXACT: f32 = 1e-3;
/// Nats in the mean where one side rounds to bfloat16.
const ROUNDED_MEAN: f32 = 0.15;
/// Nats at most in the same case.
const ROUNDED_MAX: f32 = 1.0;

/// How closely both sides compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    /// In float32.
    Exact,
    /// In bfloat16 or float16, one of them at least.
    Rounded,
}

/// Absolute differences of log-probabilities, in nats.
#[derive(Debug, Clone, Copy, PartialEq, derive_more::Display)]
#[display("{mean:.5} nats in the mean, {max:.5} at most")]
pub(super) struct Differences {
    mean: f32,
    max: f32,
}

struct Drawn {
    prompt: Vec<u32>,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
}

/// Compares the base model.
///
/// # Errors
/// [`SamplerFailure::Remote`] where the numbers do not agree; what either side refuses.
pub(super) async fn base(
    client: &VllmClient,
    host: &Host,
    served: &str,
) -> Result<Precision, SamplerError> {
    let drawn = draw(client, host, served).await?;
    let found = drawn.differences(&score(host, None, &drawn).await?);
    tracing::info!(%found, "vLLM computes as the engine does");
    precision(found).ok_or_else(|| {
        let why = format!(
            "vLLM at {} does not serve the model that is trained here, or not as it is: of {N} tokens that it sampled, its \
             log-probabilities differ from the engine's by {found}, where rounding to bfloat16 makes at most {ROUNDED_MEAN} in the \
             mean and {ROUNDED_MAX} at most. Start it with the same model, without quantisation, and with --logprobs-mode raw_logprobs",
            client.url()
        );
        SamplerError::new(SamplerFailure::Remote, why)
    })
}

/// Compares an adapter that vLLM calls `served`, after the base showed `precision`.
///
/// # Errors
/// The same, with the code `adapter_refused`.
pub(super) async fn adapter(
    client: &VllmClient,
    host: &Host,
    name: &AdapterName,
    served: &str,
    precision: Precision,
) -> Result<(), SamplerError> {
    let drawn = draw(client, host, served).await?;
    let own = score(host, Some(name), &drawn).await?;
    let base = score(host, None, &drawn).await?;
    let (found, from_base) = (drawn.differences(&own), drawn.differences(&base));
    if is_it(found, from_base, precision) {
        tracing::info!(adapter = %name, served, %found, from_base = %from_base, "vLLM has this adapter");
        return Ok(());
    }
    let allowed = match precision {
        Precision::Exact => EXACT,
        Precision::Rounded => ROUNDED_MAX,
    };
    let nearer = if from_base.mean < found.mean {
        format!("; they are nearer to the base model's ({from_base})")
    } else {
        String::new()
    };
    let text = format!(
        "vLLM does not answer with the weights of adapter {name}: of {N} tokens that it sampled, its log-probabilities differ from \
         the engine's by {found}, allowed are {allowed}{nearer}"
    );
    Err(SamplerError::field("model", text).with_code(ErrorCode::AdapterRefused))
}

fn precision(found: Differences) -> Option<Precision> {
    if found.max <= EXACT {
        Some(Precision::Exact)
    } else if found.is_rounding() {
        Some(Precision::Rounded)
    } else {
        None
    }
}

/// Whether the numbers are those of the adapter. Rounding may hide a small adapter, but then they are not nearer to the base's by
/// more than chance.
fn is_it(found: Differences, from_base: Differences, precision: Precision) -> bool {
    match precision {
        Precision::Exact => found.max <= EXACT,
        Precision::Rounded => {
            found.is_rounding() && found.mean <= from_base.mean + ROUNDED_MEAN / 2.0
        }
    }
}

async fn draw(client: &VllmClient, host: &Host, served: &str) -> Result<Drawn, SamplerError> {
    let internal = |why: String| SamplerError::new(SamplerFailure::Internal, why);
    let model = host.model().map_err(|error| internal(error.to_string()))?;
    let prompt = model.tokenizer().encode(TEXT);
    let mut prompt = prompt.map_err(|error| internal(error.to_string()))?;
    prompt.truncate(N_PROMPT.min(model.context().saturating_sub(N + 1)));
    let request = SamplerRequest {
        prompt_ids: prompt.clone(),
        sampling: SamplingParams {
            temperature: TEMPERATURE,
            ..SamplingParams::default()
        },
        ignore_eos: true,
        ..SamplerRequest::default()
    };
    let mut events = client.sample(served, &request, N).await?;
    let (mut ids, mut logprobs) = (Vec::with_capacity(N), Vec::with_capacity(N));
    while let Some(event) = events.next().await {
        if let SampleEvent::Token { token, .. } = event? {
            ids.push(token.id);
            logprobs.push(token.logprob);
        }
    }
    Ok(Drawn {
        prompt,
        ids,
        logprobs,
    })
}

async fn score(
    host: &Host,
    adapter: Option<&AdapterName>,
    drawn: &Drawn,
) -> Result<Vec<f32>, SamplerError> {
    let request = GenerateRequest {
        prompt_ids: [&drawn.prompt[..], &drawn.ids].concat(),
        adapter: adapter.cloned(),
        max_tokens: 1,
        prompt_logprobs: Some(PromptLogprobs::default()),
        ..GenerateRequest::default()
    };
    let mut generations = host.generate(request, 1).await?;
    let failed = || {
        let why = "the engine did not score what vLLM sampled";
        SamplerError::new(SamplerFailure::Internal, why)
    };
    let generation = generations.first_mut().ok_or_else(failed)?;
    let Some(tokens) = generation.prompt().await else {
        // The reply ended before, and says why.
        generation.next(0).await?;
        return Err(failed());
    };
    let first = tokens.len().saturating_sub(drawn.ids.len());
    let last = tokens.get(first..).unwrap_or_default();
    Ok(last.iter().map(|token| token.logprob).collect())
}

// === impl Drawn ===

impl Drawn {
    fn differences(&self, scored: &[f32]) -> Differences {
        let mut found = Differences {
            mean: 0.0,
            max: 0.0,
        };
        if scored.len() != self.logprobs.len() || scored.is_empty() {
            found.max = f32::INFINITY;
        }
        for (one, other) in self.logprobs.iter().zip(scored) {
            let difference = (one - other).abs();
            found.mean += difference / scored.len() as f32;
            // A NaN is a difference as well.
            if difference.is_nan() || difference > found.max {
                found.max = difference;
            }
        }
        found
    }
}

// === impl Differences ===

impl Differences {
    fn is_rounding(self) -> bool {
        self.mean <= ROUNDED_MEAN && self.max <= ROUNDED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(logprobs: &[f32], scored: &[f32]) -> Differences {
        let drawn = Drawn {
            prompt: Vec::new(),
            ids: Vec::new(),
            logprobs: logprobs.to_vec(),
        };
        drawn.differences(scored)
    }

    #[test]
    fn the_base_shows_how_closely_both_sides_compute() {
        let exact = differences(&[-1.0, -2.0], &[-1.000_05, -2.0]);
        assert_eq!(precision(exact), Some(Precision::Exact));
        let rounded = differences(&[-1.0, -2.0], &[-1.04, -2.2]);
        assert_eq!(precision(rounded), Some(Precision::Rounded));
        let other = differences(&[-1.0, -2.0], &[-3.0, -2.2]);
        assert_eq!(precision(other), None);
        assert_eq!(precision(differences(&[-1.0], &[f32::NAN])), None);
        assert_eq!(precision(differences(&[-1.0], &[])), None);
    }

    #[test]
    fn an_adapter_that_was_not_loaded_is_found_out() {
        let of = |mean| Differences { mean, max: mean };
        assert!(is_it(of(5e-4), of(0.3), Precision::Exact));
        assert!(!is_it(of(2e-3), of(0.0), Precision::Exact));
        assert!(is_it(of(0.05), of(0.3), Precision::Rounded));
        assert!(!is_it(of(0.14), of(0.03), Precision::Rounded));
        assert!(!is_it(of(0.3), of(0.9), Precision::Rounded));
        // A first step's adapter is as near to the base as rounding is far.
        assert!(is_it(of(0.05), of(0.04), Precision::Rounded));
    }
}
