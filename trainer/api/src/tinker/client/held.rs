//! Models that hold adapters to be sampled from: what [`super::places`] keeps.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use tokio::sync::Mutex;

use super::runs::ServerModel;

/// Adapters that are held to be sampled from.
#[derive(Debug, Default)]
pub(super) struct HeldSamplers {
    pub(super) held: Mutex<BTreeMap<String, Place>>,
    pub(super) n_uses: AtomicU64,
    /// Models are made one at a time: one that was emptied is to be followed by one in the same slot.
    pub(super) making: Mutex<()>,
}

/// A model that holds an adapter.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) model: ServerModel,
    /// `tinker://…/sampler_weights/…` of this model.
    pub(super) path: String,
    /// When it was last asked, in uses of all of them.
    pub(super) used: u64,
}
