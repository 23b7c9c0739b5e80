//! The digest: what happened in a day, or in several, of what the log and the journal of lessons still have, and of the
//! log's counts by day where texts are gone.
//!
//! A day is one of the owner's clock; the log counts by days of UTC.

use std::collections::BTreeMap;

use jiff::civil::Date;
use metaclaw_skills::{Lesson, ProposalState};
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
    /// Which days it tells of.
    pub period: Period,
    pub turns: u64,
    /// Of those, the ones whose texts are gone: their numbers are kept, by days of UTC.
    pub gone: u64,
    pub sessions: u64,
    /// Turns of each agent.
    pub agents: BTreeMap<String, u64>,
    /// The lessons of these days, as they stand now.
    pub heard: Vec<Lesson>,
    /// The skills that were written in these days from what went wrong, as they stand now.
    pub written: Vec<WrittenSkill>,
    pub verdicts: Verdicts,
    /// Whether weights learn here: without, the stages behind a verdict do not exist.
    pub weights: bool,
    /// How far turns came, the first stage first.
    pub funnel: Vec<FunnelStage>,
    /// The training steps of these days, the first one first.
    pub steps: Vec<StepTold>,
    /// What the chat cost.
    pub chat: ChatTokens,
    /// Tokens that asking models for learning took, in and out.
    pub learning: u64,
    /// What is left of today's budget for that; none of a period without today.
    pub budget: Option<BudgetLeft>,
    /// Turns of each upstream, and what went wrong there.
    pub upstreams: BTreeMap<String, UpstreamDay>,
    pub in_force: Vec<InForce>,
    /// What waits for the owner's look now.
    pub waiting: WaitingReviews,
    /// One row a day, with the days before for the curve.
    pub days: Vec<DayRow>,
}

/// A training step, and what became of its adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTold {
    pub agent: String,
    /// Its number in its lineage.
    pub n: u64,
    pub n_turns: usize,
    /// The adapter; none where the step was not made.
    pub adapter: Option<String>,
    /// Whether the gate tested that.
    pub tested: bool,
    /// Why it does not serve; none where it came to.
    pub declined: Option<String>,
    /// Why it was taken back since.
    pub taken_back: Option<String>,
}

/// A skill that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenSkill {
    pub agent: String,
    pub name: String,
    pub state: ProposalState,
}

/// Tokens that learning may spend on a day of UTC.
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
    /// Those that say what would have been better.
    pub hinted: u64,
}

/// Where turns can get to on their way to the weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunnelStage {
    pub name: String,
    /// How many got here.
    pub n: u64,
    /// Those that got no further, by reason: with the next stage's, they are `n`.
    pub stayed: BTreeMap<String, u64>,
}

/// Tokens, as the upstreams counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatTokens {
    pub prompt: u64,
    /// Of the prompt's, those that came from the provider's cache.
    pub cached: u64,
    pub completion: u64,
    /// Replies of which nobody said what they cost.
    pub n_uncounted: u64,
}

/// How an upstream did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamDay {
    pub turns: u64,
    /// Replies that did not end well, by reason.
    pub errors: BTreeMap<String, u64>,
}

/// What an agent is served with from its next session on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    pub agent: String,
    pub wishes: Vec<String>,
    /// Skills that it may be given.
    pub n_skills: usize,
    /// Those that it was given in the period, with the number of turns.
    pub skills: BTreeMap<String, u64>,
    pub adapter: Option<String>,
}

/// One day in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRow {
    pub day: Date,
    pub turns: u64,
    pub judged: u64,
    pub good: u64,
    /// Wishes and skills that came into force.
    pub lessons: u64,
    /// Tokens of the chat, in and out.
    pub tokens: u64,
    pub learning: u64,
}

// === impl Verdicts ===

impl Verdicts {
    pub fn n(&self) -> u64 {
        self.good + self.unclear + self.bad
    }
}

// === impl PeriodReport ===

impl PeriodReport {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.turns == 0 && self.heard.is_empty() && self.written.is_empty()
    }
}

/// Part of a whole, in percent; none of nothing.
fn percent(part: u64, whole: u64) -> Option<u64> {
    (part * 100 + whole / 2).checked_div(whole)
}
