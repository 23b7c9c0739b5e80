//! What goes again: whole sessions, and texts that are masked. The counts stay.

use std::collections::BTreeSet;

use metaclaw_chat::{AgentId, SessionId};
use serde_json::Value;

use crate::{
    keys,
    read::number,
    record::{Line, Record, shared},
    state,
    store::Table,
    texts,
    turn::TurnState,
    txn::Txn,
    values::{self, TxnError},
};

/// A text without what is to be masked; `None` where nothing is.
type Mask = dyn Fn(&str) -> Option<String> + Send;

/// Removes a session with all that it alone holds; how many turns that were.
pub(crate) fn session(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    name: &SessionId,
) -> Result<u64, TxnError> {
    let Some(number) = number(txn, agent, name)? else {
        return Ok(0);
    };
    let (mut turns, mut used) = (Vec::new(), BTreeSet::new());
    for seq in 0.. {
        let id = keys::id(number, seq);
        let record = match Record::get(txn, id) {
            Ok(Some(record)) => Some(record),
            Ok(None) => break,
            // Its texts stay; that is the price of the damage.
            Err(TxnError::Refused(_)) => None,
            Err(error) => return Err(error),
        };
        used.extend(record.iter().flat_map(Record::shared));
        turns.push((id, state::get(txn, id).unwrap_or(TurnState::Captured)));
    }
    for (id, state) in &turns {
        state::remove(txn, agent, *id, state)?;
        for table in [Table::Turns, Table::Tokens, Table::Verdicts, Table::Uses] {
            values::remove(txn, table, &keys::turn(*id))?;
        }
    }
    for hash in used {
        texts::release(txn, number, &hash)?;
    }
    values::remove(txn, Table::Sessions, &keys::session(number))?;
    txn.remove(Table::Names, &keys::name(agent, name))?;
    txn.cache.take(number);
    let n_turns = turns.len() as u64;
    txn.count(agent, |funnel| {
        funnel.forgotten += n_turns;
        let taken = turns.iter().map(|(_, state)| state);
        let taken = taken.filter(|state| matches!(state, TurnState::Taken { .. }));
        taken.for_each(|state| state::leave(funnel, state));
    })?;
    Ok(n_turns)
}

/// Masks the texts of a session; how many turns that concerns. They keep no token ids, which would tell
/// the text, and get none.
pub(crate) fn mask(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    name: &SessionId,
    mask: &Mask,
) -> Result<u64, TxnError> {
    let Some(number) = number(txn, agent, name)? else {
        return Ok(0);
    };
    let (mut masked, mut before, mut after) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut is_masked = false;
    for seq in 0.. {
        let id = keys::id(number, seq);
        let Some(record) = Record::get(txn, id)? else {
            break;
        };
        before.extend(record.shared());
        let mut lines = |lines: &[String]| {
            let lines = lines.iter().map(|line| {
                let (line, changed) = masked_line(txn, line, mask)?;
                is_masked |= changed;
                Ok(line)
            });
            lines.collect::<Result<Vec<Line>, TxnError>>()
        };
        let (own, setup) = (lines(&record.own)?, lines(&record.setup)?);
        let shared = own.iter().chain(&setup).filter_map(|line| match line {
            Line::Shared(hash, text) => Some((*hash, text.clone())),
            Line::Text(_) => None,
        });
        after.extend(shared);
        // Whatever comes behind the first masked text may have it in its request.
        if is_masked {
            let mut header = record.header(id)?;
            header.masked = true;
            let text = Record::write(&header, &own, &setup);
            let text =
                text.map_err(|error| values::damaged(format!("turn {id}"), error.to_string()))?;
            masked.push((id, text));
        }
    }
    for (id, text) in &masked {
        values::put(txn, Table::Turns, &keys::turn(*id), text.as_bytes())?;
        values::remove(txn, Table::Tokens, &keys::turn(*id))?;
    }
    for (hash, text) in &after {
        before.remove(hash);
        texts::put(txn, number, hash, text)?;
    }
    for hash in before {
        texts::release(txn, number, &hash)?;
    }
    txn.cache.take(number);
    Ok(masked.len() as u64)
}

/// A line with its texts masked, and whether there was something to mask.
fn masked_line(txn: &Txn<'_>, line: &str, mask: &Mask) -> Result<(Line, bool), TxnError> {
    let text = match shared(line) {
        Some(hash) => texts::get(txn, &hash)?,
        None => line.to_owned(),
    };
    let value = serde_json::from_str(&text);
    let mut value: Value =
        value.map_err(|error| values::damaged("a text of a record", error.to_string()))?;
    let changed = mask_value(&mut value, mask);
    let text = if changed { value.to_string() } else { text };
    Ok((Line::new(text), changed))
}

fn mask_value(value: &mut Value, mask: &Mask) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => match mask(text) {
            Some(masked) => {
                *text = masked;
                true
            }
            None => false,
        },
        Value::Array(values) => values
            .iter_mut()
            .fold(false, |masked, value| mask_value(value, mask) | masked),
        Value::Object(fields) => fields
            .values_mut()
            .fold(false, |masked, value| mask_value(value, mask) | masked),
    }
}
