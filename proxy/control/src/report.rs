//! The digest: what happened in one day or several, from the log and the journal of lessons, and from the log's counts
//! by day for deleted texts.
//!
//! A day is one of the owner's clock; the log counts by days of UTC.

use std::collections::BTreeMap;

use jiff::civil::Date;
use metaclaw_skills::{Lesson, ProposalState};
use metaclaw_turns::{BreakCounts, BrokenPrompt};
use serde::{Deserialize, Serialize};

mod counted;
mod curve;
mod days;
mod files;
mod funnel;
mod gather;
mod markdown;
mod tally;

#[cfg(test)]
mod tests;

use crate::waiting::WaitingReviews;

pub use self::{
    days::Period,
    files::run as write_daily,
    gather::{ReportSources, gather},
    markdown::text as markdown,
};

pub(crate) use self::files::forget;

/// What happened in a period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PeriodReport {
    /// The days of the period.
    pub period: Period,
    pub turns: u64,
    /// The days whose texts are deleted: their numbers are kept, by days of UTC.
    pub gone: u64,
    pub sessions: u64,
    /// Turns of each agent.
    pub agents: BTreeMap<String, u64>,
    /// The lessons of these days, in their present state.
    pub heard: Vec<Lesson>,
    /// The skills that were written in these days after failures, in their present state.
    pub written: Vec<WrittenSkill>,
    pub verdicts: Verdicts,
    /// Whether weights are trained here; if not, the stages after a verdict do not exist.
    pub weights: bool,
    /// How many turns reached each stage, in order.
    pub funnel: Vec<FunnelStage>,
    /// The training steps of these days, in order.
    pub steps: Vec<StepTold>,
    /// The tokens of the chat.
    pub chat: ChatTokens,
    /// The prompts that a provider's cache could not serve as far as it might have.
    #[serde(default)]
    pub prefix: PrefixReport,
    /// The tokens of model requests for learning, input and output.
    pub learning: u64,
    /// The rest of today's budget for learning; `None` for a period without today.
    pub budget: Option<BudgetLeft>,
    /// The turns of each upstream, and what failed there.
    pub upstreams: BTreeMap<String, UpstreamDay>,
    pub in_force: Vec<InForce>,
    /// What waits for the owner's decision now.
    pub waiting: WaitingReviews,
    /// One row for each day, with earlier days for the curve.
    pub days: Vec<DayRow>,
}

/// A training step, and the outcome of its adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTold {
    pub agent: String,
    /// Its number in its lineage.
    pub n: u64,
    pub n_turns: usize,
    /// The adapter, or `None` if the step was not completed.
    pub adapter: Option<String>,
    /// Whether the gate tested it.
    pub tested: bool,
    /// Why it does not serve, or `None` if it served.
    pub declined: Option<String>,
    /// Why it was rolled back since.
    pub taken_back: Option<String>,
}

/// A skill that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenSkill {
    pub agent: String,
    pub name: String,
    pub state: ProposalState,
}

/// The tokens that learning may spend on a day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLeft {
    pub limit: u64,
    pub left: u64,
}

/// Verdicts of the turns of a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    pub good: u64,
    pub unclear: u64,
    pub bad: u64,
    /// Verdicts that say what would have been better.
    pub hinted: u64,
}

/// The stages that turns can reach on their way to training.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunnelStage {
    pub name: String,
    /// The number of turns that reached this stage.
    pub n: u64,
    /// The turns that got no further, by reason: together with the next stage's, they are `n`.
    pub stayed: BTreeMap<String, u64>,
}

/// Tokens, as the upstreams counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatTokens {
    pub prompt: u64,
    /// The prompt's tokens that came from the provider's cache.
    pub cached: u64,
    pub completion: u64,
    /// Replies without a reported cost.
    pub n_uncounted: u64,
}

/// Prompts that broke with an earlier prompt of their session, so that a provider's cache served less of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixReport {
    /// How many there were, by who changed the prompt.
    pub counts: BreakCounts,
    /// The latest of them, the newest first.
    pub latest: Vec<BrokenPrompt>,
}

/// The results of an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamDay {
    pub turns: u64,
    /// Incomplete replies, by reason.
    pub errors: BTreeMap<String, u64>,
}

/// The lessons that an agent gets from its next session on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    pub agent: String,
    pub wishes: Vec<String>,
    /// The skills that it may get.
    pub n_skills: usize,
    /// The skills that it got in the period, with the number of turns.
    pub skills: BTreeMap<String, u64>,
    pub adapter: Option<String>,
}

/// The numbers of one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRow {
    pub day: Date,
    pub turns: u64,
    pub judged: u64,
    pub good: u64,
    /// Wishes and skills that came into force.
    pub lessons: u64,
    /// Tokens of the chat, input and output.
    pub tokens: u64,
    /// Tokens of prompts, as a part of `tokens`.
    #[serde(default)]
    pub prompt: u64,
    /// Tokens of prompts that came from the provider's cache.
    #[serde(default)]
    pub cached: u64,
    /// Prompts that broke with an earlier one.
    #[serde(default)]
    pub breaks: BreakCounts,
    pub learning: u64,
}

// === impl Verdicts ===

impl Verdicts {
    pub fn n(&self) -> u64 {
        self.good + self.unclear + self.bad
    }
}

// === impl ChatTokens ===

impl ChatTokens {
    /// Returns the share of prompt tokens that the provider's cache served, in percent. `None` without a prompt.
    pub fn cached_percent(&self) -> Option<u64> {
        percent(self.cached, self.prompt)
    }
}

// === impl PrefixReport ===

impl PrefixReport {
    /// Returns how many prompts broke and by whom, or `None` if none did.
    pub fn counts_line(&self) -> Option<String> {
        let BreakCounts {
            own,
            client,
            upstream,
        } = self.counts;
        let by = [
            (own, "by a lesson or an adapter"),
            (client, "by the client"),
            (upstream, "by another upstream or model"),
        ];
        let by = by.into_iter().filter(|(n, _)| *n > 0);
        let by: Vec<String> = by.map(|(n, whom)| format!("{n} {whom}")).collect();
        let times = match self.counts.n() {
            0 => return None,
            1 => "once".to_owned(),
            n => format!("{n} times"),
        };
        Some(format!(
            "the prompt's prefix broke {times}: {}",
            by.join(", ")
        ))
    }
}

/// Returns a broken prompt on one line, without the turn and the time.
pub fn broken_line(broken: &BrokenPrompt) -> String {
    let (agent, what) = (&broken.agent, &broken.what);
    let words = match (broken.before.as_str(), broken.now.as_str()) {
        ("", "") => String::new(),
        ("", now) => format!(": \"{now}\""),
        (before, "") => format!(": \"{before}\" is gone"),
        (before, now) => format!(": \"{before}\" became \"{now}\""),
    };
    format!("{agent}: {what}{words}")
}

// === impl PeriodReport ===

impl PeriodReport {
    /// Returns whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.turns == 0 && self.heard.is_empty() && self.written.is_empty()
    }
}

/// Returns a part of a whole in percent, or `None` if the whole is 0.
fn percent(part: u64, whole: u64) -> Option<u64> {
    (part * 100 + whole / 2).checked_div(whole)
}
