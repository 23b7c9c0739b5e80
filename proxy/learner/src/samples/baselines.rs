//! How good turns usually are, and how much better one was.

use metaclaw_turns::Turn;

use super::{advantage::advantage, turns::is_tool_turn};

/// The usual reward of an agent's recent turns, tool turns and others apart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Baselines {
    pub(crate) tool: f32,
    pub(crate) chat: f32,
}

// === impl Baselines ===

impl Baselines {
    /// A of a turn, times the weight of its verdict.
    pub(super) fn advantage(self, turn: &Turn) -> f32 {
        let Some(verdict) = &turn.verdict else {
            return 0.0;
        };
        let usual = if is_tool_turn(turn) {
            self.tool
        } else {
            self.chat
        };
        verdict.weight * advantage(verdict.score.value(), usual)
    }
}
