//! Converts a finished turn into a record: finds its session, its parent, and the parts that the session already has.

mod conversation;
mod prefix;

use metaclaw_chat::{AgentId, Message, Role, TurnId};
use serde_json::Value;

use self::{conversation::PlacedConversation, prefix::SentPrompt};
use crate::{
    counts::DailyCounts,
    error::LogError,
    journal, keys,
    new_turn::NewTurn,
    record::{self, Record, damaged_turn},
    rollouts::closing::arrived,
    session::{self, SessionIndex, SessionRecord},
    state,
    store::{StoreResult, Table},
    text::{JsonText, hash},
    texts, tokens,
    turn::{StreamEnd, TurnMeta},
    txn::Txn,
    values::{self, TxnResult},
};

/// The largest number of messages of a turn. With more, other agents' turns would wait for it for a second and longer.
const MAX_MESSAGES: usize = 250_000;

struct Placing<'a> {
    number: u64,
    key: u64,
    new: &'a NewTurn,
    reply: Option<String>,
    arrival: &'a Arrival,
}

#[derive(Debug)]
pub(crate) enum Arrival {
    /// It is new. It may be in the log already, or be another try.
    New,
    Restored {
        /// Its id in that log. It keeps the id unless another turn has it here.
        id: TurnId,
        /// The place of its parent in this log.
        parent: Option<u32>,
        /// The index of the first message after the parent's reply.
        new_from: usize,
    },
}

/// Appends a turn, or finds it if the log has it already.
pub(crate) fn append(txn: &mut Txn<'_>, key: u64, new: &NewTurn) -> TxnResult<TurnId> {
    let n = new.messages.len();
    if n > MAX_MESSAGES {
        let max = MAX_MESSAGES;
        return Err(LogError::TooManyMessages { n, max }.into());
    }
    let id = place(txn, key, new, &Arrival::New)?;
    if let Some(mark) = &new.served.rollout {
        arrived(txn, id, mark)?;
    }
    Ok(id)
}

pub(crate) fn place(
    txn: &mut Txn<'_>,
    key: u64,
    new: &NewTurn,
    arrival: &Arrival,
) -> TxnResult<TurnId> {
    let known = SessionRecord::number(txn, &new.agent, &new.session)?;
    let number = match (known, arrival) {
        (Some(number), _) => number,
        (None, Arrival::Restored { id, .. }) if session::is_free_number(txn, id.session)? => {
            id.session
        }
        (None, _) => session::next_number(txn)?,
    };
    let mut session = match (known, txn.cache.take(number)) {
        (None, _) => SessionIndex::default(),
        (Some(_), Some(session)) => session,
        (Some(_), None) => SessionIndex::load(txn, number)?,
    };
    // If a later step refuses the turn, the session's index is dropped and read again.
    let (reply, is_masked) = reply(txn, new);
    session.is_masked |= is_masked;
    let placing = Placing {
        number,
        key,
        new,
        reply,
        arrival,
    };
    let there = match arrival {
        Arrival::New => placing.already(&session),
        Arrival::Restored { .. } => None,
    };
    let id = match there {
        Some(seq) => keys::id(number, seq),
        None => placing.write(txn, &mut session, known.is_none())?,
    };
    txn.cache.put(number, session);
    Ok(id)
}

fn reply(txn: &Txn<'_>, new: &NewTurn) -> (Option<String>, bool) {
    let mut reply = new
        .reply
        .as_ref()
        .map(|reply| Value::Object(reply.as_map().clone()));
    let is_masked = reply.as_mut().is_some_and(|reply| txn.mask.value(reply));
    (reply.map(|reply| reply.to_string()), is_masked)
}

/// Returns a separately stored text as it is written: masked unless the log has it unchanged.
fn apart(txn: &Txn<'_>, number: u64, text: JsonText) -> TxnResult<(JsonText, bool)> {
    if texts::is_used(txn, number, &text.hash)? {
        return Ok((text, false));
    }
    let mut value: Value = text.read().map_err(LogError::from)?;
    let is_masked = txn.mask.value(&mut value);
    let written = if is_masked {
        JsonText::new(value.to_string())
    } else {
        text
    };
    Ok((written, is_masked))
}

// === impl Placing ===

impl Placing<'_> {
    /// Returns the turn if the session has it: handed in before, or with the same reply to the same request.
    ///
    /// The reply's id alone is not enough, because some servers use the same id for every reply.
    fn already(&self, session: &SessionIndex) -> Option<u32> {
        let new = self.new;
        if let Some(seq) = session.with_key(self.key) {
            return Some(seq);
        }
        let reply = self.reply.as_ref().map(|text| hash(text.as_bytes()));
        let has_reply = |known: &Record| match (known.reply, &reply) {
            (Some(line), Some(reply)) => session.is_at(reply, line),
            (None, None) => true,
            _ => false,
        };
        let is_same = |known: &Record| {
            let meta = &known.meta;
            meta.reply_id.is_some()
                && meta.reply_id == new.meta.reply_id
                && meta.chain == new.meta.chain
        };
        let mut recent = session.recent();
        let known = recent.find(|(_, known)| is_same(known) && has_reply(known));
        known.map(|(seq, _)| *seq)
    }

    /// Returns the newest turn of the session if it did not end well, and this is another try at its request.
    ///
    /// A turn is not replaced once another came after it, because that one may refer to it, and its prompt was compared
    /// with it. Nor is one that was still running when this one began, because that is a sibling whose stream broke.
    fn retried(&self, txn: &Txn<'_>, session: &SessionIndex) -> TxnResult<Option<u32>> {
        let (Arrival::New, Some((seq, old))) = (self.arrival, session.recent().next()) else {
            return Ok(None);
        };
        let (old, new) = (&old.meta, &self.new.meta);
        let is_same = old.chain == new.chain && old.kind == new.kind;
        let is_over = old.end != StreamEnd::Complete && new.started_ms >= old.ended_ms;
        let is_free = is_same && is_over && state::is_free(txn, keys::id(self.number, *seq))?;
        Ok(is_free.then_some(*seq))
    }

    fn place(
        &self,
        txn: &Txn<'_>,
        session: &SessionIndex,
        retried: Option<u32>,
    ) -> TxnResult<TurnId> {
        let seq = match (self.arrival, retried) {
            (Arrival::Restored { id, .. }, _) => {
                place_of_old(txn, session, &self.new.agent, keys::id(self.number, id.seq))?
            }
            (Arrival::New, retried) => retried.unwrap_or(session.next_seq),
        };
        let id = keys::id(self.number, seq);
        if id.seq == u32::MAX {
            return Err(damaged_turn(id, "its session is full"));
        }
        Ok(id)
    }

    /// Writes the turn's record. Whatever can be refused of it is read before anything is written.
    fn write(
        self,
        txn: &mut Txn<'_>,
        session: &mut SessionIndex,
        is_new_session: bool,
    ) -> TxnResult<TurnId> {
        let retried = self.retried(txn, session)?;
        let id = self.place(txn, session, retried)?;
        if retried.is_some() {
            session.remove_lines(id.seq);
        }
        let (new, number) = (self.new, self.number);
        let sent = new.tools.clone();
        let tools = sent.map(|text| apart(txn, number, text)).transpose()?;
        let setup = JsonText::of(&(&new.params, &new.served)).map_err(LogError::from)?;
        let (setup, setup_is_masked) = apart(txn, number, setup)?;
        let mut conversation = match self.arrival {
            Arrival::New => PlacedConversation::place(txn, session, id, new)?,
            Arrival::Restored {
                parent, new_from, ..
            } => PlacedConversation::as_it_was(txn, session, *parent, *new_from, new)?,
        };
        let prompt = SentPrompt {
            id,
            new,
            session,
            conversation: &conversation,
            setup: &setup,
            tools: tools.as_ref().map(|(text, _)| text),
        };
        let prefix = values::readable(prompt.broken(txn))?.flatten();
        let reply = self.reply.map(|text| conversation.push(text));
        let tools_are_masked = tools.as_ref().is_some_and(|(_, is_masked)| *is_masked);
        // Requests after a masked text may repeat that text.
        let is_masked =
            session.is_masked || conversation.is_masked || setup_is_masked || tools_are_masked;
        let n_old = conversation.new_from.min(conversation.places.len());
        let (old, new_places) = conversation.places.split_at(n_old);
        let (old, new_lines) = (session.runs(old, id.seq), session.runs(new_places, id.seq));
        let (parent, spellings) = (conversation.parent, conversation.spellings);
        // A retried request is counted only at its first try. The counts of restored turns come with the export.
        let owners = match (retried, self.arrival) {
            (None, Arrival::New) => new.owners_counts(parent, new_places.len()),
            _ => DailyCounts::default(),
        };
        let own = conversation.own;
        // From here on nothing of it can be refused any more.
        if is_new_session {
            begin_session(txn, number, new)?;
        }
        if retried.is_some() {
            state::withdraw(txn, new, id)?;
        }
        let share = |text: &JsonText| texts::share(txn, number, &text.hash, text.as_str());
        let setup = share(&setup)?;
        let tools = tools.map(|(tools, _)| share(&tools)).transpose()?;
        let record = Record {
            key: self.key,
            meta: TurnMeta {
                masked: new.meta.masked || is_masked,
                ..new.meta.clone()
            },
            parent,
            old,
            new: new_lines,
            reply,
            is_answer: new.reply.as_ref().map(Message::role) == Some(Role::Assistant),
            setup,
            tools,
            prefix,
        };
        let first = session.n_lines();
        record.put(txn, id, first, &own)?;
        for (line, text) in (first..).zip(&own) {
            session.put_line(line, hash(text.as_bytes()), id.seq);
        }
        let broken = record.prefix.map(|prefix| prefix.cause);
        state::enter(txn, new, broken, owners)?;
        if let (Some(cause), Arrival::New) = (broken, self.arrival) {
            txn.broken.push((id, cause));
        }
        tokens::put_new(txn, id, new, &record)?;
        let mark = journal::mark(new.meta.reply_id.as_deref());
        txn.appended.push((id, mark));
        for (spelling, hash) in spellings {
            session.put_spelling(spelling, hash);
        }
        session.put_turn(id.seq, record);
        Ok(id)
    }
}

/// Returns the place of a restored turn: its old one, if that is free. Places before it are reserved for turns that are
/// restored later, as for another try.
fn place_of_old(
    txn: &Txn<'_>,
    session: &SessionIndex,
    agent: &AgentId,
    old: TurnId,
) -> TxnResult<u32> {
    /// No more turns than this are expected to be missing in between.
    const MOST: u32 = 10_000;
    let next = session.next_seq;
    if (next..next.saturating_add(MOST)).contains(&old.seq) {
        for seq in next..old.seq {
            record::put_lost(txn, agent, keys::id(old.session, seq))?;
        }
        return Ok(old.seq);
    }
    if old.seq < next && record::is_lost(txn, old)? {
        record::remove_lost(txn, agent, old)?;
        return Ok(old.seq);
    }
    Ok(next)
}

fn begin_session(txn: &mut Txn<'_>, number: u64, new: &NewTurn) -> StoreResult<()> {
    let record = SessionRecord {
        agent: new.agent.clone(),
        session: new.session.clone(),
    };
    let name = keys::name(&new.agent, &new.session);
    let key = keys::session(number);
    txn.put(Table::Names, &name, &key)?;
    txn.cache.names.add(&name);
    values::put_json(txn, Table::Sessions, &key, &record)?;
    session::take_number(txn, number)
}
