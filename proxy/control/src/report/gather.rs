//! Reads the log and the journal of lessons.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use jiff::{civil::Date, tz::TimeZone};
use metaclaw_chat::AgentId;
use metaclaw_skills::{Lesson, LessonState, Library, Proposal, ProposalState};
use metaclaw_turns::{Step, StepOutcome, TurnFilter, TurnLog, TurnSummary, day_of as utc_day};

use super::{
    BudgetLeft, DayRow, InForce, Period, PeriodReport, PrefixReport, StepTold, WrittenSkill,
    counted::CountedDays,
    days::{begin_ms, day_of},
    tally::TurnTally,
};
use crate::{token_budget::TokenBudget, waiting::WaitingReviews};

/// The number of turns that are read at a time, so that new turns do not wait long.
const PAGE: usize = 100;
/// The number of agents whose lessons in force are listed, besides those with a folder.
const MAX_AGENTS: usize = 100;
/// The number of days in the curve.
const CURVE: u32 = 14;

/// The sources of a digest.
#[derive(Debug, Clone)]
pub struct ReportSources {
    pub log: TurnLog,
    pub library: Library,
    pub weights: bool,
    /// What learning may spend, and has spent.
    pub budget: Arc<TokenBudget>,
    pub zone: TimeZone,
}

/// Returns the digest of a period, as it is at `now_ms`.
///
/// # Errors
/// Returns the errors of the log or the journal.
pub fn gather(
    sources: &ReportSources,
    period: Period,
    now_ms: u64,
) -> BoxFuture<'_, anyhow::Result<PeriodReport>> {
    Box::pin(async move {
        let curve = Period::until(period.last, CURVE);
        let shown = Period {
            first: curve.first.min(period.first),
            last: period.last,
        };
        let row = |day| DayRow {
            day,
            ..DayRow::default()
        };
        let mut days: BTreeMap<Date, DayRow> = shown.days().map(|day| (day, row(day))).collect();
        let mut tally = TurnTally::new(sources.weights);
        // A day of UTC may begin earlier than the owner's.
        let from_ms =
            begin_ms(shown.first, &sources.zone).min(begin_ms(shown.first, &TimeZone::UTC));
        // The counts are read before the turns, so that a new turn is not taken for a deleted one.
        let counted = sources.log.statistics(utc_day(from_ms)).await?;
        let mut counted = CountedDays::new(counted);
        look_through(&sources.log, from_ms, |turn| {
            counted.is_there(turn);
            let day = day_of(turn.ended_ms, &sources.zone);
            if let Some(row) = days.get_mut(&day) {
                row.add(turn);
            }
            if period.has(day) {
                tally.add(turn);
            }
        })
        .await?;
        for (day, agent, counts) in counted.left() {
            if let Some(row) = days.get_mut(&day) {
                row.add_counted(&counts);
            }
            if period.has(day) {
                tally.add_counted(&agent, &counts);
            }
        }

        let (mut heard, proposals) = journals(&sources.library).await?;
        let waiting = WaitingReviews::of(&heard, &proposals);
        let is_told = |at_ms: u64| period.has(day_of(at_ms, &sources.zone));
        heard.retain(|it| is_told(it.origin.at_ms) && it.state != LessonState::Forgotten);
        let written = written(proposals.into_iter().filter(|it| is_told(it.source.at_ms)));
        let budget = if is_told(now_ms) {
            sources.budget.look(now_ms).await?;
            let spend = sources.budget.spend(now_ms);
            let (limit, left) = (spend.limit, spend.left());
            Some(BudgetLeft { limit, left })
        } else {
            None
        };
        let steps = steps(&sources.log, is_told).await?;
        let in_force = in_force(sources, &mut tally.skills).await?;
        let prefix = PrefixReport {
            latest: sources.log.broken_prompts(tally.take_broken()).await?,
            ..PrefixReport::default()
        };
        Ok(tally.report(PeriodReport {
            period,
            heard,
            written,
            weights: sources.weights,
            budget,
            steps,
            in_force,
            waiting,
            prefix,
            days: days.into_values().collect(),
            ..PeriodReport::default()
        }))
    })
}

/// Passes every turn since a time, newest first, and a few before it. The log has them in the order in which they
/// ended.
async fn look_through(
    log: &TurnLog,
    from_ms: u64,
    mut look: impl FnMut(&TurnSummary),
) -> anyhow::Result<()> {
    let mut before = None;
    loop {
        let filter = TurnFilter {
            limit: PAGE,
            before,
            ..TurnFilter::default()
        };
        let turns = log.list(filter).await?;
        let Some(last) = turns.last() else {
            return Ok(());
        };
        before = Some(last.id);
        turns.iter().for_each(&mut look);
        // If the clock was set back for a moment, the search ends only when all turns of a page are older.
        if turns.iter().all(|turn| turn.ended_ms < from_ms) {
            return Ok(());
        }
    }
}

/// Returns the steps that began in the period and have ended.
async fn steps(log: &TurnLog, is_told: impl Fn(u64) -> bool) -> anyhow::Result<Vec<StepTold>> {
    let steps = log.all_steps().await?.into_iter();
    let steps = steps.filter(|step| is_told(step.taken_ms));
    Ok(steps.filter_map(told).collect())
}

fn told(step: Step) -> Option<StepTold> {
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
        taken_back: step.taken_back.map(|it| it.why),
    })
}

/// Returns all lessons, and all proposals. They are files.
async fn journals(library: &Library) -> anyhow::Result<(Vec<Lesson>, Vec<Proposal>)> {
    let library = library.clone();
    let read = move || anyhow::Ok((library.journal()?, library.proposals()?));
    tokio::task::spawn_blocking(read).await?
}

fn written(proposals: impl Iterator<Item = Proposal>) -> Vec<WrittenSkill> {
    let told = proposals.filter(|it| it.state != ProposalState::Forgotten);
    let one = |it: Proposal| WrittenSkill {
        agent: it.source.agent.to_string(),
        name: it.name.to_string(),
        state: it.state,
    };
    told.map(one).collect()
}

/// Returns the lessons of each agent that has a folder, and of those that have the most turns.
async fn in_force(
    sources: &ReportSources,
    skills: &mut BTreeMap<String, BTreeMap<String, u64>>,
) -> anyhow::Result<Vec<InForce>> {
    let serving = sources.log.serving().await?;
    let library = &sources.library;
    let funnels = sources.log.funnels().await?.into_iter().take(MAX_AGENTS);
    let mut agents: BTreeSet<AgentId> = funnels.map(|(agent, _)| agent).collect();
    agents.extend(library.agents());
    let one = |agent: AgentId| InForce {
        wishes: library
            .wishes(&agent)
            .into_iter()
            .map(|it| it.text)
            .collect(),
        n_skills: library.skills(&agent).len(),
        skills: skills.remove(agent.as_str()).unwrap_or_default(),
        adapter: serving
            .iter()
            .find(|(name, _)| *name == agent)
            .map(|(_, adapter)| adapter.clone()),
        agent: agent.to_string(),
    };
    Ok(agents.into_iter().map(one).collect())
}
