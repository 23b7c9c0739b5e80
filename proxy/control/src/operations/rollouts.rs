//! Operations on rollouts: the runs of agents on tasks that the log has.

use async_trait::async_trait;
use metaclaw_chat::RolloutId;
use metaclaw_turns::{Rollout, Turn};
use serde::{Deserialize, Serialize};

use crate::{
    instance::Instance,
    operation::{Operation, OperationFailure},
};

pub use metaclaw_turns::RolloutFilter as ListRollouts;

/// A rollout in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedRollout {
    #[serde(flatten)]
    pub rollout: Rollout,
    /// How many turns of it are in the log, errands of its agent included.
    pub n_turns: usize,
}

/// One rollout with its turns; none where there is no such rollout.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetRollout(pub RolloutId);

/// A rollout with its turns, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownRollout {
    pub rollout: Rollout,
    pub turns: Vec<Turn>,
}

#[async_trait]
impl Operation for ListRollouts {
    const PATH: &'static str = "rollouts";
    type Reply = Vec<ListedRollout>;

    async fn perform(self, instance: &Instance) -> Result<Vec<ListedRollout>, OperationFailure> {
        let log = instance.log().await?;
        let found = log.rollouts(self).await?;
        let ids = found.iter().map(|found| found.id.clone()).collect();
        let turns = log.rollout_turns(ids).await?;
        let listed = found.into_iter().map(|rollout| ListedRollout {
            n_turns: turns.get(&rollout.id).map_or(0, Vec::len),
            rollout: without_key(rollout),
        });
        Ok(listed.collect())
    }
}

#[async_trait]
impl Operation for GetRollout {
    const PATH: &'static str = "rollout";
    type Reply = Option<ShownRollout>;

    async fn perform(self, instance: &Instance) -> Result<Option<ShownRollout>, OperationFailure> {
        let log = instance.log().await?;
        let Some(rollout) = log.rollout(&self.0).await? else {
            return Ok(None);
        };
        let mut ids = log.rollout_turns(vec![self.0.clone()]).await?;
        let mut turns = Vec::new();
        for id in ids.remove(&self.0).unwrap_or_default() {
            turns.extend(log.get(id).await?);
        }
        let rollout = without_key(rollout);
        Ok(Some(ShownRollout { rollout, turns }))
    }
}

/// Nobody who looks needs the hash of a rollout's key.
fn without_key(rollout: Rollout) -> Rollout {
    Rollout {
        key_hash: String::new(),
        ..rollout
    }
}
