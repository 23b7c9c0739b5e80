//! A finished turn becomes a record: found its session, its parent and what it repeats.

mod onward;
mod plan;
mod prepared;

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use metaclaw_chat::{AgentId, SessionId, TurnId};

use self::plan::Plan;
pub(crate) use self::prepared::{Prepared, unwritable};
use crate::{
    blobs,
    diff::{self, short},
    keys,
    record::{self, Header, Line, Record, damaged},
    resolve::Resolver,
    run, state,
    store::{StoreError, Table},
    tail::{SessionRecord, Tail, TailTurn},
    text::JsonText,
    times, tokens,
    turn::StreamEnd,
    txn::{Fault, Reader, Source, Txn},
};

// === impl Prepared ===

impl Prepared {
    /// The turn, if the session has it: handed in before, or with the same reply to the same request.
    ///
    /// The reply's id alone does not tell: some servers give every reply the same.
    fn already(&self, tail: &Tail) -> Option<u32> {
        let reply = self.reply.as_ref().map(|reply| short(&reply.hash));
        let is_it = |known: &&TailTurn| {
            let is_same = known.reply_id == self.reply_id
                && known.chain == self.turn.chain
                && known.sequence.get(known.n_messages) == reply.as_ref();
            known.key == self.key || (self.reply_id.is_some() && is_same)
        };
        tail.turns.iter().rev().find(is_it).map(|known| known.seq)
    }

    /// The texts that its record names as blobs.
    fn stored<'a>(&'a self, plan: &Plan, has_setup: bool) -> impl Iterator<Item = &'a JsonText> {
        let is_own = |text: &&JsonText| plan.new.contains(&Line::Blob(text.hash));
        let texts = self.messages.iter().map(|message| &message.text);
        let blobs = texts.filter(|text| text.is_blob());
        let reply = self.reply.iter().filter(|text| text.is_blob());
        let setup = self.setup.blobs().filter(move |_| has_setup);
        blobs.filter(is_own).chain(reply).chain(setup)
    }

    /// The latest turn of the same request that did not end well, if this is another try at it.
    ///
    /// Not one that another turn builds on, and not one that still ran when this began: that is a
    /// sibling whose stream broke.
    fn retried<'t>(&self, tail: &'t Tail) -> Option<&'t TailTurn> {
        let same = |old: &&TailTurn| old.chain == self.turn.chain && old.kind == self.turn.kind;
        let old = tail.turns.iter().rev().find(same)?;
        let is_base = tail.turns.iter().any(|other| other.base == Some(old.seq));
        let began_after = self.turn.started_ms >= old.ended_ms;
        (!old.complete && !is_base && began_after).then_some(old)
    }

    /// The turn's first line.
    fn header<'a>(&'a self, plan: &'a Plan, has_setup: bool) -> Header<'a> {
        let turn = &self.turn;
        let after_start = |ms: u64| ms.wrapping_sub(turn.started_ms).cast_signed();
        let new_from = plan.parent.map_or(0, |parent| parent.new_from);
        Header {
            key: self.key,
            kind: turn.kind,
            chain: turn.chain,
            parent: plan.parent.map(|parent| parent.seq),
            new_from: u32::try_from(new_from).unwrap_or(u32::MAX),
            base: plan.base,
            setup: has_setup,
            reply: self.reply.is_some(),
            reply_id: turn.reply_id.as_deref().map(Cow::Borrowed),
            finish_reason: turn.finish_reason.as_deref().map(Cow::Borrowed),
            usage: turn.usage,
            end: turn.end,
            started_ms: turn.started_ms,
            first_byte: turn.first_byte_ms.map(after_start),
            took: after_start(turn.ended_ms),
            last: turn.is_last,
            parts: Cow::Borrowed(&plan.parts),
        }
    }

    /// What later turns will be compared with.
    fn in_tail(&self, plan: Plan, base: Option<&TailTurn>, seq: u32) -> TailTurn {
        let n_messages = plan.hashes.len();
        let mut sequence = plan.hashes;
        sequence.extend(self.reply.iter().map(|reply| short(&reply.hash)));
        TailTurn {
            seq,
            key: self.key,
            kind: self.turn.kind,
            chain: self.turn.chain,
            after: self.after,
            complete: self.turn.end == StreamEnd::Complete,
            base: plan.base,
            depth: base.map_or(0, |base| base.depth.saturating_add(1)),
            mask: diff::mask(&sequence),
            sequence,
            n_messages,
            reply_id: self.reply_id,
            setup: self.setup.hash(),
            ended_ms: self.turn.ended_ms,
        }
    }
}

/// The log's last turns, by the keys that they were handed in with.
pub(crate) fn last(reader: &Reader, n: usize) -> Result<HashMap<u64, TurnId>, StoreError> {
    let mut last = HashMap::new();
    for turn in times::newest_first(reader, None).take(n) {
        let id = turn?.id;
        match Record::get(reader, id) {
            Ok(Some(record)) => {
                last.insert(record.header.key, id);
            }
            // One that does not read back is not one of those that were just written.
            Ok(None) | Err(Fault::Refused(_)) => {}
            Err(Fault::Store(error)) => return Err(error),
        }
    }
    Ok(last)
}

/// Appends a turn, or finds it where it is already.
pub(crate) fn append(txn: &mut Txn<'_>, new: &Prepared) -> Result<TurnId, Fault> {
    if let Some(id) = txn.cache.recalled.get(&new.key) {
        return Ok(*id);
    }
    let turn = &new.turn;
    let (number, is_new) = session_number(txn, &turn.agent, &turn.session, turn.ended_ms)?;
    let mut tail = match txn.cache.take_tail(number) {
        Some(tail) => tail,
        None => Resolver::new(&*txn, number).tail()?,
    };
    let written = write(txn, new, number, &tail);
    if written.is_err() && is_new {
        // What this operation wrote is dropped, so the session does not exist after all.
        txn.cache.forget(number, &turn.agent, &turn.session);
        return written.map(|(id, _)| id);
    }
    let written = written.map(|(id, turn)| {
        if let Some(turn) = turn {
            tail.put(turn);
        }
        id
    });
    // Also after a refusal: the tail may know turns that only this batch holds.
    txn.cache.put_tail(number, tail);
    written
}

/// Writes a turn that the session does not have; its id, and what is new in the tail.
fn write(
    txn: &mut Txn<'_>,
    new: &Prepared,
    number: u64,
    tail: &Tail,
) -> Result<(TurnId, Option<TailTurn>), Fault> {
    if let Some(seq) = new.already(tail) {
        return Ok((keys::id(number, seq), None));
    }
    let (id, is_free) = place(txn, new, number, tail)?;
    let plan = match onward::plan(txn, new, number, tail)? {
        Some(plan) => plan,
        None => new.plan(tail, id.seq),
    };
    let mut known = tail.turns.iter();
    let base = known.find(|turn| Some(turn.seq) == plan.base);
    let has_setup = base.is_none_or(|base| base.setup != new.setup.hash());
    let (record, stored) = write_texts(txn, new, id, (&plan, has_setup))?;
    let turn = &new.turn;
    let written = run::New {
        ended_ms: turn.ended_ms,
        reply: times::mark(new.reply_id.as_ref()),
        record,
    };
    if is_free && turn.end == StreamEnd::Complete {
        txn.join(&turn.agent, id, &written);
    } else {
        run::write_alone(txn, &turn.agent, id, &written)?;
    }
    if let Some(reply_id) = new.reply_id.as_ref().filter(|_| new.is_named) {
        let key = keys::reply(reply_id, number);
        txn.put(Table::Replies, key, &id.seq.to_be_bytes());
    }
    state::enter(txn, turn)?;
    if let Some(ids) = &new.turn.tokens {
        tokens::add_to_new(txn, id, ids)?;
    }
    for text in stored {
        blobs::remember(&mut txn.cache.blobs, text.hash);
    }
    let turn = new.in_tail(plan, base, id.seq);
    Ok((id, Some(turn)))
}

/// Where the turn goes: behind the others, or to the place of one that it tries again; and whether nobody
/// knows the place yet.
fn place(
    txn: &mut Txn<'_>,
    new: &Prepared,
    number: u64,
    tail: &Tail,
) -> Result<(TurnId, bool), Fault> {
    if let Some(old) = new.retried(tail) {
        let id = keys::id(number, old.seq);
        if state::withdraw(txn, &new.turn, id, old.ended_ms)? {
            txn.remove_long(Table::Turns, &keys::turn(id))?;
            return Ok((id, false));
        }
    }
    let id = keys::id(number, tail.next_seq);
    match id.seq {
        u32::MAX => Err(damaged(id, "its session is full")),
        _ => Ok((id, true)),
    }
}

/// The record's text, with its setup or without, and the texts that are stored apart from it: these it
/// writes.
fn write_texts<'a>(
    txn: &mut Txn<'_>,
    new: &'a Prepared,
    id: TurnId,
    (plan, has_setup): (&Plan, bool),
) -> Result<(Vec<u8>, Vec<&'a JsonText>), Fault> {
    let reply = new.reply.as_ref().map(Line::of);
    let text = record::write(
        &new.header(plan, has_setup),
        has_setup.then(|| new.setup.text()),
        plan.new.iter().chain(&reply),
    );
    let text = text.map_err(|why| damaged(id, why))?;
    let stored: Vec<&JsonText> = new.stored(plan, has_setup).collect();
    for text in &stored {
        blobs::put(txn, text)?;
    }
    Ok((text, stored))
}

/// The session's number, given to it when it is first seen, and whether it was now.
fn session_number(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    session: &SessionId,
    now_ms: u64,
) -> Result<(u64, bool), Fault> {
    let names = (agent.clone(), session.clone());
    if let Some(number) = txn.cache.numbers.get(&names) {
        return Ok((*number, false));
    }
    let key = keys::name(agent, session);
    let known = txn.get_guarded(Table::Names, &key)?;
    let known = known.and_then(|number| keys::read_u64(&number));
    let number = if let Some(number) = known {
        number
    } else {
        let number = next_number(txn)?;
        let record = SessionRecord {
            agent: agent.clone(),
            session: session.clone(),
            created_ms: now_ms,
        };
        txn.put(Table::Names, key, &number.to_be_bytes());
        txn.put_json(Table::Sessions, &keys::session(number), &record)?;
        txn.cache.sessions.insert(number, Arc::new(record));
        txn.cache.next_number = Some(number + 1);
        txn.cache.put_tail(number, Tail::default());
        number
    };
    txn.cache.numbers.insert(names, number);
    Ok((number, known.is_none()))
}

/// One more than the last session's number.
fn next_number(txn: &Txn<'_>) -> Result<u64, Fault> {
    if let Some(number) = txn.cache.next_number {
        return Ok(number);
    }
    let (from, to) = keys::under(&[]);
    let last = txn.store().range(Table::Sessions, from, to).next_back();
    let last = last.transpose()?;
    let number = last.and_then(|(key, _)| key.first_chunk::<8>().copied());
    Ok(number.map_or(1, |number| u64::from_be_bytes(number) + 1))
}
