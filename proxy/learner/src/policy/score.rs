//! Scores replies.

use metaclaw_trainer_api::{
    BackendError, RunId,
    wire::{CreateRequest, ForwardReply, ForwardRequest},
};

use super::{
    pairs::{ScoredPair, by_prompt, calls, mean, unreadable},
    server::PolicyModel,
};

/// The rank of a run that is opened only to score with the base model; its adapter is never read.
const SCORING_RANK: u32 = 1;

#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'a> {
    Base,
    /// Scores with a run and its adapter.
    Run(&'a RunId),
}

// === impl PolicyModel ===

impl PolicyModel {
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

    /// Returns the log-probabilities of the replies, and the `top_k` most probable ids at each of their ids.
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

/// Returns whether the answer covers every id of every reply.
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
