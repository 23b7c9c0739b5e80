//! Looks through the log, and through the journal of lessons.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{civil::Date, tz::TimeZone};
use metaclaw_chat::AgentId;
use metaclaw_skills::{Lesson, LessonState, Library};
use metaclaw_turns::{TurnFilter, TurnLog};

use super::{
    DayRow, InForce, Period, Report,
    days::{begin_ms, day_of},
    tally::Tally,
};

/// Turns that are asked for at a time: those that come meanwhile do not wait long.
const PAGE: usize = 100;
/// Days of the curve.
const CURVE: u32 = 14;

/// Where a digest comes from.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub log: TurnLog,
    pub library: Library,
    /// Whether weights learn.
    pub weights: bool,
    /// The owner's clock.
    pub zone: TimeZone,
}

/// The digest of a period.
///
/// # Errors
/// The log's, or the journal's.
pub(crate) async fn gather(sources: &Sources, period: Period) -> anyhow::Result<Report> {
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
    let mut tally = Tally::new(sources.weights);
    look_through(sources, shown, |day, turn| {
        if let Some(row) = days.get_mut(&day) {
            row.add(turn);
        }
        if period.has(day) {
            tally.add(turn);
        }
    })
    .await?;

    let mut heard = journal(&sources.library).await?;
    let day_of = |lesson: &Lesson| day_of(lesson.origin.at_ms, &sources.zone);
    for lesson in &heard {
        if let Some(row) = days.get_mut(&day_of(lesson)) {
            row.lessons += 1;
        }
    }
    heard.retain(|lesson| period.has(day_of(lesson)) && lesson.state != LessonState::Forgotten);
    let in_force = in_force(sources, &mut tally.skills).await?;
    Ok(tally.report(Report {
        period,
        heard,
        weights: sources.weights,
        in_force,
        days: days.into_values().collect(),
        ..Report::default()
    }))
}

/// Shows every turn of a period, the newest first. They stand in the log as they ended.
async fn look_through(
    sources: &Sources,
    period: Period,
    mut look: impl FnMut(Date, &metaclaw_turns::TurnSummary),
) -> anyhow::Result<()> {
    let from_ms = begin_ms(period.first, &sources.zone);
    let mut before = None;
    loop {
        let filter = TurnFilter {
            limit: PAGE,
            before,
            ..TurnFilter::default()
        };
        let turns = sources.log.list(filter).await?;
        let Some(last) = turns.last() else {
            return Ok(());
        };
        before = Some(last.id);
        for turn in &turns {
            let day = day_of(turn.ended_ms, &sources.zone);
            if period.has(day) {
                look(day, turn);
            }
        }
        // A clock that was set back for a moment ends the look only if all of a page are older.
        if turns.iter().all(|turn| turn.ended_ms < from_ms) {
            return Ok(());
        }
    }
}

/// All lessons. The journal is a file.
async fn journal(library: &Library) -> anyhow::Result<Vec<Lesson>> {
    let library = library.clone();
    Ok(tokio::task::spawn_blocking(move || library.journal()).await??)
}

/// What each agent has, of those that are known by a turn or by a folder.
async fn in_force(
    sources: &Sources,
    skills: &mut BTreeMap<String, BTreeMap<String, u64>>,
) -> anyhow::Result<Vec<InForce>> {
    let serving = sources.log.serving().await?;
    let library = &sources.library;
    let mut agents: BTreeSet<AgentId> = sources.log.agents().await?.into_iter().collect();
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
