//! The batch of a step of rollouts.

use std::sync::Arc;

use metaclaw_chat::{AgentId, TurnId};

use super::context::TrainingContext;
use crate::{
    batch::FoundGroups,
    error::TrainError,
    lineage::BaseModel,
    sample::{Batch, ExcludeReason, first_groups, rollout_batch, step_advantages},
};

// === impl TrainingContext ===

impl TrainingContext {
    /// Returns the batch of the oldest complete groups, with at most `limit` rollouts if there are several groups. Nothing is
    /// excluded yet: the batch says what is to be.
    ///
    /// # Errors
    /// Returns [`TrainError::NoTrainer`], [`TrainError::NoAdvantages`], and the log's errors.
    pub(crate) async fn rollout_batch(
        &mut self,
        agent: &AgentId,
        base: &BaseModel,
        found: FoundGroups,
        limit: usize,
    ) -> Result<Batch, TrainError> {
        let shared = Arc::clone(&self.shared);
        let config = &shared.config.rl.rollouts;
        let FoundGroups { mut groups, spent } = found;
        let (start, _lost) = self.site(agent).await?.look_for_start(base).await?;
        let version = start.point.steps;
        let mut lagging: Vec<TurnId> = Vec::new();
        for group in &mut groups {
            lagging.extend(group.take_lagging(version, config.max_lag));
        }
        groups.retain(|group| !group.steps.is_empty());
        let groups = first_groups(groups, limit);
        let advantages = match &shared.advantages {
            Some(function) if !groups.is_empty() => {
                let given = function.of(&groups).await;
                given.map_err(|why| self.no_advantages(why))?
            }
            Some(_) | None => step_advantages(&groups, config.advantage),
        };
        let mut batch = rollout_batch(&groups, &advantages);
        batch.spent.extend(spent);
        let lagging = lagging.into_iter().map(|id| (id, ExcludeReason::Lagging));
        batch.spent.extend(lagging);
        Ok(batch)
    }
}
