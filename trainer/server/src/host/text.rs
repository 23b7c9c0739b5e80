//! Replies as they are generated.

use futures_util::future::try_join_all;
use metaclaw_engine::{
    generate::{GenerateError, GenerateEvent, GenerateRequest, GenerationStream, PromptToken},
    sampler::ParamError,
};
use metaclaw_trainer_terms::{
    SampleEvent, SampledToken, SamplerError, SamplerFailure, SamplingEnd,
};

use super::{Host, failure};

/// A reply in progress. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Generation {
    stream: GenerationStream,
    first: Option<GenerateEvent>,
}

// === impl Host ===

impl Host {
    /// Checks the sampling settings before anything is computed for the prompt.
    ///
    /// # Errors
    /// Returns an error with the parameter that is out of its range, by the name from `name`.
    pub(crate) fn check_draw(
        &self,
        mut draw: GenerateRequest,
        name: fn(&'static str) -> &'static str,
    ) -> Result<(), SamplerError> {
        let info = self.engine.for_samples()?.info();
        draw.prompt_ids = vec![0];
        let checked = draw.check(info.vocab, info.context);
        checked.map_err(|error| match error {
            GenerateError::Param(param) => {
                let field = name(param.field);
                ParamError { field, ..param }.into()
            }
            other => failure::generate(&other),
        })
    }

    /// Begins `n` replies to one prompt; with a seed, each reply's seed is one higher than the one before. The others
    /// begin when the first has its first token, and find the prompt's keys and values in the cache. Only the first
    /// reports the prompt.
    ///
    /// # Errors
    /// Returns the engine's refusals.
    pub(crate) async fn generate(
        &self,
        draw: GenerateRequest,
        n: u32,
    ) -> Result<Vec<Generation>, SamplerError> {
        let seeded = |at: u32| GenerateRequest {
            seed: draw.seed.map(|seed| seed.wrapping_add(u64::from(at))),
            prompt_logprobs: draw.prompt_logprobs.filter(|_| at == 0),
            ..draw.clone()
        };
        let mut first = self.begin(seeded(0)).await?;
        if n > 1 {
            first.first = Some(first.receive().await?);
        }
        let others = try_join_all((1..n).map(|at| self.begin(seeded(at)))).await?;
        Ok(std::iter::once(first).chain(others).collect())
    }

    async fn begin(&self, draw: GenerateRequest) -> Result<Generation, SamplerError> {
        let stream = self.engine.for_samples()?.generate(draw).await;
        let stream = stream.map_err(|error| failure::generate(&error))?;
        let first = None;
        Ok(Generation { stream, first })
    }
}

// === impl Generation ===

impl Generation {
    pub(crate) fn version(&self) -> Option<u64> {
        self.stream.adapter_step()
    }

    /// The prompt's tokens from the second on, if they were requested. `None` also if the reply ended before;
    /// [`Generation::next`] then returns the error.
    pub(crate) async fn prompt(&mut self) -> Option<Vec<PromptToken>> {
        self.stream.prompt().await
    }

    /// Returns the next event, as one of reply `choice`; must not be called after the end.
    ///
    /// # Errors
    /// Returns why the reply ended early.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub(crate) async fn next(&mut self, choice: u32) -> Result<SampleEvent, SamplerError> {
        let event = match self.first.take() {
            Some(first) => first,
            None => self.receive().await?,
        };
        Ok(match event {
            GenerateEvent::Token(token) => SampleEvent::Token {
                choice,
                token: SampledToken {
                    id: token.id,
                    text: Some(token.text),
                    logprob: token.logprob,
                    sampling_logprob: token.sampling_logprob,
                    top: token.top,
                },
            },
            GenerateEvent::Finished(end) => SampleEvent::End {
                choice,
                end: SamplingEnd {
                    reason: end.reason,
                    n_cached: end.cached,
                },
            },
        })
    }

    /// Returns all tokens, and the end.
    ///
    /// # Errors
    /// Returns why the reply ended early.
    pub(crate) async fn whole(mut self) -> Result<(Vec<SampledToken>, SamplingEnd), SamplerError> {
        let mut tokens = Vec::new();
        loop {
            match self.next(0).await? {
                SampleEvent::Token { token, .. } => tokens.push(token),
                SampleEvent::End { end, .. } => return Ok((tokens, end)),
            }
        }
    }

    async fn receive(&mut self) -> Result<GenerateEvent, SamplerError> {
        match self.stream.recv().await {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(failure::generate(&error)),
            None => {
                let text = "the reply has ended already";
                Err(SamplerError::new(SamplerFailure::Internal, text))
            }
        }
    }
}
