//! How a judge model is used: `judge.policy`.
//!
//! There are three policies with the same kind of result, a verdict: ours, and those of the two systems that MetaClaw
//! is compared with. Their rules are theirs, the wording is ours. They count a judge that does not answer as an
//! unreadable vote. We do not: the turn waits, whatever the policy.

mod metaclaw;
mod openclaw_rl;

use metaclaw_chat::{JudgedBy, Message, Score, Verdict, Vote};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Evidence, hint, prompt, verdict};

/// By whose rules a judge model's votes are asked for, read and counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Our rules: the judge sees the request, the reply and everything that followed. A turn without a readable vote has no verdict.
    #[default]
    NextState,
    /// The rules of the Python MetaClaw: the judge sees only the instruction and the response, not what followed. Without a readable vote, the verdict
    /// is 0.
    Metaclaw,
    /// The rules of OpenClaw-RL: the judge sees the reply and what followed, without the request. Hints are requested separately. Without a
    /// readable vote, the verdict is 0.
    OpenclawRl,
}

/// The prompts of a judge model for one verdict.
#[derive(Debug, Clone)]
pub struct Questions {
    /// The prompt for a score, sent once for each vote.
    pub score: Vec<Message>,
    /// Reads the answer. `None` means no vote.
    pub read_score: fn(&str) -> Option<Vote>,
    /// The prompt for a hint, sent as often. It is none if the score's answer contains the hint.
    pub hint: Option<Vec<Message>>,
    /// Whether the verdict is 0 if no answer is a vote.
    pub nothing_is_unclear: bool,
    /// The share of the votes below which the verdict is 0. 0 leaves it to the majority.
    pub consensus: f64,
}

// === impl Policy ===

impl Policy {
    /// Makes the prompts about one reply. If nothing followed the reply, it is judged alone, by the owner's `wishes`.
    /// MetaClaw's rules always judge it alone and ignore wishes. For the other policies, we have a special prompt.
    pub fn questions(self, evidence: &Evidence, wishes: &[String]) -> Questions {
        let is_alone = evidence.next.is_empty();
        let ours = |score| Questions {
            score,
            read_score: verdict::read,
            hint: None,
            nothing_is_unclear: false,
            consensus: 0.0,
        };
        match self {
            Self::Metaclaw if !is_alone || wishes.is_empty() => Questions {
                read_score: metaclaw::read,
                nothing_is_unclear: true,
                ..ours(metaclaw::messages(evidence))
            },
            Self::OpenclawRl if !is_alone => Questions {
                read_score: openclaw_rl::read_score,
                hint: Some(openclaw_rl::hint_messages(evidence)),
                nothing_is_unclear: true,
                ..ours(openclaw_rl::score_messages(evidence))
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
    /// Reads the hint in an answer to the prompt for one.
    pub fn read_hint(answer: &str) -> Option<String> {
        openclaw_rl::read_hint(answer)
    }

    /// Returns the verdict of these votes and separate hints, or `None` if no vote could be read and the policy has no
    /// verdict for that.
    pub fn verdict(&self, votes: &[Option<Vote>], hints: &[String]) -> Option<Verdict> {
        let unclear = || {
            self.nothing_is_unclear
                .then(|| Verdict::new(Score::Unclear, JudgedBy::Llm))
        };
        let verdict = verdict::tally(votes, self.consensus).or_else(unclear)?;
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
