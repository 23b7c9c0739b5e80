//! What the next step may use again of what earlier ones trained on.

use std::{collections::BTreeSet, sync::Arc};

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::Turn;

use super::{context::TrainingContext, transaction::StepTransaction};
use crate::{
    batch,
    error::TrainError,
    gate::Series,
    lineage::{Ancestry, BaseModel},
};

/// Turns that earlier steps had and that the next one may have again: those that were used least, then the newest. None
/// with which the gate gave up.
///
/// # Errors
/// [`TrainError::NoTrainer`], and the log's.
pub(crate) async fn again(
    context: &mut TrainingContext,
    agent: &AgentId,
    base: &BaseModel,
) -> Result<Vec<Arc<Turn>>, TrainError> {
    let shared = Arc::clone(&context.shared);
    if shared.config.rl.reuse <= 1 {
        return Ok(Vec::new());
    }
    let step = StepTransaction::new(context, agent).await?;
    let (ancestry, given_up) = step.behind(base).await?;
    let teaching = context.agent(agent).teacher.teaching(&shared.config.rl);
    let mut used = batch::used(&shared, agent, (&ancestry, base), teaching).await?;
    used.retain(|turn| !given_up.contains(&turn.id));
    Ok(used)
}

// === impl StepTransaction ===

impl StepTransaction<'_> {
    /// What is in the weights that the step would start from, and the turns that the gate had set aside; nothing where it
    /// could not be made at all.
    async fn behind(
        mut self,
        base: &BaseModel,
    ) -> Result<(Ancestry, BTreeSet<TurnId>), TrainError> {
        if !base.may_be(self.runner.base.as_deref()) {
            return Ok(Default::default());
        }
        let steps = self.steps().await?;
        let shape = self.shape(base);
        let point = self.resumed(&shape, &steps).await?.point;
        let given_up = Series::of(&steps).set_aside;
        Ok((Ancestry::of(&steps, &point), given_up))
    }
}
