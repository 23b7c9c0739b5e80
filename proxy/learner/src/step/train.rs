//! The training server's half of a step: from checkpoint n-1 to checkpoint n, exactly once.
//!
//! No call is repeated on its own. After anything that leaves doubt the whole attempt begins again: the run is put back to
//! checkpoint n-1, which drops gradients, and the checkpoints are asked whether n is there with this step's hash. Putting
//! the run back comes first, because the trainer does one thing after another: once that is answered, nothing of an
//! earlier attempt can still be under way.

use std::{collections::BTreeMap, time::Duration};

use metaclaw_trainer_api::{
    AdapterName, BackendError, Datum, LossConfig, LossFn, RunId,
    wire::{
        ForwardBackwardReply, ForwardBackwardRequest, LossFnOutput, OptimStepReply,
        OptimStepRequest,
    },
};
use tokio::time::Instant;

use super::{
    micro_batches::{MicroBatch, n_computed},
    plan::Plan,
};
use crate::{
    config::Teacher,
    lineage::{Drift, KnownCheckpoint, Numbers, known},
    methods::{Example, Group, LogprobClient},
    shared::Shared,
    trainer::{RunHandle, StepFailure, StepRunner, StepStage, seen},
};

#[derive(Debug)]
pub(crate) struct Trained {
    pub(crate) numbers: Numbers,
    /// Hash of the adapter's content, where the server says it.
    pub(crate) sha256: Option<String>,
}

/// One attempt at a step.
///
/// # Cancel safety
/// A dropped attempt leaves `run` in doubt, as a lost answer does.
pub(crate) struct Attempt<'a> {
    pub(crate) runner: &'a StepRunner,
    pub(crate) run: &'a mut RunHandle,
    pub(crate) plan: &'a Plan,
    pub(crate) shared: &'a Shared,
}

#[derive(Debug, Default)]
struct PassSums {
    loss: f64,
    losses: BTreeMap<String, f64>,
    n_tokens: usize,
    n_computed: usize,
    time: Duration,
    drift: DriftSums,
}

/// Sums over the sampled ids of log p now - log p when sampled.
#[derive(Debug, Default)]
struct DriftSums {
    n: usize,
    sum: f64,
    absolute: f64,
}

// === impl Attempt ===

impl Attempt<'_> {
    pub(crate) async fn train(&mut self, calls: &[MicroBatch]) -> Result<Trained, StepFailure> {
        let plan = self.plan;
        let standing = self.run.at.take().is_some_and(|at| at == plan.point);
        let id = match self.run.id.clone().filter(|_| standing) {
            Some(id) => id,
            None => self.runner.put_at(self.run, &plan.point).await?,
        };
        // A run that never left its start cannot have made the step.
        if !standing && let Some(made) = self.find().await? {
            let (runner, run) = (self.runner, &mut *self.run);
            runner.load(run, &id, &made.name, StepStage::Save).await?;
            let sha256 = runner.save_made(run, &id, &made, &plan.adapter).await?;
            run.at = Some(plan.after());
            let numbers = made.manifest.numbers;
            return Ok(Trained { numbers, sha256 });
        }
        let numbers = self.all_epochs(&id, calls).await?;
        let manifest = plan.manifest(numbers.clone(), self.runner.made(&plan.point));
        let manifest = serde_json::to_value(manifest).unwrap_or_default();
        self.run.save_asked = true;
        let backend = &self.runner.backend;
        let saved = backend.save_checkpoint(id.clone(), plan.checkpoint.clone(), manifest);
        seen(self.run, StepStage::Save, saved.await)?;
        let sha256 = self.runner.save_adapter(self.run, &id, &plan.adapter);
        let sha256 = sha256.await?;
        self.run.at = Some(plan.after());
        Ok(Trained { numbers, sha256 })
    }

    async fn find(&mut self) -> Result<Option<KnownCheckpoint>, StepFailure> {
        if !self.runner.capabilities.manifests {
            return Ok(None);
        }
        let checkpoints = self.runner.backend.checkpoints().await;
        let checkpoints = seen(self.run, StepStage::Server, checkpoints)?;
        let (name, hash) = (&self.plan.checkpoint, &self.plan.hash);
        let made = |known: &KnownCheckpoint| known.name == *name && known.manifest.hash == *hash;
        Ok(known(checkpoints).into_iter().find(made))
    }

    /// The steps on a batch: one, or one an epoch. The result has what the first epoch found and how far the last one went.
    async fn all_epochs(
        &mut self,
        id: &RunId,
        calls: &[MicroBatch],
    ) -> Result<Numbers, StepFailure> {
        // The weights of some examples depend on what the run is by then.
        let mut groups = self.plan.groups.clone();
        let sums = self.pass_all(id, calls, &mut groups).await?;
        let mut numbers = self.take_step(id, sums).await?;
        for _ in 1..self.plan.epochs {
            let sums = self.pass_all(id, calls, &mut groups).await?;
            numbers.goes_on(&self.take_step(id, sums).await?);
        }
        Ok(numbers)
    }

    async fn pass_all(
        &mut self,
        id: &RunId,
        calls: &[MicroBatch],
        groups: &mut [Group],
    ) -> Result<PassSums, StepFailure> {
        let mut sums = PassSums::default();
        let policy = LogprobClient {
            backend: &*self.runner.backend,
            run: id,
            teacher_has_adapter: self.runner.rl.teacher == Teacher::Current,
        };
        for (at, call) in calls.iter().enumerate() {
            let Some(group) = groups.get(call.group) else {
                continue;
            };
            self.shared.let_chats_go_first(&self.plan.agent).await;
            let (method, loss_fn) = (group.method, group.loss);
            let loss_fn_config = group.loss_config.clone();
            let examples = call.examples_mut(groups);
            let began = Instant::now();
            let refreshed = method.refresh(examples, policy).await;
            let loss_here = seen(self.run, StepStage::Pass(at), refreshed)?;
            let request = ForwardBackwardRequest {
                session_id: id.clone(),
                datums: examples.iter().map(|e| e.datum.clone()).collect(),
                loss_fn,
                loss_fn_config,
            };
            let mut reply = self.pass(request, StepStage::Pass(at)).await?;
            // cross_entropy has the gradient of such a loss and not its value.
            reply.loss = loss_here.unwrap_or(reply.loss);
            let took = began.elapsed();
            self.run.passed(n_computed(examples), took);
            sums.add(method.name(), examples, &reply, took);
        }
        Ok(sums)
    }

    async fn pass(
        &mut self,
        request: ForwardBackwardRequest,
        stage: StepStage,
    ) -> Result<ForwardBackwardReply, StepFailure> {
        let done = self.runner.backend.forward_backward(request).await;
        seen(self.run, stage, done)
    }

    async fn take_step(&mut self, id: &RunId, sums: PassSums) -> Result<Numbers, StepFailure> {
        let request = self.step_request(id);
        let learning_rate = request.learning_rate;
        let stepped = self.runner.backend.optim_step(request).await;
        let stepped = seen(self.run, StepStage::Step, stepped)?;
        if stepped.skipped {
            // The checkpoint is made all the same: these samples are used up, the weights stay.
            tracing::warn!(
                grad_norm = stepped.grad_norm,
                median = stepped.median_grad_norm,
                "the trainer skipped a step whose gradient is out of line"
            );
        }
        Ok(sums.numbers(&stepped, learning_rate))
    }

    fn step_request(&self, id: &RunId) -> OptimStepRequest {
        let rl = &self.runner.rl;
        OptimStepRequest {
            session_id: id.clone(),
            learning_rate: self.plan.rate(rl, self.run.n_params),
            adam: rl.adam(),
        }
    }

    /// Finds out whether the server can train on something harmless from where the step starts, with the optimiser's part
    /// if `and_step`. What it does is dropped.
    pub(crate) async fn control(&mut self, and_step: bool) -> Result<(), StepFailure> {
        let session_id = self.runner.put_at(self.run, &self.plan.point).await?;
        let losses = &self.runner.capabilities.losses;
        let (loss_fn, datum) = if losses.contains(&LossFn::CrossEntropy) {
            let datum = Datum::cross_entropy(vec![0; 2], vec![0; 2], vec![1.0; 2]);
            (LossFn::CrossEntropy, datum)
        } else {
            let datum = Datum::policy(vec![0; 2], vec![0; 2], vec![-1.0; 2], vec![1.0; 2]);
            (LossFn::ImportanceSampling, datum)
        };
        let request = ForwardBackwardRequest {
            session_id: session_id.clone(),
            datums: datum.into_iter().collect(),
            loss_fn,
            loss_fn_config: LossConfig::new(),
        };
        self.pass(request, StepStage::Control).await?;
        if and_step {
            let request = self.step_request(&session_id);
            let stepped = self.runner.backend.optim_step(request).await;
            seen(self.run, StepStage::Control, stepped)?;
        }
        Ok(())
    }
}

// === impl StepRunner ===

impl StepRunner {
    /// Saves the adapter of a run that stands at a checkpoint that a step made, and sees that its content is the
    /// checkpoint's, whatever was there under its name.
    pub(crate) async fn save_made(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        made: &KnownCheckpoint,
        name: &AdapterName,
    ) -> Result<Option<String>, StepFailure> {
        let saved = self.save_adapter(run, id, name).await?;
        match (&saved, &made.sha256) {
            (Some(saved), Some(wanted)) if saved != wanted => {
                let error = BackendError::Unreadable {
                    call: "weights/save",
                    url: name.to_string(),
                    why: format!("it saved {saved}, its checkpoint has {wanted}"),
                };
                seen(run, StepStage::Save, Err(error))
            }
            _ => Ok(saved),
        }
    }

    /// Saves the adapter of a run that stands at its checkpoint; the hash of what was saved.
    async fn save_adapter(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        name: &AdapterName,
    ) -> Result<Option<String>, StepFailure> {
        let saved = self.backend.save_adapter(id.clone(), name.clone()).await;
        Ok(seen(run, StepStage::Save, saved)?.sha256)
    }
}

// === impl PassSums ===

impl PassSums {
    fn add(
        &mut self,
        method: &str,
        examples: &[Example],
        reply: &ForwardBackwardReply,
        time: Duration,
    ) {
        self.loss += reply.loss;
        *self.losses.entry(method.to_owned()).or_default() += reply.loss;
        self.n_tokens += examples.iter().map(Example::n_tokens).sum::<usize>();
        self.n_computed += n_computed(examples);
        self.time += time;
        for (example, output) in examples.iter().zip(&reply.loss_fn_outputs) {
            for moved in moved(example, output) {
                self.drift.n += 1;
                self.drift.sum += moved;
                self.drift.absolute += moved.abs();
            }
        }
    }

    fn numbers(self, stepped: &OptimStepReply, learning_rate: f64) -> Numbers {
        let DriftSums { n, sum, absolute } = self.drift;
        let drift = Drift {
            logprob_abs_diff: absolute / n.max(1) as f64,
            kl: -sum / n.max(1) as f64,
        };
        Numbers {
            loss: self.loss,
            losses: self.losses,
            grad_norm: stepped.grad_norm,
            learning_rate,
            skipped: stepped.skipped,
            n_tokens: self.n_tokens,
            n_computed: self.n_computed,
            train_seconds: self.time.as_secs_f64(),
            drift: (n > 0).then_some(drift),
        }
    }
}

/// How far each sampled id that an example pushes has moved; nothing of an example that is no policy's.
fn moved<'a>(example: &'a Example, output: &'a LossFnOutput) -> impl Iterator<Item = f64> + 'a {
    let parts = example.datum.parts();
    let sampled = parts.logprobs.iter().flatten();
    let pushed = parts.advantages.iter().flatten();
    let all = sampled.zip(pushed).zip(&output.logprobs);
    all.filter_map(|((sampled, advantage), now)| {
        let now = now.filter(|_| *advantage != 0.0)?;
        Some(f64::from(now) - f64::from(*sampled))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(loss: f64, logprobs: &[Option<f32>]) -> ForwardBackwardReply {
        ForwardBackwardReply {
            status: "ok".to_owned(),
            loss,
            total_tokens: 1,
            num_datums: 1,
            loss_fn_outputs: vec![LossFnOutput {
                logprobs: logprobs.to_vec(),
            }],
        }
    }

    fn stepped() -> OptimStepReply {
        serde_json::from_str(r#"{"step": 1, "grad_norm": 0.5, "skipped": true}"#).unwrap()
    }

    #[test]
    fn losses_are_told_apart_and_only_what_is_pushed_has_moved() {
        let sampled = vec![0.0, -1.0, -2.0];
        let advantages = vec![0.0, 0.5, 0.5];
        let datum = Datum::policy(vec![1, 2, 3], vec![2, 3, 4], sampled, advantages).unwrap();
        let pushed = [Example {
            datum,
            turns: Vec::new(),
            state: None,
        }];
        let datum = Datum::cross_entropy(vec![1], vec![2], vec![1.0]).unwrap();
        let target = [Example {
            datum,
            turns: Vec::new(),
            state: None,
        }];
        let mut passes = PassSums::default();
        let now = [Some(-9.0), Some(-1.5), Some(-1.75)];
        passes.add("binary_rl", &pushed, &reply(0.5, &now), Duration::ZERO);
        passes.add("redo", &target, &reply(2.0, &[Some(-3.0)]), Duration::ZERO);
        passes.add("redo", &target, &reply(1.0, &[]), Duration::from_secs(2));
        let numbers = passes.numbers(&stepped(), 0.1);
        assert!((numbers.loss - 3.5).abs() < 1e-9 && numbers.skipped);
        assert!((numbers.losses["redo"] - 3.0).abs() < 1e-9);
        assert!((numbers.losses["binary_rl"] - 0.5).abs() < 1e-9);
        assert_eq!((numbers.n_tokens, numbers.train_seconds), (5, 2.0));
        // -0.5 and +0.25; the prompt's has no advantage.
        let drift = numbers.drift.unwrap();
        assert!((drift.kl - 0.125).abs() < 1e-6, "{drift:?}");
        assert!((drift.logprob_abs_diff - 0.375).abs() < 1e-6, "{drift:?}");
    }

    #[test]
    fn a_server_that_says_no_log_probabilities_is_no_drift_of_zero() {
        let numbers = PassSums::default().numbers(&stepped(), 0.1);
        assert_eq!(numbers.drift, None);
    }
}
