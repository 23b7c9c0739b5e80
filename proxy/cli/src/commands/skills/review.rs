//! `metaclaw skills review`: what waits for the owner's look, and why.

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_control::operations::lessons::ListProposals;
use metaclaw_skills::{Proposal, ProposalState, Reason, Skill};

use super::super::{calling::call, context::Context};
use crate::out;

/// Shows what waits, of one agent or of all.
pub(super) async fn review(
    context: &Context,
    agent: Option<&AgentId>,
    json: bool,
) -> anyhow::Result<()> {
    let mut proposals = call(context, "lessons", ListProposals).await?;
    proposals.retain(|it| agent.is_none_or(|agent| *agent == it.source.agent));
    let (waiting, others): (Vec<_>, Vec<_>) = proposals.into_iter().partition(Proposal::is_waiting);
    if json {
        return Ok(out::json(&waiting)?);
    }
    if waiting.is_empty() {
        out::line("no skill waits for your review")?;
    }
    for proposal in &waiting {
        out::line(told(proposal))?;
    }
    let declined = others
        .iter()
        .filter(|it| matches!(it.state, ProposalState::Declined | ProposalState::AgedOut));
    for proposal in declined {
        out::line(declined_line(proposal))?;
    }
    Ok(())
}

/// Names a skill that a trial declined, or took out, with the figures.
fn declined_line(proposal: &Proposal) -> String {
    let Proposal { n, name, why, .. } = proposal;
    let is_figures =
        |why: &&Reason| matches!(why, Reason::Tried { .. } | Reason::TriedAgain { .. });
    let figures = why.iter().rfind(is_figures).map(ToString::to_string);
    format!(
        "{n}  {name}  not in force, because {}; let it stand all the same: metaclaw skills accept {n}",
        figures.unwrap_or_default()
    )
}

fn told(proposal: &Proposal) -> String {
    let Proposal {
        n, name, source, ..
    } = proposal;
    let mut lines = vec![format!(
        "{n}  {name}  for {}, {} ago, from {}",
        source.agent,
        out::span(now_ms().saturating_sub(source.at_ms)),
        origin(proposal)
    )];
    if let Ok(Skill {
        description,
        content,
        keywords,
        ..
    }) = Skill::parse(&proposal.text)
    {
        lines.push(format!("   {description}\n"));
        if !keywords.is_empty() {
            lines.push(format!("   keywords: {}\n", keywords.join(", ")));
        }
        lines.extend(content.lines().map(|line| format!("   | {line}")));
        lines.push(String::new());
    }
    let why = proposal.why.iter();
    lines.extend(why.map(|why| match why {
        Reason::Tried { .. } | Reason::TriedAgain { .. } => format!("   {why}"),
        why => format!("   it waits because {why}"),
    }));
    lines.push(format!(
        "   let it stand: metaclaw skills accept {n}; away with it: metaclaw skills reject {n}\n"
    ));
    lines.join("\n")
}

/// Where it came from: turns here, or another home.
fn origin(proposal: &Proposal) -> String {
    let source = &proposal.source;
    let Some(shared) = &proposal.shared else {
        let sessions: Vec<&str> = source.sessions.iter().map(AsRef::as_ref).collect();
        return format!(
            "{} turns that went wrong (sessions {})",
            source.turns.len(),
            sessions.join(", ")
        );
    };
    let turns: Vec<String> = shared.turns.iter().map(ToString::to_string).collect();
    match turns.as_slice() {
        [] => format!("{shared}, written by hand there"),
        turns => format!("{shared}, written from its turns {}", turns.join(", ")),
    }
}
