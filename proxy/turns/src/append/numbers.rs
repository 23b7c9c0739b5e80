//! The numbers of sessions: no two ever have the same, and one that was forgotten leaves its number to nobody.

use crate::{
    keys,
    store::{Source as _, StoreError, StoreTxn, Table},
};

/// Where the next session's number stands: an agent's name is never empty.
const NEXT: &[u8] = &[0];
/// Before a number that was passed over, as a session of another log came first that had a higher one there.
const FREE: &[u8] = &[0, 0];
/// So many may be passed over: what is beyond stays unused.
const MOST_FREE: u64 = 10_000;

/// The next new session's number.
pub(super) fn next(txn: &StoreTxn<'_>) -> Result<u64, StoreError> {
    let stored = txn.get(Table::Names, NEXT)?;
    Ok(stored
        .and_then(|number| keys::read_u64(&number))
        .unwrap_or(1))
}

/// Whether no session ever had a number.
pub(super) fn is_free(txn: &StoreTxn<'_>, number: u64) -> Result<bool, StoreError> {
    let is_beyond = number >= next(txn)? && number < u64::MAX;
    Ok(is_beyond || txn.get(Table::Names, &free(number))?.is_some())
}

/// A session has a number from now on.
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

/// New sessions have numbers above this one.
pub(crate) fn pass(txn: &StoreTxn<'_>, number: u64) -> Result<(), StoreError> {
    if number < next(txn)? {
        return Ok(());
    }
    txn.put(Table::Names, NEXT, &keys::session(number.saturating_add(1)))
}

fn free(number: u64) -> Vec<u8> {
    [FREE, &keys::session(number)].concat()
}
