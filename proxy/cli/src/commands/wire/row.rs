//! One row in the list of agents.

use metaclaw_wiring::WireStanding;
use serde::Serialize;

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

// === impl State ===

impl State {
    pub(super) fn from_standing(standing: WireStanding, is_running: bool) -> Self {
        match (standing, is_running) {
            (WireStanding::Unknown, _) => Self::NotWired,
            (WireStanding::Waits, _) => Self::Waits,
            (WireStanding::Wired, true) => Self::Wired,
            (WireStanding::Changed, true) => Self::Changed,
            (WireStanding::Wired | WireStanding::Changed, false) => Self::Dead,
        }
    }

    pub(super) fn text(self, agent: &str) -> String {
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
