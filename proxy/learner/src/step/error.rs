//! Why an attempt at a step did not get through.

use metaclaw_trainer_api::BackendError;

/// How far an attempt had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Opening a run, listing checkpoints.
    Server,
    /// Loading the checkpoint that it starts from.
    Parent,
    /// A pass: the call of this number among the step's.
    Pass(usize),
    Step,
    /// Training on something harmless, to see whether the server can.
    Control,
    /// Saving what was made.
    Save,
}

/// Why an attempt did not get through.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct StepError {
    pub(crate) stage: Stage,
    #[source]
    pub(crate) error: Box<BackendError>,
}

// === impl StepError ===

impl StepError {
    /// Whether it may go another time: nobody there, no telling what was done, or too much to do.
    pub(crate) fn may_pass(&self) -> bool {
        let error = &self.error;
        let busy = matches!(error.status(), Some(409 | 425 | 429));
        busy || error.is_unreachable() || error.is_ambiguous() || error.is_unknown_run()
    }
}
