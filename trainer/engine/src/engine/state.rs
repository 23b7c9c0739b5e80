//! What jobs may touch on the engine's thread.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::adapters::{AdapterCache, ServedAdapter};
use crate::adapter::{AdapterError, BaseId, Fit};
use crate::lora::LayerDims;
use crate::model::Model;
use crate::run::Runs;
use crate::train::SliceSizes;

/// The tensors of an engine and what they belong to.
#[derive(Debug)]
pub struct EngineState {
    /// The base.
    pub model: Model,
    /// The base by name and content.
    pub base: BaseId,
    /// Holds `adapters/` and `checkpoints/`.
    pub checkpoint_dir: PathBuf,
    /// Open training runs.
    pub runs: Runs,
    /// How training jobs are cut on this machine.
    pub sizes: SliceSizes,
    /// Adapters that are loaded for serving.
    pub adapters: AdapterCache,
}

/// Long work on the engine's thread, done in slices.
pub trait Job: Send {
    /// Works for about `slice`; gradients are on when it is called.
    fn advance(&mut self, state: &mut EngineState, slice: Duration) -> Progress;
}

/// What is left of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Something: it will be called again.
    More,
    /// Nothing: it has answered and is dropped.
    Done,
}

/// A function as a job of one slice.
pub(super) struct Call<F> {
    function: Option<F>,
}

impl EngineState {
    /// What an adapter must be to fit this base.
    pub fn fit(&self) -> Fit<'_> {
        fit(&self.model, &self.base)
    }

    /// An adapter by name, loaded if need be.
    ///
    /// # Errors
    /// As [`crate::adapter::load`].
    pub fn adapter(&mut self, name: &str) -> Result<Rc<ServedAdapter>, AdapterError> {
        let Self {
            model,
            base,
            checkpoint_dir,
            adapters,
            ..
        } = self;
        let fit = fit(model, base);
        adapters.get(name, checkpoint_dir, &fit, model)
    }
}

fn fit<'a>(model: &Model, base: &'a BaseId) -> Fit<'a> {
    let family = &model.family;
    Fit {
        base,
        dims: LayerDims::of(family),
        n_layers: family.n_layers,
    }
}

impl<F> Call<F> {
    pub(super) fn new(function: F) -> Self {
        Self {
            function: Some(function),
        }
    }
}

impl<F: FnOnce(&mut EngineState) + Send> Job for Call<F> {
    fn advance(&mut self, state: &mut EngineState, _: Duration) -> Progress {
        if let Some(function) = self.function.take() {
            function(state);
        }
        Progress::Done
    }
}

impl fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}
