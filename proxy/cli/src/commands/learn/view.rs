//! What is shown: the status, the lessons and the last turns, as the running process tells them.

use metaclaw_control::status::ProcessStatus;
use metaclaw_skills::Lesson;
use metaclaw_turns::TurnSummary;
use serde::Serialize;

use crate::commands::status::{stages, trains};

/// How it is at one moment.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LearnView {
    /// What `metaclaw status --json` prints.
    pub(super) status: ProcessStatus,
    /// Of all agents, the oldest first.
    pub(super) lessons: Vec<Lesson>,
    pub(super) turns: Vec<TurnSummary>,
}

// === impl LearnView ===

impl LearnView {
    /// Turns that have a verdict, the newest first.
    pub(super) fn judged(&self) -> impl Iterator<Item = &TurnSummary> {
        self.turns.iter().filter(|turn| turn.score.is_some())
    }

    /// How far turns came, as `recorded 12 -> main 10 -> ..`.
    pub(super) fn funnel(&self) -> String {
        let trains = self.status.learner.is_some() && trains(&self.status);
        let end = if trains {
            ""
        } else {
            "  (no weights are trained)"
        };
        format!("{}{end}", stages(&self.status.funnel, trains).join(" -> "))
    }
}
