//! The store at work: jobs become one transaction, are flushed, and only then acknowledged.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use metaclaw_chat::TurnId;

use crate::{
    append,
    error::LogError,
    health::Shared,
    open::Opened,
    store::{Batch, StoreError, panic_text},
    tail::Cache,
    thread::{Append, Work},
    txn::{Fault, Reader, Txn},
    witness::Witness,
};

/// Time in which a transaction is put together; to write it takes about as long again. Whatever is
/// queued meanwhile joins it: the more there is, the more turns share a flush.
const GATHER: Duration = Duration::from_millis(10);
/// Bytes that one transaction writes.
const MAX_BYTES: usize = 8 << 20;

/// Turns that are recalled beside those of a failed transaction: others may have ended as late.
const RECALLED: usize = 100;

/// Tells whoever asked; run after the flush.
pub(crate) type Ack = Box<dyn FnOnce() + Send>;
/// A change, run into a transaction. Dropped without its acknowledgement, it has failed.
pub(crate) type Write =
    Box<dyn FnOnce(&Reader, &mut Cache, &mut Batch) -> Result<Ack, StoreError> + Send>;
/// A question, answered by itself.
pub(crate) type Read = Box<dyn FnOnce(&Reader) -> Result<(), StoreError> + Send>;

/// The store with what is remembered about it.
pub(crate) struct Engine {
    reader: Reader,
    witness: Witness,
    cache: Cache,
}

/// How a batch ended.
pub(crate) enum Ran {
    /// With so many turns.
    Well(usize),
    /// The store failed; these turns are still to be written.
    Failed { why: String, waiting: Vec<Append> },
}

/// What is written together.
#[derive(Default)]
struct Gathered {
    batch: Batch,
    appends: Vec<Append>,
    ids: Vec<Result<TurnId, LogError>>,
    acks: Vec<Ack>,
    reads: Vec<Read>,
}

// === impl Engine ===

impl Engine {
    pub(crate) fn new(opened: Opened) -> Self {
        Self {
            reader: opened.reader,
            witness: opened.witness,
            cache: Cache::default(),
        }
    }

    /// Remembers the log's last turns by the keys that they were handed in with: of `n` that a failed
    /// transaction may have written they are those to be looked through, and a few more.
    pub(crate) fn recall(&mut self, n: usize) -> Result<(), String> {
        let recalled = append::last(&self.reader, 2 * n + RECALLED);
        self.cache.recalled = recalled.map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Forgets them.
    pub(crate) fn forget(&mut self) {
        self.cache.recalled = HashMap::new();
    }

    /// Writes in one transaction, flushes, acknowledges; then answers the questions.
    ///
    /// Takes `work` until there is none, or enough for one transaction.
    pub(crate) fn run(&mut self, work: impl Iterator<Item = Work>, shared: &Shared) -> Ran {
        let mut gathered = Gathered::default();
        let write = AssertUnwindSafe(|| self.write(work, &mut gathered));
        if let Err(why) = flatten(catch_unwind(write)) {
            let waiting = gathered.appends;
            return Ran::Failed { why, waiting };
        }
        let n_turns = gathered.appends.len();
        for (append, result) in gathered.appends.into_iter().zip(gathered.ids) {
            if let Ok(id) = &result {
                // Nobody listening is no error.
                let _ = shared.appended.send(*id);
            }
            // Whoever is told finds that it waits no more.
            let Append {
                receipt, ticket, ..
            } = append;
            drop(ticket);
            receipt.tell(result);
        }
        for ack in gathered.acks {
            ack();
        }
        self.cache.trim();
        for read in gathered.reads {
            let read = AssertUnwindSafe(|| read(&self.reader));
            if let Err(why) = flatten(catch_unwind(read)) {
                let waiting = Vec::new();
                return Ran::Failed { why, waiting };
            }
        }
        Ran::Well(n_turns)
    }

    fn write(
        &mut self,
        work: impl Iterator<Item = Work>,
        gathered: &mut Gathered,
    ) -> Result<(), StoreError> {
        let began = Instant::now();
        for work in work {
            self.stage(work, gathered)?;
            if began.elapsed() >= GATHER || gathered.batch.n_bytes() >= MAX_BYTES {
                break;
            }
        }
        let Self {
            reader,
            witness,
            cache,
        } = self;
        let batch = &mut gathered.batch;
        finish(reader, cache, batch)?;
        if !batch.is_empty() {
            witness.join(batch);
            reader.store.apply(batch)?;
            reader.store.flush()?;
            witness.flushed();
        }
        Ok(())
    }

    fn stage(&mut self, work: Work, gathered: &mut Gathered) -> Result<(), StoreError> {
        let (reader, cache, batch) = (&self.reader, &mut self.cache, &mut gathered.batch);
        match work {
            Work::Append(append) => {
                // First among those that wait, should the store fail or panic.
                let at = gathered.appends.len();
                gathered.appends.push(append);
                let new = &gathered.appends[at].new;
                let append = |txn: &mut Txn<'_>| append::append(txn, new);
                gathered.ids.push(operate(reader, cache, batch, append)?);
            }
            Work::Write(write) => gathered.acks.push(write(reader, cache, batch)?),
            Work::Read(read) => gathered.reads.push(read),
        }
        Ok(())
    }
}

/// Completes a batch: it can be applied afterwards.
pub(crate) fn finish(
    reader: &Reader,
    cache: &mut Cache,
    batch: &mut Batch,
) -> Result<(), StoreError> {
    let finish = |txn: &mut Txn<'_>| txn.finish();
    operate(reader, cache, batch, finish)?.map_err(|error: LogError| {
        // A turn that was joined fits into a value, and no agent has as many reasons as one has room for.
        StoreError::Other(error.to_string())
    })
}

/// Runs one operation on top of a batch; it joins the batch unless it refuses.
pub(crate) fn operate<T, E>(
    reader: &Reader,
    cache: &mut Cache,
    batch: &mut Batch,
    operation: impl FnOnce(&mut Txn<'_>) -> Result<T, Fault<E>>,
) -> Result<Result<T, E>, StoreError> {
    let mut txn = Txn::new(reader, cache, batch);
    match operation(&mut txn) {
        Ok(value) => Ok(Ok(value)),
        Err(Fault::Refused(error)) => {
            txn.roll_back();
            Ok(Err(error))
        }
        Err(Fault::Store(error)) => Err(error),
    }
}

/// A panic of the store is a failure like any other.
fn flatten<T>(caught: std::thread::Result<Result<T, StoreError>>) -> Result<T, String> {
    match caught {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(panic_text(&*panic)),
    }
}
