//! The gradients of a step's calls, and the steps along them.

use metaclaw_trainer_api::{
    Datum, LossConfig, LossFn, RunId,
    wire::{AdamSettings, ForwardBackwardReply, ForwardBackwardRequest, OptimStepRequest},
};
use tokio::time::Instant;

use super::{
    error::{Stage, StepError},
    micro_batches::MicroBatch,
    plan::Plan,
    run::{RunHandle, seen},
    runner::StepRunner,
    step_stats::StepStats,
};
use crate::{
    config::Teacher,
    lineage::Numbers,
    methods::{Example, Group, LogprobClient},
};

// === impl StepRunner ===

impl StepRunner {
    /// The steps on a batch: one, or one an epoch. What they measured is what the first found and how far the last went.
    pub(super) async fn all_epochs(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        plan: &Plan,
        calls: &[MicroBatch],
    ) -> Result<Numbers, StepError> {
        // The weights of some depend on what the run is by then.
        let mut groups = plan.groups.clone();
        let passes = self.pass_all(run, id, calls, &mut groups).await?;
        let mut numbers = self.take_step(run, id, plan, passes).await?;
        for _ in 1..plan.epochs {
            let passes = self.pass_all(run, id, calls, &mut groups).await?;
            let later = self.take_step(run, id, plan, passes).await?;
            numbers.goes_on(&later);
        }
        Ok(numbers)
    }

    /// The gradients of every call, added up; what they measured.
    async fn pass_all(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        calls: &[MicroBatch],
        groups: &mut [Group],
    ) -> Result<StepStats, StepError> {
        let mut passes = StepStats::default();
        let policy = LogprobClient {
            backend: &*self.backend,
            run: id,
            teacher_has_adapter: self.rl.teacher == Teacher::Current,
        };
        for (at, call) in calls.iter().enumerate() {
            let Some(group) = groups.get(call.group) else {
                continue;
            };
            let (method, loss) = (group.method, (group.loss, group.loss_config.clone()));
            let examples = call.examples_mut(groups);
            let began = Instant::now();
            let refreshed = method.refresh(examples, policy).await;
            let loss_here = seen(run, Stage::Pass(at), refreshed)?;
            let datums = examples.iter().map(|it| it.datum.clone()).collect();
            let passed = self.pass(run, (id, loss), datums, Stage::Pass(at));
            let mut reply = passed.await?;
            // cross_entropy has the gradient of such a loss and not its value.
            reply.loss = loss_here.unwrap_or(reply.loss);
            let took = began.elapsed();
            run.passed(examples.iter().map(Example::n_tokens).sum(), took);
            passes.add(method.name(), examples, &reply, took);
        }
        Ok(passes)
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
        passes: StepStats,
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
}
