//! The epochs of a training at a training server: passes, steps, held-out losses, and a checkpoint for each, of which the
//! name follows from the data and the settings.

use std::{collections::BTreeMap, ops::Range, path::PathBuf};

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_trainer_api::{
    AdapterName, CheckpointName, Datum, LossConfig, LossFn, NameError, RunId,
    wire::{ForwardBackwardRequest, ForwardRequest, OptimStepReply, OptimStepRequest},
};
use tokio::time::Instant;

use super::{
    plan::{Objective, PairLogprobs, PairMargin, SftPlan},
    rows::{RowError, SftError, TokenExample, TokenRow},
    types::{SftEpoch, SftEvent, SftStep},
};
use crate::{
    config::RlConfig,
    lineage::{
        BatchStats, CheckpointManifest, DataSetUse, KnownCheckpoint, Numbers, Provenance,
        ResumePoint, names,
    },
    metrics::{Recorder, StepRecord},
    trainer::{Patience, RunHandle, StepFailure, StepRunner, StepStage, seen},
};

const DIGITS: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct EpochLine {
    agent: AgentId,
    pub(super) from: Option<CheckpointName>,
    hash: String,
    lineage: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MadeEpoch {
    pub(super) epoch: u64,
    pub(super) adapter: AdapterName,
    pub(super) held_out_before: Option<f64>,
    pub(super) held_out_loss: Option<f64>,
}

// === impl EpochLine ===

impl EpochLine {
    /// The line from a start. If the start is itself an epoch of this training, which was chosen since, the line is that
    /// one's: the same is not trained twice.
    pub(super) fn new(
        agent: &AgentId,
        plan: &SftPlan,
        from: Option<CheckpointName>,
        known: &[KnownCheckpoint],
    ) -> Self {
        let start = known
            .iter()
            .find(|known| Some(&known.name) == from.as_ref());
        let origin = start.and_then(|start| {
            let data = start.manifest.made.as_ref()?.data.as_ref()?;
            let hash = plan.hash(agent.as_str(), data.from.as_ref());
            (hash == start.manifest.hash).then(|| data.from.clone())
        });
        let from = origin.unwrap_or(from);
        let hash = plan.hash(agent.as_str(), from.as_ref());
        Self {
            agent: agent.clone(),
            lineage: hash[..DIGITS].to_owned(),
            from,
            hash,
        }
    }

    /// # Errors
    /// Returns [`NameError`] for a name that the training server would not take.
    pub(super) fn names(&self, epoch: u64) -> Result<(AdapterName, CheckpointName), NameError> {
        names(&self.agent, &self.lineage, epoch)
    }

    /// Where a run stands after so many epochs; 0 is the start.
    ///
    /// # Errors
    /// See [`Self::names`].
    pub(super) fn point(&self, epochs: u64) -> Result<ResumePoint, NameError> {
        let checkpoint = match epochs {
            0 => self.from.clone(),
            epoch => Some(self.names(epoch)?.1),
        };
        Ok(ResumePoint {
            lineage: self.lineage.clone(),
            n: epochs,
            steps: 0,
            checkpoint,
            choice_ms: None,
        })
    }

    pub(super) fn made(&self, known: &[KnownCheckpoint]) -> Vec<MadeEpoch> {
        let own = known
            .iter()
            .filter(|known| known.manifest.hash == self.hash);
        let epoch = |known: &KnownCheckpoint| {
            let data = known.manifest.made.as_ref()?.data.as_ref()?;
            Some(MadeEpoch {
                epoch: known.manifest.n,
                adapter: AdapterName::from(&known.name),
                held_out_before: data.held_out_before,
                held_out_loss: data.held_out_loss,
            })
        };
        let mut made: Vec<MadeEpoch> = own.filter_map(epoch).collect();
        made.sort_by_key(|made| made.epoch);
        made
    }

    /// What the checkpoint of an epoch says of itself.
    ///
    /// # Errors
    /// See [`Self::names`].
    pub(super) fn manifest(
        &self,
        plan: &SftPlan,
        made: &MadeEpoch,
        numbers: Numbers,
        file: String,
    ) -> Result<CheckpointManifest, NameError> {
        let parent = self.point(made.epoch - 1)?;
        let config = RlConfig {
            learning_rate: Some(numbers.learning_rate),
            batch_size: plan.batch_size,
            epochs: Some(plan.epochs),
            ..plan.rl.clone()
        };
        let mut provenance = Provenance::here(parent.seed(), &config, None);
        provenance.data = Some(DataSetUse {
            file,
            hash: plan.data.clone(),
            n_rows: plan.rows.len() as u64,
            n_held_out: plan.held_out.len() as u64,
            epoch: made.epoch,
            epochs: plan.epochs,
            held_out_before: made.held_out_before,
            held_out_loss: made.held_out_loss,
            from: self.from.clone(),
        });
        Ok(CheckpointManifest {
            agent: self.agent.clone(),
            lineage: self.lineage.clone(),
            n: made.epoch,
            turns: Vec::new(),
            uses: Vec::new(),
            hash: self.hash.clone(),
            parent: parent.checkpoint,
            shape: plan.shape.clone(),
            numbers,
            batch: BatchStats {
                samples: [(plan.objective.as_str().to_owned(), plan.rows.len())].into(),
                ..BatchStats::default()
            },
            scores: BTreeMap::new(),
            made: Some(provenance),
        })
    }
}

/// Log-probabilities of pairs where the training started.
#[derive(Debug, Clone, Default)]
pub(super) struct ReferenceLogprobs {
    rows: Vec<PairLogprobs>,
    held_out: Vec<PairLogprobs>,
}

struct WeightedBatch {
    datums: Vec<Datum>,
    lines: Vec<usize>,
    /// The loss, where the weighted sum is not it.
    loss: Option<f64>,
}

struct TakenStep {
    loss: f64,
    n_tokens: usize,
    stepped: OptimStepReply,
}

#[derive(Debug, derive_more::From)]
enum PassError {
    /// It may go another time.
    #[from]
    Failed(StepFailure),
    Refused(SftError),
}

pub(super) struct FineTuning<'a, T> {
    pub runner: &'a StepRunner,
    pub run: RunHandle,
    pub plan: &'a SftPlan,
    pub line: &'a EpochLine,
    pub file: &'a PathBuf,
    /// Of pairs, once it is known.
    pub reference: Option<ReferenceLogprobs>,
    pub made: Vec<MadeEpoch>,
    pub patience: Patience,
    pub recorder: &'a Recorder,
    pub tell: &'a mut T,
}

impl<E: Into<SftError>> From<E> for PassError {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

// === impl FineTuning ===

impl<T: FnMut(SftEvent) + Send> FineTuning<'_, T> {
    /// Makes the epochs that are not there yet. After a failure that may pass, the epoch begins again.
    pub(super) async fn all_epochs(&mut self) -> Result<(), SftError> {
        loop {
            let n_made = self.made.len();
            let failed = match self.go_on().await {
                Ok(()) => return Ok(()),
                Err(PassError::Refused(error)) => return Err(error),
                Err(PassError::Failed(failed)) => failed,
            };
            if self.made.len() > n_made {
                self.patience = Patience::default();
            }
            self.may_try_again(&failed)?;
            let why = failed.to_string();
            tracing::warn!(why, "the epoch begins again");
            (self.tell)(SftEvent::Waits { why });
            self.patience.pause().await;
        }
    }

    /// A training server that is away is waited for without an end.
    fn may_try_again(&mut self, failed: &StepFailure) -> Result<(), SftError> {
        let error = &failed.error;
        if error.is_not_supported() {
            return Err(match self.plan.objective {
                Objective::CrossEntropy => SftError::NoScores,
                Objective::Preference { .. } => SftError::NoPairs,
            });
        }
        if error.is_unreachable() {
            return Ok(());
        }
        if !self.patience.ends() && failed.may_pass() {
            return Ok(());
        }
        Err(SftError::Refused(failed.to_string()))
    }

    async fn go_on(&mut self) -> Result<(), PassError> {
        self.find_made().await?;
        let n_made = self.made.last().map_or(0, |last| last.epoch);
        if n_made >= self.plan.epochs {
            return Ok(());
        }
        let is_pairs = matches!(self.plan.objective, Objective::Preference { .. });
        if is_pairs && self.reference.is_none() {
            let id = self.put_after(0).await?;
            self.reference = Some(self.score_pairs(&id).await?);
        }
        for epoch in n_made + 1..=self.plan.epochs {
            let made = self.epoch(epoch).await?;
            self.made.push(made);
        }
        Ok(())
    }

    /// Asks the server which epochs are there: an earlier run of the same made some, or a failed call was carried out.
    async fn find_made(&mut self) -> Result<(), StepFailure> {
        let listed = self.runner.checkpoints().await;
        // A server that lists none has those that were made here.
        let Some(known) = listed.map_err(StepFailure::at_server)? else {
            return Ok(());
        };
        let made = self.line.made(&known);
        if self.made.is_empty()
            && let Some(last) = made.last()
        {
            let epochs_done = last.epoch;
            (self.tell)(SftEvent::Continues { epochs_done });
        }
        self.made = made;
        Ok(())
    }

    async fn put_after(&mut self, epochs: u64) -> Result<RunId, PassError> {
        let point = self.line.point(epochs)?;
        if let Some(id) = &self.run.id
            && self.run.at.as_ref() == Some(&point)
        {
            return Ok(id.clone());
        }
        let id = self.runner.put_at(&mut self.run, &point).await?;
        self.run.at = Some(point);
        Ok(id)
    }

    async fn epoch(&mut self, epoch: u64) -> Result<MadeEpoch, PassError> {
        let began = Instant::now();
        let id = self.put_after(epoch - 1).await?;
        let before = if let Some(first) = self.made.first() {
            first.held_out_before
        } else {
            let before = self.held_out_loss(&id).await?;
            before.inspect(|&held_out_loss| (self.tell)(SftEvent::Before { held_out_loss }))
        };
        // What was put there is changed from here on.
        self.run.at = None;
        let (adapter, checkpoint) = self.line.names(epoch)?;
        let mut made = MadeEpoch {
            epoch,
            adapter: adapter.clone(),
            held_out_before: before,
            held_out_loss: None,
        };
        let numbers = self.steps(&mut made, &id).await?;
        let loss = numbers.loss;
        let file = self.file.display().to_string();
        let described = self.line.manifest(self.plan, &made, numbers, file)?;
        let manifest = serde_json::to_value(described).unwrap_or_default();
        // The adapter first: where the checkpoint is there, so is its adapter.
        let backend = &self.runner.backend;
        let saved = backend.save_adapter(id.clone(), adapter).await;
        seen(&mut self.run, StepStage::Save, saved)?;
        let saved = backend.save_checkpoint(id, checkpoint, manifest).await;
        seen(&mut self.run, StepStage::Save, saved)?;
        self.run.at = Some(self.line.point(epoch)?);
        (self.tell)(SftEvent::Epoch(SftEpoch {
            epoch,
            of: self.plan.epochs,
            adapter: made.adapter.to_string(),
            loss,
            held_out_loss: made.held_out_loss,
            seconds: began.elapsed().as_secs_f64(),
        }));
        Ok(made)
    }

    /// Makes the steps of an epoch, and measures the held-out loss after the last one.
    async fn steps(&mut self, made: &mut MadeEpoch, id: &RunId) -> Result<Numbers, PassError> {
        let (epoch, n_params) = (made.epoch, self.run.n_params);
        let mut numbers = Numbers::default();
        let batches = self.plan.batches(epoch);
        let n_batches = batches.len();
        for (at, batch) in (1..).zip(batches) {
            let began = Instant::now();
            let step = (epoch - 1) * self.plan.steps_per_epoch() + at;
            let rate = self.plan.rate(step, n_params);
            let taken = self.step(id, &batch, rate).await?;
            numbers.loss += taken.loss / n_batches as f64;
            numbers.grad_norm = taken.stepped.grad_norm;
            numbers.learning_rate = self.plan.full_rate(n_params);
            numbers.skipped |= taken.stepped.skipped;
            numbers.n_tokens += taken.n_tokens;
            numbers.train_seconds += began.elapsed().as_secs_f64();
            let told = SftStep {
                step,
                of: self.plan.n_steps(),
                epoch,
                loss: taken.loss,
                learning_rate: rate,
                grad_norm: taken.stepped.grad_norm,
                skipped: taken.stepped.skipped,
                n_tokens: taken.n_tokens,
                seconds: began.elapsed().as_secs_f64(),
            };
            (self.tell)(SftEvent::Step(told.clone()));
            if step == epoch * self.plan.steps_per_epoch() {
                made.held_out_loss = self.held_out_loss(id).await?;
            }
            let record = StepRecord {
                step: taken.stepped.step,
                ..self.record_of(&told, made, batch.len())
            };
            self.recorder.record(record).await;
        }
        let method = self.plan.objective.as_str().to_owned();
        numbers.losses.insert(method, numbers.loss);
        Ok(numbers)
    }

    /// As if the weights had begun with this training.
    fn record_of(&self, step: &SftStep, made: &MadeEpoch, n_rows: usize) -> StepRecord {
        let method = self.plan.objective.as_str().to_owned();
        StepRecord {
            agent: self.line.agent.clone(),
            lineage: self.line.lineage.clone(),
            n: step.step,
            step: step.step,
            adapter: made.adapter.to_string(),
            n_turns: 0,
            numbers: Numbers {
                loss: step.loss,
                losses: [(method.clone(), step.loss)].into(),
                grad_norm: step.grad_norm,
                learning_rate: step.learning_rate,
                skipped: step.skipped,
                n_tokens: step.n_tokens,
                train_seconds: step.seconds,
                ..Numbers::default()
            },
            batch: BatchStats {
                samples: [(method, n_rows)].into(),
                ..BatchStats::default()
            },
            held_out_loss: made.held_out_loss,
            seconds: Some(step.seconds),
            time_ms: now_ms(),
        }
    }

    async fn step(
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
                return Err(PassError::Refused(SftError::Row {
                    file: self.file.clone(),
                    error: RowError { line, why },
                }));
            }
            let reply = seen(&mut self.run, StepStage::Pass(0), reply)?;
            sum += reply.loss;
            let n: usize = lengths[range].iter().sum();
            n_tokens += n;
            self.run.passed(n, began.elapsed());
        }
        let request = OptimStepRequest {
            session_id: id.clone(),
            learning_rate,
            adam: self.plan.rl.adam(),
        };
        let reply = self.runner.backend.optim_step(request).await;
        let stepped = seen(&mut self.run, StepStage::Step, reply)?;
        Ok(TakenStep {
            loss: loss.unwrap_or(sum),
            n_tokens,
            stepped,
        })
    }

    /// Weighs the ids of a batch so that the gradient of `cross_entropy`, which sums, is that of the objective.
    async fn weighted(&mut self, id: &RunId, batch: &[usize]) -> Result<WeightedBatch, PassError> {
        let plan = self.plan;
        let rows: Vec<&TokenRow> = batch.iter().filter_map(|at| plan.rows.get(*at)).collect();
        let (mut weights, mut loss) = (Vec::new(), None);
        match plan.objective {
            Objective::CrossEntropy => {
                let n: usize = rows.iter().map(|row| row.n_trained()).sum();
                let n_sequences = rows.iter().map(|row| row.examples.len()).sum();
                weights.resize(n_sequences, 1.0 / n.max(1) as f64);
            }
            Objective::Preference { beta } => {
                let known = self.reference.as_ref().map_or(&[][..], |known| &known.rows);
                let of_batch = batch.iter().filter_map(|at| known.get(*at).copied());
                let reference: Vec<PairLogprobs> = of_batch.collect();
                let margins = self.margins(id, &rows, &reference, beta).await?;
                let n = margins.len().max(1) as f64;
                for margin in &margins {
                    let weight = margin.weight(beta) / n;
                    weights.extend([weight, -weight]);
                }
                loss = Some(mean_loss(&margins));
            }
        }
        let examples = rows.iter().flat_map(|row| &row.examples);
        #[expect(clippy::cast_possible_truncation, reason = "a weight has 24 bits")]
        let datums = examples
            .zip(weights)
            .map(|(example, weight)| example.datum(weight as f32));
        let line_of_each = |row: &&TokenRow| vec![row.line; row.examples.len()];
        Ok(WeightedBatch {
            datums: datums.collect::<Result<_, _>>()?,
            lines: rows.iter().flat_map(line_of_each).collect(),
            loss,
        })
    }

    async fn held_out_loss(&mut self, id: &RunId) -> Result<Option<f64>, StepFailure> {
        let plan = self.plan;
        if plan.held_out.is_empty() {
            return Ok(None);
        }
        let rows: Vec<&TokenRow> = plan.held_out.iter().collect();
        if let Objective::Preference { beta } = plan.objective {
            let known = self.reference.as_ref().map(|known| known.held_out.clone());
            let reference = known.unwrap_or_default();
            let margins = self.margins(id, &rows, &reference, beta).await?;
            return Ok(Some(mean_loss(&margins)));
        }
        let examples: Vec<&TokenExample> = rows.iter().flat_map(|row| &row.examples).collect();
        let sum: f64 = self.logprobs(id, &examples).await?.iter().sum();
        let n: usize = rows.iter().map(|row| row.n_trained()).sum();
        Ok(Some(-sum / n.max(1) as f64))
    }

    async fn score_pairs(&mut self, id: &RunId) -> Result<ReferenceLogprobs, StepFailure> {
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
        let margins = both.map(|(now, reference)| PairMargin::new(beta, now, *reference));
        Ok(margins.collect())
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
        let lengths: Vec<usize> = examples.iter().map(|example| example.n_tokens()).collect();
        let mut sums = Vec::with_capacity(examples.len());
        for range in self.calls(&lengths) {
            let some = &examples[range];
            let request = ForwardRequest {
                session_id: id.clone(),
                // A weight of 0 is a number.
                datums: some
                    .iter()
                    .filter_map(|example| example.datum(0.0).ok())
                    .collect(),
                adapter: true,
                positions: Some(some.iter().map(|example| example.positions()).collect()),
                top_k: 0,
            };
            let answered = self.runner.backend.forward(request).await;
            let reply = seen(&mut self.run, StepStage::Pass(0), answered)?;
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
}

fn mean_loss(margins: &[PairMargin]) -> f64 {
    let sum: f64 = margins.iter().map(|margin| margin.loss()).sum();
    sum / margins.len().max(1) as f64
}

fn cut(lengths: &[usize], most: usize) -> Vec<Range<usize>> {
    let (mut calls, mut start, mut sum) = (Vec::new(), 0, 0);
    for (at, length) in lengths.iter().enumerate() {
        if at > start && sum + length > most {
            calls.push(start..at);
            (start, sum) = (at, 0);
        }
        sum += length;
    }
    calls.extend(Some(start..lengths.len()).filter(|part| !part.is_empty()));
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
