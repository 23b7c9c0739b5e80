//! Copies whole sessions into another log, under their own numbers, so that turns keep their ids. Experiments there
//! leave this log unchanged.

use std::collections::BTreeSet;

use metaclaw_chat::{RolloutId, TurnId};

use crate::{
    journal, keys,
    log::{LogFuture, TurnLog},
    read::turn_ids,
    record::{Stored, damaged_turn},
    session::SessionRecord,
    state,
    store::{Bytes, Store, Table},
    texts, tokens,
    turn::{TurnMeta, TurnState},
    txn::Txn,
    values::{self, TxnResult},
};

/// Number of turns in one transaction, because a journal entry is short.
const AT_ONCE: usize = 100;

struct CopiedSession {
    number: u64,
    of: SessionRecord,
    pairs: Vec<(Table, Bytes, Bytes)>,
    turns: Vec<CopiedTurn>,
}

struct CopiedTurn {
    id: TurnId,
    meta: TurnMeta,
    has_ids: bool,
    is_judged: bool,
    is_held_out: bool,
}

// === impl TurnLog ===

impl TurnLog {
    /// Copies a session, by its number, into another log that does not have this number. In the copy, no step has used
    /// the session: turns with a verdict are judged, whatever their state is here. Held-out turns stay held out.
    /// Returns the number of its turns.
    ///
    /// # Errors
    /// Returns `LogError::Damaged`, or the error of either store.
    pub fn copy_session<'a>(&'a self, number: u64, to: &'a Self) -> LogFuture<'a, usize> {
        Box::pin(async move {
            let Some(copied) = self.read(move |store| read(store, number)).await? else {
                return Ok(0);
            };
            let CopiedSession {
                number,
                of,
                pairs,
                turns,
            } = copied;
            let (n_turns, begun) = (turns.len(), of.clone());
            to.write(move |txn| begin(txn, number, &begun, pairs))
                .await?;
            let mut turns = turns.into_iter().peekable();
            while turns.peek().is_some() {
                let some: Vec<CopiedTurn> = turns.by_ref().take(AT_ONCE).collect();
                let of = of.clone();
                to.write(move |txn| enter(txn, &of, &some)).await?;
            }
            Ok(n_turns)
        })
    }
}

fn read(store: &Store, number: u64) -> TxnResult<Option<CopiedSession>> {
    let Some(of) = SessionRecord::get(store, number)? else {
        return Ok(None);
    };
    let prefix = keys::session(number);
    let mut pairs = Vec::new();
    let under = [
        Table::Sessions,
        Table::Turns,
        Table::Tokens,
        Table::Verdicts,
    ];
    for table in under {
        for pair in store.range(table, keys::under(&prefix)) {
            let (key, value) = pair?;
            pairs.push((table, key, value));
        }
    }
    if let Some(rollout) = RolloutId::of_session(&of.session) {
        for pair in store.range(Table::Rollouts, keys::under(&keys::rollout(&rollout))) {
            let (key, value) = pair?;
            pairs.push((Table::Rollouts, key, value));
        }
    }
    let (mut turns, mut used) = (Vec::new(), BTreeSet::new());
    for id in turn_ids(store, number)? {
        let (stored, mut record) = Stored::get_read(store, id)?
            .ok_or_else(|| damaged_turn(id, "it is gone while it is copied"))?;
        used.extend(record.texts().filter_map(|name| texts::shared(name)));
        used.extend(stored.lines().filter_map(|(_, line)| texts::shared(line)));
        turns.push(CopiedTurn {
            id,
            meta: record.meta,
            has_ids: tokens::has(store, id)?,
            is_judged: values::get(store, Table::Verdicts, &keys::turn(id))?.is_some(),
            is_held_out: state::get(store, id)? == TurnState::HeldOut,
        });
    }
    for hash in used {
        for pair in store.range(Table::Texts, keys::under(&hash)) {
            let (key, value) = pair?;
            pairs.push((Table::Texts, key, value));
        }
    }
    Ok(Some(CopiedSession {
        number,
        of,
        pairs,
        turns,
    }))
}

fn begin(
    txn: &mut Txn<'_>,
    number: u64,
    of: &SessionRecord,
    pairs: Vec<(Table, Bytes, Bytes)>,
) -> TxnResult<()> {
    for (table, key, value) in pairs {
        txn.put(table, &key, value)?;
    }
    let name = keys::name(&of.agent, &of.session);
    txn.put(Table::Names, &name, &keys::session(number)[..])?;
    txn.cache.names.add(&name);
    Ok(())
}

fn enter(txn: &mut Txn<'_>, of: &SessionRecord, turns: &[CopiedTurn]) -> TxnResult<()> {
    for turn in turns {
        let (id, meta) = (turn.id, &turn.meta);
        txn.appended
            .push((id, journal::mark(meta.reply_id.as_deref())));
        let is_whole = meta.is_learnable();
        txn.count(&of.agent, |funnel| {
            funnel.turns += 1;
            if let Some(n) = funnel.of_kind(meta.kind) {
                *n += 1;
            }
            funnel.complete += u64::from(is_whole);
            funnel.with_ids += u64::from(is_whole && turn.has_ids);
            funnel.judged += u64::from(turn.is_judged);
        })?;
        let to = match (turn.is_held_out, turn.is_judged) {
            (true, _) => TurnState::HeldOut,
            (false, true) => TurnState::Judged,
            (false, false) => continue,
        };
        state::advance(txn, &of.agent, id, &TurnState::Captured, &to)?;
    }
    Ok(())
}
