//! The score of an episode, as a check gives it and as the runner reads it.

use std::fs;

use serde::{Deserialize, Serialize};

use super::{error::AgentError, settings::AgentSettings};
use crate::sandbox::ExecOutcome;

/// What an episode earned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeScore {
    /// From -1 to 1. The tracks give 0 to 1.
    pub score: f64,
    /// A reward for each turn, in order; empty if none was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<f64>,
}

// === impl EpisodeScore ===

impl EpisodeScore {
    pub(crate) fn of_outcome(score: f64) -> Self {
        Self {
            score,
            steps: Vec::new(),
        }
    }

    /// Reads the outcome of a check script. If its last line is `score: X` with X from 0 to 1, that is the score.
    /// Otherwise it is 1 if the script ended with code 0, else 0.
    pub(super) fn of_check(outcome: &ExecOutcome) -> Self {
        let text = outcome.text();
        let last = text.trim_end().lines().last().unwrap_or_default();
        let number = last
            .strip_prefix("score:")
            .and_then(|it| it.trim().parse().ok());
        let printed = number.filter(|it| (0.0..=1.0).contains(it));
        let by_code = if outcome.succeeded() { 1.0 } else { 0.0 };
        Self::of_outcome(printed.unwrap_or(by_code))
    }

    /// Writes the score to the file that the runner reads.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write(&self, settings: &AgentSettings) -> Result<(), AgentError> {
        let text = serde_json::json!(self).to_string();
        fs::write(&settings.reward, text).map_err(|source| AgentError::Reward {
            path: settings.reward.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::EpisodeScore;
    use crate::sandbox::{ExecEnd, ExecOutcome};

    #[test]
    fn a_check_gives_its_exit_code_or_the_score_of_its_last_line() {
        let score = |end, text: &str| {
            let outcome = ExecOutcome {
                end,
                head: text.as_bytes().to_vec(),
                tail: Vec::new(),
                omitted: 0,
            };
            EpisodeScore::of_check(&outcome).score
        };
        for (end, text, expected) in [
            (ExecEnd::Exited(0), "", 1.0),
            (ExecEnd::Exited(0), "0\n", 1.0),
            (ExecEnd::Exited(3), "1\n", 0.0),
            (ExecEnd::TimedOut, "", 0.0),
            (ExecEnd::Exited(1), "a\nscore: 0.25\n", 0.25),
            (ExecEnd::Exited(0), "score: 0.25\nb\n", 1.0),
            (ExecEnd::Exited(0), "score: 7\n", 1.0),
            (ExecEnd::Exited(1), "score: NaN\n", 0.0),
        ] {
            assert!(
                (score(end, text) - expected).abs() < 1e-9,
                "{end:?} {text:?}"
            );
        }
    }
}
