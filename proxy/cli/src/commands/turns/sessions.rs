//! `metaclaw turns sessions`: one row for each session.

use std::{cmp::Reverse, collections::BTreeMap};

use metaclaw_chat::{AgentId, Score, SessionId};
use metaclaw_control::operations::turns::TurnsQuery;
use metaclaw_turns::{MAX_LIST, TurnKind, TurnSummary};
use serde::Serialize;

use crate::{
    commands::{calling::call, columns::short, context::Context},
    out,
};

#[derive(Debug, Serialize)]
struct SessionRow<'a> {
    session: &'a SessionId,
    agent: &'a AgentId,
    ended_ms: u64,
    turns: usize,
    main: usize,
    side: usize,
    good: usize,
    bad: usize,
    /// What the owner typed first.
    asked: Option<&'a str>,
}

pub(super) async fn list(
    context: &Context,
    agent: Option<AgentId>,
    limit: usize,
    json: bool,
) -> anyhow::Result<()> {
    let newest = TurnsQuery {
        agent,
        limit: MAX_LIST,
        ..TurnsQuery::default()
    };
    let turns = call(context, "turns", newest).await?;
    if turns.len() == MAX_LIST {
        out::aside(format!("counted: the newest {MAX_LIST} turns"));
    }
    let mut sessions = by_session(&turns);
    sessions.truncate(limit);
    let head = [
        "session", "ago", "agent", "turns", "main", "side", "good", "bad", "first",
    ];
    Ok(out::answer_table(&sessions, json, &head, cells)?)
}

/// Returns the sessions of these turns, which come newest first; so do the sessions.
fn by_session(turns: &[TurnSummary]) -> Vec<SessionRow<'_>> {
    let mut sessions: BTreeMap<_, Vec<&TurnSummary>> = BTreeMap::new();
    for turn in turns {
        let whose = (&turn.agent, &turn.session);
        sessions.entry(whose).or_default().push(turn);
    }
    let rows = sessions
        .into_iter()
        .map(|((agent, session), turns)| row(agent, session, &turns));
    let mut rows: Vec<SessionRow<'_>> = rows.collect();
    rows.sort_by_key(|row| Reverse(row.ended_ms));
    rows
}

fn row<'a>(
    agent: &'a AgentId,
    session: &'a SessionId,
    turns: &[&'a TurnSummary],
) -> SessionRow<'a> {
    let of_kind = |kind| turns.iter().filter(|turn| turn.kind == kind).count();
    let scored = |score| {
        let score = Some(score);
        turns.iter().filter(|turn| turn.score == score).count()
    };
    SessionRow {
        session,
        agent,
        ended_ms: turns.first().map_or(0, |turn| turn.ended_ms),
        turns: turns.len(),
        main: of_kind(TurnKind::Main),
        side: of_kind(TurnKind::Side),
        good: scored(Score::Good),
        bad: scored(Score::Bad),
        asked: turns.iter().rev().find_map(|turn| turn.asked.as_deref()),
    }
}

fn cells(row: &SessionRow<'_>) -> Vec<String> {
    let counts = [row.turns, row.main, row.side, row.good, row.bad].map(|n| n.to_string());
    let (session, ago) = (row.session.to_string(), out::since(row.ended_ms));
    let mut cells = vec![session, ago, row.agent.to_string()];
    cells.extend(counts);
    cells.push(short(row.asked.unwrap_or_default(), 40));
    cells
}
