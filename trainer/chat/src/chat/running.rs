//! The replies to one request while they are sampled: the text for the client, and the record of what was sampled.

use std::{collections::VecDeque, sync::Arc};

use futures_util::StreamExt as _;
use metaclaw_trainer_api::wire::Sampled;
use metaclaw_trainer_terms::{
    FinishReason, SampleEvent, SampleStream, SampledToken, SamplerError, SamplerFailure,
    SamplerFuture, SamplerRequest, Sampling,
};

use super::{
    given,
    logprobs::TokenLogprob,
    reply::Head,
    think::{ReplyPiece, ThinkSplitter},
    usage::ChatUsage,
};
use crate::{
    error::ApiError,
    front::Front,
    model::{Model, Prompt},
    queue::Place,
    reader::{Ends, IdReader},
};

/// Replies that are being sampled. Dropping it cancels the sampling.
#[derive(derive_more::Debug)]
#[debug("RunningReplies({replies:?})")]
pub(crate) struct RunningReplies {
    front: Front,
    model: Arc<Model>,
    prompt: Prompt,
    drawing: Drawing,
    replies: Vec<RunningReply>,
    n_open: usize,
    news: VecDeque<(u32, News)>,
    logprobs: bool,
    _place: Place,
}

/// The state of the sampler.
enum Drawing {
    /// It has not accepted or refused the request yet.
    Asked(SamplerFuture<'static, Sampling>),
    Begun(SampleStream),
}

#[derive(Debug)]
struct RunningReply {
    splitter: ThinkSplitter,
    reader: IdReader,
    /// Whether the sampler returned a token without its text.
    is_read_here: bool,
    /// Whether an end token has ended it. The sampler reports this next.
    is_over: bool,
    /// The record, which is stored when the reply is complete. Before that, it is not training data.
    sampled: Option<Sampled>,
}

#[derive(Debug)]
pub(crate) enum News {
    /// A token was sampled. Its text may be empty: for an end token, within a character, or while it may still be part
    /// of a tag or of a stop string.
    Text {
        piece: ReplyPiece,
        logprob: Option<TokenLogprob>,
    },
    /// The reply is complete, and its record can be fetched.
    End {
        rest: ReplyPiece,
        reason: &'static str,
        usage: ChatUsage,
    },
}

// === impl RunningReplies ===

impl RunningReplies {
    /// Sends the sampler a request for replies to a prompt, whose ids are added to `request`. `head` gives the id under
    /// which each reply's record is stored.
    pub(crate) fn new(
        front: &Front,
        model: Arc<Model>,
        prompt: Prompt,
        mut request: SamplerRequest,
        head: &Head,
        place: Place,
    ) -> Self {
        request.prompt_ids.clone_from(&prompt.ids);
        if !request.ignore_eos {
            request.stop_token_ids.extend_from_slice(&model.end_ids);
        }
        let reply = |index: u32| RunningReply {
            splitter: ThinkSplitter::new(prompt.rendered.text(), model.tokenizer().has_channels()),
            reader: IdReader::new(
                model.tokenizer(),
                request.stop.clone(),
                request.stop_token_ids.clone(),
            ),
            is_read_here: false,
            is_over: false,
            sampled: Some(Sampled {
                id: head.choice_id(index),
                prompt_ids: prompt.ids.clone(),
                ids: Vec::new(),
                logprobs: Vec::new(),
                sampling_logprobs: Vec::new(),
                adapter: request.adapter.clone(),
                version: None,
                base: model.name().to_owned(),
                base_fingerprint: model.fingerprint().map(str::to_owned),
            }),
        };
        let replies: Vec<RunningReply> = (0..request.n).map(reply).collect();
        let sampler = Arc::clone(front.sampler());
        Self {
            front: front.clone(),
            model,
            prompt,
            drawing: Drawing::Asked(Box::pin(async move { sampler.sample(request).await })),
            n_open: replies.len(),
            replies,
            news: VecDeque::new(),
            logprobs: false,
            _place: place,
        }
    }

    pub(crate) fn with_logprobs(self, logprobs: bool) -> Self {
        Self { logprobs, ..self }
    }

    /// Waits until the sampler has accepted the request.
    ///
    /// # Errors
    /// Returns the sampler's refusal.
    ///
    /// # Cancel safety
    /// The caller may drop the future and call again.
    pub(crate) async fn accepted(&mut self) -> Result<&mut SampleStream, ApiError> {
        if let Drawing::Asked(answer) = &mut self.drawing {
            let sampling = answer.await?;
            for reply in &mut self.replies {
                if let Some(sampled) = &mut reply.sampled {
                    sampled.version = sampling.version;
                }
            }
            self.drawing = Drawing::Begun(sampling.events);
        }
        match &mut self.drawing {
            Drawing::Begun(events) => Ok(events),
            Drawing::Asked(_) => Err(ApiError::internal("the sampler was not asked")),
        }
    }

    /// Returns the next token of any of the replies, or its end. Returns `None` when all have ended.
    ///
    /// # Errors
    /// Returns the sampler's failure.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<(u32, News)>, ApiError> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(Some(news));
            }
            if self.n_open == 0 {
                return Ok(None);
            }
            let Some(event) = self.accepted().await?.next().await else {
                let text = "the sampler broke off before all replies had ended";
                return Err(SamplerError::new(SamplerFailure::Remote, text).into());
            };
            match event? {
                SampleEvent::Token { choice, token } => self.take(choice, &token),
                SampleEvent::End { choice, end } => self.end(choice, end.reason, end.n_cached),
            }
        }
    }

    fn take(&mut self, choice: u32, token: &SampledToken) {
        // Tokens after an end that was detected here are not part of the reply.
        let reply = self.replies.get_mut(choice as usize);
        let Some(reply) = reply.filter(|reply| reply.sampled.is_some()) else {
            return;
        };
        if reply.is_over {
            // This sampler continues anyway.
            return self.end(choice, FinishReason::Stop, 0);
        }
        if let Some(sampled) = &mut reply.sampled {
            sampled.ids.push(token.id);
            sampled.logprobs.push(token.logprob);
            sampled.sampling_logprobs.push(token.sampling_logprob);
        }
        let (piece, ends) = if let Some(text) = &token.text {
            (reply.splitter.push(text), Ends::No)
        } else {
            reply.is_read_here = true;
            let (text, ends) = reply.reader.push(token.id);
            (reply.splitter.push(&text), ends)
        };
        reply.is_over = ends == Ends::ByToken;
        let tokenizer = self.model.tokenizer();
        let logprob = self.logprobs.then(|| TokenLogprob::new(token, tokenizer));
        self.news.push_back((choice, News::Text { piece, logprob }));
        if ends == Ends::ByStopText {
            self.end(choice, FinishReason::Stop, 0);
        }
    }

    fn end(&mut self, choice: u32, reason: FinishReason, n_cached: usize) {
        let Some(reply) = self.replies.get_mut(choice as usize) else {
            return;
        };
        let Some(sampled) = reply.sampled.take() else {
            return;
        };
        let mut rest = ReplyPiece::default();
        if reply.is_read_here {
            rest.push(&reply.splitter.push(&reply.reader.finish()));
        }
        rest.push(&reply.splitter.finish());
        let usage = ChatUsage::new(sampled.prompt_ids.len(), sampled.ids.len(), n_cached);
        let tokenizer = self.model.tokenizer();
        let rendered = &self.prompt.rendered;
        self.front
            .served()
            .remember(tokenizer, rendered, &sampled.prompt_ids, &sampled.ids);
        self.remember_forms(&sampled);
        self.front.sampled().put(sampled);
        self.n_open -= 1;
        let reason = reason.as_str();
        let end = News::End {
            rest,
            reason,
            usage,
        };
        self.news.push_back((choice, end));
    }

    /// Remembers the reply in the form in which a client sends it back that got thinking and calls separated from the
    /// text, because a template may write them differently from what was sampled.
    fn remember_forms(&self, sampled: &Sampled) {
        let Some(conversation) = &self.prompt.conversation else {
            return;
        };
        let tokenizer = self.model.tokenizer();
        let text = tokenizer.decode(&sampled.ids);
        let prompt = self.prompt.rendered.text();
        for form in given::forms(prompt, &text, tokenizer.has_channels()) {
            let Some(rendered) = self.model.rendered_with(conversation, form) else {
                continue;
            };
            let (prompt_ids, ids) = (&sampled.prompt_ids, &sampled.ids);
            let served = self.front.served();
            served.remember_turn(tokenizer, &rendered, prompt_ids, ids);
        }
    }
}
