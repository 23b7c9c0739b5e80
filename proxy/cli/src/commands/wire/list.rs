//! The list of agents on this machine, and which model each uses.

use metaclaw_wiring::{PROFILES, profile};

use super::{
    openclaw,
    row::{Row, State},
};
use crate::{
    agent_target::surroundings,
    commands::context::Context,
    wires::{agent_name, wires},
};

/// Returns a row for each agent that was found or is wired.
pub(super) fn rows(context: &Context) -> anyhow::Result<Vec<Row>> {
    let (wires, surroundings) = (wires(&context.home), surroundings(&context.environment));
    let is_running = context.home.holder()?.is_some();
    let mut rows: Vec<Row> = openclaw::row(context, is_running)?.into_iter().collect();
    let found = PROFILES.iter().filter(|agent| surroundings.has(agent));
    let mut agents = wires.agents()?;
    agents.extend(found.map(|agent| agent.id.clone()));
    // Agents come in the order of the documentation. Those that are no longer supported come last.
    let place = |id: &String| PROFILES.iter().position(|agent| agent.id == *id);
    agents.sort_by_key(|id| (place(id).unwrap_or(PROFILES.len()), id.clone()));
    agents.dedup();
    for agent in agents {
        let is = State::of(wires.standing(&agent)?, is_running);
        let said = match profile(&agent) {
            Some(_) => is.said(&agent),
            None => format!("is no longer supported: `metaclaw unwire {agent}`"),
        };
        rows.push(Row {
            name: agent_name(&agent).to_owned(),
            said,
            is,
            agent,
        });
    }
    Ok(rows)
}
