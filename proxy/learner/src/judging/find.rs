//! Finds what there is to judge in the log.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{LogError, StateKind};

use crate::shared::Shared;

/// The number of a session's turns that one scan of the log reads, because a turn and its follower are close together.
const LOOK_BACK: usize = 256;

/// Only ids: what each turn needs is decided when it is looked at.
#[derive(Debug, Default)]
pub(super) struct FoundTurns {
    /// Turns that may show the reaction to a turn without a verdict.
    pub(super) followers: Vec<TurnId>,
    /// The last turns of their sessions.
    pub(super) last: Vec<TurnId>,
}

pub(super) async fn of_all(shared: &Shared) -> Result<FoundTurns, LogError> {
    let mut all = FoundTurns::default();
    for agent in shared.persist(|| shared.log.agents()).await? {
        let found = of_agent(shared, &agent).await?;
        all.followers.extend(found.followers);
        all.last.extend(found.last);
    }
    Ok(all)
}

/// Searches the turns of one agent. In most sessions, only the last turn is found, which nothing follows yet.
pub(super) async fn of_agent(shared: &Shared, agent: &AgentId) -> Result<FoundTurns, LogError> {
    let captured = shared
        .persist(|| shared.log.in_state(agent, StateKind::Captured))
        .await?;
    let mut first = BTreeMap::<u64, TurnId>::new();
    for id in captured {
        first.entry(id.session).or_insert(id);
    }
    let mut found = FoundTurns::default();
    for (number, first) in first {
        let last = shared.persist(|| shared.log.last_turns(number, LOOK_BACK));
        let mut ids = last.await?;
        ids.retain(|id| *id >= first);
        found.last.extend(ids.first());
        found.followers.extend(ids.into_iter().rev());
    }
    Ok(found)
}
