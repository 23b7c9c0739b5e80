//! What may be asked of the log. Answers come from what is stored and flushed.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, ChainHash, SessionId, TurnId};

use super::TurnLog;
use crate::{
    error::LogError,
    query, read,
    step::{self, Step},
    store::Store,
    turn::{StateKind, Turn},
    view::{Funnel, SessionSummary, TurnFilter, TurnSummary},
};

/// Sessions that are looked through at once.
const SESSIONS: usize = 100;

// === impl TurnLog ===

#[expect(
    clippy::missing_errors_doc,
    reason = "of all: the store's, or `LogError::Damaged` where something does not read back"
)]
impl TurnLog {
    /// Steps that were begun and not ended: one an agent at most.
    pub async fn open_steps(&self) -> Result<Vec<Step>, LogError> {
        self.read(step::open).await
    }

    /// An agent's steps, by lineage, number and attempt.
    pub async fn steps(&self, agent: &AgentId) -> Result<Vec<Step>, LogError> {
        let agent = agent.clone();
        self.read(move |store| step::all(store, &agent)).await
    }

    /// The adapters that agents are served with.
    pub async fn serving(&self) -> Result<Vec<(AgentId, String)>, LogError> {
        self.read(query::serving).await
    }

    /// One turn, whole.
    pub async fn get(&self, id: TurnId) -> Result<Option<Turn>, LogError> {
        self.read(move |store| read::turn(store, id)).await
    }

    /// All turns of a session, in order, each with its whole request: for short sessions.
    pub async fn session_turns(
        &self,
        agent: &AgentId,
        session: &SessionId,
    ) -> Result<Vec<Turn>, LogError> {
        self.session_tail(agent, session, usize::MAX).await
    }

    /// The last `last` turns of a session, in order.
    pub async fn session_tail(
        &self,
        agent: &AgentId,
        session: &SessionId,
        last: usize,
    ) -> Result<Vec<Turn>, LogError> {
        let (agent, session) = (agent.clone(), session.clone());
        self.read(move |store| query::session_turns(store, &agent, &session, last))
            .await
    }

    /// One line about each turn that the filter names, the newest first.
    pub async fn list(&self, filter: TurnFilter) -> Result<Vec<TurnSummary>, LogError> {
        self.read(move |store| query::list(store, &filter)).await
    }

    /// An agent's turns in one state, oldest sessions first.
    pub async fn in_state(
        &self,
        agent: &AgentId,
        kind: StateKind,
    ) -> Result<Vec<TurnId>, LogError> {
        let agent = agent.clone();
        if kind != StateKind::Captured {
            return self
                .read(move |store| query::moved(store, &agent, kind))
                .await;
        }
        // Those that were never moved are found session by session, some at once: the thread has other
        // things to do.
        let theirs = agent.clone();
        let numbers = self.read(move |store| query::numbers(store, &theirs));
        let mut ids = Vec::new();
        for numbers in numbers.await?.chunks(SESSIONS) {
            let (agent, numbers) = (agent.clone(), numbers.to_vec());
            let captured = move |store: &Store| {
                let numbers = numbers.into_iter();
                let ids = numbers.map(|number| query::in_session(store, &agent, kind, number));
                ids.collect::<Result<Vec<_>, _>>()
            };
            ids.extend(self.read(captured).await?.concat());
        }
        Ok(ids)
    }

    /// Those of one session, by its number.
    pub async fn in_session(
        &self,
        agent: &AgentId,
        kind: StateKind,
        number: u64,
    ) -> Result<Vec<TurnId>, LogError> {
        let agent = agent.clone();
        self.read(move |store| query::in_session(store, &agent, kind, number))
            .await
    }

    /// When the last main turn of anyone ended, in Unix milliseconds; none if there was none lately.
    pub async fn last_main_ms(&self) -> Result<Option<u64>, LogError> {
        self.read(query::last_main_ms).await
    }

    /// Turns with this reply id: of each session the latest. Looks through the whole log.
    pub async fn by_reply(&self, reply_id: &str) -> Result<Vec<TurnId>, LogError> {
        let mut found: BTreeMap<u64, TurnId> = BTreeMap::new();
        let mut before = None;
        loop {
            let id = reply_id.to_owned();
            let replied = move |store: &Store| query::replied(store, &id, before);
            let (ids, next) = self.read(replied).await?;
            for id in ids {
                let latest = found.entry(id.session).or_insert(id);
                *latest = id.max(*latest);
            }
            before = next;
            if before.is_none() {
                return Ok(found.into_values().collect());
            }
        }
    }

    /// The chain after each of the last turns' replies, the newest first: what a new request of a
    /// client that names no session may go on from.
    pub async fn recent_chains(
        &self,
        limit: usize,
    ) -> Result<Vec<(AgentId, ChainHash, SessionId)>, LogError> {
        self.read(move |store| query::recent_chains(store, limit))
            .await
    }

    /// Sessions of one agent or of all, the newest first.
    pub async fn sessions(
        &self,
        agent: Option<&AgentId>,
        limit: usize,
    ) -> Result<Vec<SessionSummary>, LogError> {
        let agent = agent.cloned();
        self.read(move |store| query::sessions(store, agent.as_ref(), limit))
            .await
    }

    /// Every agent that has turns.
    pub async fn agents(&self) -> Result<Vec<AgentId>, LogError> {
        self.read(query::agents).await
    }

    /// How many turns of one agent, or of all, came how far.
    pub async fn funnel(&self, agent: Option<&AgentId>) -> Result<Funnel, LogError> {
        let agent = agent.cloned();
        self.read(move |store| query::funnel(store, agent.as_ref()))
            .await
    }

    /// Bytes that the log takes on disk. It never shrinks.
    pub async fn size_on_disk(&self) -> Result<u64, LogError> {
        self.read(|store| Ok(store.size_on_disk()?)).await
    }
}
