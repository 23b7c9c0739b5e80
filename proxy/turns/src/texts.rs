//! Long texts by content: a text that many sessions contain is stored once.
//!
//! System prompts, tools and long messages occur in every session. Each is a value under the hash of its text, and a
//! line refers to it: `#` and the hash, with which no JSON begins. Each session that uses it is recorded once. When the
//! last one is deleted, the text is deleted.

use std::{any::Any, borrow::Cow, cell::RefCell};

use lru::LruCache;
use serde::de::DeserializeOwned;

use crate::{
    keys,
    store::{StoreResult, StoreSource, StoreTxn, Table},
    text::{Hash, hash},
    values::{self, TxnResult, damaged},
};

/// Texts of more bytes than this are stored separately, once for all sessions.
const INLINE: usize = 1_024;
const KEPT: usize = 1 << 20;

struct ReadCache {
    values: LruCache<Hash, (usize, Box<dyn Any>)>,
    n_bytes: usize,
}

// Learning reads a turn five times, and most turns have the system prompt and the tools of the previous one. With the
// cache, these are neither unpacked nor parsed again. With requests of 61 KB and 128 connections, reading took 22 % of
// the program's CPU without the cache, and 1 % with it.
thread_local! {
    static READ: RefCell<ReadCache> = RefCell::new(ReadCache::new());
}

/// Returns a text as it is written in a line. A long one is stored separately first.
pub(crate) fn put_line<'t>(
    txn: &StoreTxn<'_>,
    number: u64,
    text: &'t str,
) -> StoreResult<Cow<'t, str>> {
    if text.len() <= INLINE {
        return Ok(Cow::Borrowed(text));
    }
    share(txn, number, &hash(text.as_bytes()), text).map(Cow::Owned)
}

pub(crate) fn value<T>(source: &impl StoreSource, line: &str) -> TxnResult<T>
where
    T: DeserializeOwned + Clone + 'static,
{
    let key = shared(line);
    if let Some(kept) = key.and_then(|key| READ.with_borrow_mut(|read| read.get(&key))) {
        return Ok(kept);
    }
    let text = text(source, line)?;
    let value: T = serde_json::from_str(&text)
        .map_err(|error| damaged("a text of a turn", error.to_string()))?;
    if let Some(key) = key {
        READ.with_borrow_mut(|read| read.put(key, text.len(), value.clone()));
    }
    Ok(value)
}

pub(crate) fn text<'l>(source: &impl StoreSource, line: &'l str) -> TxnResult<Cow<'l, str>> {
    let Some(key) = shared(line) else {
        return Ok(Cow::Borrowed(line));
    };
    let damaged = |why: &str| damaged(format!("text {line}"), why);
    let stored = values::get(source, Table::Texts, &key)?;
    let bytes = stored.ok_or_else(|| damaged("it is missing"))?;
    if hash(&bytes) != key {
        return Err(damaged("its content has another hash"));
    }
    utf8(bytes).map(Cow::Owned)
}

pub(crate) fn shared(line: &str) -> Option<Hash> {
    let hex = line.strip_prefix('#').filter(|hex| hex.len() == 32)?;
    u128::from_str_radix(hex, 16).ok().map(u128::to_be_bytes)
}

pub(crate) fn line_hash(line: &str) -> Hash {
    shared(line).unwrap_or_else(|| hash(line.as_bytes()))
}

pub(crate) fn is_used(source: &impl StoreSource, number: u64, key: &Hash) -> StoreResult<bool> {
    let user = keys::text_user(key, number);
    Ok(source.get(Table::TextUsers, &user)?.is_some())
}

/// Stores a text once and records the session as its user. Returns the name by which a line refers to it.
pub(crate) fn share(
    txn: &StoreTxn<'_>,
    number: u64,
    key: &Hash,
    text: &str,
) -> StoreResult<String> {
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

pub(crate) fn name(key: &Hash) -> String {
    format!("#{:032x}", u128::from_be_bytes(*key))
}

pub(crate) fn release(txn: &StoreTxn<'_>, number: u64, key: &Hash) -> StoreResult<()> {
    if !is_used(txn, number, key)? {
        return Ok(());
    }
    txn.remove(Table::TextUsers, &keys::text_user(key, number))?;
    match n_users(txn, key)? {
        0 | 1 => {
            READ.with_borrow_mut(|read| read.remove(key));
            txn.remove(Table::TextUsers, key)?;
            values::remove(txn, Table::Texts, key)
        }
        n_users => set_users(txn, key, n_users - 1),
    }
}

/// Returns how many sessions use a text. The number is stored under the hash alone.
fn n_users(txn: &StoreTxn<'_>, key: &Hash) -> StoreResult<u64> {
    let n_users = txn.get(Table::TextUsers, key)?;
    Ok(n_users.and_then(|n| keys::read_u64(&n)).unwrap_or_default())
}

fn set_users(txn: &StoreTxn<'_>, key: &Hash, n_users: u64) -> StoreResult<()> {
    txn.put(Table::TextUsers, key, &n_users.to_be_bytes())
}

fn utf8(bytes: Vec<u8>) -> TxnResult<String> {
    String::from_utf8(bytes).map_err(|_| damaged("a text", "it is not UTF-8"))
}

// === impl ReadCache ===

impl ReadCache {
    fn new() -> Self {
        Self {
            values: LruCache::unbounded(),
            n_bytes: 0,
        }
    }

    fn get<T: Clone + 'static>(&mut self, key: &Hash) -> Option<T> {
        let (_, value) = self.values.get(key)?;
        value.downcast_ref().cloned()
    }

    fn put(&mut self, key: Hash, n_bytes: usize, value: impl Any) {
        self.remove(&key);
        self.n_bytes += n_bytes;
        self.values.put(key, (n_bytes, Box::new(value)));
        while self.n_bytes > KEPT
            && let Some((_, (n_bytes, _))) = self.values.pop_lru()
        {
            self.n_bytes -= n_bytes;
        }
    }

    fn remove(&mut self, key: &Hash) {
        if let Some((n_bytes, _)) = self.values.pop(key) {
            self.n_bytes -= n_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_last_is_kept_up_to_a_bound_and_as_what_it_was_read() {
        let mut read = ReadCache::new();
        for n in 0..5 {
            read.put([n; 16], KEPT / 4, n);
        }
        assert_eq!(
            (read.get::<u8>(&[0; 16]), read.get(&[1; 16])),
            (None, Some(1u8))
        );
        assert_eq!(read.get::<u16>(&[1; 16]), None);
        read.put([1; 16], KEPT / 4, "other");
        read.remove(&[2; 16]);
        assert_eq!((read.n_bytes, read.values.len()), (3 * KEPT / 4, 3));
        read.put([9; 16], KEPT + 1, 9u8);
        assert_eq!((read.n_bytes, read.values.len()), (0, 0));
    }
}
