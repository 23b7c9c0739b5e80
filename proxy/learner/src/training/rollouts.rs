//! The next step of rollouts, which is apart from those of chats.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::now_ms;

use super::next::{BatchReason, NextAction, NextBatch};
use crate::{
    batch::{FoundGroups, RolloutTurns, complete_groups},
    config::RlConfig,
    error::TrainError,
    lineage::BaseModel,
    sample::{MOST_ROLLOUTS, RolloutGroup},
};

// === impl NextBatch ===

impl NextBatch<'_> {
    /// Returns what is to be done about rollouts, or `None` if no step of them is due or can be made.
    pub(super) async fn rollouts(
        &mut self,
        turns: &RolloutTurns,
        base: &BaseModel,
        why: BatchReason,
    ) -> Result<Option<NextAction>, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let (rl, agent) = (&shared.config.rl, self.agent);
        let mut found = complete_groups(&shared, agent, turns).await?;
        for (id, why) in found.spent.drain(..) {
            shared.spend(id, why).await?;
        }
        let limit = match why {
            BatchReason::Due => rl.rollouts.batch_size,
            BatchReason::AskedFor { .. } => MOST_ROLLOUTS,
        };
        if found.groups.is_empty() || (why == BatchReason::Due && !self.may_be_due(&found).await?) {
            return Ok(None);
        }
        self.context.can_test().await?;
        let batch = self
            .context
            .rollout_batch(agent, base, found, limit)
            .await?;
        for (id, why) in &batch.spent {
            shared.spend(*id, why).await?;
        }
        if batch.is_empty() {
            return Ok((why == BatchReason::Due).then_some(NextAction::Again));
        }
        shared.status.window(agent, now_ms());
        let batch = self.held(batch).await?;
        let batch = self.scored(batch, why).await?;
        Ok(Some(if batch.is_empty() {
            NextAction::Again
        } else {
            NextAction::Step(base.clone(), batch)
        }))
    }

    /// Returns whether a step is due and may begin. A runner that is there asks for its steps itself.
    async fn may_be_due(&mut self, found: &FoundGroups) -> Result<bool, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        if !are_due(&found.groups, &shared.config.rl)
            || shared.rollout_requests.has_runner(self.agent)
        {
            return Ok(false);
        }
        if shared.advantages.is_some() && self.context.teacher_rests() {
            return Ok(false);
        }
        Ok(self.may_begin().await?)
    }
}

fn are_due(groups: &[RolloutGroup], rl: &RlConfig) -> bool {
    let n: usize = groups.iter().map(RolloutGroup::n_rollouts).sum();
    let oldest = groups.iter().filter_map(RolloutGroup::ended_ms).min();
    let oldest = oldest.map(|ms| Duration::from_millis(now_ms().abs_diff(ms)));
    n >= rl.rollouts.batch_size || oldest.is_some_and(|age| age >= rl.max_wait.0)
}
