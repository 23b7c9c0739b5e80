//! Puts a turn's messages together again from its record and those it builds on.

use std::{collections::VecDeque, sync::Arc};

use metaclaw_chat::{ChainHash, Message, Role, TurnId};
use serde_json::Value;

use crate::{
    diff::{self, Short, short},
    error::LogError,
    record::{Header, Line, Part, Record, Setup, damaged},
    run,
    store::Table,
    tail::{SessionRecord, Tail, TailTurn, WINDOW},
    tokens,
    turn::{Request, StreamEnd, Turn},
    txn::{Fault, Source},
    {keys, state},
};

/// Turns that a walk through a session keeps, so that each record is read once.
const KEPT: usize = 16;

/// A turn whose messages are found, though not yet read as JSON.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) header: Header<'static>,
    pub(crate) setup: Arc<Setup>,
    /// Records that it builds on, one upon the other.
    pub(crate) depth: u32,
    /// The request's messages, then the reply.
    pub(crate) sequence: Vec<Line>,
}

/// Reads turns of one session, remembering the last few.
#[derive(Debug)]
pub(crate) struct Resolver<'a, S> {
    source: &'a S,
    number: u64,
    kept: VecDeque<(u32, Arc<Resolved>)>,
}

// === impl Resolved ===

impl Resolved {
    /// The request's messages.
    pub(crate) fn messages(&self) -> &[Line] {
        let n = self.sequence.len() - usize::from(self.header.reply);
        &self.sequence[..n]
    }

    /// The reply.
    pub(crate) fn reply(&self) -> Option<&Line> {
        self.sequence.last().filter(|_| self.header.reply)
    }

    /// The hash of the conversation with the reply.
    pub(crate) fn after(&self, source: &impl Source) -> Result<Option<ChainHash>, Fault> {
        let Some(reply) = self.reply() else {
            return Ok(None);
        };
        let reply: Message = reply.value(source)?;
        Ok((reply.role() == Role::Assistant).then(|| self.header.chain.then(&reply)))
    }
}

// === impl Resolver ===

impl<'a, S: Source> Resolver<'a, S> {
    pub(crate) fn new(source: &'a S, number: u64) -> Self {
        Self {
            source,
            number,
            kept: VecDeque::new(),
        }
    }

    /// One turn of the session.
    ///
    /// A base is always an earlier turn, so that the walk back ends.
    pub(crate) fn resolve(&mut self, seq: u32) -> Result<Option<Arc<Resolved>>, Fault> {
        let mut waiting = Vec::new();
        let mut next = Some(seq);
        let mut base = None;
        while let Some(seq) = next {
            if let Some((_, kept)) = self.kept.iter().find(|(kept, _)| *kept == seq) {
                base = Some(Arc::clone(kept));
                break;
            }
            let id = self.id(seq);
            let Some(record) = Record::get(self.source, id)? else {
                return match waiting.last() {
                    None => Ok(None),
                    Some((after, _)) => Err(damaged(
                        self.id(*after),
                        format!("turn {id}, which it builds on, is missing"),
                    )),
                };
            };
            next = record.header.base;
            if next.is_some_and(|base| base >= seq) {
                return Err(damaged(id, "it builds on a later turn"));
            }
            waiting.push((seq, record));
        }
        while let Some((seq, record)) = waiting.pop() {
            let id = self.id(seq);
            let resolved = build(record, base.as_deref()).map_err(|why| damaged(id, why))?;
            base = Some(self.keep(seq, resolved));
        }
        Ok(base)
    }

    fn keep(&mut self, seq: u32, resolved: Resolved) -> Arc<Resolved> {
        let resolved = Arc::new(resolved);
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((seq, Arc::clone(&resolved)));
        resolved
    }

    fn id(&self, seq: u32) -> TurnId {
        TurnId {
            session: self.number,
            seq,
        }
    }

    /// One turn with everything that is known about it.
    pub(crate) fn turn(
        &mut self,
        session: &SessionRecord,
        seq: u32,
    ) -> Result<Option<Turn>, Fault> {
        let id = self.id(seq);
        let Some(resolved) = self.resolve(seq)? else {
            return Ok(None);
        };
        let header = &resolved.header;
        let messages = resolved
            .messages()
            .iter()
            .map(|line| line.value(self.source));
        let (tools, served) = setup(self.source, &resolved.setup)?;
        Ok(Some(Turn {
            id,
            agent: session.agent.clone(),
            session: session.session.clone(),
            kind: header.kind,
            chain: header.chain,
            parent: header.parent.map(|seq| self.id(seq)),
            new_from: header.new_from as usize,
            request: Request {
                messages: messages.collect::<Result<_, _>>()?,
                tools,
                params: resolved.setup.params.clone(),
            },
            reply: resolved
                .reply()
                .map(|line| line.value(self.source))
                .transpose()?,
            reply_id: header.reply_id.as_deref().map(str::to_owned),
            finish_reason: header.finish_reason.as_deref().map(str::to_owned),
            usage: header.usage,
            end: header.end,
            served,
            started_ms: header.started_ms,
            first_byte_ms: header.first_byte_ms(),
            ended_ms: header.ended_ms(),
            is_last: header.last,
            state: state::get(self.source, id)?,
            verdict: self.source.get_json(Table::Verdicts, &keys::turn(id))?,
            tokens: tokens::get(self.source, id)?,
        }))
    }

    /// What a new turn of this session will be compared with.
    ///
    /// A turn that does not read back is left out, and said: it must not keep later ones from the log.
    pub(crate) fn tail(&mut self) -> Result<Tail, Fault> {
        let mut tail = Tail::default();
        for seq in last_seqs(self.source, self.number)? {
            match self.tail_turn(seq) {
                Ok(turn) => tail.put(turn),
                Err(Fault::Refused(error)) => tracing::warn!(%error, "a turn is left out"),
                Err(fault) => return Err(fault),
            }
            tail.next_seq = seq.saturating_add(1);
        }
        Ok(tail)
    }

    fn tail_turn(&mut self, seq: u32) -> Result<TailTurn, Fault> {
        let id = self.id(seq);
        let resolved = self.resolve(seq)?;
        let resolved = resolved.ok_or_else(|| damaged(id, "it is missing"))?;
        let setup = resolved.setup.text();
        let setup = setup.map_err(|error| damaged(id, error.to_string()))?;
        let header = &resolved.header;
        let lines = resolved.sequence.iter();
        let sequence: Vec<Short> = lines.map(|line| short(&line.hash())).collect();
        Ok(TailTurn {
            seq,
            key: header.key,
            kind: header.kind,
            chain: header.chain,
            after: resolved.after(self.source)?,
            complete: header.end == StreamEnd::Complete,
            base: header.base,
            depth: resolved.depth,
            mask: diff::mask(&sequence),
            sequence,
            n_messages: resolved.messages().len(),
            reply_id: header.reply_id.as_deref().map(keys::reply_hash),
            setup: *blake3::hash(&setup).as_bytes(),
            ended_ms: header.ended_ms(),
        })
    }
}

/// Messages as the record says, the setup from whoever has it.
fn build(record: Record, base: Option<&Resolved>) -> Result<Resolved, String> {
    let setup = match (record.setup, base) {
        (Some(setup), _) => Arc::new(setup),
        (None, Some(base)) => Arc::clone(&base.setup),
        (None, None) => return Err("it has neither a setup nor a base".to_owned()),
    };
    let mut new = record.new.into_iter();
    let mut sequence = Vec::with_capacity(record.header.n_messages() + 1);
    for part in &*record.header.parts {
        match *part {
            Part::New(n) => sequence.extend(new.by_ref().take(n as usize)),
            Part::Copy([at, n]) => {
                let from = base.map_or(&[][..], |base| &base.sequence);
                let run = (at as usize).checked_add(n as usize);
                let run = run.and_then(|end| from.get(at as usize..end));
                sequence.extend_from_slice(run.ok_or("its base has not as many messages")?);
            }
        }
    }
    sequence.extend(record.reply);
    Ok(Resolved {
        header: record.header,
        setup,
        depth: base.map_or(0, |base| base.depth.saturating_add(1)),
        sequence,
    })
}

/// The tools and the serving data as they were put.
fn setup(
    source: &impl Source,
    setup: &Setup,
) -> Result<(Option<Value>, crate::turn::Served), Fault> {
    let tools = setup
        .tools
        .as_ref()
        .map(|line| line.value(source))
        .transpose()?;
    let mut served = setup.served.clone();
    served.system_block = setup
        .block
        .as_ref()
        .map(|line| line.value(source))
        .transpose()?;
    Ok((tools, served))
}

/// The places of a session's last turns, in order.
fn last_seqs(source: &impl Source, number: u64) -> Result<Vec<u32>, Fault> {
    let (from, to) = keys::under(&keys::session(number));
    let mut seqs: Vec<u32> = Vec::new();
    for pair in source.store().range(Table::Turns, from, to).rev() {
        let (key, _) = pair?;
        let Some((first, piece)) = keys::read_piece(&key) else {
            let what = "a key of the turns".to_owned();
            let why = format!("{} bytes long", key.len());
            return Err(Fault::Refused(LogError::Damaged { what, why }));
        };
        if piece == 0 {
            let n = n_records(source, first)?;
            seqs.extend((first.seq..first.seq.saturating_add(n)).rev());
        }
        if seqs.len() >= WINDOW {
            break;
        }
    }
    seqs.truncate(WINDOW);
    seqs.reverse();
    Ok(seqs)
}

/// How many turns a value holds; where that does not read back, as many as may: what comes later must not
/// take the place of one.
fn n_records(source: &impl Source, first: TurnId) -> Result<u32, Fault> {
    let n = match source.get_long(Table::Turns, &keys::turn(first)) {
        Ok(value) => value.and_then(|value| run::count(&value).ok()),
        Err(Fault::Refused(_)) => None,
        Err(fault) => return Err(fault),
    };
    Ok(u32::try_from(n.unwrap_or(run::MAX_TURNS)).unwrap_or(u32::MAX))
}
