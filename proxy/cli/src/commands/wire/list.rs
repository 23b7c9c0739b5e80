//! The list of agents on this machine, and which model each uses.

use metaclaw_wiring::{PROFILES, WireStanding, profile};
use serde::Serialize;

use super::openclaw;
use crate::{
    agent_target::surroundings,
    commands::context::Context,
    wires::{agent_name, wires},
};

/// One row in the list of agents.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// The name on the command line.
    pub agent: String,
    pub name: String,
    pub is: State,
    /// The state in words.
    pub said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The agent uses its own model.
    NotWired,
    /// The agent uses MetaClaw from its next start on; MetaClaw does not run.
    Waits,
    Wired,
    /// The agent uses a proxy that does not run.
    Dead,
    /// Somebody else changed the agent's files after MetaClaw did.
    Changed,
}

/// Returns a row for each agent that was found or is wired.
pub(super) fn rows(context: &Context) -> anyhow::Result<Vec<Row>> {
    let (wires, surroundings) = (wires(&context.home), surroundings(&context.environment));
    let is_running = context.home.holder()?.is_some();
    let mut rows: Vec<Row> = openclaw::row(context, is_running)?.into_iter().collect();
    let found = PROFILES.iter().filter(|agent| surroundings.has(agent));
    let mut agents = wires.agents()?;
    agents.extend(found.map(|agent| agent.id.clone()));
    // In the order of the documentation; those that are no longer supported come last.
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

// === impl State ===

impl State {
    pub(super) fn of(standing: WireStanding, is_running: bool) -> Self {
        match (standing, is_running) {
            (WireStanding::Unknown, _) => Self::NotWired,
            (WireStanding::Waits, _) => Self::Waits,
            (WireStanding::Wired, true) => Self::Wired,
            (WireStanding::Changed, true) => Self::Changed,
            (WireStanding::Wired | WireStanding::Changed, false) => Self::Dead,
        }
    }

    pub(super) fn said(self, agent: &str) -> String {
        match self {
            Self::NotWired => format!("asks its own model: `metaclaw wire {agent}`"),
            Self::Waits => "asks MetaClaw from the next `metaclaw start` on".to_owned(),
            Self::Wired => "asks MetaClaw".to_owned(),
            Self::Dead => format!(
                "is pointed at a proxy that does not run: `metaclaw start`, or `metaclaw unwire {agent}`"
            ),
            Self::Changed => {
                format!("was changed since by others: `metaclaw wire {agent}` points it here again")
            }
        }
    }
}

// === impl Row ===

impl Row {
    pub(super) fn cells(self) -> Vec<String> {
        vec![self.agent, self.name, self.said]
    }
}
