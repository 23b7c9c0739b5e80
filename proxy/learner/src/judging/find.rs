//! Where in the log there is something to judge.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{LogError, StateKind};

use crate::shared::Shared;

/// Turns of a session that a look through the log reads: a turn and what followed it stand close together.
const LOOK_BACK: usize = 256;

/// By ids alone: what there is to do about each is seen when it is looked at.
#[derive(Debug, Default)]
pub(super) struct FoundTurns {
    /// Turns that may show what came of one without a verdict.
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

/// Of one. In most sessions there is nothing but the last turn, which nothing follows yet.
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
        let all = shared.persist(|| shared.log.in_session(agent, None, number));
        let mut ids = all.await?;
        ids.retain(|id| *id >= first);
        found.last.extend(ids.last());
        let followers = ids.split_off(ids.len().saturating_sub(LOOK_BACK));
        found.followers.extend(followers);
    }
    Ok(found)
}
