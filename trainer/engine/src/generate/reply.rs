//! A reply under way as text and ids: sampled tokens go in, events come out.

use metaclaw_trainer_text::{stop::StopMatcher, tokenizer::StreamDecoder};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{
    FinishReason, FinishedReply, GenerateError, GenerateEvent, GenerateRequest, PromptScoring,
    Scores, Token,
};
use crate::sampler::{DrawnToken, SequenceSampler};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenOutcome {
    More,
    /// The reply has ended, or its caller has left.
    Ended,
}

#[derive(Debug)]
pub(crate) struct BegunReply {
    ids: Vec<u32>,
    n_prompt: usize,
    n_prefilled: usize,
    max_tokens: usize,
    min_tokens: usize,
    end_ids: Vec<u32>,
    sampler: SequenceSampler,
    decoder: StreamDecoder,
    stops: StopMatcher,
    events: mpsc::Sender<Result<GenerateEvent, GenerateError>>,
    scoring: Option<PromptScoring>,
}

#[derive(Debug)]
pub(crate) struct ReplyEnds<'a> {
    pub(crate) max_tokens: usize,
    pub(crate) eos_ids: &'a [u32],
}

impl BegunReply {
    /// Begins a reply. A request without a seed takes `seed`.
    ///
    /// # Errors
    /// A sampling parameter that is out of range.
    pub(crate) fn new(
        request: GenerateRequest,
        ends: &ReplyEnds<'_>,
        seed: u64,
        decoder: StreamDecoder,
        events: mpsc::Sender<Result<GenerateEvent, GenerateError>>,
    ) -> Result<Self, GenerateError> {
        let (params, seed) = (request.sampling, request.seed.unwrap_or(seed));
        let mut end_ids = request.stop_token_ids;
        if !request.ignore_eos {
            end_ids.extend(ends.eos_ids);
        }
        Ok(Self {
            sampler: SequenceSampler::new(params, seed, &request.prompt_ids, &end_ids)?,
            n_prompt: request.prompt_ids.len(),
            n_prefilled: 0,
            ids: request.prompt_ids,
            max_tokens: ends.max_tokens,
            min_tokens: params.min_tokens,
            end_ids,
            decoder,
            stops: StopMatcher::new(request.stop),
            events,
            scoring: None,
        })
    }

    pub(crate) fn scored(self, scoring: Option<PromptScoring>) -> Self {
        Self { scoring, ..self }
    }

    pub(crate) fn scoring(&self) -> Option<&PromptScoring> {
        self.scoring.as_ref().filter(|scoring| !scoring.is_done())
    }

    pub(crate) fn score(&mut self, scores: Option<&Scores>) {
        if let Some((scoring, scores)) = self.scoring.as_mut().zip(scores) {
            scoring.push(scores);
        }
    }

    /// The ids whose keys and values may be shared. Positions that still have to be scored are computed.
    pub(crate) fn reusable_ids(&self) -> &[u32] {
        let all = &self.ids;
        let n = self.scoring().map(|scoring| scoring.n_done() + 1);
        n.and_then(|n| all.get(..n)).unwrap_or(all)
    }

    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(crate) fn sampler(&self) -> &SequenceSampler {
        &self.sampler
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Notes how many positions were run. Positions of the prompt that never run were found in the cache.
    pub(crate) fn ran(&mut self, n: usize) {
        if self.ids.len() == self.n_prompt {
            self.n_prefilled += n;
        }
    }

    pub(crate) fn fail(&self, error: GenerateError) {
        // A send fails only if the caller has left.
        let _ = self.events.try_send(Err(error));
    }

    pub(crate) fn push(&mut self, sampled: DrawnToken) -> TokenOutcome {
        self.ids.push(sampled.id);
        self.sampler.accept(sampled.id);
        let n_generated = self.ids.len() - self.n_prompt;
        let ended = self.end_ids.contains(&sampled.id);
        let full = n_generated >= self.max_tokens;
        let (text, stopped) = self.text(sampled.id, n_generated, ended, full);
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
        self.send(GenerateEvent::Finished(FinishedReply {
            reason,
            n_prompt: self.n_prompt,
            n_generated,
            cached: self.n_prompt.saturating_sub(self.n_prefilled),
        }));
        TokenOutcome::Ended
    }

    /// The text that is certain with a token, and whether a stop text ended it.
    fn text(&mut self, id: u32, n_generated: usize, ended: bool, full: bool) -> (String, bool) {
        // The ending token is no part of the text, even if the vocabulary does not mark it as special.
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
            // No more tokens come. A stop text that has begun is ordinary text, unless this completes it.
            let (rest, now) = self.stops.push(&self.decoder.finish());
            text.push_str(&rest);
            stopped = now;
            text.push_str(&self.stops.finish());
        }
        (text, stopped)
    }

    fn send(&self, event: GenerateEvent) -> TokenOutcome {
        match self.events.try_send(Ok(event)) {
            Ok(()) => TokenOutcome::More,
            // The channel holds a whole reply, so it is never full; a listener that left cancels.
            Err(TrySendError::Closed(_) | TrySendError::Full(_)) => TokenOutcome::Ended,
        }
    }
}
