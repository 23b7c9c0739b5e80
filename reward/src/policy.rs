//! How a judge model is asked and counted: `judge.policy`.
//!
//! Three ways with the same outcome, a verdict: ours, and those of the two systems that this one is compared with. The
//! rules of those are theirs, the wording is ours. Where they take a judge that does not answer for a vote that could
//! not be read, we do not: the turn waits, whatever the policy.

mod metaclaw;
mod openclaw_rl;

use metaclaw_chat::{JudgedBy, Message, Score, Verdict, Vote};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Evidence, hint, prompt, verdict, vote};

/// By whose rules a judge model's votes are asked for, read and counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Ours: the request, the reply and all that followed; a turn without a readable vote has no verdict.
    #[default]
    NextState,
    /// MetaClaw's: the instruction and the response alone; what followed is not shown. Without a readable vote 0.
    Metaclaw,
    /// OpenClaw-RL's: the reply and what followed, without the request; hints are asked for apart. Without a readable
    /// vote 0.
    OpenclawRl,
}

/// What a judge model is asked for one verdict.
#[derive(Debug, Clone)]
pub struct Questions {
    /// For a score; asked once for each vote.
    pub score: Vec<Message>,
    /// How its answer is read; none is no vote.
    pub read_score: fn(&str) -> Option<Vote>,
    /// For a hint, asked as often; none where the score's answer brings it.
    pub hint: Option<Vec<Message>>,
    /// Whether answers of which none is a vote are a verdict of 0.
    pub nothing_is_unclear: bool,
}

// === impl Policy ===

impl Policy {
    /// The questions about one reply. Where nothing followed it is judged alone, by what its owner `wishes`: MetaClaw's
    /// rules do so anyway, and know of no wishes; the others have a prompt of ours for it.
    pub fn questions(self, evidence: &Evidence, wishes: &[String]) -> Questions {
        let is_alone = evidence.next.is_empty();
        let ours = |score| Questions {
            score,
            read_score: vote::read,
            hint: None,
            nothing_is_unclear: false,
        };
        match self {
            Self::Metaclaw if !is_alone || wishes.is_empty() => Questions {
                score: metaclaw::messages(evidence),
                read_score: metaclaw::read,
                hint: None,
                nothing_is_unclear: true,
            },
            Self::OpenclawRl if !is_alone => Questions {
                score: openclaw_rl::score_messages(evidence),
                read_score: openclaw_rl::read_score,
                hint: Some(openclaw_rl::hint_messages(evidence)),
                nothing_is_unclear: true,
            },
            Self::NextState if !is_alone => ours(prompt::judge_messages(evidence)),
            Self::NextState | Self::Metaclaw | Self::OpenclawRl => {
                ours(prompt::reply_messages(evidence, wishes))
            }
        }
    }
}

// === impl Questions ===

impl Questions {
    /// The hint in an answer to the question for one.
    pub fn read_hint(answer: &str) -> Option<String> {
        openclaw_rl::read_hint(answer)
    }

    /// The verdict of these votes and of the hints that were asked for apart; none if no vote could be read and that
    /// is no verdict.
    pub fn verdict(&self, votes: &[Option<Vote>], hints: &[String]) -> Option<Verdict> {
        let unclear = || {
            self.nothing_is_unclear
                .then(|| Verdict::new(Score::Unclear, JudgedBy::Llm))
        };
        let verdict = verdict::tally(votes).or_else(unclear)?;
        if self.hint.is_none() {
            return Some(verdict);
        }
        let judge_hints = hint::best(hints);
        Some(Verdict {
            hint: judge_hints.first().cloned(),
            judge_hints,
            ..verdict
        })
    }
}

#[cfg(test)]
mod tests;
