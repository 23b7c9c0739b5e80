//! `metaclaw wire` and `unwire`: point agents at the proxy, and restore their files.

use anyhow::{bail, ensure};
use clap::Args;
use metaclaw_wiring::{AgentProfile, PROFILES, Wires, profile};

use self::{
    goal::{Goal, with_hand},
    list::rows,
    row::Row,
};
use super::context::Context;
use crate::{
    agent_target::surroundings,
    out,
    wires::{agent_name, told, wires},
};

mod by_hand;
mod goal;
mod list;
mod openclaw;
mod row;

/// Arguments of `wire`.
#[derive(Debug, Args)]
pub(crate) struct WireArgs {
    /// The agent, for example codex. Without it, the agents of this machine are listed.
    agent: Option<String>,
    /// Show what would change in the agent's files, as a diff in which keys are masked.
    #[arg(long, requires = "agent")]
    dry_run: bool,
    /// Print what to set by hand, for an agent of the list or for any other.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["agent", "json"])]
    show: Option<String>,
    /// As JSON.
    #[arg(long, conflicts_with = "agent")]
    json: bool,
}

/// Arguments of `unwire`.
#[derive(Debug, Args)]
pub(crate) struct UnwireArgs {
    /// The agent, for example codex. Without it, all agents.
    agent: Option<String>,
}

// === impl WireArgs ===

impl WireArgs {
    /// Does it.
    pub(super) fn run(self, context: &Context) -> anyhow::Result<()> {
        if let Some(name) = &self.show {
            let target = Goal::of(context)?.target(name);
            out::line(by_hand::text(
                name,
                &surroundings(&context.environment),
                &target,
            ))?;
            return Ok(());
        }
        match &self.agent {
            None => self.list(context)?,
            Some(name) if name == openclaw::ID => openclaw::wire(context, self.dry_run)?,
            Some(name) => match profile(name) {
                Some(agent) => wire(context, agent, self.dry_run)?,
                None => refuse(context, name)?,
            },
        }
        Ok(())
    }

    fn list(&self, context: &Context) -> anyhow::Result<()> {
        let rows = rows(context)?;
        if self.json {
            return Ok(out::json(&rows)?);
        }
        if rows.is_empty() {
            out::line("no agent that MetaClaw knows was found on this machine")?;
        } else {
            let cells: Vec<Vec<String>> = rows.into_iter().map(Row::cells).collect();
            out::line(out::table(&["agent", "name", "state"], &cells))?;
        }
        let known = PROFILES.iter().map(|agent| agent.id.as_str());
        let known: Vec<&str> = [openclaw::ID].into_iter().chain(known).collect();
        out::line(format!("known: {}", known.join(", ")))?;
        Ok(out::line(
            "`metaclaw wire --show NAME` says what to set in any other",
        )?)
    }
}

fn wire(context: &Context, agent: &AgentProfile, dry_run: bool) -> anyhow::Result<()> {
    let goal = Goal::of(context)?;
    goal.check(&agent.id)?;
    let (wires, surroundings) = (wires(&context.home), surroundings(&context.environment));
    let target = goal.target(&agent.id);
    let name = &agent.name;
    if dry_run {
        if wires.is_wired_to(&agent.id, &target)? {
            return Ok(out::line(format!(
                "{name} asks MetaClaw already: nothing would change"
            ))?);
        }
        let plan = wires
            .plan(agent, &surroundings, &target)
            .map_err(with_hand)?;
        out::line(plan.diff().trim_end())?;
        return tell(&plan.notes);
    }
    context.home.create()?;
    let notes = if goal.running.is_some() {
        let notes = wires
            .wire(agent, &surroundings, &target)
            .map_err(with_hand)?;
        out::line(format!(
            "{name} asks MetaClaw at {}, {}",
            target.origin, agent.takes_effect
        ))?;
        notes
    } else {
        release(&wires, &agent.id)?;
        let notes = wires
            .accept(agent, &surroundings, &target)
            .map_err(with_hand)?;
        out::line(format!(
            "{name} asks MetaClaw from the next `metaclaw start` on"
        ))?;
        notes
    };
    tell(&notes)?;
    out::line(format!(
        "`metaclaw stop` puts its files back until the next start, `metaclaw unwire {}` for good",
        agent.id
    ))?;
    Ok(())
}

fn tell(notes: &[String]) -> anyhow::Result<()> {
    for note in notes {
        out::line(format!("note: {note}"))?;
    }
    Ok(())
}

/// Restores the agent's files, and prints what was done. Returns whether anything was printed.
fn release(wires: &Wires, agent: &str) -> anyhow::Result<bool> {
    let said = told(agent, &wires.unwire(agent).map_err(with_hand)?);
    let is_told = said.is_some();
    said.map(out::line).transpose()?;
    Ok(is_told)
}

/// Says that MetaClaw cannot wire this agent, and what to set by hand instead.
fn refuse(context: &Context, name: &str) -> anyhow::Result<()> {
    let target = Goal::of(context)?.target(name);
    let by_hand = by_hand::text(name, &surroundings(&context.environment), &target);
    bail!(
        "{name:?} is not supported (`metaclaw wire` lists the agents that are); by hand:\n{by_hand}"
    )
}

// === impl UnwireArgs ===

impl UnwireArgs {
    /// Does it.
    pub(super) fn run(self, context: &Context) -> anyhow::Result<()> {
        let wires = wires(&context.home);
        let mut any = false;
        let wired = wires.agents()?;
        let (openclaw, agents) = match self.agent.as_deref() {
            None => (true, wired),
            Some(openclaw::ID) => (true, Vec::new()),
            Some(name) => {
                ensure!(
                    profile(name).is_some() || wired.iter().any(|agent| agent == name),
                    "{name:?} is no agent that MetaClaw knows or has wired: `metaclaw wire` lists them"
                );
                (false, vec![name.to_owned()])
            }
        };
        if openclaw {
            any |= openclaw::unwire(context)?;
        }
        for agent in agents {
            let was_wired = wires.record(&agent)?.is_some();
            let is_told = release(&wires, &agent)?;
            wires.forget(&agent)?;
            if was_wired && !is_told {
                out::line(format!(
                    "{}: its files are as they were, and stay so",
                    agent_name(&agent)
                ))?;
            }
            any |= was_wired;
        }
        if !any {
            out::line("nothing is wired: all files are as they were")?;
        }
        Ok(())
    }
}
