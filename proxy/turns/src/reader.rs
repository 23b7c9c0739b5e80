//! Readers of new turns. The log keeps the last transaction that each has read, so that it goes on there after a restart.

use metaclaw_chat::TurnId;

use crate::{
    journal, keys,
    log::{LogFuture, TurnLog},
    store::{StoreSource as _, Table},
};

/// A reader of new turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LogReader {
    /// It detects wishes.
    Wishes,
    /// It looks for facts.
    Facts,
}

// === impl TurnLog ===

impl TurnLog {
    /// Returns the last transaction that a reader has read. If none is noted, that is now the last one of the log, because
    /// old turns are not read again.
    pub fn resume(&self, reader: LogReader) -> LogFuture<'_, u64> {
        Box::pin(async move {
            let noted = self.read(move |store| {
                let last = journal::last_number(store)?;
                let noted = store.get(Table::Names, &key(reader))?;
                // A log that lost its last transactions gives their numbers away again.
                let from = noted.and_then(|noted| keys::read_u64(&noted));
                Ok(from.map_or(last, |from| from.min(last)))
            });
            let from = noted.await?;
            self.note_read(reader, Some(from)).await?;
            Ok(from)
        })
    }

    /// Returns the first transaction after one that added turns, with the turns in the order in which they came. Restored
    /// turns are not among them.
    pub fn turns_since(&self, transaction: u64) -> LogFuture<'_, Option<(u64, Vec<TurnId>)>> {
        self.read(move |store| Ok(journal::next_own(store, transaction)?))
    }

    /// Notes the last transaction that a reader has read, or that nothing reads, so that a later reader begins at the end
    /// of the log.
    pub fn note_read(&self, reader: LogReader, last: Option<u64>) -> LogFuture<'_, ()> {
        self.write(move |txn| {
            let noted = match last {
                Some(last) => txn.put(Table::Names, &key(reader), &keys::session(last)[..]),
                None => txn.remove(Table::Names, &key(reader)),
            };
            Ok(noted?)
        })
    }
}

/// An agent's name is never empty, so no name has such a key.
fn key(reader: LogReader) -> [u8; 3] {
    [0, 1, reader as u8]
}
