//! The trainer's half of a step: from checkpoint n-1 to checkpoint n, exactly once.
//!
//! No call is repeated on its own. After anything that leaves doubt the whole attempt begins again: the
//! run is put back to checkpoint n-1, which drops gradients, and the checkpoints are asked whether n is
//! there with this step's hash. Putting the run back comes first, because the trainer does one thing
//! after another: once that is answered, nothing of an earlier attempt can still be under way.

use metaclaw_trainer_api::{
    AdapterName, BackendError, CheckpointName, Datum, LossConfig, LossFn, RunId,
    wire::{
        AdamSettings, CreateRequest, ForwardBackwardReply, ForwardBackwardRequest, OptimStepRequest,
    },
};
use tokio::time::Instant;

use super::{
    calls::Call,
    distil::at_start,
    error::{Stage, StepError},
    passes::Passes,
    plan::Plan,
    rate,
    run::RunHandle,
    runner::StepRunner,
};
use crate::{
    lineage::{Known, Numbers, ResumePoint, known},
    samples::{Sequence, Surrogate, Work},
};

/// The advantages of a call's samples, once they are worked out.
type Surrogates = Option<Vec<Surrogate>>;

/// What an attempt came to.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) numbers: Numbers,
    /// Of the adapter's content, where the server says.
    pub(crate) sha256: Option<String>,
}

// === impl StepRunner ===

impl StepRunner {
    /// One attempt at a step, up to its saved adapter.
    ///
    /// # Cancel safety
    /// A dropped attempt leaves `run` in doubt, as a lost answer does.
    pub(crate) async fn attempt(
        &self,
        run: &mut RunHandle,
        plan: &Plan,
        calls: &[Call],
    ) -> Result<Made, StepError> {
        let standing = run.at.take().is_some_and(|at| at == plan.point);
        let id = match run.id.clone().filter(|_| standing) {
            Some(id) => id,
            None => self.put_at(run, &plan.point).await?,
        };
        // A run that never left its start cannot have made the step.
        if !standing && let Some(made) = self.find(run, plan).await? {
            self.load(run, &id, &made.name, Stage::Save).await?;
            let sha256 = self.save_made(run, &id, &made, &plan.adapter).await?;
            run.at = Some(plan.after());
            let numbers = made.manifest.numbers;
            return Ok(Made { numbers, sha256 });
        }
        let numbers = self.all_epochs(run, &id, plan, calls).await?;
        let manifest = plan.manifest(numbers.clone(), self.made(&plan.point));
        let manifest = serde_json::to_value(manifest).unwrap_or_default();
        run.save_asked = true;
        let saved = self
            .backend
            .save_checkpoint(id.clone(), plan.checkpoint.clone(), manifest)
            .await;
        seen(run, Stage::Save, saved)?;
        let sha256 = self.save_adapter(run, &id, &plan.adapter).await?;
        run.at = Some(plan.after());
        Ok(Made { numbers, sha256 })
    }

    /// A run that stands where a step starts, with no gradients.
    pub(crate) async fn put_at(
        &self,
        run: &mut RunHandle,
        point: &ResumePoint,
    ) -> Result<RunId, StepError> {
        let id = match (run.id.clone(), &point.checkpoint) {
            (Some(id), Some(_)) => id,
            // Only a new run has a fresh adapter.
            _ => self.create(run, point).await?,
        };
        if let Some(checkpoint) = &point.checkpoint {
            self.load(run, &id, checkpoint, Stage::Parent).await?;
        }
        Ok(id)
    }

    async fn create(&self, run: &mut RunHandle, point: &ResumePoint) -> Result<RunId, StepError> {
        if let Some(old) = run.id.take()
            && let Err(error) = self.backend.close_run(old.clone()).await
        {
            // It is gone already, or goes when the server wants its memory.
            tracing::debug!(run = %old, %error, "not closed");
        }
        let request = CreateRequest {
            rank: self.rl.lora_rank,
            lora_alpha: Some(self.rl.lora_alpha),
            seed: Some(self.seed(point)),
            targets: Some(self.rl.targets.0.clone()),
            ..CreateRequest::default()
        };
        let created = self.backend.create_run(request).await;
        let reply = seen(run, Stage::Server, created)?;
        run.n_params = rate::n_params(&reply.trainable_params);
        run.id = Some(reply.session_id.clone());
        Ok(reply.session_id)
    }

    async fn load(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        checkpoint: &CheckpointName,
        stage: Stage,
    ) -> Result<(), StepError> {
        let loaded = self
            .backend
            .load_checkpoint(id.clone(), checkpoint.to_string())
            .await;
        seen(run, stage, loaded).map(|_| ())
    }

    /// The step's checkpoint, if an earlier attempt made it.
    async fn find(&self, run: &mut RunHandle, plan: &Plan) -> Result<Option<Known>, StepError> {
        if !self.capabilities.manifests {
            return Ok(None);
        }
        let checkpoints = seen(run, Stage::Server, self.backend.checkpoints().await)?;
        let made =
            |known: &Known| known.name == plan.checkpoint && known.manifest.hash == plan.hash;
        Ok(known(checkpoints).into_iter().find(made))
    }

    /// The steps on a batch: one, or one an epoch. What they measured is what the first found and how far the last went.
    async fn all_epochs(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        plan: &Plan,
        calls: &[Call],
    ) -> Result<Numbers, StepError> {
        let mut surrogates = vec![None; calls.len()];
        let passes = self
            .pass_all(run, id, (plan, calls), &mut surrogates)
            .await?;
        let mut numbers = self.take_step(run, id, plan, passes).await?;
        for _ in 1..plan.epochs {
            let passes = self
                .pass_all(run, id, (plan, calls), &mut surrogates)
                .await?;
            let later = self.take_step(run, id, plan, passes).await?;
            numbers.goes_on(&later);
        }
        Ok(numbers)
    }

    /// The gradients of every call, added up; what they measured. What a call's advantages are is worked out in its first
    /// epoch.
    async fn pass_all(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        (plan, calls): (&Plan, &[Call]),
        surrogates: &mut [Surrogates],
    ) -> Result<Passes, StepError> {
        let mut passes = Passes::default();
        for ((at, call), surrogates) in calls.iter().enumerate().zip(surrogates) {
            let Some(group) = plan.groups.get(call.group) else {
                continue;
            };
            let sequences = call.sequences(&plan.groups);
            let n_tokens = sequences.iter().map(Sequence::n_tokens).sum();
            let began = Instant::now();
            let worked_out = self.datums(id, sequences, surrogates).await;
            let (loss_here, datums) = seen(run, Stage::Pass(at), worked_out)?;
            let loss = (group.loss, group.loss_config.clone());
            let passed = self.pass(run, (id, loss), datums, Stage::Pass(at));
            let mut reply = passed.await?;
            // cross_entropy has the gradient of such a loss and not its value.
            reply.loss = loss_here.unwrap_or(reply.loss);
            let took = began.elapsed();
            run.passed(n_tokens, took);
            passes.add(group.method, sequences, &reply, took);
        }
        Ok(passes)
    }

    /// What a call's sequences are to be passed as; with it, their loss where that is worked out here.
    async fn datums(
        &self,
        id: &RunId,
        sequences: &[Sequence],
        surrogates: &mut Surrogates,
    ) -> Result<(Option<f64>, Vec<Datum>), BackendError> {
        let (mut distils, mut anchors) = (Vec::new(), Vec::new());
        for sequence in sequences {
            match &sequence.work {
                Some(Work::Distil(distil)) => distils.push(&**distil),
                Some(Work::Anchor(anchor)) => anchors.push(anchor),
                None => {}
            }
        }
        // A call is of one group, and a group of one kind.
        if distils.is_empty() && anchors.is_empty() {
            let given = sequences.iter().map(|it| it.datum.clone());
            return Ok((None, given.collect()));
        }
        let (loss, datums) = if distils.is_empty() {
            self.anchored(id, &anchors).await?
        } else if let Some(surrogates) = surrogates {
            self.moved_on(id, surrogates).await?
        } else {
            let found = self.surrogates(id, &distils).await?;
            let datums = at_start(&found)?;
            *surrogates = Some(found);
            datums
        };
        Ok((Some(loss), datums))
    }

    async fn pass(
        &self,
        run: &mut RunHandle,
        (id, (loss_fn, loss_fn_config)): (&RunId, (LossFn, LossConfig)),
        datums: Vec<Datum>,
        stage: Stage,
    ) -> Result<ForwardBackwardReply, StepError> {
        let request = ForwardBackwardRequest {
            session_id: id.clone(),
            datums,
            loss_fn,
            loss_fn_config,
        };
        let done = self.backend.forward_backward(request).await;
        seen(run, stage, done)
    }

    /// One step along the gradients.
    async fn take_step(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        plan: &Plan,
        passes: Passes,
    ) -> Result<Numbers, StepError> {
        let learning_rate = plan.rate(&self.rl, run.n_params);
        let request = self.step_request(id, learning_rate);
        let stepped = seen(run, Stage::Step, self.backend.optim_step(request).await)?;
        if stepped.skipped {
            // The checkpoint is made all the same: these samples are used up, the weights stay.
            tracing::warn!(
                grad_norm = stepped.grad_norm,
                median = stepped.median_grad_norm,
                "the trainer skipped a step whose gradient is out of line"
            );
        }
        Ok(passes.numbers(&stepped, learning_rate))
    }

    fn step_request(&self, id: &RunId, learning_rate: f64) -> OptimStepRequest {
        OptimStepRequest {
            session_id: id.clone(),
            learning_rate,
            adam: AdamSettings {
                beta1: Some(self.rl.beta1),
                beta2: Some(self.rl.beta2),
                eps: Some(self.rl.eps),
                weight_decay: Some(self.rl.weight_decay),
                grad_clip_norm: Some(self.rl.clip_norm),
                skip_over: None,
            },
        }
    }

    /// Whether the server can train on something harmless from where a step starts, with the optimiser's part if
    /// `and_step`. What it does is dropped.
    pub(crate) async fn control(
        &self,
        run: &mut RunHandle,
        plan: &Plan,
        and_step: bool,
    ) -> Result<(), StepError> {
        let id = self.put_at(run, &plan.point).await?;
        let (loss, datum) = if self.capabilities.losses.contains(&LossFn::CrossEntropy) {
            let datum = Datum::cross_entropy(vec![0; 2], vec![0; 2], vec![1.0; 2]);
            (LossFn::CrossEntropy, datum)
        } else {
            let datum = Datum::policy(vec![0; 2], vec![0; 2], vec![-1.0; 2], vec![1.0; 2]);
            (LossFn::ImportanceSampling, datum)
        };
        let datums = datum.into_iter().collect();
        let loss = (loss, LossConfig::new());
        self.pass(run, (&id, loss), datums, Stage::Control).await?;
        if and_step {
            let request = self.step_request(&id, plan.rate(&self.rl, run.n_params));
            let stepped = self.backend.optim_step(request).await;
            seen(run, Stage::Control, stepped)?;
        }
        Ok(())
    }

    /// Saves the adapter of a run that stands at a checkpoint that a step made, and sees that its content is the
    /// checkpoint's, whatever was there under its name.
    pub(crate) async fn save_made(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        made: &Known,
        name: &AdapterName,
    ) -> Result<Option<String>, StepError> {
        let saved = self.save_adapter(run, id, name).await?;
        match (&saved, &made.sha256) {
            (Some(saved), Some(wanted)) if saved != wanted => {
                let error = BackendError::Unreadable {
                    call: "weights/save",
                    url: name.to_string(),
                    why: format!("it saved {saved}, its checkpoint has {wanted}"),
                };
                seen(run, Stage::Save, Err(error))
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
    ) -> Result<Option<String>, StepError> {
        let saved = self.backend.save_adapter(id.clone(), name.clone()).await;
        Ok(seen(run, Stage::Save, saved)?.sha256)
    }
}

/// The result of a call; a failure leaves the run in doubt.
fn seen<T>(
    run: &mut RunHandle,
    stage: Stage,
    result: Result<T, BackendError>,
) -> Result<T, StepError> {
    result.map_err(|error| {
        run.failed(&error);
        let error = Box::new(error);
        StepError { stage, error }
    })
}
