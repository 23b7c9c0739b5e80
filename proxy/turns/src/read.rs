//! Puts turns together again from their records and those that hold their texts.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use metaclaw_chat::{Message, TurnId};
use serde::de::DeserializeOwned;

use crate::{
    keys,
    record::{Header, Record, Span, damaged_turn, shared},
    session::SessionRecord,
    setup::ReadSetup,
    state, step,
    store::{Source, Store, Table},
    texts, tokens,
    turn::{Request, Turn},
    values::{self, TxnError},
    verdicts,
};

/// Records that a reader keeps: more than most sessions have.
const KEPT: usize = 4_096;

/// Reads turns of one session, each record once.
pub(crate) struct SessionReader<'a> {
    store: &'a Store,
    number: u64,
    pub(crate) session: SessionRecord,
    records: RefCell<HashMap<u32, Rc<Record>>>,
    setups: RefCell<HashMap<u32, Rc<ReadSetup>>>,
}

/// A text of a session: a record and which of its lines.
pub(crate) type LineOf = (Rc<Record>, u32);

// === impl SessionReader ===

impl<'a> SessionReader<'a> {
    /// A reader of a session, if there is one with that number.
    pub(crate) fn of(store: &'a Store, number: u64) -> Result<Option<Self>, TxnError> {
        let session: Option<SessionRecord> =
            values::get_json(store, Table::Sessions, &keys::session(number))?;
        Ok(session.map(|session| Self {
            store,
            number,
            session,
            records: RefCell::default(),
            setups: RefCell::default(),
        }))
    }

    /// One turn with everything that is known about it.
    pub(crate) fn turn(&self, seq: u32) -> Result<Option<Turn>, TxnError> {
        let Some(record) = self.record(seq)? else {
            return Ok(None);
        };
        let id = self.id(seq);
        let header = record.header(id)?;
        let messages = self.messages(seq, (&record, &header), header.n_said as usize)?;
        let messages = messages.iter().map(|line| self.value(line));
        let messages = messages.collect::<Result<_, _>>()?;
        let reply = self.reply(&record, &header)?;
        let setup = self.setup(seq, &header)?;
        let mut overruled = verdicts::all(self.store, id)?;
        Ok(Some(Turn {
            id,
            agent: self.session.agent.clone(),
            session: self.session.session.clone(),
            kind: header.kind,
            chain: header.chain,
            parent: header.parent.map(|seq| self.id(seq)),
            new_from: header.new_from as usize,
            request: Request {
                messages,
                tools: setup.tools.clone(),
                params: setup.params.clone(),
            },
            reply,
            first_byte_ms: header.first_byte_ms(),
            ended_ms: header.ended_ms(),
            reply_id: header.reply_id,
            finish_reason: header.finish_reason,
            usage: header.usage,
            end: header.end,
            served: setup.served.clone(),
            started_ms: header.started_ms,
            is_last: header.last,
            masked: header.masked,
            state: state::get(self.store, id)?,
            verdict: overruled.pop(),
            overruled,
            uses: step::uses(self.store, id)?,
            tokens: tokens::get(self.store, id)?,
        }))
    }

    /// One turn's record.
    pub(crate) fn record(&self, seq: u32) -> Result<Option<Rc<Record>>, TxnError> {
        if let Some(record) = self.records.borrow().get(&seq) {
            return Ok(Some(Rc::clone(record)));
        }
        let Some(record) = Record::get(self.store, self.id(seq))? else {
            return Ok(None);
        };
        let record = Rc::new(record);
        let mut records = self.records.borrow_mut();
        if records.len() >= KEPT {
            records.clear();
        }
        records.insert(seq, Rc::clone(&record));
        Ok(Some(record))
    }

    /// The last `n` messages of a turn, in order.
    pub(crate) fn messages(
        &self,
        of: u32,
        (record, header): (&Rc<Record>, &Header),
        n: usize,
    ) -> Result<Vec<LineOf>, TxnError> {
        let damaged = |why: String| damaged_turn(self.id(of), why);
        let mut lines = Vec::with_capacity(n.min(header.n_said as usize));
        for Span { from, to } in header.said.iter().rev() {
            for seq in (from.seq..=to.seq).rev() {
                if lines.len() >= n {
                    break;
                }
                let record = if seq == of {
                    Some(Rc::clone(record))
                } else {
                    self.record(seq)?
                };
                let record = record.ok_or_else(|| damaged(format!("turn {seq} is missing")))?;
                let first = if seq == from.seq { from.at } else { 0 };
                let end = if seq == to.seq { to.at } else { record.n_own() };
                if end > record.n_own() {
                    return Err(damaged(format!("turn {seq} has not as many lines")));
                }
                lines.extend((first..end).rev().map(|at| (Rc::clone(&record), at)));
            }
        }
        lines.truncate(n);
        if lines.len() < n.min(header.n_said as usize) {
            return Err(damaged("some of its messages are missing".to_owned()));
        }
        lines.reverse();
        Ok(lines)
    }

    /// The reply, if there is one.
    pub(crate) fn reply(
        &self,
        record: &Rc<Record>,
        header: &Header,
    ) -> Result<Option<Message>, TxnError> {
        let line = record.reply(header).map(|at| (Rc::clone(record), at));
        line.map(|line| self.value(&line)).transpose()
    }

    /// A turn's setup.
    pub(crate) fn setup(&self, of: u32, header: &Header) -> Result<Rc<ReadSetup>, TxnError> {
        if let Some(setup) = self.setups.borrow().get(&header.setup) {
            return Ok(Rc::clone(setup));
        }
        let damaged = |why: String| damaged_turn(self.id(of), why);
        let record = self.record(header.setup)?;
        let record = record.ok_or_else(|| damaged("its setup is missing".to_owned()))?;
        let lines = record.setup.iter().map(|line| self.text(line));
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        let setup = Rc::new(ReadSetup::read(lines.into_iter()).map_err(damaged)?);
        let mut setups = self.setups.borrow_mut();
        setups.insert(header.setup, Rc::clone(&setup));
        Ok(setup)
    }

    /// The JSON value of a line.
    pub(crate) fn value<T: DeserializeOwned>(&self, (record, at): &LineOf) -> Result<T, TxnError> {
        let line = record.own.get(*at as usize);
        let line = line.map_or("", String::as_str);
        let value = match shared(line) {
            None => serde_json::from_str(line),
            Some(hash) => serde_json::from_str(&texts::get(self.store, &hash)?),
        };
        value.map_err(|error| values::damaged("a text of a record", error.to_string()))
    }

    fn text(&self, line: &str) -> Result<String, TxnError> {
        match shared(line) {
            None => Ok(line.to_owned()),
            Some(hash) => texts::get(self.store, &hash),
        }
    }

    pub(crate) fn id(&self, seq: u32) -> TurnId {
        keys::id(self.number, seq)
    }
}

/// One turn.
pub(crate) fn turn(store: &Store, id: TurnId) -> Result<Option<Turn>, TxnError> {
    match SessionReader::of(store, id.session)? {
        Some(session) => session.turn(id.seq),
        None => Ok(None),
    }
}

/// The ids of a session's turns, in order.
pub(crate) fn turn_ids(store: &Store, number: u64) -> Result<Vec<TurnId>, TxnError> {
    let mut ids = Vec::new();
    for pair in store.range(Table::Turns, keys::under(&keys::session(number))) {
        ids.extend(keys::read_first_piece(&pair?.0));
    }
    Ok(ids)
}

/// The number of the session with a name.
pub(crate) fn number(
    source: &impl Source,
    agent: &metaclaw_chat::AgentId,
    session: &metaclaw_chat::SessionId,
) -> Result<Option<u64>, TxnError> {
    let number = source.get(Table::Names, &keys::name(agent, session))?;
    Ok(number.and_then(|number| keys::read_u64(&number)))
}
