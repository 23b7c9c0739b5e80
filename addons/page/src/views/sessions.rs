//! Conversations: the newest, and one whole.

use axum::extract::{Query, State};
use maud::{Markup, html};
use metaclaw_chat::{AgentId, Score, SessionId, TurnId, now_ms};
use metaclaw_control::operations::turns::TurnsQuery;
use metaclaw_control::replies::TurnSummary;
use serde::Deserialize;

use crate::{
    elements::{ActionForm, ButtonKind, ago, confirmed, count, empty, live, turn_row},
    failure::PageFailure,
    layout::{Frame, Section},
    query::encoded,
    state::PageState,
};

const LOOKED_AT: usize = 300;
const OF_ONE: usize = 500;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SessionsQuery {
    before: Option<TurnId>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SessionQuery {
    agent: AgentId,
    session: SessionId,
}

struct SessionTurns<'a> {
    agent: &'a AgentId,
    session: &'a SessionId,
    turns: Vec<&'a TurnSummary>,
}

pub(crate) async fn list(
    State(state): State<PageState>,
    frame: Frame,
    Query(query): Query<SessionsQuery>,
) -> Result<Markup, PageFailure> {
    let asked = TurnsQuery {
        before: query.before,
        limit: LOOKED_AT,
        ..TurnsQuery::default()
    };
    let turns = state.ask(asked).await?;
    let body = html! {
        h1 { "Conversations" }
        p { a href="/ui/turns" { "Single replies, newest first" } }
        (live("sessions", &rows(&turns)))
    };
    Ok(frame.page("Conversations", Section::Conversations, &body))
}

fn rows(turns: &[TurnSummary]) -> Markup {
    let now_ms = now_ms();
    if turns.is_empty() {
        let next = html! { "Say something to your agent; the conversation appears here within a second or two. If it does not, "
        a href="/ui/health" { "Health" } " says why." };
        return empty("No conversation was kept yet.", &next);
    }
    html! {
        ol.turns { @for it in conversations(turns) { (row(&it, now_ms)) } }
        @if let Some(last) = turns.last().filter(|_| turns.len() == LOOKED_AT) {
            p { a href={ "/ui/sessions?before=" (last.id) } { "Older ones" } }
        }
    }
}

fn conversations(turns: &[TurnSummary]) -> Vec<SessionTurns<'_>> {
    let mut all: Vec<SessionTurns<'_>> = Vec::new();
    for turn in turns {
        let known = all
            .iter_mut()
            .find(|it| *it.agent == turn.agent && *it.session == turn.session);
        match known {
            Some(it) => it.turns.push(turn),
            None => all.push(SessionTurns {
                agent: &turn.agent,
                session: &turn.session,
                turns: vec![turn],
            }),
        }
    }
    all
}

fn row(it: &SessionTurns<'_>, now_ms: u64) -> Markup {
    let of = |score| {
        it.turns
            .iter()
            .filter(|turn| turn.score == Some(score))
            .count()
    };
    let (good, bad) = (of(Score::Good), of(Score::Bad));
    let asked = it.turns.iter().rev().find_map(|turn| turn.asked.as_deref());
    let n = u64::try_from(it.turns.len()).unwrap_or(u64::MAX);
    html! {
        li.turn {
            a href=(address(it.agent, it.session)) {
                span.asked { (asked.unwrap_or("(nothing that the owner typed)")) }
            }
            p.facts {
                span { (it.agent) } " · " (count(n, "turn"))
                @if good > 0 { " · " span.mark.good { (good) " good" } }
                @if bad > 0 { " · " span.mark.bad { (bad) " bad" } }
                @if let Some(last) = it.turns.first() { " · " (ago(last.ended_ms, now_ms)) }
            }
        }
    }
}

pub(crate) fn address(agent: &AgentId, session: &SessionId) -> String {
    format!(
        "/ui/session?agent={}&session={}",
        encoded(agent.as_str()),
        encoded(session.as_str())
    )
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
    Query(query): Query<SessionQuery>,
) -> Result<Markup, PageFailure> {
    let SessionQuery { agent, session } = query;
    let asked = TurnsQuery {
        agent: Some(agent.clone()),
        session: Some(session.clone()),
        limit: OF_ONE,
        ..TurnsQuery::default()
    };
    let turns = state.ask(asked).await?;
    if turns.is_empty() {
        let message =
            format!("Agent {agent} has no conversation {session}; it may have been forgotten.");
        return Err(PageFailure::not_found(message));
    }
    let now_ms = now_ms();
    let rows = html! {
        ol.turns { @for turn in turns.iter().rev() { (turn_row(turn, now_ms)) } }
    };
    let forget = ActionForm {
        action: "forget",
        fields: &[("agent", agent.as_str()), ("session", session.as_str())],
        label: "Forget for good",
        about: "this conversation",
        back: "/ui/sessions",
        kind: ButtonKind::Final,
    };
    let warning = "Its turns are deleted from the disk, with the lessons that were learned from it. This cannot be undone. Weights that were trained on it stay.";
    let body = html! {
        h1 { "Conversation" }
        p.facts { "Agent " (agent) ", session " code { (session) } }
        (live("turns", &rows))
        (confirmed("forget", "Forget this conversation …", warning, &forget))
    };
    Ok(frame.page("Conversation", Section::Conversations, &body))
}
