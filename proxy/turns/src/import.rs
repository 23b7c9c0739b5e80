//! Turns from elsewhere. An import adds all of a file, or none.
//!
//! A restoration brings back the turns of another log, from an export or from a database that was moved aside. Each turn
//! is restored once, however often this is repeated, because it is identified by its [`Fingerprint`]. Lists show it at
//! its original time. If this log does not have its session, the turn keeps its id. Otherwise it gets a place after the
//! session's existing turns.

use std::{
    collections::{HashMap, HashSet},
    future::ready,
    sync::atomic::Ordering,
};

use metaclaw_chat::{AgentId, ChainHash, SessionId, TurnId, Verdict};
use serde::{Deserialize, Serialize};

use crate::{
    append::{self, Arrival},
    error::LogError,
    journal, keys,
    log::{LogFuture, TurnLog},
    new_turn::{NewMessage, NewTurn},
    read::turn_ids,
    record::Record,
    session::SessionRecord,
    state,
    store::{Store, Table},
    text::JsonText,
    tokens,
    turn::{Turn, TurnMeta, TurnState},
    txn::Txn,
    values::{self, TxnError, TxnResult},
    verdicts,
};

/// The largest number of turns in one import, because the log's thread does nothing else in the meantime.
pub const MAX_IMPORT: usize = 10_000;
/// The largest number of bytes of their texts and ids.
pub const MAX_IMPORT_BYTES: usize = 64 << 20;

/// A turn from elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedTurn {
    pub turn: NewTurn,
    /// Its verdict there. Without one, the turn is judged here.
    pub verdict: Option<Verdict>,
}

/// What became of turns that came from elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOutcome {
    /// Number of turns that were added.
    pub n_new: usize,
    /// Number of turns that the log had. Of an import: the same reply, by id and text, to the same request.
    pub n_known: usize,
}

// === impl TurnLog ===

impl TurnLog {
    /// Appends turns with their verdicts in one transaction. Returns when they are safe from a kill. Turns that the log
    /// has are not changed. Subscribers for new turns are not notified.
    ///
    /// # Errors
    /// Returns [`LogError::TooLarge`], [`LogError::UnevenTokens`] or [`LogError::Unreadable`] before anything is
    /// written, and [`LogError::Broken`] if the store fails. In the last case, all turns are there or none.
    pub fn import(&self, turns: Vec<ImportedTurn>) -> LogFuture<'_, ImportOutcome> {
        if let Err(error) = check(&turns) {
            return Box::pin(ready(Err(error)));
        }
        let n_turns = turns.len() as u64;
        let first = self.inner.next_key.fetch_add(n_turns, Ordering::Relaxed);
        self.write(move |txn| import(txn, first, &turns))
    }
}

fn check(turns: &[ImportedTurn]) -> Result<(), LogError> {
    if turns.len() > MAX_IMPORT {
        return Err(LogError::TooLarge {
            what: "an import, in turns,",
            n_bytes: turns.len(),
            max: MAX_IMPORT,
        });
    }
    let n_bytes = turns.iter().map(|imported| imported.turn.n_bytes()).sum();
    if n_bytes > MAX_IMPORT_BYTES {
        return Err(LogError::TooLarge {
            what: "an import",
            n_bytes,
            max: MAX_IMPORT_BYTES,
        });
    }
    for (seq, imported) in (0..).zip(turns) {
        let tokens = imported.turn.tokens.as_ref();
        // The error gives the turn's place in the file, because it has no id in the log yet.
        let place = TurnId { session: 0, seq };
        tokens.map_or(Ok(()), |ids| tokens::check(place, ids))?;
    }
    Ok(())
}

fn import(txn: &mut Txn<'_>, first: u64, turns: &[ImportedTurn]) -> TxnResult<ImportOutcome> {
    let mut outcome = ImportOutcome::default();
    for (at, imported) in (0..).zip(turns) {
        let key = first.wrapping_add(at);
        let n_before = txn.appended.len();
        let id = append::append(txn, key, &imported.turn).map_err(TxnError::fail_all)?;
        if txn.appended.len() == n_before {
            outcome.n_known += 1;
            continue;
        }
        outcome.n_new += 1;
        if let Some(verdict) = imported.verdict.clone() {
            verdicts::add(txn, id, verdict).map_err(TxnError::fail_all)?;
        }
    }
    Ok(outcome)
}

/// Turns that one call restores.
pub const MAX_RESTORE: usize = 100;
/// A turn may have ended so much later than one that came into its log after it, because turns that end together come
/// in any order.
const A_MOMENT_MS: u64 = 60_000;

/// Data that identifies a turn in any log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint {
    agent: AgentId,
    session: SessionId,
    chain: ChainHash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_id: Option<String>,
    started_ms: u64,
    ended_ms: u64,
}

/// A turn of another log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RestoredTurn {
    /// The turn, with its id in that log.
    pub turn: Turn,
    /// The turn that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Fingerprint>,
    /// The approximate time at which it came into its log, in Unix milliseconds. It never decreases from one turn to
    /// the next.
    pub at_ms: u64,
}

/// Converts the turns of another log one by one, in the order in which they came.
#[derive(Debug, Default)]
pub struct Restoring {
    seen: HashMap<TurnId, Fingerprint>,
    last_ms: u64,
}

// === impl Turn ===

impl Turn {
    /// Returns the data that identifies it in every log.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new(&self.agent, &self.session, &self.meta)
    }

    fn into_new(self) -> Result<NewTurn, serde_json::Error> {
        let tools = self.request.tools.as_deref().map(JsonText::of);
        Ok(NewTurn {
            messages: NewMessage::all(&self.agent, &self.request.messages)?,
            tools: tools.transpose()?,
            agent: self.agent,
            session: self.session,
            meta: self.meta,
            continues: None,
            params: self.request.params,
            reply: self.reply,
            served: self.served,
            tokens: self.tokens,
        })
    }
}

// === impl Fingerprint ===

impl Fingerprint {
    fn new(agent: &AgentId, session: &SessionId, meta: &TurnMeta) -> Self {
        Self {
            agent: agent.clone(),
            session: session.clone(),
            chain: meta.chain,
            reply_id: meta.reply_id.clone(),
            started_ms: meta.started_ms,
            ended_ms: meta.ended_ms,
        }
    }
}

// === impl Restoring ===

impl Restoring {
    /// Converts the next turn of the log.
    pub fn next(&mut self, turn: Turn) -> RestoredTurn {
        let ended_ms = turn.meta.ended_ms;
        let is_far_behind = ended_ms.saturating_add(A_MOMENT_MS) < self.last_ms;
        self.last_ms = if is_far_behind {
            ended_ms
        } else {
            self.last_ms.max(ended_ms)
        };
        self.seen.insert(turn.id, turn.fingerprint());
        let parent = turn.parent.and_then(|parent| self.seen.get(&parent));
        RestoredTurn {
            parent: parent.cloned(),
            at_ms: self.last_ms,
            turn,
        }
    }
}

// === impl TurnLog ===

impl TurnLog {
    /// Returns for each of these turns whether the log lacks it, in order.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn lacks(&self, turns: Vec<Fingerprint>) -> LogFuture<'_, Vec<bool>> {
        let lacks = move |store: &Store| {
            let mut sessions = HashMap::new();
            let lacks = |turn| Ok(place(store, &mut sessions, turn)?.is_none());
            turns.iter().map(lacks).collect()
        };
        self.read(lacks)
    }

    /// Restores up to [`MAX_RESTORE`] turns of another log in one transaction. Returns when they are safe from a kill.
    /// Verdicts, states and uses are restored too. A turn that belonged to an open step is free again. Subscribers for
    /// new turns are not notified.
    ///
    /// # Errors
    /// Returns [`LogError::TooLarge`], [`LogError::Unreadable`] before anything is written, or the store's error. In
    /// the last case, all turns are there or none.
    pub fn restore(&self, turns: Vec<RestoredTurn>) -> LogFuture<'_, ImportOutcome> {
        Box::pin(async move {
            if turns.len() > MAX_RESTORE {
                return Err(LogError::TooLarge {
                    what: "a restoration, in turns,",
                    n_bytes: turns.len(),
                    max: MAX_RESTORE,
                });
            }
            let n_turns = turns.len();
            let news = self.read(move |store| find_new(store, turns)).await?;
            let n_new = news.len();
            let restore = move |txn: &mut Txn<'_>| {
                let mut entered = HashMap::new();
                for new in news {
                    restore_one(txn, new, &mut entered).map_err(TxnError::fail_all)?;
                }
                Ok(())
            };
            self.write(restore).await?;
            let n_known = n_turns - n_new;
            Ok(ImportOutcome { n_new, n_known })
        })
    }
}

struct Placed {
    id: TurnId,
    new: NewTurn,
    new_from: usize,
    parent: Option<u32>,
    parent_is: Option<Fingerprint>,
    fingerprint: Fingerprint,
    state: TurnState,
    verdicts: Vec<metaclaw_chat::Verdict>,
    uses: Vec<crate::turn::Use>,
    /// The transaction of this log after which it belongs.
    after: u64,
    at_ms: u64,
}

type KnownSessions = HashMap<(AgentId, SessionId), HashMap<Fingerprint, u32>>;

fn place(
    store: &Store,
    sessions: &mut KnownSessions,
    turn: &Fingerprint,
) -> TxnResult<Option<u32>> {
    let name = (turn.agent.clone(), turn.session.clone());
    if let Some(known) = sessions.get(&name) {
        return Ok(known.get(turn).copied());
    }
    let mut known = HashMap::new();
    if let Some(number) = SessionRecord::number(store, &turn.agent, &turn.session)? {
        for id in turn_ids(store, number)? {
            if let Some(record) = values::readable(Record::get(store, id))?.flatten() {
                let of = Fingerprint::new(&turn.agent, &turn.session, &record.meta);
                known.insert(of, id.seq);
            }
        }
    }
    let found = known.get(turn).copied();
    sessions.insert(name, known);
    Ok(found)
}

fn find_new(store: &Store, turns: Vec<RestoredTurn>) -> TxnResult<Vec<Placed>> {
    let (mut sessions, mut found) = (KnownSessions::new(), Vec::new());
    let mut coming = HashSet::new();
    let earliest = turns
        .iter()
        .map(|turn| turn.at_ms)
        .min()
        .unwrap_or_default();
    let journal = journal::back_to(store, earliest)?;
    for RestoredTurn {
        mut turn,
        parent,
        at_ms,
    } in turns
    {
        let fingerprint = turn.fingerprint();
        let is_known = place(store, &mut sessions, &fingerprint)?.is_some();
        if is_known || !coming.insert(fingerprint.clone()) {
            continue;
        }
        let at = match &parent {
            Some(parent) => place(store, &mut sessions, parent)?,
            None => None,
        };
        let after = journal.iter().find(|(_, ended_ms)| *ended_ms <= at_ms);
        let mut verdicts = std::mem::take(&mut turn.overruled);
        verdicts.extend(turn.verdict.take());
        found.push(Placed {
            id: turn.id,
            new_from: turn.new_from,
            parent: at,
            parent_is: parent,
            fingerprint,
            state: turn.state.clone(),
            verdicts,
            uses: std::mem::take(&mut turn.uses),
            after: after.map_or(0, |(number, _)| *number),
            at_ms,
            new: turn.into_new().map_err(LogError::from)?,
        });
    }
    Ok(found)
}

fn restore_one(
    txn: &mut Txn<'_>,
    placed: Placed,
    entered: &mut HashMap<Fingerprint, u32>,
) -> TxnResult<()> {
    let restored = placed
        .parent_is
        .and_then(|parent| entered.get(&parent).copied());
    let arrival = Arrival::Restored {
        id: placed.id,
        parent: placed.parent.or(restored),
        new_from: placed.new_from,
    };
    let id = append::place(txn, 0, &placed.new, &arrival)?;
    entered.insert(placed.fingerprint, id.seq);
    // It is not listed with this transaction but at its own time.
    if let Some(entry) = txn.appended.pop() {
        journal::put_back(txn, placed.after, placed.at_ms, entry)?;
    }
    for verdict in placed.verdicts {
        verdicts::add(txn, id, verdict)?;
    }
    let to = match (placed.state, placed.uses.last()) {
        // Its step belongs to another log, so it is treated as released.
        (TurnState::Taken { .. }, Some(last)) => TurnState::Trained { n: last.n },
        (TurnState::Taken { .. }, None) => TurnState::Judged,
        (state, _) => state,
    };
    let (agent, from) = state::of_turn(txn, id)?;
    if from != to {
        state::advance(txn, &agent, id, &from, &to)?;
    }
    if !placed.uses.is_empty() {
        values::put_json(txn, Table::Uses, &keys::turn(id), &placed.uses)?;
    }
    Ok(())
}
