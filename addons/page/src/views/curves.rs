//! Curves: how verdicts, tokens and training steps went over time.

use axum::extract::{Query, State};
use maud::{Markup, html};
use metaclaw_chat::AgentId;
use metaclaw_control::curves::{Curve, CurveAxis, CurvesWanted};
use serde::Deserialize;

use crate::{
    elements::live,
    failure::PageFailure,
    layout::{Frame, Section},
    plot::figure,
    query::encoded,
    state::PageState,
};

/// The periods to choose from, in days; the first is shown at first.
const PERIODS: [u32; 4] = [14, 30, 90, CurvesWanted::MAX_DAYS];

#[derive(Debug, Default, Deserialize)]
pub(crate) struct CurvesQuery {
    agent: Option<AgentId>,
    days: Option<u32>,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
    Query(query): Query<CurvesQuery>,
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
        section aria-labelledby="by-day" {
            h2 #by-day { "By day" }
            (live("day-curves", &figures(&curves, CurveAxis::Days)))
        }
        section aria-labelledby="by-step" {
            h2 #by-step { "By training step" }
            (live("step-curves", &figures(&curves, CurveAxis::Steps)))
        }
    };
    Ok(frame.page("Curves", Section::Curves, &body))
}

fn figures(curves: &[Curve], axis: CurveAxis) -> Markup {
    html! { div.curves { @for curve in curves.iter().filter(|it| it.axis == axis) { (figure(curve)) } } }
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
