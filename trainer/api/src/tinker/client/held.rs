//! Models that hold adapters for sampling, which [`super::places`] manages.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use tokio::sync::Mutex;

use super::runs::ServerModel;

/// Adapters that are held for sampling.
#[derive(Debug, Default)]
pub(super) struct HeldSamplers {
    pub(super) held: Mutex<BTreeMap<String, Place>>,
    pub(super) n_uses: AtomicU64,
    /// Models are made one at a time, so that after one is emptied, the next one gets the same slot.
    pub(super) making: Mutex<()>,
}

/// A model that holds an adapter.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) model: ServerModel,
    /// `tinker://…/sampler_weights/…` of this model.
    pub(super) path: String,
    /// When it was last used, as a count of all uses.
    pub(super) used: u64,
}
