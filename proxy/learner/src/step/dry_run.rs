//! What the next step of an agent would be: planned as it would be, and not begun.

use std::sync::Arc;

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{LogError, Turn};

use super::{
    context::TrainingContext,
    plan::{Plan, PlanError},
    reuse::again,
    transaction::StepTransaction,
};
use crate::{
    batch::{self, Found, Seen},
    error::TrainError,
    lineage::{BaseModel, Resumed},
    preview::{self, NextBatch, StepPreview, TurnPreview},
    sample::Batch,
    teacher,
};

/// What a step that is asked for now would be; none where there is nothing to make one of. Nothing is taken, spent, drawn or
/// kept, and the trainer is only asked what it has.
///
/// # Errors
/// As of a step.
pub(crate) async fn dry_run(
    context: &mut TrainingContext,
    agent: &AgentId,
) -> Result<Option<StepPreview>, TrainError> {
    let found = look(context, agent).await?;
    let used = match &found.base {
        Some(base) => again(context, agent, base).await?,
        None => Vec::new(),
    };
    let next = next(context, agent, (found, used)).await?;
    let is_empty = next.batch.is_empty() && next.unanswered.is_empty();
    let Some(base) = next.base.filter(|_| !is_empty) else {
        return Ok(None);
    };
    let step = StepTransaction::new(context, agent).await?;
    let (plan, lost, learning_rate) = step.planned(&base, &next.batch).await?;
    let plan = plan.map_err(|error| TrainError::NotTaken {
        why: error.to_string(),
    })?;
    Ok(Some(StepPreview {
        agent: agent.clone(),
        base: base.to_string(),
        lineage: (plan.point.n > 0).then(|| plan.point.lineage.clone()),
        n: plan.n(),
        step: plan.after().steps,
        parent: plan.point.checkpoint.as_ref().map(ToString::to_string),
        begins_anew: lost,
        learning_rate,
        n_turns: plan.turns.len(),
        n_tokens: preview::n_tokens(&plan.groups),
        samples: preview::samples(&plan.groups),
        batch: plan.stats,
        spends: next.spends,
        unanswered: next.unanswered,
    }))
}

/// What such a step would use of one turn.
///
/// # Errors
/// The log's.
pub(crate) async fn turn_preview(
    context: &mut TrainingContext,
    agent: &AgentId,
    id: TurnId,
) -> Result<TurnPreview, TrainError> {
    let found = look(context, agent).await?;
    let used = match &found.base {
        Some(base) => again(context, agent, base).await,
        None => Ok(Vec::new()),
    };
    let used = match used {
        // What is new can be shown all the same.
        Err(TrainError::NoTrainer { .. }) => Vec::new(),
        other => other?,
    };
    let next = next(context, agent, (found, used)).await?;
    Ok(preview::turn(&context.shared, agent, (&next, id)).await?)
}

async fn look(context: &mut TrainingContext, agent: &AgentId) -> Result<Found, LogError> {
    let shared = Arc::clone(&context.shared);
    let teacher = &mut context.agent(agent).teacher;
    teacher.is_told(teacher::wishes(&shared, agent));
    let teaching = teacher.teaching(&shared.config.rl);
    batch::look(&shared, &mut Seen::default(), agent, teaching).await
}

/// `used` may serve again.
async fn next(
    context: &mut TrainingContext,
    agent: &AgentId,
    (found, used): (Found, Vec<Arc<Turn>>),
) -> Result<NextBatch, LogError> {
    let shared = Arc::clone(&context.shared);
    let targets = &context.agent(agent).teacher.targets;
    preview::next_batch(&shared, agent, (found, used, targets)).await
}

// === impl StepTransaction ===

impl StepTransaction<'_> {
    /// The plan, what would not be continued, and the learning rate where it is known before a run is created.
    async fn planned(
        mut self,
        base: &BaseModel,
        batch: &Batch,
    ) -> Result<(Result<Plan, PlanError>, Option<String>, Option<f64>), TrainError> {
        let shape = self.shape(base);
        let steps = self.steps().await?;
        let Resumed { point, lost } = self.resumed(&shape, &steps).await?;
        let plan = self.plan_from(point, shape, &steps, batch);
        if let Ok(plan) = &plan {
            self.runner.has(&plan.groups)?;
        }
        let rl = self.context.shared.config.rl.clone();
        let n_params = self.context.agent(self.agent).run.n_params;
        let is_known = rl.learning_rate.is_some() || n_params.is_some();
        let rate = plan.as_ref().ok().map(|plan| plan.rate(&rl, n_params));
        Ok((plan, lost, rate.filter(|_| is_known)))
    }
}
