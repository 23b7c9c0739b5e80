//! What a checkpoint is called, and what it says about itself.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_trainer_api::{AdapterName, CheckpointName, NameError, wire::CheckpointInfo};
use serde::{Deserialize, Serialize};

use super::{
    base::BaseModel,
    made::Provenance,
    numbers::{BatchStats, Numbers},
};

/// What a checkpoint says about itself: written with it, kept verbatim by the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CheckpointManifest {
    pub(crate) agent: AgentId,
    pub(crate) lineage: String,
    pub(crate) n: u64,
    pub(crate) turns: Vec<TurnId>,
    /// Which use each of them is, from 1: how often it is in these weights. Empty in manifests of before turns were used
    /// again.
    #[serde(default)]
    pub(crate) uses: Vec<usize>,
    /// Of everything that the step was made of: the same hash, the same step.
    pub(crate) hash: String,
    pub(crate) parent: Option<CheckpointName>,
    /// What it is an adapter of; another shape cannot continue it.
    pub(crate) shape: Shape,
    /// What the step measured.
    #[serde(default)]
    pub(crate) numbers: Numbers,
    /// What its samples were like.
    #[serde(default)]
    pub(crate) batch: BatchStats,
    /// The scores of its turns when it took them.
    #[serde(default)]
    pub(crate) scores: BTreeMap<TurnId, Score>,
    /// With what it was made; none in checkpoints of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<Provenance>,
}

/// What an adapter is of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Shape {
    #[serde(flatten)]
    pub(crate) base: BaseModel,
    pub(crate) rank: u32,
    pub(crate) alpha: f64,
    pub(crate) targets: Vec<String>,
}

/// A checkpoint with what it says about itself.
#[derive(Debug, Clone)]
pub(crate) struct KnownCheckpoint {
    pub(crate) name: CheckpointName,
    /// Optimiser steps in it.
    pub(crate) steps: u64,
    /// Of its adapter's content, where the server says.
    pub(crate) sha256: Option<String>,
    pub(crate) manifest: CheckpointManifest,
}

/// The checkpoints of ours among a server's.
pub(crate) fn known(checkpoints: Vec<CheckpointInfo>) -> Vec<KnownCheckpoint> {
    let read = |info: CheckpointInfo| {
        let manifest = serde_json::from_value(info.manifest).ok()?;
        Some(KnownCheckpoint {
            name: info.name,
            steps: info.step,
            sha256: info.sha256,
            manifest,
        })
    };
    checkpoints.into_iter().filter_map(read).collect()
}

/// The name of an agent's `n`th adapter in a lineage; its checkpoint has the same.
///
/// An agent's name is made of the characters that such a name may have, and fits with room to spare.
pub(crate) fn name(agent: &AgentId, lineage: &str, n: u64) -> String {
    format!("{agent}-{lineage}-{n:06}")
}

/// [`name`] as the server's two kinds of name.
///
/// # Errors
/// [`NameError`] for a lineage that was not made here.
pub(crate) fn names(
    agent: &AgentId,
    lineage: &str,
    n: u64,
) -> Result<(AdapterName, CheckpointName), NameError> {
    let name = name(agent, lineage, n);
    Ok((name.parse()?, name.parse()?))
}

// === impl Shape ===

impl Shape {
    /// Whether an adapter of this shape can go on as one of the other.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        self.base.is(&other.base)
            && self.rank == other.rank
            && self.alpha.to_bits() == other.alpha.to_bits()
            && self.targets == other.targets
    }

    /// What of a checkpoint's shape is not that of the next step, in words.
    pub(crate) fn change_from(&self, old: &Self) -> String {
        if self.base.is(&old.base) {
            format!(
                "rl.lora_rank, rl.lora_alpha or rl.targets has changed (rank {} to {}, alpha {} to {})",
                old.rank, self.rank, old.alpha, self.alpha
            )
        } else {
            format!("the base model has changed ({} to {})", old.base, self.base)
        }
    }
}
