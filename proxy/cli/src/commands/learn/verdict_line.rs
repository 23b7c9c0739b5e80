//! The line of a judged turn.

use metaclaw_chat::one_line;
use metaclaw_turns::TurnSummary;

use crate::commands::turns::{score, short};

/// `+1  12-3 of main: "What is rain?"`.
pub(super) fn verdict_line(turn: &TurnSummary) -> String {
    let verdict = turn.score.map(score).unwrap_or_default();
    let asked = one_line(turn.asked.as_deref().unwrap_or_default());
    let hint = if turn.is_hinted {
        "  (with a hint)"
    } else {
        ""
    };
    format!(
        "{verdict:>2}  {} of {}: \"{}\"{hint}",
        turn.id,
        turn.agent,
        short(&asked, 60)
    )
}
