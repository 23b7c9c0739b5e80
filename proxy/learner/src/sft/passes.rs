//! One optimiser step, and the held-out loss, by calls of the training server.

use std::ops::Range;

use metaclaw_trainer_api::{
    Datum, LossConfig, LossFn, RunId,
    wire::{ForwardBackwardRequest, ForwardRequest, OptimStepReply, OptimStepRequest},
};
use tokio::time::Instant;

use super::{
    error::SftError,
    examples::{TokenExample, TokenRow},
    objective::{Objective, PairLogprobs, PairMargin},
    plan::SftPlan,
    rows::RowError,
};
use crate::trainer::{RunHandle, StepFailure, StepRunner, StepStage, seen};

/// Log-probabilities of pairs where the training started.
#[derive(Debug, Clone, Default)]
pub(super) struct ReferenceLogprobs {
    pub(super) rows: Vec<PairLogprobs>,
    pub(super) held_out: Vec<PairLogprobs>,
}

/// A run at the training server, and what it is trained on.
pub(super) struct Passes<'a> {
    pub(super) runner: &'a StepRunner,
    pub(super) run: &'a mut RunHandle,
    pub(super) plan: &'a SftPlan,
    /// Of pairs, once it is known.
    pub(super) reference: Option<&'a ReferenceLogprobs>,
}

/// An optimiser step that was taken.
#[derive(Debug, Clone)]
pub(super) struct TakenStep {
    /// Before the step.
    pub(super) loss: f64,
    pub(super) learning_rate: f64,
    pub(super) n_tokens: usize,
    pub(super) stepped: OptimStepReply,
}

/// Why a pass was not made.
#[derive(Debug)]
pub(super) enum PassError {
    /// It may go another time.
    Failed(StepFailure),
    /// The training server refuses this row.
    Row(RowError),
    Refused(SftError),
}

/// The sequences of a batch with their weights.
struct WeightedBatch {
    datums: Vec<Datum>,
    /// The line of each.
    lines: Vec<usize>,
    /// The loss, where the weighted sum is not it.
    loss: Option<f64>,
}

// === impl PassError ===

impl From<StepFailure> for PassError {
    fn from(failure: StepFailure) -> Self {
        Self::Failed(failure)
    }
}

impl<E: Into<SftError>> From<E> for PassError {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

// === impl Passes ===

impl Passes<'_> {
    /// Takes a step on a batch, given as places in the rows.
    pub(super) async fn step(
        &mut self,
        id: &RunId,
        batch: &[usize],
        learning_rate: f64,
    ) -> Result<TakenStep, PassError> {
        let WeightedBatch {
            datums,
            lines,
            loss,
        } = self.weighted(id, batch).await?;
        let (mut sum, mut n_tokens) = (0.0, 0);
        let lengths: Vec<usize> = datums.iter().map(Datum::n_tokens).collect();
        for range in self.calls(&lengths) {
            let began = Instant::now();
            let request = ForwardBackwardRequest {
                session_id: id.clone(),
                datums: datums[range.clone()].to_vec(),
                loss_fn: LossFn::CrossEntropy,
                loss_fn_config: LossConfig::new(),
            };
            let reply = self.runner.backend.forward_backward(request).await;
            if let Err(error) = &reply
                && let Some(line) = error.datum().and_then(|at| lines.get(range.start + at))
            {
                let (line, why) = (*line, error.to_string());
                return Err(PassError::Row(RowError { line, why }));
            }
            let reply = seen(self.run, StepStage::Pass(0), reply)?;
            sum += reply.loss;
            let n: usize = lengths[range].iter().sum();
            n_tokens += n;
            self.run.passed(n, began.elapsed());
        }
        let stepped = self
            .runner
            .backend
            .optim_step(self.step_request(id, learning_rate));
        let stepped = seen(self.run, StepStage::Step, stepped.await)?;
        Ok(TakenStep {
            loss: loss.unwrap_or(sum),
            learning_rate,
            n_tokens,
            stepped,
        })
    }

    /// Weighs the ids of a batch so that the gradient of `cross_entropy`, which sums, is that of the objective.
    async fn weighted(&mut self, id: &RunId, batch: &[usize]) -> Result<WeightedBatch, PassError> {
        let plan = self.plan;
        let rows: Vec<&TokenRow> = batch.iter().filter_map(|at| plan.rows.get(*at)).collect();
        let lines = rows
            .iter()
            .flat_map(|row| vec![row.line; row.examples.len()]);
        let lines = lines.collect();
        let examples = rows.iter().flat_map(|row| &row.examples);
        match plan.objective {
            Objective::CrossEntropy => {
                let n: usize = rows.iter().map(|row| row.n_trained()).sum();
                #[expect(clippy::cast_possible_truncation, reason = "a weight has 24 bits")]
                let weight = (1.0 / n.max(1) as f64) as f32;
                let datums = examples.map(|example| example.datum(weight));
                Ok(WeightedBatch {
                    datums: datums.collect::<Result<_, _>>()?,
                    lines,
                    loss: None,
                })
            }
            Objective::Preference { beta } => {
                let known = self.reference.map_or(&[][..], |it| &it.rows);
                let reference = batch.iter().filter_map(|at| known.get(*at).copied());
                let reference: Vec<PairLogprobs> = reference.collect();
                let margins = self.margins(id, &rows, &reference, beta).await?;
                let n = margins.len().max(1) as f64;
                #[expect(clippy::cast_possible_truncation, reason = "a weight has 24 bits")]
                let weights = margins.iter().flat_map(|margin| {
                    let weight = (margin.weight(beta) / n) as f32;
                    [weight, -weight]
                });
                let datums = examples.zip(weights).map(|(it, weight)| it.datum(weight));
                Ok(WeightedBatch {
                    datums: datums.collect::<Result<_, _>>()?,
                    lines,
                    loss: Some(mean_loss(&margins)),
                })
            }
        }
    }

    /// The loss on the rows that are held out, at the weights of a run; none where nothing is.
    pub(super) async fn held_out_loss(&mut self, id: &RunId) -> Result<Option<f64>, StepFailure> {
        let plan = self.plan;
        if plan.held_out.is_empty() {
            return Ok(None);
        }
        let rows: Vec<&TokenRow> = plan.held_out.iter().collect();
        if let Objective::Preference { beta } = plan.objective {
            let reference = self.reference.map_or(&[][..], |it| &it.held_out);
            let margins = self.margins(id, &rows, reference, beta).await?;
            return Ok(Some(mean_loss(&margins)));
        }
        let examples: Vec<&TokenExample> = rows.iter().flat_map(|row| &row.examples).collect();
        let sum: f64 = self.logprobs(id, &examples).await?.iter().sum();
        let n: usize = examples.iter().map(|it| it.n_trained()).sum();
        Ok(Some(-sum / n.max(1) as f64))
    }

    /// The log-probabilities of all pairs at the weights of a run.
    pub(super) async fn reference(&mut self, id: &RunId) -> Result<ReferenceLogprobs, StepFailure> {
        let plan = self.plan;
        let rows: Vec<&TokenRow> = plan.rows.iter().collect();
        let held_out: Vec<&TokenRow> = plan.held_out.iter().collect();
        Ok(ReferenceLogprobs {
            rows: self.pair_logprobs(id, &rows).await?,
            held_out: self.pair_logprobs(id, &held_out).await?,
        })
    }

    async fn margins(
        &mut self,
        id: &RunId,
        rows: &[&TokenRow],
        reference: &[PairLogprobs],
        beta: f64,
    ) -> Result<Vec<PairMargin>, StepFailure> {
        let now = self.pair_logprobs(id, rows).await?;
        let both = now.into_iter().zip(reference);
        Ok(both
            .map(|(now, it)| PairMargin::new(beta, now, *it))
            .collect())
    }

    async fn pair_logprobs(
        &mut self,
        id: &RunId,
        rows: &[&TokenRow],
    ) -> Result<Vec<PairLogprobs>, StepFailure> {
        let examples: Vec<&TokenExample> = rows.iter().flat_map(|row| &row.examples).collect();
        let sums = self.logprobs(id, &examples).await?;
        let pairs = sums.chunks_exact(2).map(|pair| PairLogprobs {
            chosen: pair[0],
            rejected: pair[1],
        });
        Ok(pairs.collect())
    }

    /// The log-probability of what is trained in each sequence, summed, in nats.
    async fn logprobs(
        &mut self,
        id: &RunId,
        examples: &[&TokenExample],
    ) -> Result<Vec<f64>, StepFailure> {
        let lengths: Vec<usize> = examples.iter().map(|it| it.ids.len()).collect();
        let mut sums = Vec::with_capacity(examples.len());
        for range in self.calls(&lengths) {
            let some = &examples[range];
            let request = ForwardRequest {
                session_id: id.clone(),
                // A weight of 0 is a number.
                datums: some.iter().filter_map(|it| it.datum(0.0).ok()).collect(),
                adapter: true,
                positions: Some(some.iter().map(|it| it.positions()).collect()),
                top_k: 0,
            };
            let reply = self.runner.backend.forward(request).await;
            let reply = seen(self.run, StepStage::Pass(0), reply)?;
            let sum = |values: &Vec<f32>| values.iter().copied().map(f64::from).sum::<f64>();
            sums.extend(reply.logprobs.iter().map(sum));
        }
        Ok(sums)
    }

    /// Cuts sequences into calls that take a part of the deadline, so that chats and other agents' steps run in between.
    fn calls(&self, lengths: &[usize]) -> Vec<Range<usize>> {
        let most = self.run.most_tokens(self.runner.backend.deadline());
        cut(lengths, most)
    }

    fn step_request(&self, id: &RunId, learning_rate: f64) -> OptimStepRequest {
        let rl = &self.plan.rl;
        OptimStepRequest {
            session_id: id.clone(),
            learning_rate,
            adam: rl.adam(),
        }
    }
}

fn mean_loss(margins: &[PairMargin]) -> f64 {
    let sum: f64 = margins.iter().map(|margin| margin.loss()).sum();
    sum / margins.len().max(1) as f64
}

/// Ranges of at most this many ids; a longer sequence has one of its own.
fn cut(lengths: &[usize], most: usize) -> Vec<Range<usize>> {
    let (mut calls, mut start, mut sum) = (Vec::new(), 0, 0);
    for (at, length) in lengths.iter().enumerate() {
        if at > start && sum + length > most {
            calls.push(start..at);
            (start, sum) = (at, 0);
        }
        sum += length;
    }
    calls.extend(Some(start..lengths.len()).filter(|it| !it.is_empty()));
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_cut_by_tokens_and_none_is_lost() {
        assert_eq!(cut(&[4, 4, 4, 20, 1], 10), [0..2, 2..3, 3..4, 4..5]);
        assert_eq!(cut(&[4, 4], 100).first(), Some(&(0..2)));
        assert!(cut(&[], 10).is_empty());
    }
}
