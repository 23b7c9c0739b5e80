//! The name of a checkpoint, and its manifest.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_trainer_api::{AdapterName, CheckpointName, NameError, wire::CheckpointInfo};
use serde::{Deserialize, Serialize};

use super::{
    base::BaseModel,
    made::Provenance,
    numbers::{BatchStats, Numbers},
};
use crate::config::RlConfig;

/// A checkpoint's manifest: written with it, and kept unchanged by the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CheckpointManifest {
    pub(crate) agent: AgentId,
    pub(crate) lineage: String,
    pub(crate) n: u64,
    pub(crate) turns: Vec<TurnId>,
    /// The number of each turn's use, from 1: how often it is in these weights. Empty in older manifests, when turns
    /// were used only once.
    #[serde(default)]
    pub(crate) uses: Vec<usize>,
    /// A hash of everything that the step was made of: the same hash means the same step.
    pub(crate) hash: String,
    pub(crate) parent: Option<CheckpointName>,
    /// The shape of the adapter; an adapter of another shape cannot continue it.
    pub(crate) shape: Shape,
    /// What the step measured.
    #[serde(default)]
    pub(crate) numbers: Numbers,
    /// Statistics of its samples.
    #[serde(default)]
    pub(crate) batch: BatchStats,
    /// The scores of its turns when the step used them.
    #[serde(default)]
    pub(crate) scores: BTreeMap<TurnId, Score>,
    /// How it was made; `None` in older checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<Provenance>,
}

/// The shape of an adapter and its base model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Shape {
    #[serde(flatten)]
    pub(crate) base: BaseModel,
    pub(crate) rank: u32,
    pub(crate) alpha: f64,
    pub(crate) targets: Vec<String>,
}

/// A checkpoint with its manifest.
#[derive(Debug, Clone)]
pub(crate) struct KnownCheckpoint {
    pub(crate) name: CheckpointName,
    /// The number of optimiser steps in it.
    pub(crate) steps: u64,
    /// The hash of its adapter's content, if the server reports one.
    pub(crate) sha256: Option<String>,
    pub(crate) manifest: CheckpointManifest,
}

/// Returns the checkpoints of MetaClaw among a server's.
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

/// Returns the name of an agent's `n`th adapter in a lineage; its checkpoint has the same name.
///
/// An agent's name contains only characters that such a name may have, and is short enough.
pub(crate) fn name(agent: &AgentId, lineage: &str, n: u64) -> String {
    format!("{agent}-{lineage}-{n:06}")
}

/// Returns [`name`] as the server's two kinds of name.
///
/// # Errors
/// Returns [`NameError`] for a lineage that was not made here.
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
    /// Returns the shape of the adapters that these settings make.
    pub(crate) fn new(base: BaseModel, rl: &RlConfig) -> Self {
        Self {
            base,
            rank: rl.lora_rank,
            alpha: rl.lora_alpha,
            targets: rl.targets.0.clone(),
        }
    }

    /// Returns whether an adapter of this shape can continue one of the other.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        self.base.is(&other.base)
            && self.rank == other.rank
            && self.alpha.to_bits() == other.alpha.to_bits()
            && self.targets == other.targets
    }

    /// Describes how a checkpoint's shape differs from that of the next step.
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
