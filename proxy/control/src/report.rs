//! The report of a period, from the figures of the log and the journal of lessons.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use jiff::civil::Date;
use metaclaw_skills::{Lesson, LessonState, Library, Proposal, ProposalState};
use metaclaw_turns::{BreakCounts, DailyCounts, Step, StepOutcome, TurnLog};
use serde::{Deserialize, Serialize};

mod markdown;

#[cfg(test)]
mod tests;

use crate::{
    costs::{CostRow, ModelPrices},
    figures::{
        ChatTokens, CountedDays, ExistingTurns, Period, PrefixReport, UpstreamDay, Verdicts,
        chat_tokens, n_turns, verdicts,
    },
    waiting::WaitingReviews,
};

pub use self::markdown::text as markdown;

/// What happened in a period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PeriodReport {
    pub period: Period,
    pub turns: u64,
    /// The number of these turns whose texts are deleted. They are missing in `sessions`, `unused`, `upstreams` and
    /// `skills`.
    pub gone: u64,
    pub sessions: u64,
    /// Turns of each agent.
    pub agents: BTreeMap<String, u64>,
    /// The lessons of these days, in their present state.
    pub heard: Vec<Lesson>,
    /// The skills that were written in these days after failures, in their present state.
    pub written: Vec<WrittenSkill>,
    pub verdicts: Verdicts,
    /// Turns from which nothing is learned, by reason.
    pub unused: BTreeMap<String, u64>,
    /// The training steps of these days, in order.
    pub steps: Vec<StepTold>,
    /// The tokens of the chat.
    pub chat: ChatTokens,
    /// The prompts that a provider's cache could not serve as far as it might have.
    pub prefix: PrefixReport,
    /// The tokens of model requests for learning, input and output.
    pub learning: u64,
    /// The turns of each upstream, and what failed there.
    pub upstreams: BTreeMap<String, UpstreamDay>,
    /// The number of turns that got each skill.
    pub skills: BTreeMap<String, u64>,
    /// What waits for the owner's decision now.
    pub waiting: WaitingReviews,
    /// One row for each day.
    pub days: Vec<DayRow>,
    /// What the turns that still exist cost.
    pub costs: Vec<CostRow>,
    /// The characters that lessons added to their prompts.
    pub added_chars: u64,
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

/// The numbers of one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRow {
    pub day: Date,
    pub turns: u64,
    pub verdicts: Verdicts,
    /// Wishes and skills that came into force.
    pub lessons: u64,
    /// Tokens of the chat, input and output.
    pub tokens: u64,
    /// Tokens of prompts, as a part of `tokens`.
    pub prompt: u64,
    /// Tokens of prompts that came from the provider's cache.
    pub cached: u64,
    /// Prompts that broke with an earlier one.
    pub breaks: BreakCounts,
    pub learning: u64,
}

/// Returns the report of a period, as the log and the library are now.
///
/// # Errors
/// Returns the errors of the log or the journal.
pub fn report<'a>(
    log: &'a TurnLog,
    library: &'a Library,
    period: Period,
    prices: ModelPrices,
) -> BoxFuture<'a, anyhow::Result<PeriodReport>> {
    Box::pin(async move {
        // The counts are read before the turns, so that a new turn is not taken for a deleted one.
        let counted = CountedDays::read(log, period, None).await?;
        let mut existing = ExistingTurns::read(log, period).await?;
        prices.set_costs(&mut existing.costs);
        let (by_day, counts) = (counted.by_day(), counted.sum());
        let (mut heard, proposals) = journals(library).await?;
        let waiting = WaitingReviews::new(&heard, &proposals);
        heard.retain(|lesson| {
            period.has(lesson.origin.at_ms) && lesson.state != LessonState::Forgotten
        });
        let steps = log.all_steps().await?.into_iter();
        let turns = n_turns(&counts);
        Ok(PeriodReport {
            period,
            turns,
            gone: turns.saturating_sub(existing.n),
            sessions: existing.sessions.len() as u64,
            agents: counted.turns_by_agent(),
            heard,
            written: written(proposals, period),
            verdicts: Verdicts {
                hinted: existing.n_hinted,
                ..verdicts(&counts)
            },
            unused: existing.unused,
            steps: steps
                .filter(|step| period.has(step.taken_ms))
                .filter_map(ended)
                .collect(),
            chat: ChatTokens {
                n_uncounted: existing.n_uncounted,
                ..chat_tokens(&counts)
            },
            prefix: PrefixReport {
                counts: counts.breaks,
                latest: log.broken_prompts(existing.broken).await?,
            },
            learning: counts.learning_tokens,
            upstreams: existing.upstreams,
            skills: existing.skills,
            waiting,
            days: period
                .days()
                .map(|day| DayRow::new(day, by_day.get(&day).copied().unwrap_or_default()))
                .collect(),
            costs: existing.costs,
            added_chars: existing.added_chars,
        })
    })
}

fn ended(step: Step) -> Option<StepTold> {
    let (adapter, tested, declined) = match step.outcome? {
        StepOutcome::Trained { adapter, gate, .. } => (Some(adapter), gate.is_some(), None),
        StepOutcome::Declined { adapter, why, .. } => (Some(adapter), true, Some(why)),
        StepOutcome::Released { why } => (None, false, Some(why)),
    };
    Some(StepTold {
        agent: step.begun.agent.to_string(),
        n: step.begun.n,
        n_turns: step.begun.turns.len(),
        adapter,
        tested,
        declined,
        taken_back: step.taken_back.map(|taken_back| taken_back.why),
    })
}

async fn journals(library: &Library) -> anyhow::Result<(Vec<Lesson>, Vec<Proposal>)> {
    let library = library.clone();
    let read = move || anyhow::Ok((library.journal()?, library.proposals()?));
    tokio::task::spawn_blocking(read).await?
}

fn written(proposals: Vec<Proposal>, period: Period) -> Vec<WrittenSkill> {
    proposals
        .into_iter()
        .filter(|skill| period.has(skill.source.at_ms) && skill.state != ProposalState::Forgotten)
        .map(|skill| WrittenSkill {
            agent: skill.source.agent.to_string(),
            name: skill.name.to_string(),
            state: skill.state,
        })
        .collect()
}

// === impl DayRow ===

impl DayRow {
    fn new(day: Date, counts: DailyCounts) -> Self {
        let chat = chat_tokens(&counts);
        Self {
            day,
            turns: n_turns(&counts),
            verdicts: verdicts(&counts),
            lessons: counts.lessons,
            tokens: chat.prompt + chat.completion,
            prompt: chat.prompt,
            cached: chat.cached,
            breaks: counts.breaks,
            learning: counts.learning_tokens,
        }
    }
}
