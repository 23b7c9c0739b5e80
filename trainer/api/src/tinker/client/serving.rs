//! Chats are answered by the same server: the trait [`Sampler`] over Tinker's asample.
//!
//! Tinker answers a sample in one piece: nothing comes until all of it is there.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use metaclaw_trainer_terms::{
    ErrorCode, FinishReason, SampleEvent, SampledToken, Sampler, SamplerError, SamplerFailure,
    SamplerFuture, SamplerRequest, Sampling, SamplingEnd,
};

use super::{
    backend::TinkerBackend,
    bodies,
    models::ServerSampler,
    samplers::{WeightsSource, has_gone},
};
use crate::backend::Result;
use crate::{
    AdapterName, BackendError,
    tinker::{
        Sequence, StopReason,
        json::{Promise, SampleCall, SampleStop, TinkerSamplingParams},
    },
};

/// The [`Sampler`] of a [`TinkerBackend`].
#[derive(Debug, Clone)]
pub struct TinkerSampler(TinkerBackend);

impl Sampler for TinkerSampler {
    fn check(&self, request: &SamplerRequest) -> Result<(), SamplerError> {
        request.sampling.check()?;
        Ok(request.sampling.check_common()?)
    }

    fn adapters(&self) -> SamplerFuture<'_, Vec<AdapterName>> {
        Box::pin(async {
            let listed = self.0.0.checkpoints.list_adapters().await;
            listed.map_err(|error| failed(&error))?;
            Ok(self.0.0.checkpoints.known())
        })
    }

    fn has_adapter<'a>(&'a self, name: &'a AdapterName) -> SamplerFuture<'a, bool> {
        Box::pin(async move {
            match self.0.0.checkpoints.adapter(name.as_str()).await {
                Ok(_) => Ok(true),
                Err(error) if error.code() == Some(&ErrorCode::ModelNotFound) => Ok(false),
                Err(error) => Err(failed(&error)),
            }
        })
    }

    fn sample(&self, request: SamplerRequest) -> SamplerFuture<'_, Sampling> {
        Box::pin(async move {
            let begun = self.0.begin(&request).await;
            let (waiting, version) = begun.map_err(|error| failed(&error))?;
            let events = stream::once(waiting.events()).flat_map(stream::iter);
            let events = Box::pin(events);
            Ok(Sampling { version, events })
        })
    }
}

struct Waiting {
    backend: TinkerBackend,
    weights: WeightsSource,
    sampler: Arc<ServerSampler>,
    sample: SampleCall,
    promised: Promise,
    is_over: bool,
}

// === impl TinkerBackend ===

impl TinkerBackend {
    /// The sampler of the same server, for chats.
    pub fn sampler(&self) -> TinkerSampler {
        TinkerSampler(self.clone())
    }

    async fn begin(&self, request: &SamplerRequest) -> Result<(Waiting, Option<u64>)> {
        let (weights, version) = match &request.adapter {
            None => (WeightsSource::Base, None),
            Some(name) => {
                let adapter = self.0.checkpoints.adapter(name.as_str()).await?;
                (WeightsSource::Saved(adapter.path), adapter.step)
            }
        };
        let sample = self.body(request).await?;
        let (sampler, promised) = self.0.samplers.begin_by(&weights, &sample).await?;
        let waiting = Waiting {
            backend: self.clone(),
            weights,
            sampler,
            sample,
            promised,
            is_over: false,
        };
        Ok((waiting, version))
    }

    async fn body(&self, request: &SamplerRequest) -> Result<SampleCall> {
        let sampling = &request.sampling;
        let params = TinkerSamplingParams {
            max_tokens: self.most_tokens(request).await?,
            seed: bodies::seed(request.seed),
            // The front looks for stop texts. Tinker takes either ids or texts as stops, and the ids are needed.
            stop: Some(SampleStop::Tokens(request.stop_token_ids.clone())),
            temperature: sampling.temperature,
            top_k: bodies::top_k(i64::try_from(sampling.top_k).unwrap_or(i64::MAX)),
            top_p: sampling.top_p,
        };
        let mut sample = bodies::bare_sample(request.prompt_ids.clone(), request.n, params);
        sample.topk_sample_logprobs = u32::try_from(sampling.top_logprobs).unwrap_or(0);
        Ok(sample)
    }

    async fn most_tokens(&self, request: &SamplerRequest) -> Result<Option<u32>> {
        let offer = self.0.offer().await?;
        let wanted = Some(self.0.config.base_model.as_str());
        let model = offer
            .iter()
            .find(|model| model.model_name.as_deref() == wanted);
        let context = model.and_then(|model| model.max_context_length);
        let n_prompt = u32::try_from(request.prompt_ids.len()).unwrap_or(u32::MAX);
        let left = context.map(|context| context.saturating_sub(n_prompt).max(1));
        let asked = u32::try_from(request.max_tokens).ok();
        Ok(match (asked, left) {
            (Some(asked), Some(left)) => Some(asked.min(left)),
            (asked, left) => asked.or(left),
        })
    }
}

// === impl Waiting ===

impl Waiting {
    async fn again(&mut self) -> Result<()> {
        let samplers = &self.backend.0.samplers;
        samplers.drop(&self.weights).await;
        (self.sampler, self.promised) = samplers.begin_by(&self.weights, &self.sample).await?;
        Ok(())
    }

    async fn events(mut self) -> Vec<Result<SampleEvent, SamplerError>> {
        let backend = self.backend.clone();
        let samplers = &backend.0.samplers;
        let limits = samplers.limits_of_chat();
        let mut ended = samplers.end(&self.sample, &self.promised, limits).await;
        // A lost result was already drawn and paid for. The client that asked decides whether to ask again.
        let is_lost = |error: &BackendError| matches!(error, BackendError::Lost { .. });
        if ended
            .as_ref()
            .is_err_and(|error| has_gone(error) && !is_lost(error))
        {
            // The server accepted the request but no longer holds the weights, as SkyRL after a restart. Nothing was
            // sampled.
            ended = match self.again().await {
                Ok(()) => samplers.end(&self.sample, &self.promised, limits).await,
                Err(error) => Err(error),
            };
        }
        self.is_over = true;
        match ended {
            Ok((output, _)) => {
                let n_cached = output.n_cached as usize;
                let replies = (0..).zip(output.sequences);
                replies
                    .flat_map(|(choice, sequence)| reply(choice, sequence, n_cached))
                    .collect()
            }
            Err(error) => vec![Err(failed(&error))],
        }
    }
}

impl Drop for Waiting {
    /// The caller has left.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let backend = self.backend.clone();
        let (sampler, promised) = (Arc::clone(&self.sampler), self.promised.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                backend.0.samplers.cancel(&sampler, &promised).await;
            });
        }
    }
}

fn reply(choice: u32, reply: Sequence, n_cached: usize) -> Vec<Result<SampleEvent, SamplerError>> {
    let logprobs = reply.logprobs.unwrap_or_default();
    if logprobs.len() != reply.tokens.len() {
        let (n, n_tokens) = (logprobs.len(), reply.tokens.len());
        let why = format!("the server sampled {n_tokens} tokens and gave {n} log-probabilities");
        return vec![Err(SamplerError::new(SamplerFailure::Remote, why))];
    }
    let tops = reply.topk_logprobs.unwrap_or_default();
    let tokens = reply.tokens.into_iter().zip(logprobs).enumerate();
    let tokens = tokens.map(|(at, (id, logprob))| {
        let token = SampledToken {
            id,
            text: None,
            logprob,
            sampling_logprob: logprob,
            top: tops.get(at).cloned().flatten().unwrap_or_default(),
        };
        Ok(SampleEvent::Token { choice, token })
    });
    let reason = match reply.stop_reason {
        StopReason::Stop => FinishReason::Stop,
        StopReason::Length => FinishReason::Length,
    };
    let end = SamplingEnd { reason, n_cached };
    tokens
        .chain([Ok(SampleEvent::End { choice, end })])
        .collect()
}

fn failed(error: &BackendError) -> SamplerError {
    let failure = match error.status() {
        Some(400 | 413 | 422) => SamplerFailure::Request,
        Some(401 | 403) => SamplerFailure::Unauthorized,
        Some(402) => SamplerFailure::Payment,
        Some(404) if error.code() == Some(&ErrorCode::ModelNotFound) => {
            SamplerFailure::UnknownModel
        }
        Some(429) => SamplerFailure::Busy,
        Some(503) => SamplerFailure::Unavailable,
        None if error.is_unreachable() => SamplerFailure::Unavailable,
        Some(_) | None => SamplerFailure::Remote,
    };
    let failed = SamplerError::new(failure, error.to_string());
    if failure == SamplerFailure::Busy {
        return failed.with_retry_after(Duration::from_secs(5));
    }
    failed
}
