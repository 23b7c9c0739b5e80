//! A finished turn becomes a record: found its session, its parent and what it repeats.

mod onward;

use std::sync::Arc;

use metaclaw_chat::{AgentId, ChainHash, SessionId, TurnId};

use crate::{
    blobs::{self, Hash},
    diff::{self, Short, short},
    error::LogError,
    keys,
    raw::RawTurn,
    record::{Header, Line, Part, Record, Setup, damaged},
    resolve::Resolver,
    state,
    store::Table,
    tail::{MAX_DEPTH, SessionRecord, Tail, TailTurn},
    text::JsonText,
    tokens,
    turn::{NewTurn, StreamEnd, Tokens},
    txn::{Fault, Source, Txn},
};

/// The most bytes of one turn as JSON text: thrice what the gateway accepts as a body.
pub(crate) const MAX_TURN: usize = 96 << 20;

/// A turn made ready to be written: texts and hashes are made by the caller, so that the one thread
/// that owns the log has less to do. May be appended more than once; it is stored once.
#[derive(Debug)]
pub(crate) struct Prepared {
    turn: NewTurn,
    key: u64,
    messages: Vec<JsonText>,
    reply: Option<JsonText>,
    tools: Option<JsonText>,
    block: Option<JsonText>,
    /// The chain hash after each message.
    chains: Vec<ChainHash>,
    /// The chain hash after the reply, if it is one.
    after: Option<ChainHash>,
    /// The reply that it goes on from, where the request does not repeat what was said before.
    goes_on_from: Option<String>,
}

/// The turn that a request goes on from, and where what is new begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parent {
    seq: u32,
    new_from: usize,
}

/// How a turn's conversation is written.
#[derive(Debug)]
struct Plan {
    parent: Option<Parent>,
    /// The turn that `parts` copy from.
    base: Option<u32>,
    /// The whole conversation.
    hashes: Vec<Short>,
    parts: Vec<Part>,
    /// The messages that the base does not have.
    new: Vec<Line>,
}

// === impl Prepared ===

impl Prepared {
    /// Hashes. `key` is drawn for this turn alone.
    pub(crate) fn new(raw: RawTurn, key: u64) -> Result<Self, LogError> {
        let RawTurn {
            mut turn,
            messages,
            tools,
            goes_on_from,
        } = raw;
        let reply = turn.reply.take();
        let after = reply
            .as_ref()
            .filter(|reply| reply.role() == metaclaw_chat::Role::Assistant)
            .map(|reply| turn.chain.then(reply));
        let block = turn.served.system_block.take();
        let (messages, chains) = messages
            .into_iter()
            .map(|message| (message.text, message.chain))
            .unzip();
        let prepared = Self {
            turn,
            key,
            messages,
            reply: reply.map(|reply| text(reply.as_map())).transpose()?,
            tools,
            block: block.map(|block| text(&block)).transpose()?,
            chains,
            after,
            goes_on_from,
        };
        match prepared.n_bytes() {
            n_bytes if n_bytes > MAX_TURN => Err(LogError::TooLarge {
                what: "a turn",
                n_bytes,
                max: MAX_TURN,
            }),
            _ => Ok(prepared),
        }
    }

    /// The length of its texts, and of its ids.
    pub(crate) fn n_bytes(&self) -> usize {
        let n_ids = self.turn.tokens.as_ref().map_or(0, Tokens::n_bytes);
        let texts = self.texts().map(|text| text.text.len());
        n_ids + texts.sum::<usize>()
    }

    fn texts(&self) -> impl Iterator<Item = &JsonText> {
        let others = self.reply.iter().chain(&self.tools).chain(&self.block);
        self.messages.iter().chain(others)
    }

    fn setup(&self) -> Setup {
        Setup {
            params: self.turn.request.params.clone(),
            served: self.turn.served.clone(),
            tools: self.tools.as_ref().map(Line::of),
            block: self.block.as_ref().map(Line::of),
        }
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

    /// The turn whose conversation, with its reply, is the longest beginning of this one.
    ///
    /// By chain hash; where that does not tell (messages that somebody leaves out of the chain), by
    /// the very messages and reply.
    fn parent(&self, tail: &Tail, hashes: &[Short], not: Option<u32>) -> Option<Parent> {
        let found = tail.turns.iter().filter(|turn| Some(turn.seq) != not);
        let found = found.filter_map(|turn| {
            let by_chain = turn.after.and_then(|after| {
                // Messages that do not count leave the hash as it is: the first has the reply.
                self.chains.iter().position(|chain| *chain == after)
            });
            let by_messages = || {
                let n = turn.n_messages;
                let goes_on = turn.after.is_some() && hashes.len() > n;
                (goes_on && hashes[..=n] == turn.sequence[..]).then_some(n)
            };
            let place = by_chain.or_else(by_messages)?;
            Some(Parent {
                seq: turn.seq,
                new_from: place + 1,
            })
        });
        found.max_by_key(|parent| (parent.new_from, parent.seq))
    }

    /// The turn that saves most when copied from, and the parts. None where that one builds on so many
    /// others that reading would take longer with every turn.
    fn base<'t>(
        &self,
        tail: &'t Tail,
        hashes: &[Short],
        before: u32,
    ) -> (Option<&'t TailTurn>, Vec<Part>) {
        let mut best = (usize::MAX, None, Vec::new());
        for turn in tail.turns.iter().rev().filter(|turn| turn.seq < before) {
            let parts = diff::parts(&turn.sequence, hashes);
            let own = diff::own(&parts).zip(&self.messages);
            let bytes: usize = own
                .filter(|(own, _)| *own)
                .map(|(_, text)| text.text.len())
                .sum();
            if bytes < best.0 {
                best = (bytes, Some(turn), parts);
            }
            if bytes == 0 {
                break;
            }
        }
        match best {
            (_, Some(base), _) if base.depth >= MAX_DEPTH => (None, diff::parts(&[], hashes)),
            (_, Some(base), parts) => (Some(base), parts),
            (_, None, _) => (None, diff::parts(&[], hashes)),
        }
    }

    /// How the turn is written, compared with the session's last ones.
    fn plan(&self, tail: &Tail, seq: u32) -> Plan {
        let hashes: Vec<Short> = self.messages.iter().map(|text| short(&text.hash)).collect();
        let parent = self.parent(tail, &hashes, Some(seq));
        let (base, parts) = self.base(tail, &hashes, seq);
        let base = base.map(|base| base.seq);
        let own = diff::own(&parts).zip(&self.messages);
        let own = own.filter(|(own, _)| *own);
        let new = own.map(|(_, text)| Line::of(text)).collect();
        Plan {
            parent,
            base,
            hashes,
            parts,
            new,
        }
    }

    fn record(&self, tail: &Tail, plan: &Plan) -> Result<(Record, Hash), String> {
        let turn = &self.turn;
        let setup = self.setup();
        let setup_hash = setup.hash()?;
        let mut known = tail.turns.iter();
        let base = known.find(|turn| Some(turn.seq) == plan.base);
        let has_setup = base.is_some_and(|turn| turn.setup == setup_hash);
        let after_start = |ms: u64| ms.wrapping_sub(turn.started_ms).cast_signed();
        let new_from = plan.parent.map_or(0, |parent| parent.new_from);
        let header = Header {
            key: self.key,
            kind: turn.kind,
            chain: blobs::hex(&turn.chain.0),
            parent: plan.parent.map(|parent| parent.seq),
            new_from: u32::try_from(new_from).unwrap_or(u32::MAX),
            base: plan.base,
            setup: !has_setup,
            reply: self.reply.is_some(),
            reply_id: turn.reply_id.clone(),
            finish_reason: turn.finish_reason.clone(),
            usage: turn.usage,
            end: turn.end,
            started_ms: turn.started_ms,
            first_byte: turn.first_byte_ms.map(after_start),
            took: after_start(turn.ended_ms),
            last: turn.is_last,
            parts: plan.parts.clone(),
        };
        let record = Record {
            header,
            setup: (!has_setup).then_some(setup),
            new: plan.new.clone(),
            reply: self.reply.as_ref().map(Line::of),
        };
        Ok((record, setup_hash))
    }

    fn in_tail(
        &self,
        record: &Record,
        tail: &Tail,
        mut sequence: Vec<Short>,
        seq: u32,
        setup: [u8; 32],
    ) -> TailTurn {
        let mut known = tail.turns.iter();
        let base = known.find(|turn| Some(turn.seq) == record.header.base);
        let n_messages = sequence.len();
        sequence.extend(self.reply.iter().map(|reply| short(&reply.hash)));
        TailTurn {
            seq,
            key: self.key,
            kind: self.turn.kind,
            chain: self.turn.chain,
            after: self.after,
            complete: self.turn.end == StreamEnd::Complete,
            base: record.header.base,
            depth: base.map_or(0, |base| base.depth.saturating_add(1)),
            sequence,
            n_messages,
            setup,
            ended_ms: self.turn.ended_ms,
        }
    }
}

/// Appends a turn, or finds it where it is already.
pub(crate) fn append(txn: &mut Txn<'_>, new: &Prepared) -> Result<TurnId, Fault> {
    let turn = &new.turn;
    let (number, is_new) = session_number(txn, &turn.agent, &turn.session, turn.ended_ms)?;
    let mut tail = match txn.cache.tails.remove(&number) {
        Some(tail) => tail,
        None => Resolver::new(&*txn, number).tail()?,
    };
    let written = write(txn, new, number, &tail);
    if written.is_err() && is_new {
        // What this operation wrote is dropped, so the session does not exist after all.
        txn.cache.forget(number, &turn.agent, &turn.session);
        return written.map(|(id, _)| id);
    }
    if let Ok((_, Some(turn))) = &written {
        tail.put(turn.clone());
    }
    // Also after a refusal: the tail may know turns that only this batch holds.
    txn.cache.put_tail(number, tail);
    written.map(|(id, _)| id)
}

fn write(
    txn: &mut Txn<'_>,
    new: &Prepared,
    number: u64,
    tail: &Tail,
) -> Result<(TurnId, Option<TailTurn>), Fault> {
    let id = |seq| TurnId {
        session: number,
        seq,
    };
    if let Some(known) = tail.turns.iter().find(|known| known.key == new.key) {
        return Ok((id(known.seq), None));
    }
    if let Some(seq) = already(txn, new, number, tail)? {
        return Ok((id(seq), None));
    }
    let mut seq = tail.next_seq;
    if let Some(old) = new.retried(tail)
        && state::withdraw(txn, &new.turn, id(old.seq), old.ended_ms)?
    {
        seq = old.seq;
    }
    if seq == u32::MAX {
        return Err(damaged(id(seq), "its session is full"));
    }
    let id = id(seq);
    let plan = match onward::plan(txn, new, number, tail)? {
        Some(plan) => plan,
        None => new.plan(tail, seq),
    };
    let (record, setup) = new.record(tail, &plan).map_err(|why| damaged(id, why))?;
    let stored: Vec<&JsonText> = stored(new, &record).collect();
    for text in &stored {
        blobs::put(txn, text)?;
    }
    record.put(txn, id)?;
    if let Some(reply_id) = &new.turn.reply_id {
        let key = keys::reply(reply_id, number);
        txn.put(Table::Replies, key, &seq.to_be_bytes());
    }
    state::enter(txn, &new.turn, id)?;
    if let Some(ids) = &new.turn.tokens {
        tokens::add_to_new(txn, id, ids)?;
    }
    for text in &stored {
        blobs::remember(&mut txn.cache.blobs, text.hash);
    }
    let turn = new.in_tail(&record, tail, plan.hashes, seq, setup);
    Ok((id, Some(turn)))
}

/// The texts of a turn that its record names as blobs.
fn stored<'a>(new: &'a Prepared, record: &'a Record) -> impl Iterator<Item = &'a JsonText> {
    let is_own = |text: &&JsonText| record.new.contains(&Line::Blob(text.hash));
    let own = new
        .messages
        .iter()
        .filter(|text| text.is_blob())
        .filter(is_own);
    let setup = record
        .setup
        .iter()
        .flat_map(|_| new.tools.iter().chain(&new.block));
    let others = new.reply.iter().chain(setup);
    own.chain(others.filter(|text| text.is_blob()))
}

/// The turn with the same reply id, if it is the same reply to the same request.
///
/// The id alone does not tell: some servers give every reply the same.
fn already(
    txn: &mut Txn<'_>,
    new: &Prepared,
    number: u64,
    tail: &Tail,
) -> Result<Option<u32>, Fault> {
    let Some(reply_id) = &new.turn.reply_id else {
        return Ok(None);
    };
    let found = replied(txn, number, reply_id)?;
    let reply = new.reply.as_ref().map(|reply| short(&reply.hash));
    let is_same = |known: &&TailTurn| {
        Some(known.seq) == found
            && known.chain == new.turn.chain
            && known.sequence.get(known.n_messages) == reply.as_ref()
    };
    Ok(tail.turns.iter().find(is_same).map(|known| known.seq))
}

/// The session's turn whose reply has that id.
fn replied(txn: &Txn<'_>, number: u64, reply_id: &str) -> Result<Option<u32>, Fault> {
    let found = txn.get(Table::Replies, &keys::reply(reply_id, number))?;
    Ok(found.and_then(|seq| keys::read_u32(&seq)))
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

fn text(value: &impl serde::Serialize) -> Result<JsonText, LogError> {
    JsonText::of(value).map_err(|error| unwritable(&error))
}

/// That a turn cannot be written as JSON.
pub(crate) fn unwritable(error: &serde_json::Error) -> LogError {
    LogError::Damaged {
        what: "a new turn".to_owned(),
        why: error.to_string(),
    }
}
