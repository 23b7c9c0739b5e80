//! What is shown: the status, the lessons and the last turns, as the running process tells them.

use metaclaw_skills::Lesson;
use metaclaw_turns::TurnSummary;
use serde::Serialize;
use serde_json::Value;

/// How it is at one moment.
#[derive(Debug, Clone, Serialize)]
pub(super) struct View {
    /// What `metaclaw status --json` prints.
    pub(super) status: Value,
    /// Of all agents, the oldest first.
    pub(super) lessons: Vec<Lesson>,
    pub(super) turns: Vec<TurnSummary>,
}

// === impl View ===

impl View {
    /// Turns that have a verdict, the newest first.
    pub(super) fn judged(&self) -> impl Iterator<Item = &TurnSummary> {
        self.turns.iter().filter(|turn| turn.score.is_some())
    }

    /// Whether weights learn: what a process does not say is not so.
    pub(super) fn weights(&self) -> bool {
        let phase = &self.status["learner"]["phase"]["is"];
        phase.as_str().is_some_and(|phase| phase != "off")
    }

    /// How far turns came, as `turns 12 -> main 10 -> ..`.
    pub(super) fn funnel(&self) -> String {
        let stages: &[&str] = if self.weights() {
            &["turns", "main", "complete", "with_ids", "judged", "trained"]
        } else {
            &["turns", "main", "complete", "judged"]
        };
        let funnel = &self.status["funnel"];
        let stage = |key: &&str| format!("{} {}", key.replace('_', " "), funnel[*key]);
        let counts: Vec<String> = stages.iter().map(stage).collect();
        let end = if self.weights() {
            ""
        } else {
            "  (no weights are trained)"
        };
        format!("{}{end}", counts.join(" -> "))
    }
}
