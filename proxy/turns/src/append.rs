//! A finished turn becomes a record: found its session, its parent and what its session has of it.

mod conversation;

use metaclaw_chat::{Message, Role, TurnId};

use self::conversation::Conversation;
use crate::{
    error::LogError,
    keys,
    new_turn::NewTurn,
    record::{Header, Line, Place, Record, ReplyLine},
    session::{RecentTurn, SessionIndex, SessionRecord},
    setup::{NewSetup, unreadable},
    state,
    store::{Source as _, StoreError, Table},
    text::Hash,
    texts, tokens,
    turn::StreamEnd,
    txn::Txn,
    values::{self, TxnError, damaged},
};

/// A turn ready to be written: nothing of it can be refused any more.
struct Draft {
    id: TurnId,
    /// Whether another turn's place is taken.
    is_retry: bool,
    header: Header,
    own: Vec<Line>,
    /// Texts that the session has, or has now, in other words.
    aliases: Vec<(Hash, Place)>,
    setup_hash: Hash,
    setup_lines: Vec<Line>,
}

/// Appends a turn, or finds it where it is already.
pub(crate) fn append(txn: &mut Txn<'_>, key: u64, new: &NewTurn) -> Result<TurnId, TxnError> {
    if let Some(id) = txn.cache.recalled.get(&key) {
        return Ok(*id);
    }
    let name = keys::name(&new.agent, &new.session);
    let known = txn.get(Table::Names, &name)?;
    let known = known.and_then(|number| keys::read_u64(&number));
    let number = match known {
        Some(number) => number,
        None => next_number(txn)?,
    };
    let mut session = match (known, txn.cache.take(number)) {
        (None, _) => SessionIndex::default(),
        (Some(_), Some(session)) => session,
        (Some(_), None) => SessionIndex::load(txn, number)?,
    };
    // From here on a refusal forgets what is remembered of the session: it is read again.
    let id = if let Some(seq) = already(&session, key, new)? {
        keys::id(number, seq)
    } else {
        let draft = Draft::new(txn, &mut session, (number, key), new)?;
        if known.is_none() {
            begin_session(txn, number, new)?;
        }
        draft.write(txn, &mut session, new)?
    };
    txn.cache.put(number, session);
    Ok(id)
}

/// The turn, if the session has it: handed in before, or with the same reply to the same request.
///
/// The reply's id alone does not tell: some servers give every reply the same.
fn already(session: &SessionIndex, key: u64, new: &NewTurn) -> Result<Option<u32>, LogError> {
    if let Some(known) = session.recent().find(|known| known.header.key == key) {
        return Ok(Some(known.seq));
    }
    let is_same = |known: &&RecentTurn| {
        let known = &known.header;
        new.reply_id.is_some() && known.reply_id == new.reply_id && known.chain == new.chain
    };
    let mut known = session.recent().filter(is_same).peekable();
    if known.peek().is_none() {
        return Ok(None);
    }
    let reply = reply_line(new)?.map(|line| line.hash());
    let has_reply = |known: &RecentTurn| match (known.reply, &reply) {
        (Some(place), Some(reply)) => session.is_at(reply, place),
        (None, None) => true,
        _ => false,
    };
    Ok(known.find(|known| has_reply(known)).map(|known| known.seq))
}

/// The latest turn of the same request that did not end well, if this is another try at it.
///
/// Not one that another turn needs, and not one that still ran when this began: that is a sibling whose
/// stream broke.
fn retried<'s>(session: &'s SessionIndex, new: &NewTurn) -> Option<&'s RecentTurn> {
    let is_same = |old: &&RecentTurn| old.header.chain == new.chain && old.header.kind == new.kind;
    let old = session.recent().find(is_same)?;
    let is_needed = session.recent().any(|other| other.needs(old.seq));
    let is_over = old.header.end != StreamEnd::Complete && new.started_ms >= old.header.ended_ms();
    (is_over && !is_needed).then_some(old)
}

fn reply_line(new: &NewTurn) -> Result<Option<Line>, LogError> {
    let reply = new.reply.as_ref();
    let reply = reply.map(|reply| serde_json::to_string(reply.as_map()));
    let reply = reply.transpose().map_err(|error| unreadable(&error))?;
    Ok(reply.map(Line::new))
}

// === impl Draft ===

impl Draft {
    fn new(
        txn: &Txn<'_>,
        session: &mut SessionIndex,
        (number, key): (u64, u64),
        new: &NewTurn,
    ) -> Result<Self, TxnError> {
        let retried = match retried(session, new).map(|old| old.seq) {
            Some(seq) if state::is_free(txn, keys::id(number, seq))? => Some(seq),
            Some(_) | None => None,
        };
        let seq = retried.unwrap_or_else(|| session.next_seq());
        let id = keys::id(number, seq);
        if retried.is_some() {
            session.set_lines(seq, Vec::new());
        } else if seq == u32::MAX || txn.get(Table::Turns, &keys::turn(id))?.is_some() {
            return Err(damaged(format!("turn {id}"), "its place is taken"));
        }
        let setup = NewSetup::of(new)?;
        let setup_hash = setup.hash;
        let is_known = |turn: &&RecentTurn| {
            turn.setup_hash == Some(setup_hash) && Some(turn.header.setup) != retried
        };
        let known = session.recent().find(is_known);
        let known = known.map(|turn| turn.header.setup);
        let setup_lines = match known {
            Some(_) => Vec::new(),
            None => setup.lines()?,
        };
        let Conversation {
            places,
            mut own,
            aliases,
            follows,
        } = Conversation::of(txn, session, id, new)?;
        own.extend(reply_line(new)?);
        session.set_lines(seq, own.iter().map(Line::hash).collect());
        let after_start = |ms: u64| ms.wrapping_sub(new.started_ms).cast_signed();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let header = Header {
            key,
            kind: new.kind,
            chain: new.chain,
            parent: follows.map(|(parent, _)| parent),
            new_from: follows.map_or(0, |(_, new_from)| count(new_from)),
            said: session.spans(&places),
            n_said: count(places.len()),
            reply: match new.reply.as_ref().map(Message::role) {
                None => ReplyLine::None,
                Some(Role::Assistant) => ReplyLine::Assistant,
                Some(_) => ReplyLine::Other,
            },
            setup: known.unwrap_or(seq),
            reply_id: new.reply_id.clone(),
            finish_reason: new.finish_reason.clone(),
            usage: new.usage,
            end: new.end,
            started_ms: new.started_ms,
            first_byte: new.first_byte_ms.map(after_start),
            took: after_start(new.ended_ms),
            last: new.is_last,
            masked: new.masked,
        };
        Ok(Self {
            id,
            is_retry: retried.is_some(),
            header,
            own,
            aliases,
            setup_hash,
            setup_lines,
        })
    }

    fn write(
        self,
        txn: &mut Txn<'_>,
        session: &mut SessionIndex,
        new: &NewTurn,
    ) -> Result<TurnId, StoreError> {
        let id = self.id;
        if self.is_retry {
            state::withdraw(txn, new, id)?;
        }
        for line in self.own.iter().chain(&self.setup_lines) {
            if let Line::Shared(hash, text) = line {
                texts::put(txn, id.session, hash, text)?;
            }
        }
        let record = Record::write(&self.header, &self.own, &self.setup_lines);
        let record = record.map_err(|error| StoreError::Other(error.to_string()))?;
        values::put(txn, Table::Turns, &keys::turn(id), record.as_bytes())?;
        state::enter(txn, new)?;
        tokens::put_new(txn, id, new, self.header.parent)?;
        txn.appended(id, new.reply_id.as_deref());
        for (hash, place) in self.aliases {
            session.put_alias(hash, place);
        }
        let n_own = self.own.len();
        session.put_recent(RecentTurn::new(
            id.seq,
            self.header,
            n_own,
            Some(self.setup_hash),
        ));
        Ok(id)
    }
}

/// Writes down a session that is seen for the first time.
fn begin_session(txn: &mut Txn<'_>, number: u64, new: &NewTurn) -> Result<(), StoreError> {
    let record = SessionRecord {
        agent: new.agent.clone(),
        session: new.session.clone(),
        created_ms: new.ended_ms,
    };
    let name = keys::name(&new.agent, &new.session);
    let key = keys::session(number);
    txn.put(Table::Names, &name, &key)?;
    values::put_json(txn, Table::Sessions, &key, &record)?;
    // Also after the last session was forgotten its number is nobody else's.
    txn.put(Table::Names, NEXT_NUMBER, &keys::session(number + 1))?;
    Ok(())
}

/// Where the next session's number stands: an agent's name is never empty.
const NEXT_NUMBER: &[u8] = &[0];

fn next_number(txn: &Txn<'_>) -> Result<u64, StoreError> {
    let stored = txn.get(Table::Names, NEXT_NUMBER)?;
    Ok(stored
        .and_then(|number| keys::read_u64(&number))
        .unwrap_or(1))
}
