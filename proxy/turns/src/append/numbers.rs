//! Assigns the numbers of sessions. No two sessions ever have the same number, and the number of a deleted session is
//! not used again.

use crate::{
    keys,
    store::{StoreError, StoreSource as _, StoreTxn, Table},
};

/// The key of the next session's number. An agent's name is never empty, so the key is unique.
const NEXT: &[u8] = &[0];
/// Prefix of a number that was skipped, because a session of another log with a higher number was restored first.
const FREE: &[u8] = &[0, 0];
/// So many skipped numbers are recorded. Any further ones stay unused.
const MOST_FREE: u64 = 10_000;

/// Returns the number for the next new session.
pub(super) fn next(txn: &StoreTxn<'_>) -> Result<u64, StoreError> {
    let stored = txn.get(Table::Names, NEXT)?;
    Ok(stored
        .and_then(|number| keys::read_u64(&number))
        .unwrap_or(1))
}

/// Returns whether no session ever had this number.
pub(super) fn is_free(txn: &StoreTxn<'_>, number: u64) -> Result<bool, StoreError> {
    let is_beyond = number >= next(txn)? && number < u64::MAX;
    Ok(is_beyond || txn.get(Table::Names, &free(number))?.is_some())
}

/// Marks a number as used.
pub(super) fn take(txn: &StoreTxn<'_>, number: u64) -> Result<(), StoreError> {
    let next = next(txn)?;
    if number < next {
        return txn.remove(Table::Names, &free(number));
    }
    for passed in (next..number)
        .rev()
        .take(usize::try_from(MOST_FREE).unwrap_or(usize::MAX))
    {
        txn.put(Table::Names, &free(passed), b"")?;
    }
    txn.put(Table::Names, NEXT, &keys::session(number + 1))
}

/// Makes new sessions use numbers above this one.
pub(crate) fn pass(txn: &StoreTxn<'_>, number: u64) -> Result<(), StoreError> {
    if number < next(txn)? {
        return Ok(());
    }
    txn.put(Table::Names, NEXT, &keys::session(number.saturating_add(1)))
}

fn free(number: u64) -> Vec<u8> {
    [FREE, &keys::session(number)].concat()
}
