//! A reply on its way: the text for the client, and the record of what was sampled.

use std::sync::Arc;

use metaclaw_trainer_api::{AdapterName, wire::Sampled};

use super::{
    logprobs::TokenLogprob,
    think::{Piece, ThinkSplitter},
    usage::Usage,
};
use crate::{
    error::ApiError,
    host::{Event, Generation, Prompt},
    queue::Place,
    state::App,
};

/// A reply that is being drawn. Dropping it ends the drawing.
#[derive(Debug)]
pub(crate) struct Running {
    app: App,
    generation: Generation,
    splitter: ThinkSplitter,
    prompt: Arc<Prompt>,
    /// Put into the ring when the reply is complete; before that it is nobody's training data.
    sampled: Option<Sampled>,
    _place: Arc<Place>,
}

/// What happened next.
#[derive(Debug)]
pub(crate) enum News {
    /// A token was drawn. Its text may be empty: of the ending token, within a character, or while it
    /// may yet be part of a tag or of a stop string.
    Text {
        piece: Piece,
        logprob: Option<TokenLogprob>,
    },
    /// The reply is complete, and its record can be fetched.
    End {
        rest: Piece,
        reason: &'static str,
        usage: Usage,
    },
}

// === impl Running ===

impl Running {
    /// `id` is what its record is kept under.
    pub(crate) fn new(
        app: &App,
        id: String,
        prompt: &Arc<Prompt>,
        adapter: Option<AdapterName>,
        generation: Generation,
        place: &Arc<Place>,
    ) -> Self {
        let sampled = Sampled {
            id,
            prompt_ids: prompt.ids.clone(),
            ids: Vec::new(),
            logprobs: Vec::new(),
            sampling_logprobs: Vec::new(),
            adapter,
            version: generation.version(),
            base: app.host.base().to_owned(),
            base_fingerprint: app.host.base_fingerprint(),
        };
        Self {
            app: app.clone(),
            generation,
            splitter: ThinkSplitter::new(prompt.rendered.text()),
            prompt: Arc::clone(prompt),
            sampled: Some(sampled),
            _place: Arc::clone(place),
        }
    }

    /// The next token, with its log-probability if that is wanted, or the end.
    ///
    /// # Errors
    /// When the engine failed.
    ///
    /// # Cancel safety
    /// None needed: dropping the future with the reply is how a client that hangs up ends it.
    pub(crate) async fn next(&mut self, logprobs: bool) -> Result<News, ApiError> {
        match self.generation.next().await? {
            Event::Token(token) => {
                if let Some(sampled) = &mut self.sampled {
                    sampled.ids.push(token.id);
                    sampled.logprobs.push(token.logprob);
                    sampled.sampling_logprobs.push(token.sampling_logprob);
                }
                Ok(News::Text {
                    piece: self.splitter.push(&token.text),
                    logprob: logprobs.then(|| TokenLogprob::new(&token, &self.app.host)),
                })
            }
            Event::End(end) => {
                if let Some(sampled) = self.sampled.take() {
                    let host = &self.app.host;
                    host.remember(&self.prompt.rendered, &sampled.prompt_ids, &sampled.ids);
                    self.app.sampled.put(sampled);
                }
                Ok(News::End {
                    rest: self.splitter.finish(),
                    reason: end.reason,
                    usage: Usage::new(end.n_prompt, end.n_generated, end.n_cached),
                })
            }
        }
    }
}
