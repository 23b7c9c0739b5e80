//! What may be asked of the log. Answers come from what is stored and flushed, never from a transaction on its way.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_chat::{AgentId, ChainHash, SessionId, TurnId};

use crate::{
    error::LogError,
    journal, keys,
    log::TurnLog,
    read::{self, turn_ids},
    record::Record,
    session::SessionRecord,
    store::{Store, Table},
    turn::{StateKind, Turn, TurnKind},
    values::{self, TxnError},
    view::Funnel,
};

/// Side turns in a row behind which a main one is looked for.
const ERRANDS: usize = 200;
/// Sessions that are looked through at once: the log's thread has other things to do.
const SESSIONS: usize = 100;

// === impl TurnLog ===

#[expect(
    clippy::missing_errors_doc,
    reason = "of all: the store's, or `LogError::Damaged` where something does not read back"
)]
impl TurnLog {
    /// One turn, whole.
    pub async fn get(&self, id: TurnId) -> Result<Option<Turn>, LogError> {
        self.read(move |store| read::turn(store, id)).await
    }

    /// An agent's turns in one state, oldest sessions first.
    pub async fn in_state(
        &self,
        agent: &AgentId,
        kind: StateKind,
    ) -> Result<Vec<TurnId>, LogError> {
        if kind != StateKind::Captured {
            let prefix = keys::index_prefix(kind, agent);
            return self.read(move |store| moved(store, &prefix)).await;
        }
        // Those that were never moved are found session by session.
        let names = keys::under(&keys::agent(agent));
        let numbers = |store: &Store| {
            let pairs = store.range(Table::Names, names);
            let numbers = pairs.map(|pair| Ok(keys::read_u64(&pair?.1).unwrap_or_default()));
            numbers.collect::<Result<BTreeSet<_>, TxnError>>()
        };
        let numbers = Vec::from_iter(self.read(numbers).await?);
        let mut ids = Vec::new();
        for numbers in numbers.chunks(SESSIONS) {
            let (agent, numbers) = (agent.clone(), numbers.to_vec());
            let captured = move |store: &Store| {
                let numbers = numbers.into_iter();
                let ids = numbers.map(|number| in_session(store, &agent, kind, number));
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
        self.read(move |store| in_session(store, &agent, kind, number))
            .await
    }

    /// When the last main turn of anyone ended, in Unix milliseconds; none if there was none lately.
    pub async fn last_main_ms(&self) -> Result<Option<u64>, LogError> {
        let last = |store: &Store| {
            for entry in journal::newest_first(store).take(ERRANDS) {
                let turn = Record::get(store, entry?.0)?;
                if let Some(turn) = turn.filter(|turn| turn.meta.kind == TurnKind::Main) {
                    return Ok(Some(turn.meta.ended_ms));
                }
            }
            Ok(None)
        };
        self.read(last).await
    }

    /// Turns with this reply id: of each session the latest. Looks through the whole log.
    pub async fn by_reply(&self, reply_id: &str) -> Result<Vec<TurnId>, LogError> {
        let reply_id = reply_id.to_owned();
        let replied = move |store: &Store| {
            let mark = journal::mark(Some(&reply_id));
            let mut found: BTreeMap<u64, TurnId> = BTreeMap::new();
            for entry in journal::newest_first(store) {
                let (id, it) = entry?;
                // The mark is half a hash, and another try may have taken the turn's place: the record decides.
                if it == mark
                    && let Some(turn) = Record::get(store, id)?
                    && turn.meta.reply_id.as_ref() == Some(&reply_id)
                {
                    let latest = found.entry(id.session).or_insert(id);
                    *latest = id.max(*latest);
                }
            }
            Ok(found.into_values().collect())
        };
        self.read(replied).await
    }

    /// The chain after each of the last turns' replies, the newest first: what a new request of a
    /// client that names no session may go on from.
    pub async fn recent_chains(
        &self,
        limit: usize,
    ) -> Result<Vec<(AgentId, ChainHash, SessionId)>, LogError> {
        let chains = move |store: &Store| {
            let (mut seen, mut chains) = (BTreeSet::new(), Vec::new());
            for entry in journal::newest_first(store) {
                let (id, _) = entry?;
                if chains.len() >= limit {
                    break;
                }
                if !seen.insert(id) {
                    continue;
                }
                let after = Record::get(store, id)?.and_then(|turn| turn.after());
                let session = SessionRecord::get(store, id.session)?;
                let chain = after.zip(session);
                chains.extend(chain.map(|(after, it)| (it.agent, after, it.session)));
            }
            Ok(chains)
        };
        self.read(chains).await
    }

    /// All sessions with their numbers, in the order in which they began.
    pub(crate) async fn sessions(&self) -> Result<Vec<(u64, SessionRecord)>, LogError> {
        let sessions = |store: &Store| {
            let all = values::all_json(store, Table::Sessions, &[])?.into_iter();
            let sessions = all.map(|(key, it)| (keys::read_u64(&key).unwrap_or_default(), it));
            Ok(sessions.collect())
        };
        self.read(sessions).await
    }

    /// Every agent that has turns, or had some.
    pub async fn agents(&self) -> Result<Vec<AgentId>, LogError> {
        let counts = self.read(counts).await?;
        Ok(counts.into_iter().map(|(agent, _)| agent).collect())
    }

    /// How many turns of one agent, or of all, came how far.
    pub async fn funnel(&self, agent: Option<&AgentId>) -> Result<Funnel, LogError> {
        let mut sum = Funnel::default();
        for (name, counts) in self.read(counts).await? {
            if agent.is_none_or(|agent| *agent == name) {
                sum.add(&counts);
            }
        }
        Ok(sum)
    }
}

/// The counts of every agent.
fn counts(store: &Store) -> Result<Vec<(AgentId, Funnel)>, TxnError> {
    let counts = values::all_json(store, Table::Counts, &[])?.into_iter();
    let counts = counts.filter_map(|(key, funnel)| Some((keys::read_agent(&key)?, funnel)));
    Ok(counts.collect())
}

/// The turns of one session in one state.
pub(crate) fn in_session(
    store: &Store,
    agent: &AgentId,
    kind: StateKind,
    number: u64,
) -> Result<Vec<TurnId>, TxnError> {
    if kind != StateKind::Captured {
        let prefix = keys::index_prefix(kind, agent);
        return moved(store, &[&prefix[..], &keys::session(number)].concat());
    }
    let session = SessionRecord::get(store, number)?;
    if session.is_none_or(|session| session.agent != *agent) {
        return Ok(Vec::new());
    }
    let mut moved = BTreeSet::new();
    for pair in store.range(Table::States, keys::under(&keys::session(number))) {
        moved.extend(keys::read_turn(&pair?.0));
    }
    let mut ids = turn_ids(store, number)?;
    ids.retain(|id| !moved.contains(id));
    Ok(ids)
}

/// The turns under a prefix of the index by state, in the order of their ids.
pub(crate) fn moved(store: &Store, prefix: &[u8]) -> Result<Vec<TurnId>, TxnError> {
    let mut ids = Vec::new();
    for pair in store.range(Table::Index, keys::under(prefix)) {
        ids.extend(keys::read_turn(&pair?.0));
    }
    Ok(ids)
}
