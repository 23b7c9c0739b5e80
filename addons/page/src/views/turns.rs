//! The newest turns, of all agents or of one.

use axum::extract::{Query, State};
use maud::{Markup, html};
use metaclaw_chat::{AgentId, TurnId, now_ms};
use metaclaw_control::operations::turns::TurnsQuery;
use metaclaw_control::replies::{StateKind, TurnSummary};
use serde::Deserialize;

use crate::{
    elements::{empty, live, turn_row},
    failure::PageFailure,
    layout::{Frame, Section},
    query::encoded,
    state::PageState,
};

const PAGE: usize = 40;

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ListQuery {
    agent: Option<AgentId>,
    state: Option<StateKind>,
    before: Option<TurnId>,
}

pub(crate) async fn list(
    State(state): State<PageState>,
    frame: Frame,
    Query(query): Query<ListQuery>,
) -> Result<Markup, PageFailure> {
    let asked = TurnsQuery {
        agent: query.agent.clone(),
        state: query.state,
        before: query.before,
        limit: PAGE,
        ..TurnsQuery::default()
    };
    let turns = state.ask(asked).await?;
    let body = html! {
        h1 { "Replies" }
        p.lead { "Choose the reply that you wonder about: its page says what was in the prompt, who answered, and how it was judged." }
        p { a href="/ui/sessions" { "By conversation" } }
        (live("turns", &rows(&turns, &query)))
    };
    Ok(frame.page("Replies", Section::Conversations, &body))
}

fn rows(turns: &[TurnSummary], query: &ListQuery) -> Markup {
    if turns.is_empty() {
        let next = html! { "Say something to your agent; it appears here within a second or two." };
        return empty("There are no turns here.", &next);
    }
    let now_ms = now_ms();
    html! {
        ol.turns { @for turn in turns { (turn_row(turn, now_ms)) } }
        @if let Some(last) = turns.last().filter(|_| turns.len() == PAGE) {
            p { a href=(older(query, last.id)) { "Older ones" } }
        }
    }
}

fn older(query: &ListQuery, last: TurnId) -> String {
    let agent = query.agent.as_ref();
    let agent = agent.map_or_else(String::new, |it| format!("&agent={}", encoded(it.as_str())));
    format!("/ui/turns?before={last}{agent}")
}
