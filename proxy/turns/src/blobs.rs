//! Texts by their content: what is said again is stored once.
//!
//! System texts, tools and long messages come back in every request of every session. Each is a
//! value under the BLAKE3 hash of its text, in pieces of 4 KB.

use std::collections::HashSet;

use crate::{
    error::LogError,
    keys,
    store::Table,
    text::JsonText,
    txn::{Fault, Source, Txn},
};

/// Texts of more bytes than this are blobs; shorter ones stand in the record that says them first.
pub(crate) const INLINE: usize = 1_024;
/// Hashes that are remembered as stored, so that a known text costs no look at the disk.
const KNOWN: usize = 4_096;

pub(crate) type Hash = [u8; 32];

/// Blobs that are known to be stored.
#[derive(Debug, Default)]
pub(crate) struct Known(HashSet<Hash>);

/// Stores a blob if it is not there.
pub(crate) fn put(txn: &mut Txn<'_>, text: &JsonText) -> Result<(), Fault> {
    if txn.cache.blobs.0.contains(&text.hash) {
        return Ok(());
    }
    let key = keys::piece(&text.hash, 0);
    if txn.get(Table::Blobs, &key)?.is_none() {
        txn.put_long(Table::Blobs, &text.hash, text.text.as_bytes())?;
    }
    if txn.cache.blobs.0.len() >= KNOWN {
        txn.cache.blobs.0.clear();
    }
    Ok(())
}

/// Remembers that a blob is stored; only once its transaction is.
pub(crate) fn remember(known: &mut Known, hash: Hash) {
    known.0.insert(hash);
}

/// A blob's text.
pub(crate) fn get(source: &impl Source, hash: &Hash) -> Result<String, Fault> {
    let damaged = |why: &str| {
        Fault::Refused(LogError::Damaged {
            what: format!("text {}", hex(hash)),
            why: why.to_owned(),
        })
    };
    let Some(bytes) = source.get_long(Table::Blobs, hash)? else {
        return Err(damaged("it is missing"));
    };
    if blake3::hash(&bytes).as_bytes() != hash {
        return Err(damaged("its content has another hash"));
    }
    String::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(hash: &Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

/// Reads what [`hex`] wrote.
pub(crate) fn unhex(text: &str) -> Option<Hash> {
    blake3::Hash::from_hex(text).ok().map(Into::into)
}
