//! The list of agents on this machine, and which model each uses.

use metaclaw_wiring::{PROFILES, WireStanding};

use super::{
    openclaw,
    row::{Row, State},
};
use crate::{agent_target::surroundings, commands::context::Context, wires::wires};

/// Returns a row for each agent that was found or is wired.
pub(super) fn rows(context: &Context) -> anyhow::Result<Vec<Row>> {
    let (wires, surroundings) = (wires(&context.home), surroundings(&context.environment));
    let is_running = context.home.holder()?.is_some();
    let mut rows: Vec<Row> = openclaw::row(context, is_running)?.into_iter().collect();
    for agent in PROFILES {
        let standing = wires.standing(agent)?;
        if standing == WireStanding::Unknown && !surroundings.has(agent) {
            continue;
        }
        let is = State::of(standing, is_running);
        let (agent, name) = (agent.id(), agent.name());
        let said = is.said(agent);
        rows.push(Row {
            agent,
            name,
            is,
            said,
        });
    }
    Ok(rows)
}
