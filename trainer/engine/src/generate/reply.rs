//! A reply in the making, as far as it is text and ids: what is drawn goes in, events go out.

use metaclaw_trainer_text::{stop::StopMatcher, tokenizer::StreamDecoder};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{
    FinishReason, Finished, GenerateError, GenerateEvent, GenerateRequest, PromptScoring, Scores,
    Token,
};
use crate::sampler::{SampledToken, Sampler};

/// What a token left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    More,
    /// The reply has ended, or nobody listens any more.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Reply {
    /// Prompt, then what was generated.
    ids: Vec<u32>,
    n_prompt: usize,
    /// Positions that were run before the first token.
    n_prefilled: usize,
    max_tokens: usize,
    min_tokens: usize,
    end_ids: Vec<u32>,
    sampler: Sampler,
    decoder: StreamDecoder,
    stops: StopMatcher,
    events: mpsc::Sender<Result<GenerateEvent, GenerateError>>,
    scoring: Option<PromptScoring>,
}

impl Reply {
    /// A reply of at most `max_tokens`; `eos_ids` are the model's own, `seed` is for a request without one.
    ///
    /// # Errors
    /// A sampling parameter that is out of range.
    pub(crate) fn new(
        request: GenerateRequest,
        (max_tokens, eos_ids, seed): (usize, &[u32], u64),
        decoder: StreamDecoder,
        events: mpsc::Sender<Result<GenerateEvent, GenerateError>>,
    ) -> Result<Self, GenerateError> {
        let (params, seed) = (request.sampling, request.seed.unwrap_or(seed));
        let mut end_ids = request.stop_token_ids;
        if !request.ignore_eos {
            end_ids.extend(eos_ids);
        }
        Ok(Self {
            sampler: Sampler::new(params, seed, &request.prompt_ids, &end_ids)?,
            n_prompt: request.prompt_ids.len(),
            n_prefilled: 0,
            ids: request.prompt_ids,
            max_tokens,
            min_tokens: params.min_tokens,
            end_ids,
            decoder,
            stops: StopMatcher::new(request.stop),
            events,
            scoring: None,
        })
    }

    /// The same reply, whose prompt is told as well.
    pub(crate) fn scored(self, scoring: Option<PromptScoring>) -> Self {
        Self { scoring, ..self }
    }

    /// What is still to be told of the prompt, if anything is.
    pub(crate) fn scoring(&self) -> Option<&PromptScoring> {
        self.scoring.as_ref().filter(|scoring| !scoring.is_done())
    }

    /// Tells more of the prompt.
    pub(crate) fn score(&mut self, scores: Option<&Scores>) {
        if let Some((scoring, scores)) = self.scoring.as_mut().zip(scores) {
            scoring.push(scores);
        }
    }

    /// The ids whose keys and values may be taken from others: a position that is still to be told is computed.
    pub(crate) fn reusable_ids(&self) -> &[u32] {
        let all = &self.ids;
        let n = self.scoring().map(|scoring| scoring.n_done() + 1);
        n.and_then(|n| all.get(..n)).unwrap_or(all)
    }

    /// Prompt and what was generated.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(crate) fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Whether nobody listens any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Says how many positions were run: those of the prompt that never are were found in the cache.
    pub(crate) fn ran(&mut self, n: usize) {
        if self.ids.len() == self.n_prompt {
            self.n_prefilled += n;
        }
    }

    /// Ends the reply with an error.
    pub(crate) fn fail(&self, error: GenerateError) {
        // Nobody may be listening any more; then there is nobody to tell.
        let _ = self.events.try_send(Err(error));
    }

    pub(crate) fn push(&mut self, sampled: SampledToken) -> Step {
        self.ids.push(sampled.id);
        self.sampler.accept(sampled.id);
        let n_generated = self.ids.len() - self.n_prompt;
        let ended = self.end_ids.contains(&sampled.id);
        let full = n_generated >= self.max_tokens;
        let (text, stopped) = self.text(sampled.id, n_generated, (ended, full));
        let token = Token {
            id: sampled.id,
            text,
            logprob: sampled.logprob,
            sampling_logprob: sampled.sampling_logprob,
            top: sampled.top,
        };
        let sent = self.send(GenerateEvent::Token(token));
        if !(ended || stopped || full) {
            return sent;
        }
        let reason = if ended || stopped {
            FinishReason::Stop
        } else {
            FinishReason::Length
        };
        self.send(GenerateEvent::Finished(Finished {
            reason,
            n_prompt: self.n_prompt,
            n_generated,
            cached: self.n_prompt.saturating_sub(self.n_prefilled),
        }));
        Step::Ended
    }

    /// The text that is certain with a token, and whether a stop text ended it.
    fn text(&mut self, id: u32, n_generated: usize, (ended, full): (bool, bool)) -> (String, bool) {
        // What ends a reply is no part of its text, not even where a vocabulary forgot to call it special.
        let piece = if ended {
            String::new()
        } else {
            self.decoder.push(id)
        };
        let (mut text, mut stopped) = if n_generated <= self.min_tokens {
            // A stop text counts from the token after `min_tokens` on, as in vLLM.
            (piece, false)
        } else {
            self.stops.push(&piece)
        };
        if !stopped && (ended || full) {
            // Nothing more comes: a stop text that was begun is ordinary text, unless this completes it.
            let (rest, now) = self.stops.push(&self.decoder.finish());
            text.push_str(&rest);
            stopped = now;
            text.push_str(&self.stops.finish());
        }
        (text, stopped)
    }

    fn send(&self, event: GenerateEvent) -> Step {
        match self.events.try_send(Ok(event)) {
            Ok(()) => Step::More,
            // The channel holds a whole reply, so it is never full; a listener that left cancels.
            Err(TrySendError::Closed(_) | TrySendError::Full(_)) => Step::Ended,
        }
    }
}
