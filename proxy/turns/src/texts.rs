//! Long texts by their content: what many sessions say is stored once.
//!
//! System texts, tools and long messages come back in every session. Each is a value under the hash of
//! its text, and a line only names it: `#` and the hash, as no JSON begins. Who uses it is noted once for
//! each session: when the last one is forgotten, it goes.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use crate::{
    keys,
    store::{Source, StoreError, StoreTxn, Table},
    text::{Hash, hash},
    values::{self, TxnError, damaged},
};

/// Texts of more bytes than this are stored apart, once for all who say them.
const INLINE: usize = 1_024;

/// A text as it stands in a line; a long one is stored apart for that.
pub(crate) fn put_line<'t>(
    txn: &StoreTxn<'_>,
    number: u64,
    text: &'t str,
) -> Result<Cow<'t, str>, StoreError> {
    if text.len() <= INLINE {
        return Ok(Cow::Borrowed(text));
    }
    share(txn, number, &hash(text.as_bytes()), text).map(Cow::Owned)
}

/// The value that a line stands for.
pub(crate) fn value<T: DeserializeOwned>(source: &impl Source, line: &str) -> Result<T, TxnError> {
    let value = serde_json::from_str(&text(source, line)?);
    value.map_err(|error| damaged("a text of a turn", error.to_string()))
}

/// The text that a line stands for.
pub(crate) fn text<'l>(source: &impl Source, line: &'l str) -> Result<Cow<'l, str>, TxnError> {
    let Some(key) = shared(line) else {
        return Ok(Cow::Borrowed(line));
    };
    let damaged = |why: &str| damaged(format!("text {line}"), why);
    let bytes = values::get(source, Table::Texts, &key)?;
    let bytes = bytes.ok_or_else(|| damaged("it is missing"))?;
    if hash(&bytes) != key {
        return Err(damaged("its content has another hash"));
    }
    utf8(bytes).map(Cow::Owned)
}

/// The hash that a line names, if its text is stored apart.
pub(crate) fn shared(line: &str) -> Option<Hash> {
    let hex = line.strip_prefix('#').filter(|hex| hex.len() == 32)?;
    u128::from_str_radix(hex, 16).ok().map(u128::to_be_bytes)
}

/// The hash of the text that a line stands for.
pub(crate) fn line_hash(line: &str) -> Hash {
    shared(line).unwrap_or_else(|| hash(line.as_bytes()))
}

/// Whether a session uses a text that is stored apart.
pub(crate) fn is_used(source: &impl Source, number: u64, key: &Hash) -> Result<bool, StoreError> {
    let user = keys::text_user(key, number);
    Ok(source.get(Table::TextUsers, &user)?.is_some())
}

/// Stores a text that a session uses, unless it is there; its name.
pub(crate) fn share(
    txn: &StoreTxn<'_>,
    number: u64,
    key: &Hash,
    text: &str,
) -> Result<String, StoreError> {
    if !is_used(txn, number, key)? {
        let n_users = n_users(txn, key)?;
        if n_users == 0 {
            values::put(txn, Table::Texts, key, text.as_bytes())?;
        }
        txn.put(Table::TextUsers, &keys::text_user(key, number), b"")?;
        set_users(txn, key, n_users + 1)?;
    }
    Ok(name(key))
}

/// What stands in a line for a text that is stored apart.
pub(crate) fn name(key: &Hash) -> String {
    format!("#{:032x}", u128::from_be_bytes(*key))
}

/// A session uses a text no more.
pub(crate) fn release(txn: &StoreTxn<'_>, number: u64, key: &Hash) -> Result<(), StoreError> {
    if !is_used(txn, number, key)? {
        return Ok(());
    }
    txn.remove(Table::TextUsers, &keys::text_user(key, number))?;
    match n_users(txn, key)? {
        0 | 1 => {
            txn.remove(Table::TextUsers, key)?;
            values::remove(txn, Table::Texts, key)
        }
        n_users => set_users(txn, key, n_users - 1),
    }
}

/// How many sessions use a text; under its hash alone.
fn n_users(txn: &StoreTxn<'_>, key: &Hash) -> Result<u64, StoreError> {
    let n_users = txn.get(Table::TextUsers, key)?;
    Ok(n_users.and_then(|n| keys::read_u64(&n)).unwrap_or_default())
}

fn set_users(txn: &StoreTxn<'_>, key: &Hash, n_users: u64) -> Result<(), StoreError> {
    txn.put(Table::TextUsers, key, &n_users.to_be_bytes())
}

fn utf8(bytes: Vec<u8>) -> Result<String, TxnError> {
    String::from_utf8(bytes).map_err(|_| damaged("a text", "it is not UTF-8"))
}
