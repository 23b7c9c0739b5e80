//! What may be asked of the log. Answers come from what is stored and flushed.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, ChainHash, SessionId, TurnId};

use super::TurnLog;
use crate::{
    error::LogError,
    query,
    step::{self, Step},
    turn::{StateKind, Turn},
    txn::Reader,
    view::{Funnel, SessionSummary, TurnFilter, TurnSummary},
};

// === impl TurnLog ===

impl TurnLog {
    /// Steps that were begun and not ended: one an agent at most.
    ///
    /// # Errors
    /// The store's.
    pub async fn open_steps(&self) -> Result<Vec<Step>, LogError> {
        self.read(step::open).await
    }

    /// An agent's steps, by lineage, number and attempt.
    ///
    /// # Errors
    /// The store's.
    pub async fn steps(&self, agent: &AgentId) -> Result<Vec<Step>, LogError> {
        let agent = agent.clone();
        self.read(move |reader| step::all(reader, &agent)).await
    }

    /// The adapters that agents are served with.
    ///
    /// # Errors
    /// The store's.
    pub async fn serving(&self) -> Result<Vec<(AgentId, String)>, LogError> {
        self.read(query::serving).await
    }

    /// One turn, whole.
    ///
    /// # Errors
    /// [`LogError::Damaged`], or the store's.
    pub async fn get(&self, id: TurnId) -> Result<Option<Turn>, LogError> {
        self.read(move |reader| query::turn(reader, id)).await
    }

    /// All turns of a session, in order, each with its whole request: for short sessions.
    ///
    /// # Errors
    /// [`LogError::Damaged`], or the store's.
    pub async fn session_turns(
        &self,
        agent: &AgentId,
        session: &SessionId,
    ) -> Result<Vec<Turn>, LogError> {
        self.session_tail(agent, session, usize::MAX).await
    }

    /// The last `last` turns of a session, in order.
    ///
    /// # Errors
    /// [`LogError::Damaged`], or the store's.
    pub async fn session_tail(
        &self,
        agent: &AgentId,
        session: &SessionId,
        last: usize,
    ) -> Result<Vec<Turn>, LogError> {
        let (agent, session) = (agent.clone(), session.clone());
        self.read(move |reader| query::session_turns(reader, &agent, &session, last))
            .await
    }

    /// One line about each turn that the filter names, the newest first.
    ///
    /// # Errors
    /// [`LogError::Damaged`], or the store's.
    pub async fn list(&self, filter: TurnFilter) -> Result<Vec<TurnSummary>, LogError> {
        self.read(move |reader| query::list(reader, &filter)).await
    }

    /// An agent's turns in one state, oldest sessions first.
    ///
    /// # Errors
    /// The store's.
    pub async fn in_state(
        &self,
        agent: &AgentId,
        kind: StateKind,
    ) -> Result<Vec<TurnId>, LogError> {
        let agent = agent.clone();
        self.read(move |reader| query::in_state(reader, &agent, kind))
            .await
    }

    /// Those of one session, by its number.
    ///
    /// # Errors
    /// The store's.
    pub async fn in_session(
        &self,
        agent: &AgentId,
        kind: StateKind,
        number: u64,
    ) -> Result<Vec<TurnId>, LogError> {
        let agent = agent.clone();
        self.read(move |reader| query::in_session(reader, &agent, kind, number))
            .await
    }

    /// When the last main turn of anyone ended, in Unix milliseconds; none if there was none lately.
    ///
    /// # Errors
    /// The store's.
    pub async fn last_main_ms(&self) -> Result<Option<u64>, LogError> {
        self.read(query::last_main_ms).await
    }

    /// Turns with this reply id: of each session the latest. Looks through the whole log.
    ///
    /// # Errors
    /// The store's.
    pub async fn by_reply(&self, reply_id: &str) -> Result<Vec<TurnId>, LogError> {
        let id = reply_id.to_owned();
        let named = self.read(move |reader| query::named(reader, &id)).await?;
        let mut found: BTreeMap<u64, TurnId> = BTreeMap::new();
        let mut add = |id: TurnId| {
            let latest = found.entry(id.session).or_insert(id);
            *latest = id.max(*latest);
        };
        named.into_iter().for_each(&mut add);
        let mut before = None;
        loop {
            let id = reply_id.to_owned();
            let replied = move |reader: &Reader| query::replied(reader, &id, before);
            let (ids, next) = self.read(replied).await?;
            ids.into_iter().for_each(&mut add);
            before = next;
            if before.is_none() {
                return Ok(found.into_values().collect());
            }
        }
    }

    /// The chain after each of the last turns' replies, the newest first: what a new request of a
    /// client that names no session may go on from.
    ///
    /// # Errors
    /// The store's.
    pub async fn recent_chains(
        &self,
        limit: usize,
    ) -> Result<Vec<(AgentId, ChainHash, SessionId)>, LogError> {
        self.read(move |reader| query::recent_chains(reader, limit))
            .await
    }

    /// Sessions of one agent or of all, the newest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn sessions(
        &self,
        agent: Option<&AgentId>,
        limit: usize,
    ) -> Result<Vec<SessionSummary>, LogError> {
        let agent = agent.cloned();
        self.read(move |reader| query::sessions(reader, agent.as_ref(), limit))
            .await
    }

    /// Every agent that has turns.
    ///
    /// # Errors
    /// The store's.
    pub async fn agents(&self) -> Result<Vec<AgentId>, LogError> {
        self.read(query::agents).await
    }

    /// How many turns of one agent, or of all, came how far.
    ///
    /// # Errors
    /// The store's.
    pub async fn funnel(&self, agent: Option<&AgentId>) -> Result<Funnel, LogError> {
        let agent = agent.cloned();
        self.read(move |reader| query::funnel(reader, agent.as_ref()))
            .await
    }

    /// Bytes that the log takes on disk. It never shrinks.
    ///
    /// # Errors
    /// The store's.
    pub async fn size_on_disk(&self) -> Result<u64, LogError> {
        self.read(|reader| Ok(reader.store.size_on_disk()?)).await
    }
}
