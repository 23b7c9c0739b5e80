//! Training passes as jobs of the engine's thread.

use std::{ops::ControlFlow, time::Duration};

use metaclaw_engine::{
    engine::{EngineState, JobProgress, SlicedJob},
    run::ParamsVersion,
    train::{TrainJob, TrainOut},
};
use tokio::sync::oneshot;

use super::failure::RunError;

/// Prepares a pass on the engine's thread, and returns the parameters that it uses.
type Begin =
    Box<dyn FnOnce(&mut EngineState) -> Result<(TrainJob, ParamsVersion), RunError> + Send>;
/// Builds an answer from the result of a pass.
type Finish<T> =
    Box<dyn FnOnce(&mut EngineState, ParamsVersion, TrainOut) -> Result<T, RunError> + Send>;

/// A forward_backward or forward in progress.
///
/// If the caller disconnects, the pass ends without an effect: what was not answered was not done.
pub(super) struct PassJob<T> {
    stage: Stage,
    finish: Option<Finish<T>>,
    answer: Option<oneshot::Sender<Result<T, RunError>>>,
}

enum Stage {
    Waiting(Begin),
    Going(Box<TrainJob>, ParamsVersion),
    Over,
}

// === impl PassJob ===

impl<T> PassJob<T> {
    /// The job, and the channel for its answer, which closes without one if the job failed inside the engine.
    pub(super) fn new(
        begin: Begin,
        finish: Finish<T>,
    ) -> (Self, oneshot::Receiver<Result<T, RunError>>) {
        let (answer, received) = oneshot::channel();
        let job = Self {
            stage: Stage::Waiting(begin),
            finish: Some(finish),
            answer: Some(answer),
        };
        (job, received)
    }

    /// Whether the caller has left.
    fn has_left(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Works on the pass for one slice. Returns its answer once it has ended, unless the caller has left.
    fn work(&mut self, state: &mut EngineState, slice: Duration) -> Option<Result<T, RunError>> {
        let job = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Waiting(begin) => begin(state),
            Stage::Going(job, version) => Ok((*job, version)),
            Stage::Over => return None,
        };
        let progress =
            job.and_then(|(job, version)| Ok((job.advance(&state.model, slice)?, version)));
        match progress {
            Ok((ControlFlow::Continue(job), version)) => {
                self.stage = Stage::Going(Box::new(job), version);
                None
            }
            // A caller that left during the last slice will send the request again, so nothing of this one may count.
            Ok((ControlFlow::Break(_), _)) if self.has_left() => None,
            Ok((ControlFlow::Break(out), version)) => {
                Some(self.finish.take()?(state, version, out))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<T: Send> SlicedJob for PassJob<T> {
    fn advance(&mut self, state: &mut EngineState, slice: Duration) -> JobProgress {
        if self.has_left() {
            return JobProgress::Done;
        }
        if let Some(answer) = self.work(state, slice)
            && let Some(to) = self.answer.take()
        {
            // A send fails only if the caller has left.
            let _ = to.send(answer);
        }
        match self.stage {
            Stage::Waiting(_) | Stage::Going(..) => JobProgress::More,
            Stage::Over => JobProgress::Done,
        }
    }
}
