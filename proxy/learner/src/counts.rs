//! The learner's counters since its start, for `/metrics`.

use metaclaw_chat::Score;

/// The learner's counters, and the number of turns that wait now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LearnerCounts {
    /// Verdicts of -1 that rules and models gave.
    pub n_bad: u64,
    /// Verdicts of 0 that rules and models gave.
    pub n_unclear: u64,
    /// Verdicts of +1 that rules and models gave.
    pub n_good: u64,
    /// Steps that were completed.
    pub n_steps: u64,
    /// Steps that the training server refused.
    pub n_refused: u64,
    /// Steps whose gradient the training server dropped.
    pub n_skipped: u64,
    /// Samples of the completed steps.
    pub n_trained_samples: u64,
    /// Turns that the completed steps used.
    pub n_trained_turns: u64,
    /// Ids that the model read in the completed steps.
    pub n_trained_tokens: u64,
    /// Turns that wait for a verdict.
    pub n_waiting: usize,
    /// Samples of redo that wait for a batch.
    pub n_redo: usize,
    /// Turns that wait for the teacher's reply.
    pub n_unanswered: usize,
    /// Turns whose own ids wait for a batch of binary_rl.
    pub n_binary_rl: usize,
}

// === impl LearnerCounts ===

impl LearnerCounts {
    pub(crate) fn judged(&mut self, score: Score) {
        match score {
            Score::Bad => self.n_bad += 1,
            Score::Unclear => self.n_unclear += 1,
            Score::Good => self.n_good += 1,
        }
    }
}
