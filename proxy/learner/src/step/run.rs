//! A training run at the server, and what is known of it.

use std::time::Duration;

use metaclaw_trainer_api::{BackendError, RunId};

use super::error::{Stage, StepError};
use crate::lineage::ResumePoint;

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

// === impl RunHandle ===

impl RunHandle {
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
pub(super) fn seen<T>(
    run: &mut RunHandle,
    stage: Stage,
    result: Result<T, BackendError>,
) -> Result<T, StepError> {
    result.map_err(|error| {
        run.failed(&error);
        let error = Box::new(error);
        StepError { stage, error }
    })
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
