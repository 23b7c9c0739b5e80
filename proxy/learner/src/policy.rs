//! The training server, as code outside of training uses it: renders texts as ids, draws replies, and scores pairs of a
//! prompt and a reply.

use std::{collections::BTreeSet, sync::Arc};

use metaclaw_trainer_api::{
    BackendError, Datum, RunId, TrainingBackend,
    wire::{CreateRequest, ForwardReply, ForwardRequest, SampleRequest, TokenizeRequest},
};
use metaclaw_turns::Turn;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, Semaphore};

/// The largest number of replies that are drawn at once outside of training, because each takes a part of every pass
/// while users wait for theirs. A server on two cores draws 1.5 times as much in all as with half as many, and no more
/// with twice as many.
pub(super) const MOST_STREAMS: u32 = 16;

#[derive(Debug)]
pub(crate) struct PolicyModel {
    pub(super) backend: Arc<dyn TrainingBackend>,
    pub(super) streams: Semaphore,
    /// A forward pass belongs to a run, even with its adapter off.
    pub(super) scoring_run: Mutex<Option<RunId>>,
}

// === impl PolicyModel ===

impl PolicyModel {
    pub(crate) fn surely_scores(&self) -> bool {
        self.backend.surely_scores()
    }

    pub(crate) fn new(backend: Arc<dyn TrainingBackend>) -> Self {
        Self {
            backend,
            streams: Semaphore::new(MOST_STREAMS as usize),
            scoring_run: Mutex::new(None),
        }
    }

    /// Releases what it holds at the server. A later request opens it again.
    pub(crate) async fn close(&self) {
        let Some(run) = self.scoring_run.lock().await.take() else {
            return;
        };
        if let Err(error) = self.backend.close_run(run).await {
            // The server may drop it to free memory.
            tracing::debug!(%error, "not closed");
        }
    }

    /// A conversation as ids, up to where the assistant begins.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn render(
        &self,
        messages: Vec<Value>,
        tools: Option<Value>,
    ) -> Result<Vec<u32>, BackendError> {
        self.render_with(messages, tools, Map::new()).await
    }

    async fn render_with(
        &self,
        messages: Vec<Value>,
        tools: Option<Value>,
        chat_template_kwargs: Map<String, Value>,
    ) -> Result<Vec<u32>, BackendError> {
        let request = TokenizeRequest {
            tools,
            chat_template_kwargs,
            ..TokenizeRequest::messages(messages)
        };
        Ok(self.backend.tokenize(request).await?.tokens)
    }

    /// Messages in the place of a turn's own, with its tools and the variables that it has for the chat template.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn render_for(
        &self,
        turn: &Turn,
        messages: Vec<Value>,
    ) -> Result<Vec<u32>, BackendError> {
        let request = &turn.request;
        let variables = request.params.get("chat_template_kwargs");
        let variables = variables.and_then(Value::as_object);
        let variables = variables.cloned().unwrap_or_default();
        let tools = request.tools.as_deref().cloned();
        self.render_with(messages, tools, variables).await
    }

    /// A text as ids, without the marks of a conversation around it.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn encode(&self, text: &str) -> Result<Vec<u32>, BackendError> {
        let request = TokenizeRequest::text(text);
        Ok(self.backend.tokenize(request).await?.tokens)
    }

    /// Replies from the model's whole distribution. No more are drawn at once than leave the chats their part.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn draw(
        &self,
        request: DrawRequest<'_>,
    ) -> Result<Vec<DrawnReply>, BackendError> {
        let mut draws = Vec::new();
        let mut first = 0;
        while first < request.n {
            let n = (request.n - first).min(MOST_STREAMS);
            // The semaphore is never closed.
            let _streams = self.streams.acquire_many(n).await.ok();
            draws.extend(self.draw_some(request, first, n).await?);
            first += n;
        }
        Ok(draws)
    }

    /// One reply; who gives none said nothing.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn draw_one(
        &self,
        request: DrawRequest<'_>,
    ) -> Result<DrawnReply, BackendError> {
        let drawn = self.draw(request).await?.into_iter().next();
        Ok(drawn.unwrap_or_else(DrawnReply::nothing))
    }

    /// `n` of them from the `first` on: each has a seed of its own, so that all are what one call would have drawn.
    async fn draw_some(
        &self,
        request: DrawRequest<'_>,
        first: u32,
        n: u32,
    ) -> Result<impl Iterator<Item = DrawnReply>, BackendError> {
        let request = SampleRequest {
            tokens: request.prompt.to_vec(),
            num_samples: n,
            temperature: request.temperature,
            max_tokens: request.max_tokens,
            top_k: 0,
            top_p: 1.0,
            stop: None,
            model: Some(request.adapter.unwrap_or("base").to_owned()),
            seed: Some(request.seed.wrapping_add(u64::from(first))),
        };
        let drawn = self.backend.sample(request).await?.sequences;
        Ok(drawn.into_iter().map(|sequence| DrawnReply {
            ids: sequence.tokens,
            text: sequence.text,
            ended: sequence.stop_reason == "stop",
        }))
    }

    /// Returns the mean log-probability per token (T = 1) of the first `most` ids of each reply.
    ///
    /// # Errors
    /// Returns the server's errors; a pair without a prompt or a reply is an error too.
    pub(crate) async fn score(
        &self,
        by: By<'_>,
        pairs: &[ScoredPair<'_>],
        most: usize,
    ) -> Result<Vec<f64>, BackendError> {
        let cut: Vec<ScoredPair<'_>> = pairs.iter().map(|pair| pair.cut(most)).collect();
        let logprobs = self.logprobs(by, &cut).await?;
        Ok(logprobs.iter().map(|values| mean(values)).collect())
    }

    /// Returns the log-probabilities (T = 1) of the ids of each reply.
    ///
    /// # Shapes
    /// One list for each pair, with one entry for each id of its reply.
    ///
    /// # Errors
    /// Returns the server's errors; a pair without a prompt or a reply is an error too.
    pub(crate) async fn logprobs(
        &self,
        by: By<'_>,
        pairs: &[ScoredPair<'_>],
    ) -> Result<Vec<Vec<f32>>, BackendError> {
        let order = by_prompt(pairs);
        let sorted: Vec<ScoredPair<'_>> = order.iter().map(|at| pairs[*at]).collect();
        let mut passed = Vec::with_capacity(pairs.len());
        for call in calls(&sorted) {
            let logprobs = self.forward(by, call, 0).await?.logprobs;
            fits(call, &logprobs)?;
            passed.extend(logprobs);
        }
        let mut logprobs = vec![Vec::new(); pairs.len()];
        for (at, values) in order.into_iter().zip(passed) {
            logprobs[at] = values;
        }
        Ok(logprobs)
    }

    /// Returns the `k` most probable ids at each id of a reply, with their probabilities (T = 1), by the base model.
    ///
    /// # Shapes
    /// One list for each id of the reply, with `k` entries.
    ///
    /// # Errors
    /// Returns the server's errors; a pair without a prompt or a reply is an error too.
    pub(crate) async fn likeliest(
        &self,
        pair: ScoredPair<'_>,
        k: u32,
    ) -> Result<Vec<Vec<(u32, f32)>>, BackendError> {
        let n = pair.reply.len();
        let mut passed = self.forward(By::Base, &[pair], k).await?;
        let (ids, logprobs) = (passed.topk_ids.pop(), passed.topk_logprobs.pop());
        let likely = ids.unwrap_or_default().into_iter();
        let likely = likely.zip(logprobs.unwrap_or_default());
        let likely = likely.map(|(ids, logprobs)| {
            let probabilities = logprobs.into_iter().map(f32::exp);
            ids.into_iter().zip(probabilities).collect()
        });
        let likely: Vec<Vec<(u32, f32)>> = likely.collect();
        if likely.len() != n {
            let n_lists = likely.len();
            return Err(unreadable(format!(
                "{n_lists} lists of likely ids for {n} ids"
            )));
        }
        Ok(likely)
    }

    async fn forward(
        &self,
        by: By<'_>,
        pairs: &[ScoredPair<'_>],
        top_k: u32,
    ) -> Result<ForwardReply, BackendError> {
        let sequences: Result<Vec<_>, _> = pairs.iter().map(ScoredPair::sequence).collect();
        let (datums, positions) = sequences?.into_iter().unzip();
        let request = |session_id: RunId, adapter: bool| ForwardRequest {
            session_id,
            datums,
            adapter,
            positions: Some(positions),
            top_k,
        };
        match by {
            By::Run(run) => {
                let request = request(run.clone(), true);
                self.backend.forward(request).await
            }
            By::Base => {
                let mut run = self.scoring_run.lock().await;
                let id = match run.clone() {
                    Some(id) => id,
                    None => self.create().await?,
                };
                *run = Some(id.clone());
                let passed = self.backend.forward(request(id, false)).await;
                if passed.is_err() {
                    // The next answer may come from another process, which does not know the run.
                    *run = None;
                }
                passed
            }
        }
    }

    async fn create(&self) -> Result<RunId, BackendError> {
        let request = CreateRequest {
            rank: SCORING_RANK,
            ..CreateRequest::default()
        };
        Ok(self.backend.create_run(request).await?.session_id)
    }
}

const GRAM: usize = 4;

pub(crate) const SERVED_TEMPERATURE: f64 = 0.7;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DrawRequest<'a> {
    pub(crate) adapter: Option<&'a str>,
    pub(crate) prompt: &'a [u32],
    pub(crate) n: u32,
    pub(crate) max_tokens: u32,
    pub(crate) temperature: f64,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DrawnReply {
    pub(crate) ids: Vec<u32>,
    pub(crate) text: String,
    pub(crate) ended: bool,
}

// === impl DrawRequest ===

impl<'a> DrawRequest<'a> {
    pub(crate) fn new(adapter: Option<&'a str>, prompt: &'a [u32], max_tokens: u32) -> Self {
        Self {
            adapter,
            prompt,
            n: 1,
            max_tokens,
            temperature: SERVED_TEMPERATURE,
            seed: 0,
        }
    }
}

// === impl DrawnReply ===

impl DrawnReply {
    pub(crate) fn nothing() -> Self {
        Self {
            ids: Vec::new(),
            text: String::new(),
            ended: true,
        }
    }
}

/// The distinct 4-grams of ids as a share of all of them, over all replies together: who says one thing over and over, in one
/// reply or in each, has few. 1 where there are none.
pub(crate) fn distinct_share(replies: &[&DrawnReply]) -> f64 {
    let mut distinct = BTreeSet::new();
    let mut n = 0;
    for gram in replies.iter().flat_map(|reply| reply.ids.windows(GRAM)) {
        n += 1;
        distinct.insert(gram);
    }
    if n == 0 {
        1.0
    } else {
        distinct.len() as f64 / f64::from(n)
    }
}

/// The rank of a run that is opened only to score with the base model; its adapter is never read.
const SCORING_RANK: u32 = 1;

#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'a> {
    Base,
    Run(&'a RunId),
}

fn fits(pairs: &[ScoredPair<'_>], logprobs: &[Vec<f32>]) -> Result<(), BackendError> {
    let n_ids = |pair: &ScoredPair<'_>| pair.reply.len();
    if logprobs.iter().map(Vec::len).eq(pairs.iter().map(n_ids)) {
        return Ok(());
    }
    let (n, n_pairs) = (logprobs.len(), pairs.len());
    Err(unreadable(format!(
        "{n} lists of log-probabilities for {n_pairs} replies, or of other lengths"
    )))
}

/// The number of tokens of one forward call: some seconds on two cores, so that chats and other agents' steps run in
/// between.
const MOST_TOKENS: usize = 4_096;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ScoredPair<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) reply: &'a [u32],
}

/// How much better a reply fits its own question than others: its mean log-probability per token there, minus the mean
/// of those after other questions. A reply that would answer anything has a relevance of 0.
///
/// # Units
/// Nats per token.
pub(crate) fn relevance(own: f64, others: &[f64]) -> f64 {
    own - others.iter().sum::<f64>() / others.len().max(1) as f64
}

pub(crate) fn mean(values: &[f32]) -> f64 {
    let sum: f64 = values.iter().copied().map(f64::from).sum();
    sum / values.len().max(1) as f64
}

pub(super) fn unreadable(why: String) -> BackendError {
    BackendError::Unreadable {
        call: "forward",
        url: "the policy server".to_owned(),
        why,
    }
}

/// Returns the order in which pairs are scored: those of one prompt together, because the server computes their prompt
/// once.
pub(super) fn by_prompt(pairs: &[ScoredPair<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by_key(|at| pairs[*at].prompt);
    order
}

/// Splits pairs, ordered [by their prompts](by_prompt), into calls of at most [`MOST_TOKENS`] tokens to compute; a
/// longer pair has a call of its own.
pub(super) fn calls<'a, 'p>(pairs: &'a [ScoredPair<'p>]) -> Vec<&'a [ScoredPair<'p>]> {
    let (mut calls, mut start, mut n_tokens) = (Vec::new(), 0, 0);
    for (at, pair) in pairs.iter().enumerate() {
        let shares = at > start && pairs[at - 1].prompt == pair.prompt;
        let added = pair.reply.len() + if shares { 0 } else { pair.prompt.len() };
        if at > start && n_tokens + added > MOST_TOKENS {
            calls.push(&pairs[start..at]);
            (start, n_tokens) = (at, pair.prompt.len() + pair.reply.len());
        } else {
            n_tokens += added;
        }
    }
    calls.extend(Some(&pairs[start..]).filter(|rest| !rest.is_empty()));
    calls
}

// === impl ScoredPair ===

impl ScoredPair<'_> {
    #[must_use]
    pub(crate) fn cut(self, most: usize) -> Self {
        let reply = &self.reply[..self.reply.len().min(most)];
        Self { reply, ..self }
    }

    pub(super) fn sequence(&self) -> Result<(Datum, Vec<usize>), BackendError> {
        if self.prompt.is_empty() || self.reply.is_empty() {
            return Err(unreadable(format!(
                "a prompt of {} and a reply of {} ids cannot be scored",
                self.prompt.len(),
                self.reply.len()
            )));
        }
        let all = [self.prompt, self.reply].concat();
        let n = all.len() - 1;
        let targets = all[1..].to_vec();
        let datum = Datum::cross_entropy(all[..n].to_vec(), targets, vec![0.0; n])
            .map_err(|error| unreadable(error.to_string()))?;
        Ok((datum, (self.prompt.len() - 1..n).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(replies: &[&[u32]]) -> f64 {
        let draw = |ids: &&[u32]| DrawnReply {
            ids: ids.to_vec(),
            ..DrawnReply::nothing()
        };
        let draws: Vec<DrawnReply> = replies.iter().map(draw).collect();
        distinct_share(&draws.iter().collect::<Vec<_>>())
    }

    #[test]
    fn who_repeats_has_few_distinct_grams() {
        let shares = [
            (share(&[&[1, 2, 3, 4, 5]]), 1.0),
            // Within one reply.
            (share(&[&[1; 8]]), 0.2),
            // The same in each.
            (share(&[&[1, 2, 3, 4], &[1, 2, 3, 4]]), 0.5),
            (share(&[&[1, 2, 3]]), 1.0),
        ];
        for (share, expected) in shares {
            assert!((share - expected).abs() < 1e-9, "{share}, not {expected}");
        }
    }

    fn lengths(pairs: &[ScoredPair<'_>]) -> Vec<usize> {
        calls(pairs).into_iter().map(<[_]>::len).collect()
    }

    #[test]
    fn calls_are_cut_by_tokens_and_none_is_lost() {
        let ids = vec![1; 3_000];
        let pair = |n: usize| ScoredPair {
            prompt: &ids[..n],
            reply: &ids[..1_000],
        };
        let pairs = [pair(2_000), pair(2_001), pair(3_000), pair(10), pair(11)];
        assert_eq!(lengths(&pairs), [1, 1, 1, 2]);
        assert_eq!(lengths(&pairs.map(|pair| pair.cut(40))), [2, 3]);
        assert_eq!(lengths(&[]), [0; 0]);
    }

    #[test]
    fn replies_to_one_prompt_stand_together_and_count_it_once() {
        let (one, other, reply) = (vec![1; 1_500], vec![2; 1_500], vec![3; 500]);
        let pair = |prompt| ScoredPair {
            prompt,
            reply: reply.as_slice(),
        };
        let pairs = [&one, &other, &one, &other, &one].map(|prompt| pair(prompt.as_slice()));
        let order = by_prompt(&pairs);
        assert_eq!(order, [0, 2, 4, 1, 3]);
        let sorted: Vec<ScoredPair<'_>> = order.iter().map(|at| pairs[*at]).collect();
        assert_eq!(lengths(&sorted), [3, 2], "3000, and 2500");
        // The prompt is computed again in the next call.
        assert_eq!(lengths(&[pair(&one); 11]), [5, 5, 1]);
    }

    #[test]
    fn a_sequence_asks_for_the_positions_before_each_id_of_the_reply() {
        let pair = ScoredPair {
            prompt: &[1, 2, 3],
            reply: &[4, 5, 6],
        };
        let (datum, positions) = pair.cut(2).sequence().unwrap();
        assert_eq!(datum.parts().model_input_tokens, [1, 2, 3, 4]);
        assert_eq!(datum.parts().target_tokens.values(), [2, 3, 4, 5]);
        assert_eq!(positions, [2, 3]);
        let empty = ScoredPair {
            prompt: &[1],
            reply: &[],
        };
        assert!(empty.sequence().is_err());
    }

    #[test]
    fn a_reply_that_fits_everywhere_is_not_relevant() {
        assert!((relevance(-1.0, &[-3.0, -2.0]) - 1.5).abs() < 1e-9);
        assert!(relevance(-1.0, &[-1.0, -1.0]).abs() < 1e-9);
    }
}
