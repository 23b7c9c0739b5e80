//! One skill: its text, what it did, and where it comes from.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_control::operations::lessons::{ListProposals, ListSkills};
use metaclaw_control::replies::{Proposal, ProposalState};
use serde::Deserialize;

use super::lessons::evidence;
use crate::{
    elements::{ActionForm, ButtonKind, effect, live},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
    view_query::ViewQuery,
};

#[derive(Debug, Deserialize)]
pub(crate) struct SkillQuery {
    agent: AgentId,
    name: String,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
    ViewQuery(query): ViewQuery<SkillQuery>,
) -> Result<Markup, PageFailure> {
    let SkillQuery { agent, name } = query;
    let skills = state.ask(ListSkills(Some(agent.clone()))).await?;
    let skill = skills.into_iter().find(|it| it.name == name);
    let skill = skill.ok_or_else(|| {
        PageFailure::not_found(format!("Agent {agent} has no skill {name} any more."))
    })?;
    let proposals = state.ask(ListProposals).await?;
    let written = proposals.iter().rev().find(|it| {
        it.name.as_str() == name && it.source.agent == agent && it.state == ProposalState::Accepted
    });
    let body = html! {
        h1 { (skill.name) }
        p.lead { (skill.description) }
        p.facts { "A skill of agent " (agent) ", version " code { (skill.version) } }
        (live("effect", &effect(&skill.counts)))
        (origin(written, &agent))
        h2 { "Text" }
        pre.added { (skill.content) }
    };
    Ok(frame.page(&skill.name, Section::Lessons, &body))
}

/// Where it comes from. The view of a skill that was taken back does not exist any more, so the form leads elsewhere.
fn origin(written: Option<&Proposal>, agent: &AgentId) -> Markup {
    let Some(proposal) = written else {
        return html! { p.soft { "This skill came with MetaClaw, or a person wrote it. To change it, edit its SKILL.md in the folder of skills." } };
    };
    html! {
        (evidence(proposal, now_ms()))
        (ActionForm {
            action: "skill",
            fields: &[("what", "revert"), ("agent", agent.as_str()), ("name", proposal.name.as_str())],
            label: "Undo", about: proposal.name.as_str(), back: "/ui/lessons", kind: ButtonKind::Plain,
        })
    }
}
