//! One step, planned in full before anything is touched.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_trainer_api::{AdapterName, CheckpointName, NameError};
use metaclaw_turns::{NewStep, Use};

use super::context::StepStart;
use crate::{
    batch::{NoGroups, groups, stats},
    config::RlConfig,
    formulas::{rate_for_size, warmed_up},
    lineage::{
        BatchStats, Candidate, CheckpointManifest, Numbers, Provenance, ResumePoint, Shape, names,
    },
    methods::Group,
    sample::Batch,
};

/// Everything that a step is made of. Made once; every attempt at it does the same.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) agent: AgentId,
    pub(crate) point: ResumePoint,
    pub(crate) attempt: u32,
    pub(crate) turns: Vec<TurnId>,
    /// Which use each of them is, from 1.
    pub(crate) uses: Vec<usize>,
    pub(crate) max_uses: usize,
    pub(crate) ancestors: Vec<Use>,
    pub(crate) groups: Vec<Group>,
    pub(crate) shape: Shape,
    pub(crate) hash: String,
    pub(crate) adapter: AdapterName,
    pub(crate) checkpoint: CheckpointName,
    pub(crate) is_one_sample: bool,
    pub(crate) n_distilled: usize,
    pub(crate) n_pushed: usize,
    /// Of the distilled samples, those that earlier steps had as well.
    pub(crate) n_again: usize,
    pub(crate) mean_reward: f32,
    pub(crate) success_rate: f32,
    pub(crate) stats: BatchStats,
    pub(crate) scores: BTreeMap<TurnId, Score>,
    pub(crate) epochs: u64,
    /// What the rate is multiplied with: below 1 after steps that the gate declined.
    pub(crate) rate_factor: f64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error(transparent)]
    Groups(#[from] NoGroups),
    #[error(transparent)]
    Name(#[from] NameError),
}

// === impl Plan ===

impl Plan {
    pub(crate) fn new(
        agent: &AgentId,
        start: StepStart,
        batch: &Batch,
        rl: &RlConfig,
    ) -> Result<Self, PlanError> {
        let StepStart {
            point,
            shape,
            ancestry,
            attempt,
            series,
        } = start;
        let (adapter, checkpoint) = names(agent, &point.lineage, point.n + 1)?;
        let groups = groups(batch, rl)?;
        let taken = batch.turns().into_iter();
        let uses = taken.map(|(id, turn)| (id, ancestry.n_uses(turn) + 1));
        let (turns, uses) = uses.unzip();
        let (n_distilled, n_pushed) = batch.counts();
        let (mean_reward, success_rate) = batch.rewards();
        let mut plan = Self {
            agent: agent.clone(),
            ancestors: ancestry.others(&point.lineage),
            point,
            attempt,
            turns,
            uses,
            max_uses: rl.reuse,
            stats: stats(batch, &groups),
            scores: batch.scores(),
            groups,
            shape,
            hash: String::new(),
            adapter,
            checkpoint,
            is_one_sample: batch.is_one_sample(),
            n_distilled,
            n_pushed,
            n_again: batch.n_again(),
            mean_reward,
            success_rate,
            epochs: if batch.is_of_rollouts() {
                rl.rollout_epochs()
            } else {
                rl.epochs()
            },
            rate_factor: series.rate_factor(),
        };
        plan.hash = plan.digest();
        Ok(plan)
    }

    pub(crate) fn n(&self) -> u64 {
        self.point.n + 1
    }

    pub(crate) fn entry(&self) -> NewStep {
        NewStep {
            agent: self.agent.clone(),
            lineage: self.point.lineage.clone(),
            n: self.n(),
            attempt: self.attempt,
            turns: self.turns.clone(),
            max_uses: self.max_uses,
            ancestors: self.ancestors.clone(),
            parent: self.point.checkpoint.as_ref().map(ToString::to_string),
            hash: self.hash.clone(),
            choice_ms: self.point.choice_ms,
        }
    }

    pub(crate) fn manifest(&self, numbers: Numbers, made: Provenance) -> CheckpointManifest {
        CheckpointManifest {
            agent: self.agent.clone(),
            lineage: self.point.lineage.clone(),
            n: self.n(),
            turns: self.turns.clone(),
            uses: self.uses.clone(),
            hash: self.hash.clone(),
            parent: self.point.checkpoint.clone(),
            shape: self.shape.clone(),
            numbers,
            batch: self.stats.clone(),
            scores: self.scores.clone(),
            made: Some(made),
        }
    }

    pub(crate) fn candidate(&self, sha256: Option<String>) -> Candidate {
        Candidate {
            agent: self.agent.clone(),
            n: self.n(),
            turns: self.turns.clone(),
            adapter: self.adapter.clone(),
            checkpoint: self.checkpoint.clone(),
            point: self.after(),
            choice_ms: self.point.choice_ms,
            sha256,
        }
    }

    pub(crate) fn after(&self) -> ResumePoint {
        ResumePoint {
            lineage: self.point.lineage.clone(),
            n: self.n(),
            steps: self.point.steps + self.epochs,
            checkpoint: Some(self.checkpoint.clone()),
            choice_ms: None,
        }
    }

    pub(crate) fn rate(&self, rl: &RlConfig, n_params: Option<f64>) -> f64 {
        // A size that no one tells is taken for large: the careful end.
        let by_size = || rate_for_size(n_params.unwrap_or(f64::INFINITY));
        let rate = warmed_up(
            rl.learning_rate.unwrap_or_else(by_size),
            self.point.steps + self.epochs,
            rl.warmup_steps,
        );
        rate * self.rate_factor
    }

    fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &str| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        };
        add(self.checkpoint.as_str());
        add(&self.attempt.to_string());
        add(&self.epochs.to_string());
        add(self
            .point
            .checkpoint
            .as_ref()
            .map_or("", |name| name.as_str()));
        for (turn, n) in self.turns.iter().zip(&self.uses) {
            add(&turn.to_string());
            add(&n.to_string());
        }
        for group in &self.groups {
            add(group.loss.as_str());
            for (key, value) in &group.loss_config {
                add(key);
                add(&value.to_string());
            }
            for example in &group.examples {
                // Of numbers, ids and lists only, which JSON can hold.
                add(&serde_json::to_string(&example.datum).unwrap_or_default());
                add(&serde_json::to_string(&example.state).unwrap_or_default());
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests;
