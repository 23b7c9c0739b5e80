//! The policy server asked beside the chat: prompts rendered, replies drawn, replies scored.

use std::sync::Arc;

use metaclaw_trainer_api::{
    BackendError, Datum, RunId, TrainingBackend,
    wire::{CreateRequest, ForwardReply, ForwardRequest, SampleRequest, TokenizeRequest},
};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

/// Tokens of one forward call: some seconds on two cores, so that chats and other agents' steps come in between.
const MOST_TOKENS: usize = 4_096;
/// Of the run that only scoring by the base needs; its adapter is never read.
const SCORING_RANK: u32 = 1;

/// The policy server, as those ask it who look at replies without training on them.
#[derive(Debug)]
pub(crate) struct Policy {
    backend: Arc<dyn TrainingBackend>,
    /// A forward pass is of a run, even with its adapter off.
    scoring_run: Mutex<Option<RunId>>,
}

/// What to draw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrawRequest<'a> {
    /// An adapter's name; none is the base model.
    pub(crate) adapter: Option<&'a str>,
    pub(crate) prompt: &'a [u32],
    /// How many replies.
    pub(crate) n: u32,
    pub(crate) max_tokens: u32,
    pub(crate) temperature: f64,
    /// The same seed, the same replies.
    pub(crate) seed: u64,
}

/// A reply that was drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draw {
    /// Its ids, the one that ends it among them.
    pub(crate) ids: Vec<u32>,
    /// Without special tokens.
    pub(crate) text: String,
    /// Whether it ended by itself.
    pub(crate) ended: bool,
}

/// A reply after a prompt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) reply: &'a [u32],
}

/// Whose log-probabilities.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'a> {
    /// The base model's.
    Base,
    /// Those of a run, with its adapter.
    Run(&'a RunId),
}

/// How much better a reply fits its own question than others: its mean log-probability a token there, less the mean of
/// those under other questions. A reply that would answer anything has none.
///
/// # Units
/// Nat a token.
pub(crate) fn relevance(own: f64, others: &[f64]) -> f64 {
    own - others.iter().sum::<f64>() / others.len().max(1) as f64
}

// === impl Policy ===

impl Policy {
    pub(crate) fn new(backend: Arc<dyn TrainingBackend>) -> Self {
        Self {
            backend,
            scoring_run: Mutex::new(None),
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

    /// The same with variables of the chat template.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn render_with(
        &self,
        messages: Vec<Value>,
        tools: Option<Value>,
        chat_template_kwargs: Map<String, Value>,
    ) -> Result<Vec<u32>, BackendError> {
        let request = TokenizeRequest {
            model: None,
            prompt: None,
            messages: Some(messages),
            tools,
            add_generation_prompt: true,
            chat_template_kwargs,
        };
        Ok(self.backend.tokenize(request).await?.tokens)
    }

    /// A text as ids, without the marks of a conversation around it.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn encode(&self, text: &str) -> Result<Vec<u32>, BackendError> {
        let request = TokenizeRequest {
            model: None,
            prompt: Some(text.to_owned()),
            messages: None,
            tools: None,
            add_generation_prompt: false,
            chat_template_kwargs: Map::new(),
        };
        Ok(self.backend.tokenize(request).await?.tokens)
    }

    /// Replies from the model's whole distribution.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn draw(&self, request: DrawRequest<'_>) -> Result<Vec<Draw>, BackendError> {
        let request = SampleRequest {
            tokens: request.prompt.to_vec(),
            num_samples: request.n,
            temperature: request.temperature,
            max_tokens: request.max_tokens,
            top_k: 0,
            top_p: 1.0,
            stop: None,
            model: Some(request.adapter.unwrap_or("base").to_owned()),
            seed: Some(request.seed),
        };
        let drawn = self.backend.sample(request).await?.sequences;
        let draws = drawn.into_iter().map(|sequence| Draw {
            ids: sequence.tokens,
            text: sequence.text,
            ended: sequence.stop_reason == "stop",
        });
        Ok(draws.collect())
    }

    /// The mean log-probability a token (T = 1) of the first `most` ids of each reply.
    ///
    /// # Errors
    /// The server's; a pair without a prompt or a reply is one too.
    pub(crate) async fn score(
        &self,
        by: By<'_>,
        pairs: &[Pair<'_>],
        most: usize,
    ) -> Result<Vec<f64>, BackendError> {
        let mut means = Vec::with_capacity(pairs.len());
        for call in calls(pairs, most) {
            let passed = self.forward(by, call, (most, 0)).await?.logprobs;
            if passed.len() != call.len() {
                return Err(unreadable(format!(
                    "{} lists of log-probabilities for {} sequences",
                    passed.len(),
                    call.len()
                )));
            }
            means.extend(passed.iter().map(|values| mean(values)));
        }
        Ok(means)
    }

    /// The `k` likeliest ids where each id of a reply stands, with their probabilities (T = 1), by the base model.
    ///
    /// # Shapes
    /// One list for each id of the reply, of `k` entries.
    ///
    /// # Errors
    /// The server's; a pair without a prompt or a reply is one too.
    pub(crate) async fn likeliest(
        &self,
        pair: Pair<'_>,
        k: u32,
    ) -> Result<Vec<Vec<(u32, f32)>>, BackendError> {
        let n = pair.reply.len();
        let mut passed = self.forward(By::Base, &[pair], (n, k)).await?;
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

    /// At most `most` ids of each reply, and the `k` likeliest at each.
    async fn forward(
        &self,
        by: By<'_>,
        pairs: &[Pair<'_>],
        (most, top_k): (usize, u32),
    ) -> Result<ForwardReply, BackendError> {
        let sequences: Result<Vec<_>, _> = pairs.iter().map(|pair| pair.sequence(most)).collect();
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
                    // Whoever answers next may be another process, which does not know the run.
                    *run = None;
                }
                passed
            }
        }
    }

    /// Gives back what it holds at the server. What is asked later is asked anew.
    pub(crate) async fn close(&self) {
        let Some(run) = self.scoring_run.lock().await.take() else {
            return;
        };
        if let Err(error) = self.backend.close_run(run).await {
            // It goes when the server wants its memory.
            tracing::debug!(%error, "not closed");
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

// === impl Pair ===

impl Pair<'_> {
    fn cut(&self, most: usize) -> &[u32] {
        &self.reply[..self.reply.len().min(most)]
    }

    fn n_tokens(&self, most: usize) -> usize {
        self.prompt.len() + self.cut(most).len()
    }

    /// The sequence, and the positions that predict the reply.
    fn sequence(&self, most: usize) -> Result<(Datum, Vec<usize>), BackendError> {
        let reply = self.cut(most);
        if self.prompt.is_empty() || reply.is_empty() {
            return Err(unreadable(format!(
                "a prompt of {} and a reply of {} ids cannot be scored",
                self.prompt.len(),
                reply.len()
            )));
        }
        let all = [self.prompt, reply].concat();
        let n = all.len() - 1;
        let targets = all[1..].to_vec();
        let datum = Datum::cross_entropy(all[..n].to_vec(), targets, vec![0.0; n]);
        let datum = datum.map_err(|error| unreadable(error.to_string()))?;
        Ok((datum, (self.prompt.len() - 1..n).collect()))
    }
}

/// Pairs in calls of at most [`MOST_TOKENS`]; one that is longer alone is alone.
fn calls<'a, 'p>(pairs: &'a [Pair<'p>], most: usize) -> Vec<&'a [Pair<'p>]> {
    let (mut calls, mut start, mut n_tokens) = (Vec::new(), 0, 0);
    for (at, pair) in pairs.iter().enumerate() {
        let n = pair.n_tokens(most);
        if at > start && n_tokens + n > MOST_TOKENS {
            calls.push(&pairs[start..at]);
            (start, n_tokens) = (at, 0);
        }
        n_tokens += n;
    }
    calls.extend(Some(&pairs[start..]).filter(|rest| !rest.is_empty()));
    calls
}

fn mean(values: &[f32]) -> f64 {
    let sum: f64 = values.iter().copied().map(f64::from).sum();
    sum / values.len().max(1) as f64
}

fn unreadable(why: String) -> BackendError {
    BackendError::Unreadable {
        call: "forward",
        url: "the policy server".to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_cut_by_tokens_and_none_is_lost() {
        let ids = vec![1; 3_000];
        let pair = |n: usize| Pair {
            prompt: &ids[..n],
            reply: &ids[..1_000],
        };
        let pairs = [pair(2_000), pair(2_000), pair(3_000), pair(10), pair(10)];
        let lengths = |most| {
            calls(&pairs, most)
                .into_iter()
                .map(<[_]>::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(lengths(1_000), [1, 1, 1, 2]);
        assert_eq!(lengths(40), [2, 3], "only the first ids count");
        assert!(calls(&[], 40).is_empty());
    }

    #[test]
    fn a_sequence_asks_for_the_positions_before_each_id_of_the_reply() {
        let pair = Pair {
            prompt: &[1, 2, 3],
            reply: &[4, 5, 6],
        };
        let (datum, positions) = pair.sequence(2).unwrap();
        assert_eq!(datum.parts().model_input_tokens, [1, 2, 3, 4]);
        assert_eq!(datum.parts().target_tokens.values(), [2, 3, 4, 5]);
        assert_eq!(positions, [2, 3]);
        let empty = Pair {
            prompt: &[1],
            reply: &[],
        };
        assert!(empty.sequence(2).is_err());
    }

    #[test]
    fn a_reply_that_fits_everywhere_is_not_relevant() {
        assert!((relevance(-1.0, &[-3.0, -2.0]) - 1.5).abs() < 1e-9);
        assert!(relevance(-1.0, &[-1.0, -1.0]).abs() < 1e-9);
    }
}
