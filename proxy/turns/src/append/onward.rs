//! Requests that leave out what was said before: they name the reply that they go on from.

use metaclaw_chat::{Message, Role};

use super::{
    Prepared,
    plan::{Parent, Plan},
};
use crate::{
    diff::{Short, short},
    keys,
    raw::RawMessage,
    record::{Line, Part},
    resolve::Resolver,
    store::Table,
    tail::{MAX_DEPTH, Tail},
    txn::{Fault, Source, Txn},
};

/// How such a turn is written: on top of the turn that it names. `None` where it names none, or one
/// that this session does not have.
pub(super) fn plan(
    txn: &Txn<'_>,
    new: &Prepared,
    number: u64,
    tail: &Tail,
) -> Result<Option<Plan>, Fault> {
    let Some(reply_id) = &new.goes_on_from else {
        return Ok(None);
    };
    let Some(seq) = replied(txn, number, reply_id)? else {
        return Ok(None);
    };
    // A system text holds for one request; what the request before had in its place is not repeated.
    let (system, said) = match new.messages.split_first() {
        Some((first, said)) if is_system(first.text.as_str()) => (Some(&first.text), said),
        Some(_) | None => (None, &new.messages[..]),
    };
    let mut known = tail.turns.iter();
    let base = known.find(|turn| turn.seq == seq && turn.depth < MAX_DEPTH);
    if let Some(base) = base
        && system.is_none_or(|system| base.sequence.first() == Some(&short(&system.hash)))
    {
        return Ok(Some(on_top(seq, &base.sequence, said)));
    }
    let Some(before) = Resolver::new(txn, number).resolve(seq)? else {
        return Ok(None);
    };
    let mut lines = before.sequence.clone();
    if let (Some(system), Some(first)) = (system, lines.first()) {
        let first: Message = first.value(txn)?;
        let n_replaced = usize::from(first.role() == Role::System);
        lines.splice(..n_replaced, [Line::of(system)]);
    }
    Ok(Some(anew(seq, lines, said)))
}

/// The session's turn whose reply has that id.
fn replied(txn: &Txn<'_>, number: u64, reply_id: &str) -> Result<Option<u32>, Fault> {
    let key = keys::reply(&keys::reply_hash(reply_id), number);
    let found = txn.get(Table::Replies, &key)?;
    Ok(found.and_then(|seq| keys::read_u32(&seq)))
}

/// The conversation of turn `seq`, copied from it, and what was said since.
fn on_top(seq: u32, before: &[Short], said: &[RawMessage]) -> Plan {
    let mut hashes = before.to_vec();
    hashes.extend(said.iter().map(|it| short(&it.text.hash)));
    let mut parts = vec![Part::Copy([0, count(before.len())])];
    if !said.is_empty() {
        parts.push(Part::New(count(said.len())));
    }
    Plan {
        parent: Some(Parent {
            seq,
            new_from: before.len(),
        }),
        base: Some(seq),
        hashes,
        parts,
        new: said.iter().map(|it| Line::of(&it.text)).collect(),
    }
}

/// The same, written out: where a chain of copies would grow too long, or the system text is another.
fn anew(seq: u32, mut lines: Vec<Line>, said: &[RawMessage]) -> Plan {
    let new_from = lines.len();
    lines.extend(said.iter().map(|it| Line::of(&it.text)));
    Plan {
        parent: Some(Parent { seq, new_from }),
        base: None,
        hashes: lines.iter().map(|line| short(&line.hash())).collect(),
        parts: vec![Part::New(count(lines.len()))],
        new: lines,
    }
}

fn is_system(text: &str) -> bool {
    let message = serde_json::from_str::<Message>(text);
    message.is_ok_and(|message| message.role() == Role::System)
}

/// As in `diff`: a conversation has fewer than 2^32 messages.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
