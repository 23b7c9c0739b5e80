//! Queries of the log. Answers are from stored and flushed data, never from a running transaction.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use metaclaw_chat::{AgentId, ChainHash, Message, SessionId, TurnId};

use crate::{
    counts::Funnel,
    journal, keys,
    lines::LineReader,
    log::{LogFuture, TurnLog},
    read::{self, turn_ids},
    record::{Record, Setup},
    session::SessionRecord,
    store::{Store, StoreSource as _, Table},
    texts,
    turn::{StateKind, Turn, TurnKind, TurnMeta},
    values::{self, TxnResult},
};

/// A reply, and the upstream that made it.
#[derive(Debug, Clone, PartialEq)]
pub struct Replied {
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// Whether a part of its text was masked.
    pub masked: bool,
    /// The reply, as far as it arrived.
    pub reply: Message,
}

/// Number of consecutive side turns that are skipped in the search for a main turn.
const ERRANDS: usize = 200;

// === impl TurnLog ===

impl TurnLog {
    pub fn get(&self, id: TurnId) -> LogFuture<'_, Option<Turn>> {
        self.read(move |store| read::turn(store, id))
    }

    /// Returns what is known of a turn besides its texts, which are not read, and the turn that it continues.
    pub fn meta(&self, id: TurnId) -> LogFuture<'_, Option<(TurnMeta, Option<TurnId>)>> {
        self.read(move |store| {
            Ok(Record::get(store, id)?.map(|record| {
                let parent = record.parent.map(|seq| keys::id(id.session, seq));
                (record.meta, parent)
            }))
        })
    }

    /// Returns whether a turn exists.
    pub fn has(&self, id: TurnId) -> LogFuture<'_, bool> {
        self.read(move |store| Ok(store.get(Table::Turns, &keys::turn(id))?.is_some()))
    }

    /// Returns an agent's turns in one state, oldest sessions first.
    pub fn in_state<'a>(
        &'a self,
        agent: &'a AgentId,
        kind: StateKind,
    ) -> LogFuture<'a, Vec<TurnId>> {
        Box::pin(async move {
            if kind != StateKind::Captured {
                let prefix = keys::index_prefix(kind, agent);
                return self.read(move |store| moved(store, &prefix)).await;
            }
            // Captured turns have no index, so they are searched session by session, because the log's thread has other
            // work.
            let names = keys::under(&keys::agent(agent));
            let numbers = |store: &Store| {
                let pairs = store.range(Table::Names, names);
                let numbers = pairs.map(|pair| Ok(keys::read_u64(&pair?.1).unwrap_or_default()));
                numbers.collect::<Result<BTreeSet<_>, _>>()
            };
            let mut ids = Vec::new();
            for number in self.read(numbers).await? {
                let agent = agent.clone();
                let captured = move |store: &Store| in_session(store, &agent, Some(kind), number);
                ids.extend(self.read(captured).await?);
            }
            Ok(ids)
        })
    }

    /// Returns the first `most` turns of a session after one. The others are not searched, because a session may be long.
    pub fn turns_after(&self, id: TurnId, most: usize) -> LogFuture<'_, Vec<TurnId>> {
        self.read(move |store| {
            let next = keys::id(id.session, id.seq.saturating_add(1));
            let later = keys::between(&keys::turn(next), &keys::turn(end_of(id.session)));
            read::ids_in(store, later).take(most).collect()
        })
    }

    /// Returns the last `most` turns of a session before one, the latest first.
    pub fn turns_before(&self, id: TurnId, most: usize) -> LogFuture<'_, Vec<TurnId>> {
        self.read(move |store| last_before(store, id).take(most).collect())
    }

    /// Returns the last `most` turns of a session, the latest first.
    pub fn last_turns(&self, number: u64, most: usize) -> LogFuture<'_, Vec<TurnId>> {
        self.turns_before(end_of(number), most)
    }

    /// Returns when the last main turn of any agent ended, in Unix milliseconds, or `None` if there was none recently.
    pub fn last_main_ms(&self) -> LogFuture<'_, Option<u64>> {
        let last = |store: &Store| {
            for id in journal::newest_first(store).take(ERRANDS) {
                let turn = values::readable(Record::get(store, id?))?.flatten();
                if let Some(turn) = turn.filter(|turn| turn.meta.kind == TurnKind::Main) {
                    return Ok(Some(turn.meta.ended_ms));
                }
            }
            Ok(None)
        };
        self.read(last)
    }

    /// Returns the turns with this reply id: the latest of each session. It searches the whole log in pieces, so that
    /// new turns do not wait for it.
    pub fn by_reply<'a>(&'a self, reply_id: &'a str) -> LogFuture<'a, Vec<TurnId>> {
        Box::pin(async move {
            let mark = journal::mark(Some(reply_id));
            let mut found: BTreeMap<u64, TurnId> = BTreeMap::new();
            let mut before = None;
            loop {
                let marked =
                    self.read(move |store| Ok(journal::marked(store, mark, before.as_ref())?));
                let (ids, next) = marked.await?;
                for id in ids {
                    if found.get(&id.session).is_some_and(|latest| *latest >= id) {
                        continue;
                    }
                    // The mark is half a hash, and another try may have replaced the turn, so the record decides.
                    let record = move |store: &Store| values::readable(Record::get(store, id));
                    let turn = self.read(record).await?.flatten();
                    if turn.is_some_and(|turn| turn.meta.reply_id.as_deref() == Some(reply_id)) {
                        found.insert(id.session, id);
                    }
                }
                if next.is_none() {
                    break;
                }
                before = next;
            }
            Ok(found.into_values().collect())
        })
    }

    /// Returns the replies of a session, the oldest first, without the requests. Unreadable ones are left out. Does not
    /// wait if the log has no such session.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn replies(&self, agent: &AgentId, session: &SessionId) -> LogFuture<'_, Vec<Replied>> {
        if !self.inner.state.names.may_have(&keys::name(agent, session)) {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let (agent, session) = (agent.clone(), session.clone());
        self.read(move |store| {
            let mut replies = Vec::new();
            let Some(number) = SessionRecord::number(store, &agent, &session)? else {
                return Ok(replies);
            };
            for id in (0..).map(|seq| keys::id(number, seq)) {
                match values::readable(Record::get(store, id))? {
                    None => {}
                    Some(None) => break,
                    Some(Some(record)) => {
                        let reply = values::readable(replied(store, id, &record))?;
                        replies.extend(reply.flatten());
                    }
                }
            }
            Ok(replies)
        })
    }

    /// Returns the ids of all turns, in the order in which they came.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn by_arrival(&self) -> LogFuture<'_, Vec<TurnId>> {
        self.read(|store| {
            let mut ids = journal::newest_first(store).collect::<Result<Vec<_>, _>>()?;
            ids.reverse();
            Ok(ids)
        })
    }

    /// Returns the chain hash after each of the latest replies, the newest first. A new request of a client without
    /// session names may continue one of them.
    pub fn recent_chains(
        &self,
        limit: usize,
    ) -> LogFuture<'_, Vec<(AgentId, ChainHash, SessionId)>> {
        let chains = move |store: &Store| {
            let mut chains = Vec::new();
            for id in journal::newest_first(store) {
                if chains.len() >= limit {
                    break;
                }
                let id = id?;
                let turn = values::readable(Record::get(store, id))?.flatten();
                let after = turn.and_then(|turn| turn.after());
                let session = values::readable(SessionRecord::get(store, id.session))?.flatten();
                let chain = after.zip(session);
                chains.extend(chain.map(|(after, of)| (of.agent, after, of.session)));
            }
            Ok(chains)
        };
        self.read(chains)
    }

    /// Returns all sessions with their numbers, in the order in which they began.
    pub(crate) fn sessions(&self) -> LogFuture<'_, Vec<(u64, SessionRecord)>> {
        let sessions = |store: &Store| {
            let pairs = values::readable_json(store, Table::Sessions, &[])?.into_iter();
            let sessions = pairs.map(|(key, of)| (keys::read_u64(&key).unwrap_or_default(), of));
            Ok(sessions.collect())
        };
        self.read(sessions)
    }

    /// Returns every agent that has or had turns.
    pub fn agents(&self) -> LogFuture<'_, Vec<AgentId>> {
        Box::pin(async move {
            let counts = self.read(counts).await?;
            Ok(counts.into_iter().map(|(agent, _)| agent).collect())
        })
    }

    /// Returns every agent with how many of its turns reached each stage; first those with the most turns.
    pub fn funnels(&self) -> LogFuture<'_, Vec<(AgentId, Funnel)>> {
        Box::pin(async move {
            let mut counts = self.read(counts).await?;
            counts.sort_by_key(|(_, funnel)| Reverse(funnel.turns));
            Ok(counts)
        })
    }

    /// Returns how many turns of one agent, or of all, reached each stage.
    pub fn funnel<'a>(&'a self, agent: Option<&'a AgentId>) -> LogFuture<'a, Funnel> {
        Box::pin(async move {
            let mut sum = Funnel::default();
            for (name, counts) in self.read(counts).await? {
                if agent.is_none_or(|agent| *agent == name) {
                    sum.add(&counts);
                }
            }
            Ok(sum)
        })
    }
}

pub(crate) fn counts(store: &Store) -> TxnResult<Vec<(AgentId, Funnel)>> {
    let pairs = values::readable_json(store, Table::Counts, &[])?.into_iter();
    let counts = pairs.filter_map(|(key, funnel)| Some((keys::read_agent(&key)?, funnel)));
    Ok(counts.collect())
}

fn replied(store: &Store, id: TurnId, record: &Record) -> TxnResult<Option<Replied>> {
    let (_, served): Setup = texts::value(store, &record.setup)?;
    let reply = read::reply(&mut LineReader::new(store), id, record)?;
    Ok(reply.map(|reply| Replied {
        upstream: served.upstream,
        masked: record.meta.masked,
        reply,
    }))
}

fn end_of(session: u64) -> TurnId {
    keys::id(session, u32::MAX)
}

pub(crate) fn last_turn(store: &Store, session: u64) -> TxnResult<Option<TurnId>> {
    last_before(store, end_of(session)).next().transpose()
}

fn last_before(store: &Store, id: TurnId) -> impl Iterator<Item = TxnResult<TurnId>> + use<> {
    let earlier = keys::between(&keys::session(id.session), &keys::turn(id));
    read::ids_in(store, earlier).rev()
}

pub(crate) fn in_session(
    store: &Store,
    agent: &AgentId,
    kind: Option<StateKind>,
    number: u64,
) -> TxnResult<Vec<TurnId>> {
    if let Some(kind) = kind.filter(|kind| *kind != StateKind::Captured) {
        let prefix = keys::index_prefix(kind, agent);
        return moved(store, &[&prefix[..], &keys::session(number)].concat());
    }
    let session = SessionRecord::get(store, number)?;
    if session.is_none_or(|session| session.agent != *agent) {
        return Ok(Vec::new());
    }
    let mut ids = turn_ids(store, number)?;
    if kind.is_some() {
        let mut moved = BTreeSet::new();
        for pair in store.range(Table::States, keys::under(&keys::session(number))) {
            moved.extend(keys::read_turn(&pair?.0));
        }
        ids.retain(|id| !moved.contains(id));
    }
    Ok(ids)
}

pub(crate) fn moved(store: &Store, prefix: &[u8]) -> TxnResult<Vec<TurnId>> {
    let mut ids = Vec::new();
    for pair in store.range(Table::Index, keys::under(prefix)) {
        ids.extend(keys::read_turn(&pair?.0));
    }
    Ok(ids)
}

/// A reader of new turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LogReader {
    Wishes,
    Facts,
}

// === impl TurnLog ===

impl TurnLog {
    /// Returns the last transaction that a reader has read. If none is noted, that is now the last one of the log, because
    /// old turns are not read again.
    pub fn resume(&self, reader: LogReader) -> LogFuture<'_, u64> {
        Box::pin(async move {
            let noted = self.read(move |store| {
                let last = journal::last_number(store)?;
                let noted = store.get(Table::Names, &reader_key(reader))?;
                // A log that lost its last transactions gives their numbers away again.
                let from = noted.and_then(|noted| keys::read_u64(&noted));
                Ok(from.map_or(last, |from| from.min(last)))
            });
            let from = noted.await?;
            self.note_read(reader, Some(from)).await?;
            Ok(from)
        })
    }

    /// Returns the first transaction after one that added turns, with the turns in the order in which they came. Restored
    /// turns are not among them.
    pub fn turns_since(&self, transaction: u64) -> LogFuture<'_, Option<(u64, Vec<TurnId>)>> {
        self.read(move |store| Ok(journal::next_own(store, transaction)?))
    }

    /// Notes the last transaction that a reader has read, or that nothing reads, so that a later reader begins at the end
    /// of the log.
    pub fn note_read(&self, reader: LogReader, last: Option<u64>) -> LogFuture<'_, ()> {
        self.write(move |txn| {
            let noted = match last {
                Some(last) => txn.put(Table::Names, &reader_key(reader), &keys::session(last)[..]),
                None => txn.remove(Table::Names, &reader_key(reader)),
            };
            Ok(noted?)
        })
    }
}

/// An agent's name is never empty, so no name has such a key.
fn reader_key(reader: LogReader) -> [u8; 3] {
    [0, 1, reader as u8]
}
