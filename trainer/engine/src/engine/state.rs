//! The state that jobs may use on the engine's thread.

use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use metaclaw_trainer_terms::AdapterName;

use super::adapters::{AdapterPool, ServedAdapter};
use crate::adapter::{AdapterError, BaseSpec};
use crate::model::Model;
use crate::runs::Runs;
use crate::train::SliceSizes;

/// The tensors of an engine and what they belong to.
#[derive(Debug)]
pub struct EngineState {
    /// The base on the training devices.
    pub model: Model,
    /// The base where it serves, if that is on other devices.
    pub(super) serving: Option<Model>,
    /// The base by name, content and widths.
    pub base: Arc<BaseSpec>,
    pub runs: Runs,
    /// How training jobs are cut on this machine.
    pub sizes: SliceSizes,
    /// Adapters that are loaded for serving.
    pub adapters: AdapterPool,
    pub(super) served: Vec<Weak<ServedAdapter>>,
}

/// Long work on the engine's thread, done in slices.
pub trait SlicedJob: Send {
    /// Works for about `slice`; gradients are on when it is called.
    fn advance(&mut self, state: &mut EngineState, slice: Duration) -> JobProgress;
}

/// What a slice left of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobProgress {
    /// Something: it will be called again.
    More,
    /// The job has answered and is dropped.
    Done,
}

impl EngineState {
    /// The base that replies are made with.
    pub fn served(&self) -> &Model {
        self.serving.as_ref().unwrap_or(&self.model)
    }

    /// A handle on an adapter that the caller has loaded. This thread reads no files.
    ///
    /// # Errors
    /// [`AdapterError::Unknown`] where it is not loaded.
    pub fn adapter(&mut self, name: &AdapterName) -> Result<Rc<ServedAdapter>, AdapterError> {
        let lease = self.adapters.held(name)?;
        Ok(ServedAdapter::of(&lease, &mut self.served)?)
    }
}

/// A function that is called once.
impl<F: FnOnce(&mut EngineState) + Send> SlicedJob for Option<F> {
    fn advance(&mut self, state: &mut EngineState, _: Duration) -> JobProgress {
        if let Some(function) = self.take() {
            function(state);
        }
        JobProgress::Done
    }
}

impl fmt::Debug for dyn SlicedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}
