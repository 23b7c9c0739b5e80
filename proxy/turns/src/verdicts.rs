//! How turns were judged: all verdicts are kept, the last is in force.

use metaclaw_chat::{TurnId, Verdict};

use crate::{
    keys, state,
    store::{Source, Table},
    turn::TurnState,
    txn::Txn,
    values::{self, TxnError},
};

/// All verdicts on a turn, the oldest first.
pub(crate) fn all(source: &impl Source, id: TurnId) -> Result<Vec<Verdict>, TxnError> {
    let verdicts = values::get_json(source, Table::Verdicts, &keys::turn(id))?;
    Ok(verdicts.unwrap_or_default())
}

/// Gives a turn its verdict; false if it has one.
///
/// A captured turn is judged thereby; one that is spent or held out stays so.
pub(crate) fn judge(txn: &mut Txn<'_>, id: TurnId, verdict: Verdict) -> Result<bool, TxnError> {
    add(txn, id, verdict, false)
}

/// Gives a turn a verdict that overrules those that it has; whether it had one.
pub(crate) fn overrule(txn: &mut Txn<'_>, id: TurnId, verdict: Verdict) -> Result<bool, TxnError> {
    Ok(!add(txn, id, verdict, true)?)
}

/// Whether it is the first.
fn add(txn: &mut Txn<'_>, id: TurnId, verdict: Verdict, overrules: bool) -> Result<bool, TxnError> {
    let (agent, state) = state::of_turn(txn, id)?;
    let mut verdicts = all(txn, id)?;
    let is_first = verdicts.is_empty();
    if !is_first && !overrules {
        return Ok(false);
    }
    verdicts.push(verdict);
    values::put_json(txn, Table::Verdicts, &keys::turn(id), &verdicts)?;
    if state == TurnState::Captured {
        state::advance(txn, &agent, id, (&state, &TurnState::Judged))?;
    }
    if is_first {
        txn.count(&agent, |funnel| funnel.judged += 1)?;
    }
    Ok(is_first)
}
