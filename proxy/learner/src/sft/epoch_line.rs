//! The checkpoints of a training: their names, which of them exist, and what their manifests say.

use std::collections::BTreeMap;

use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{AdapterName, CheckpointName, NameError};

use super::plan::SftPlan;
use crate::{
    config::RlConfig,
    lineage::{
        BatchStats, CheckpointManifest, DataSetUse, KnownCheckpoint, Numbers, Provenance,
        ResumePoint, names,
    },
};

/// Hex digits of a lineage.
const DIGITS: usize = 8;

/// The line of checkpoints of one training.
#[derive(Debug, Clone)]
pub(super) struct EpochLine {
    agent: AgentId,
    /// The checkpoint that the first epoch starts from; none is the base model.
    pub(super) from: Option<CheckpointName>,
    hash: String,
    lineage: String,
}

/// An epoch whose checkpoint is there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MadeEpoch {
    pub(super) epoch: u64,
    pub(super) adapter: AdapterName,
    pub(super) held_out_before: Option<f64>,
    pub(super) held_out_loss: Option<f64>,
}

// === impl EpochLine ===

impl EpochLine {
    /// The line from a start. If the start is itself an epoch of this training, which was chosen since, the line is that
    /// one's: the same is not trained twice.
    pub(super) fn new(
        agent: &AgentId,
        plan: &SftPlan,
        from: Option<CheckpointName>,
        known: &[KnownCheckpoint],
    ) -> Self {
        let start = known
            .iter()
            .find(|known| Some(&known.name) == from.as_ref());
        let origin = start.and_then(|start| {
            let data = start.manifest.made.as_ref()?.data.as_ref()?;
            let hash = plan.hash(agent.as_str(), data.from.as_ref());
            (hash == start.manifest.hash).then(|| data.from.clone())
        });
        let from = origin.unwrap_or(from);
        let hash = plan.hash(agent.as_str(), from.as_ref());
        Self {
            agent: agent.clone(),
            lineage: hash[..DIGITS].to_owned(),
            from,
            hash,
        }
    }

    /// # Errors
    /// Returns [`NameError`] for a name that the training server would not take.
    pub(super) fn names(&self, epoch: u64) -> Result<(AdapterName, CheckpointName), NameError> {
        names(&self.agent, &self.lineage, epoch)
    }

    /// Where a run stands after so many epochs; 0 is the start.
    ///
    /// # Errors
    /// See [`Self::names`].
    pub(super) fn point(&self, epochs: u64) -> Result<ResumePoint, NameError> {
        let checkpoint = match epochs {
            0 => self.from.clone(),
            epoch => Some(self.names(epoch)?.1),
        };
        Ok(ResumePoint {
            lineage: self.lineage.clone(),
            n: epochs,
            steps: 0,
            checkpoint,
            choice_ms: None,
        })
    }

    /// The epochs among a server's checkpoints, in order.
    pub(super) fn made(&self, known: &[KnownCheckpoint]) -> Vec<MadeEpoch> {
        let own = known
            .iter()
            .filter(|known| known.manifest.hash == self.hash);
        let epoch = |known: &KnownCheckpoint| {
            let data = known.manifest.made.as_ref()?.data.as_ref()?;
            Some(MadeEpoch {
                epoch: known.manifest.n,
                adapter: AdapterName::from(&known.name),
                held_out_before: data.held_out_before,
                held_out_loss: data.held_out_loss,
            })
        };
        let mut made: Vec<MadeEpoch> = own.filter_map(epoch).collect();
        made.sort_by_key(|made| made.epoch);
        made
    }

    /// What the checkpoint of an epoch says of itself.
    ///
    /// # Errors
    /// See [`Self::names`].
    pub(super) fn manifest(
        &self,
        plan: &SftPlan,
        made: &MadeEpoch,
        numbers: Numbers,
        file: String,
    ) -> Result<CheckpointManifest, NameError> {
        let parent = self.point(made.epoch - 1)?;
        let config = RlConfig {
            learning_rate: Some(numbers.learning_rate),
            batch_size: plan.batch_size,
            epochs: Some(plan.epochs),
            ..plan.rl.clone()
        };
        let n_rows = plan.rows.len();
        let mut provenance = Provenance::here(parent.seed(), &config, None);
        provenance.data = Some(DataSetUse {
            file,
            hash: plan.data.clone(),
            n_rows,
            n_held_out: plan.held_out.len(),
            epoch: made.epoch,
            epochs: plan.epochs,
            held_out_before: made.held_out_before,
            held_out_loss: made.held_out_loss,
            from: self.from.clone(),
        });
        Ok(CheckpointManifest {
            agent: self.agent.clone(),
            lineage: self.lineage.clone(),
            n: made.epoch,
            turns: Vec::new(),
            uses: Vec::new(),
            hash: self.hash.clone(),
            parent: parent.checkpoint,
            shape: plan.shape.clone(),
            numbers,
            batch: BatchStats {
                samples: [(plan.objective.as_str().to_owned(), n_rows)].into(),
                ..BatchStats::default()
            },
            scores: BTreeMap::new(),
            made: Some(provenance),
        })
    }
}
