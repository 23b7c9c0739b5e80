//! Which turns of an agent stand in which state.
//!
//! One entry a turn, but for captured ones that were written together: theirs is under the first of them,
//! and says how many they are. Where one of those is moved, those before it and those after it have one each.

use std::ops::Bound;

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    keys,
    store::{Key, StoreError, Table},
    turn::StateKind,
    txn::{Reader, Source, Txn},
};

/// Enters a turn.
pub(crate) fn put(txn: &mut Txn<'_>, kind: StateKind, agent: &AgentId, id: TurnId) {
    txn.put(Table::Index, keys::index(kind, agent, id), &[]);
}

/// Enters so many captured turns of one session, from `first` on.
pub(crate) fn put_captured(txn: &mut Txn<'_>, agent: &AgentId, first: TurnId, n: usize) {
    let key = keys::index(StateKind::Captured, agent, first);
    // A run has few turns.
    match u32::try_from(n).unwrap_or(u32::MAX) {
        0 => {}
        1 => txn.put(Table::Index, key, &[]),
        n => txn.put(Table::Index, key, &n.to_be_bytes()),
    }
}

/// Whether an agent's turn is captured, to be checked again when the transaction runs.
pub(crate) fn is_captured(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    id: TurnId,
) -> Result<bool, StoreError> {
    let Some((key, _)) = run(txn, agent, id)? else {
        return Ok(false);
    };
    txn.get_guarded(Table::Index, &key)?;
    Ok(true)
}

/// Takes a turn out.
pub(crate) fn remove(
    txn: &mut Txn<'_>,
    kind: StateKind,
    agent: &AgentId,
    id: TurnId,
) -> Result<(), StoreError> {
    if kind != StateKind::Captured {
        txn.remove(Table::Index, keys::index(kind, agent, id));
        return Ok(());
    }
    let Some((key, ids)) = run(txn, agent, id)? else {
        return Ok(());
    };
    txn.remove(Table::Index, key);
    let (before, after) = ids.split(id);
    for rest in [before, after] {
        put_captured(txn, agent, rest.first, rest.n as usize);
    }
    Ok(())
}

/// The entry that a captured turn has a part in.
fn run(txn: &Txn<'_>, agent: &AgentId, id: TurnId) -> Result<Option<(Key, Ids)>, StoreError> {
    let own = keys::index(StateKind::Captured, agent, id);
    let Some((key, value)) = txn.floor(Table::Index, &own)? else {
        return Ok(None);
    };
    let is_agents = key.starts_with(&keys::index_prefix(StateKind::Captured, agent));
    let ids = Ids::read(&key, &value).filter(|ids| is_agents && ids.has(id));
    Ok(ids.map(|ids| (key, ids)))
}

/// The turns whose entries begin with `prefix`, in the order of their ids; all, or those before one.
pub(crate) fn under(
    reader: &Reader,
    prefix: &[u8],
    before: Option<TurnId>,
) -> impl DoubleEndedIterator<Item = Result<TurnId, StoreError>> + use<> {
    let (from, mut to) = keys::under(prefix);
    if let Some(before) = before {
        to = Bound::Excluded([prefix, &keys::turn(before)].concat().into());
    }
    let entries = reader.store.range(Table::Index, from, to);
    entries.flat_map(move |entry| {
        let (ids, error) = match entry {
            Ok((key, value)) => (Ids::read(&key, &value), None),
            Err(error) => (None, Some(Err(error))),
        };
        let ids = ids.into_iter().flat_map(Ids::all);
        // An entry before it may have a part behind it.
        let ids = ids.filter(move |id| before.is_none_or(|before| *id < before));
        ids.map(Ok).chain(error)
    })
}

/// Turns of one session, one behind the other.
#[derive(Debug, Clone, Copy)]
struct Ids {
    first: TurnId,
    n: u32,
}

// === impl Ids ===

impl Ids {
    fn read(key: &[u8], value: &[u8]) -> Option<Self> {
        let first = keys::read_turn(key)?;
        let n = if value.is_empty() {
            1
        } else {
            keys::read_u32(value)?
        };
        Some(Self { first, n })
    }

    fn has(self, id: TurnId) -> bool {
        id.session == self.first.session && id.seq.checked_sub(self.first.seq) < Some(self.n)
    }

    /// Those before one of them and those after it.
    fn split(self, id: TurnId) -> (Self, Self) {
        let n_before = id.seq - self.first.seq;
        let before = Self {
            n: n_before,
            ..self
        };
        let after = Self {
            first: TurnId {
                seq: id.seq.saturating_add(1),
                ..id
            },
            n: self.n - n_before - 1,
        };
        (before, after)
    }

    fn all(self) -> impl DoubleEndedIterator<Item = TurnId> {
        let Self { first, n } = self;
        let seqs = first.seq..first.seq.saturating_add(n);
        seqs.map(move |seq| TurnId { seq, ..first })
    }
}
