//! What a step is to be: where it starts, and what is planned from there.

use std::sync::Arc;

use metaclaw_chat::now_ms;
use metaclaw_trainer_api::CheckpointName;
use metaclaw_turns::{LogError, Step};

use super::{
    plan::{Plan, PlanError},
    transaction::StepTransaction,
};
use crate::{
    error::TrainError,
    gate::Series,
    lineage::{Ancestry, BaseModel, ResumePoint, Resumed, Shape, Wanted},
    sample::Batch,
};

// === impl StepTransaction ===

impl StepTransaction<'_> {
    /// What exactly the step is to be.
    pub(super) async fn plan(
        &mut self,
        base: &BaseModel,
        batch: &Batch,
    ) -> Result<Result<Plan, PlanError>, TrainError> {
        let shape = self.shape(base);
        let steps = self.steps().await?;
        let point = self.start(&shape, &steps).await?;
        Ok(self.plan_from(point, shape, &steps, batch))
    }

    /// The adapter's shape, as the settings want it.
    pub(super) fn shape(&self, base: &BaseModel) -> Shape {
        let rl = &self.context.shared.config.rl;
        Shape {
            base: base.clone(),
            rank: rl.lora_rank,
            alpha: rl.lora_alpha,
            targets: rl.targets.0.clone(),
        }
    }

    /// The agent's steps in the log.
    pub(super) async fn steps(&self) -> Result<Vec<Step>, LogError> {
        let shared = &self.context.shared;
        shared.persist(|| shared.log.steps(self.agent)).await
    }

    pub(super) fn plan_from(
        &self,
        point: ResumePoint,
        shape: Shape,
        steps: &[Step],
        batch: &Batch,
    ) -> Result<Plan, PlanError> {
        let of_step =
            |step: &&Step| step.begun.lineage == point.lineage && step.begun.n == point.n + 1;
        let attempts = steps.iter().filter(of_step);
        let attempt = attempts.map(|step| step.begun.attempt + 1).max();
        let attempt = attempt.unwrap_or(0);
        let rl = &self.context.shared.config.rl;
        let rate_factor = Series::of(steps).rate_factor();
        let ancestry = Ancestry::of(steps, &point);
        let start = (point, &ancestry);
        let plan = Plan::new(self.agent, start, shape, attempt, (batch, rl));
        plan.map(|plan| Plan {
            rate_factor,
            ..plan
        })
    }

    /// Where the step starts. What is not continued of what the agent had learned is said.
    async fn start(&mut self, shape: &Shape, steps: &[Step]) -> Result<ResumePoint, TrainError> {
        let resumed = self.resumed(shape, steps).await?;
        let agent = self.agent;
        if let Some(why) = resumed.lost {
            let from = resumed.point.checkpoint.as_ref();
            let from = from.map_or("the base model", CheckpointName::as_str);
            tracing::warn!(%agent, why, from, "a fresh lineage begins; what served before serves until its first step is made");
            let status = &self.context.shared.status;
            status.began_anew(agent, &why, now_ms());
        }
        // Kept, so that a step that is put off has the same beginning later.
        let state = self.context.agent(agent);
        state.resume = Some((resumed.point.clone(), shape.clone()));
        Ok(resumed.point)
    }

    /// The same, with nothing said and nothing kept.
    pub(super) async fn resumed(
        &mut self,
        shape: &Shape,
        steps: &[Step],
    ) -> Result<Resumed, TrainError> {
        let (agent, shared) = (self.agent, Arc::clone(&self.context.shared));
        let choice = shared.persist(|| shared.log.choice(agent)).await?;
        let choice_ms = choice.as_ref().map(|choice| choice.at_ms);
        let state = self.context.agent(agent);
        if let Some((point, of)) = &state.resume
            && of.fits(shape)
            && point.choice_ms == choice_ms
        {
            let (point, lost) = (point.clone(), None);
            return Ok(Resumed { point, lost });
        }
        let checkpoints = self.runner.checkpoints().await;
        let checkpoints = checkpoints.map_err(|error| self.context.no_trainer(&error))?;
        let unfit = &self.context.agent(agent).unfit;
        let wanted = Wanted { shape, unfit };
        Ok(match (&choice, &checkpoints) {
            (Some(choice), known) => Resumed::chosen(choice, known.as_deref(), wanted),
            (None, Some(known)) => Resumed::of(steps, known, wanted),
            (None, None) => Resumed::by_log(steps, wanted),
        })
    }
}
