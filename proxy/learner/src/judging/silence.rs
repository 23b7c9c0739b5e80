//! Finds sessions whose last turn waits for a verdict, and notices when a session has been silent for long enough.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{LogError, StateKind};
use tokio::time::Instant;

use crate::shared::Shared;

/// The number of a session's turns that one scan of the log reads, because a turn and its follower are close together.
const LOOK_BACK: usize = 256;

/// Only ids: what each turn needs is decided when it is looked at.
#[derive(Debug, Default)]
pub(super) struct FoundTurns {
    pub(super) followers: Vec<TurnId>,
    pub(super) last: Vec<TurnId>,
}

pub(super) async fn of_all(shared: &Shared) -> Result<FoundTurns, LogError> {
    let mut all = FoundTurns::default();
    for agent in shared.agents().await? {
        let found = of_agent(shared, &agent).await?;
        all.followers.extend(found.followers);
        all.last.extend(found.last);
    }
    Ok(all)
}

/// Searches the turns of one agent. In most sessions, only the last turn is found, which nothing follows yet.
pub(super) async fn of_agent(shared: &Shared, agent: &AgentId) -> Result<FoundTurns, LogError> {
    let captured = shared.in_state(agent, StateKind::Captured).await?;
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

/// The largest number of sessions in this list. Any other session is left to the next scan of the log.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(super) struct SessionSilence {
    idle: Option<Duration>,
    due: BTreeSet<(Instant, TurnId)>,
    of_session: HashMap<u64, (Instant, TurnId)>,
}

// === impl SessionSilence ===

impl SessionSilence {
    pub(super) fn new(idle: Option<Duration>) -> Self {
        Self {
            idle,
            due: BTreeSet::new(),
            of_session: HashMap::new(),
        }
    }

    pub(super) fn spoke(&mut self, id: TurnId) {
        if let Some(idle) = self.idle {
            self.put(id, idle);
        }
    }

    pub(super) fn goes_on(&mut self, id: TurnId, rest: Duration) {
        if !self.of_session.contains_key(&id.session) {
            self.put(id, rest);
        }
    }

    pub(super) fn again(&mut self, id: TurnId) {
        if self.idle.is_some() {
            self.put(id, Duration::ZERO);
        }
    }

    /// Returns a turn of the next session to look at; waits until there is one.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub(super) async fn ended(&mut self) -> TurnId {
        let Some((at, id)) = self.due.first().copied() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(at).await;
        self.due.remove(&(at, id));
        self.of_session.remove(&id.session);
        id
    }

    fn put(&mut self, id: TurnId, wait: Duration) {
        if let Some(before) = self.of_session.remove(&id.session) {
            self.due.remove(&before);
        }
        if self.of_session.len() < MOST {
            let entry = (Instant::now() + wait, id);
            self.of_session.insert(id.session, entry);
            self.due.insert(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(1_800);

    fn id(session: u64, seq: u32) -> TurnId {
        TurnId { session, seq }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_has_ended_when_nobody_spoke_for_the_whole_time() {
        let mut silence = SessionSilence::new(Some(IDLE));
        let began = Instant::now();
        silence.spoke(id(1, 0));
        tokio::time::advance(IDLE / 2).await;
        silence.spoke(id(2, 0));
        silence.spoke(id(1, 1));
        silence.goes_on(id(1, 0), Duration::ZERO);
        assert_eq!(silence.ended().await, id(1, 1));
        assert_eq!(silence.ended().await, id(2, 0));
        assert!(began.elapsed() >= IDLE * 3 / 2);
        silence.again(id(3, 0));
        assert_eq!(silence.ended().await, id(3, 0));
        assert!(silence.due.is_empty() && silence.of_session.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_wants_to_know_nothing_is_waited_for() {
        let mut silence = SessionSilence::new(None);
        silence.spoke(id(1, 0));
        silence.again(id(1, 0));
        assert!(silence.due.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_is_bounded() {
        let mut silence = SessionSilence::new(Some(IDLE));
        for session in 0..MOST as u64 + 10 {
            silence.spoke(id(session, 0));
        }
        silence.spoke(id(0, 1));
        assert_eq!((silence.due.len(), silence.of_session.len()), (MOST, MOST));
    }
}
