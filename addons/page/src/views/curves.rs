//! Curves: whether replies got better, what was used, and how training steps went.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::AgentId;
use metaclaw_control::curves::{Curve, CurvesWanted};
use serde::Deserialize;

use crate::{
    elements::live,
    failure::PageFailure,
    layout::{Frame, Section},
    plot::figure,
    query::encoded,
    state::PageState,
    view_query::ViewQuery,
};

/// The periods to choose from, in days; the first is shown at first.
const PERIODS: [u32; 4] = [14, 30, 90, CurvesWanted::MAX_DAYS];

/// What the curves answer: the section's name, its title, and the names of its curves.
const SECTIONS: [(&str, &str, &[&str]); 3] = [
    (
        "better",
        "Is it better for me?",
        &[
            "complaints",
            "plain_complaints",
            "first_replies",
            "pass_rate",
        ],
    ),
    ("used", "What it uses", &["prompts"]),
    ("steps", "Training steps", &["loss", "fluency", "relevance"]),
];

#[derive(Debug, Default, Deserialize)]
pub(crate) struct CurvesQuery {
    agent: Option<AgentId>,
    days: Option<u32>,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
    ViewQuery(query): ViewQuery<CurvesQuery>,
) -> Result<Markup, PageFailure> {
    let agents = state.agents().await?;
    let wanted = CurvesWanted {
        agent: query.agent,
        days: query.days.unwrap_or(PERIODS[0]),
    };
    let curves = state.ask(wanted.clone()).await?;
    let body = html! {
        h1 { "Curves" }
        (choices(&wanted, &agents.shown))
        (agents.left_out())
        @for (id, title, of) in SECTIONS {
            section aria-labelledby=(id) {
                h2 id=(id) { (title) }
                (live(&format!("{id}-curves"), &figures(&curves, of)))
            }
        }
    };
    Ok(frame.page("Curves", Section::Curves, &body))
}

/// Returns the figures of some curves. Those without a point are named in one line, which opens to say why.
fn figures(curves: &[Curve], ids: &[&str]) -> Markup {
    let mut drawn = Vec::new();
    let mut empty = Vec::new();
    for curve in curves
        .iter()
        .filter(|curve| ids.contains(&curve.id.as_str()))
    {
        match figure(curve) {
            Some(figure) => drawn.push(figure),
            None => empty.push(curve),
        }
    }
    let names: Vec<&str> = empty.iter().map(|curve| curve.title.as_str()).collect();
    html! {
        div.curves { @for figure in drawn { (figure) } }
        @if let Some(first) = empty.first() {
            details id={ "empty-" (first.id) } {
                summary { "Nothing to draw yet: " (names.join(", ")) }
                dl { @for curve in &empty { dt { (curve.title) } dd { (curve.empty) } } }
            }
        }
    }
}

fn choices(wanted: &CurvesWanted, agents: &[AgentId]) -> Markup {
    let agent = wanted.agent.as_ref();
    html! {
        nav.tabs aria-label="Period" {
            @for days in PERIODS {
                a href=(address(agent, days)) aria-current=[(days == wanted.days).then_some("page")] {
                    @if days == CurvesWanted::MAX_DAYS { "a year" } @else { (days) " days" }
                }
            }
        }
        @if agents.len() > 1 {
            nav.tabs aria-label="Agents" {
                a href=(address(None, wanted.days)) aria-current=[agent.is_none().then_some("page")] { "all agents" }
                @for it in agents {
                    a href=(address(Some(it), wanted.days)) aria-current=[(agent == Some(it)).then_some("page")] { (it) }
                }
            }
        }
    }
}

fn address(agent: Option<&AgentId>, days: u32) -> String {
    match agent {
        Some(agent) => format!("/ui/curves?days={days}&agent={}", encoded(agent.as_str())),
        None => format!("/ui/curves?days={days}"),
    }
}
