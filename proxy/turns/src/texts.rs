//! Long texts by their content: what many sessions say is stored once.
//!
//! System texts, tools and long messages come back in every session. Each is a value under the hash of
//! its text. Who uses it is noted once for each session: when the last one is forgotten, it goes.

use crate::{
    keys,
    store::{Source, StoreError, StoreTxn, Table},
    text::{Hash, hash},
    values::{self, TxnError, damaged},
};

/// Stores a text that a session uses, unless it is there.
pub(crate) fn put(
    txn: &StoreTxn<'_>,
    number: u64,
    key: &Hash,
    text: &str,
) -> Result<(), StoreError> {
    let user = keys::text_user(key, number);
    if txn.get(Table::TextUsers, &user)?.is_some() {
        return Ok(());
    }
    let n_users = n_users(txn, key)?;
    if n_users == 0 {
        values::put(txn, Table::Texts, key, text.as_bytes())?;
    }
    txn.put(Table::TextUsers, &user, b"")?;
    set_users(txn, key, n_users + 1)
}

/// A session uses a text no more.
pub(crate) fn release(txn: &StoreTxn<'_>, number: u64, key: &Hash) -> Result<(), StoreError> {
    let user = keys::text_user(key, number);
    if txn.get(Table::TextUsers, &user)?.is_none() {
        return Ok(());
    }
    txn.remove(Table::TextUsers, &user)?;
    match n_users(txn, key)? {
        0 | 1 => {
            txn.remove(Table::TextUsers, key)?;
            values::remove(txn, Table::Texts, key)
        }
        n_users => set_users(txn, key, n_users - 1),
    }
}

/// The text that a line of a record stands for.
pub(crate) fn get(source: &impl Source, key: &Hash) -> Result<String, TxnError> {
    let damaged = |why: &str| damaged(format!("text {}", hex(key)), why);
    let bytes = values::get(source, Table::Texts, key)?;
    let bytes = bytes.ok_or_else(|| damaged("it is missing"))?;
    if hash(&bytes) != *key {
        return Err(damaged("its content has another hash"));
    }
    String::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))
}

/// How many sessions use a text; under its hash alone.
fn n_users(txn: &StoreTxn<'_>, key: &Hash) -> Result<u64, StoreError> {
    let n_users = txn.get(Table::TextUsers, key)?;
    Ok(n_users.and_then(|n| keys::read_u64(&n)).unwrap_or_default())
}

fn set_users(txn: &StoreTxn<'_>, key: &Hash, n_users: u64) -> Result<(), StoreError> {
    txn.put(Table::TextUsers, key, &n_users.to_be_bytes())
}

/// Lower-case hexadecimal.
pub(crate) fn hex(hash: &Hash) -> String {
    format!("{:032x}", u128::from_be_bytes(*hash))
}

/// Reads what [`hex`] wrote.
pub(crate) fn unhex(text: &str) -> Option<Hash> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(text, 16).ok());
    number.flatten().map(u128::to_be_bytes)
}
