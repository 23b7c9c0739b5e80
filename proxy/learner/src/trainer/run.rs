//! A training run at the server: what is known of it, and how it is put where a step starts.

use std::time::Duration;

use metaclaw_trainer_api::{
    BackendError, CheckpointName, RunId, TrainingBackend, wire::CreateRequest,
};

use super::runner::StepRunner;
use crate::{formulas::n_params, lineage::ResumePoint};

/// Tokens of a call while it is not known how long they take: seconds on two cores.
const FIRST_TOKENS: usize = 4_096;
/// Tokens of a call at most, however fast the server is.
const MOST_TOKENS: usize = 65_536;
/// The part of a call's deadline that its tokens are to take: chats may slow training down.
const SHARE: f64 = 0.1;
/// A shorter call tells more of the network than of the server.
const MEASURED: usize = 256;

/// The training run of one agent, and what it holds.
#[derive(Debug, Default)]
pub(crate) struct RunHandle {
    pub(crate) id: Option<RunId>,
    /// Where the run stands; none after anything that leaves doubt.
    pub(crate) at: Option<ResumePoint>,
    /// All parameters of the model, as the trainer said.
    pub(crate) n_params: Option<f64>,
    /// Whether the step that is being made has been asked to be written, so that it may be at any time.
    pub(crate) save_asked: bool,
    /// Tokens a second of the last pass.
    pace: Option<f64>,
}

/// How far an attempt had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepStage {
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
pub(crate) struct StepFailure {
    pub(crate) stage: StepStage,
    #[source]
    pub(crate) error: Box<BackendError>,
}

// === impl RunHandle ===

impl RunHandle {
    /// Gives the run back to the server, if there is one.
    pub(crate) async fn close(&mut self, backend: &dyn TrainingBackend) {
        self.at = None;
        if let Some(run) = self.id.take()
            && let Err(error) = backend.close_run(run.clone()).await
        {
            // It is gone already, or goes when the server wants its memory.
            tracing::debug!(%run, %error, "not closed");
        }
    }

    /// Notes what a failed call leaves behind.
    pub(crate) fn failed(&mut self, error: &BackendError) {
        self.at = None;
        if error.is_unreachable() || error.is_unknown_run() {
            // Whoever answers next may be another process.
            self.id = None;
        }
    }

    /// Notes how long a pass took.
    pub(crate) fn passed(&mut self, n_tokens: usize, time: Duration) {
        if n_tokens >= MEASURED && !time.is_zero() {
            self.pace = Some(n_tokens as f64 / time.as_secs_f64());
        }
    }

    /// How many tokens a call may have.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range is brought to its end, and the bound is far below"
    )]
    pub(crate) fn most_tokens(&self, deadline: Duration) -> usize {
        let by_pace = |pace: f64| (pace * deadline.as_secs_f64() * SHARE) as usize;
        self.pace
            .map_or(FIRST_TOKENS, |pace| by_pace(pace).min(MOST_TOKENS))
    }
}

/// The result of a call; a failure leaves the run in doubt.
pub(crate) fn seen<T>(
    run: &mut RunHandle,
    stage: StepStage,
    result: Result<T, BackendError>,
) -> Result<T, StepFailure> {
    result.map_err(|error| {
        run.failed(&error);
        let error = Box::new(error);
        StepFailure { stage, error }
    })
}

// === impl StepFailure ===

impl StepFailure {
    /// A failure that says nothing about the step itself.
    pub(crate) fn at_server(error: BackendError) -> Self {
        let (stage, error) = (StepStage::Server, Box::new(error));
        Self { stage, error }
    }

    /// Whether it may go another time: nobody there, no telling what was done, or too much to do.
    pub(crate) fn may_pass(&self) -> bool {
        let error = &self.error;
        let busy = matches!(error.status(), Some(409 | 425 | 429));
        busy || error.is_unreachable() || error.is_ambiguous() || error.is_unknown_run()
    }
}

// === impl StepRunner ===

impl StepRunner {
    /// A run that stands where a step starts, with no gradients.
    pub(crate) async fn put_at(
        &self,
        run: &mut RunHandle,
        point: &ResumePoint,
    ) -> Result<RunId, StepFailure> {
        let id = match (run.id.clone(), &point.checkpoint) {
            (Some(id), Some(_)) => id,
            // Only a new run has a fresh adapter.
            _ => self.create(run, point).await?,
        };
        if let Some(checkpoint) = &point.checkpoint {
            self.load(run, &id, checkpoint, StepStage::Parent).await?;
        }
        Ok(id)
    }

    async fn create(&self, run: &mut RunHandle, point: &ResumePoint) -> Result<RunId, StepFailure> {
        run.close(&*self.backend).await;
        let request = CreateRequest {
            rank: self.rl.lora_rank,
            lora_alpha: Some(self.rl.lora_alpha),
            seed: Some(self.seed(point)),
            targets: Some(self.rl.targets.0.clone()),
            ..CreateRequest::default()
        };
        let created = self.backend.create_run(request).await;
        let reply = seen(run, StepStage::Server, created)?;
        run.n_params = n_params(&reply.trainable_params);
        run.id = Some(reply.session_id.clone());
        Ok(reply.session_id)
    }

    pub(crate) async fn load(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        checkpoint: &CheckpointName,
        stage: StepStage,
    ) -> Result<(), StepFailure> {
        let loaded = self
            .backend
            .load_checkpoint(id.clone(), checkpoint.to_string())
            .await;
        seen(run, stage, loaded).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_a_part_of_its_deadline() {
        let mut run = RunHandle::default();
        let most = |run: &RunHandle| run.most_tokens(Duration::from_secs(600));
        assert_eq!(most(&run), FIRST_TOKENS);
        run.passed(4_000, Duration::from_secs(20));
        assert_eq!(most(&run), 12_000, "a minute at 200 tokens a second");
        run.passed(10, Duration::from_secs(5));
        assert_eq!(most(&run), 12_000);
        run.passed(10_000, Duration::from_millis(100));
        assert_eq!(most(&run), MOST_TOKENS);
    }
}
