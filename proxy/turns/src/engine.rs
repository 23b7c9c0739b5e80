//! Executes jobs on the store: they become one transaction, are flushed, and only then acknowledged.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use metaclaw_chat::TurnId;

use crate::{
    append,
    error::LogError,
    folder::OpenedStore,
    health::LogState,
    jobs::{Ack, Append, ReadJob, Write},
    journal::MAX_TURNS,
    session::SessionCache,
    session_names::SessionNames,
    store::{StoreError, StoreResult, StoreTxn, panic_text},
    turn::BreakCause,
    txn::Txn,
    values,
};

const MAX_BYTES: usize = 8 << 20;

pub(crate) struct StoreEngine {
    pub(crate) opened: OpenedStore,
    cache: SessionCache,
}

#[derive(Default)]
pub(crate) struct JobBatch {
    pub(crate) appends: Vec<Append>,
    pub(crate) writes: Vec<Write>,
    pub(crate) reads: Vec<ReadJob>,
}

pub(crate) struct FailedBatch {
    pub(crate) why: String,
    pub(crate) damaged: bool,
    pub(crate) waiting: Vec<Append>,
}

#[derive(Default)]
struct WrittenBatch {
    ids: Vec<Result<TurnId, LogError>>,
    acks: Vec<Ack>,
    broken: Vec<(TurnId, BreakCause)>,
}

// === impl JobBatch ===

impl JobBatch {
    pub(crate) fn is_full(&self) -> bool {
        let n_bytes: usize = self.appends.iter().map(|append| append.n_bytes).sum();
        self.appends.len() >= MAX_TURNS || n_bytes >= MAX_BYTES
    }
}

// === impl StoreEngine ===

impl StoreEngine {
    pub(crate) fn new(opened: OpenedStore, names: &Arc<SessionNames>) -> Self {
        if let Err(error) = names.load(&opened.store) {
            tracing::debug!(%error, "the names of the log's sessions cannot be read");
        }
        Self {
            opened,
            cache: SessionCache::new(Arc::clone(names)),
        }
    }

    /// Writes in one transaction, flushes, acknowledges, and then answers the queries.
    pub(crate) fn run(&mut self, batch: JobBatch, state: &LogState) -> Result<(), FailedBatch> {
        let JobBatch {
            appends,
            writes,
            reads,
        } = batch;
        let WrittenBatch { ids, acks, broken } = match caught(|| self.write(&appends, writes)) {
            Ok(written) => written,
            Err(failed) => {
                let waiting = appends;
                return Err(FailedBatch { waiting, ..failed });
            }
        };
        state.prompts_broke(&broken);
        for (append, result) in appends.into_iter().zip(ids) {
            if let Ok(id) = &result {
                // It is no error if nobody listens.
                let _ = state.appended.send(*id);
            }
            append.answer(result);
        }
        for ack in acks {
            ack();
        }
        for read in reads {
            caught(|| read(&self.opened.store))?;
        }
        Ok(())
    }

    fn write(&mut self, appends: &[Append], writes: Vec<Write>) -> StoreResult<WrittenBatch> {
        let Self { opened, cache } = self;
        if appends.is_empty() && writes.is_empty() {
            return Ok(WrittenBatch::default());
        }
        let number = opened.counter.next();
        let write = |store: &StoreTxn<'_>| {
            let mut txn = Txn::new(store, cache, &opened.mask);
            let mut ids = Vec::with_capacity(appends.len());
            for Append { key, new, .. } in appends {
                ids.push(values::split(append::append(&mut txn, *key, new))?);
            }
            let written = writes.into_iter().map(|write| write(&mut txn));
            let acks = written.collect::<Result<_, _>>()?;
            let broken = txn.finish(number)?;
            Ok(WrittenBatch { ids, acks, broken })
        };
        let written = opened.store.transaction(write)?;
        opened.store.flush()?;
        opened.check_place()?;
        opened.counter.flushed();
        Ok(written)
    }
}

// === impl FailedBatch ===

impl FailedBatch {
    pub(crate) fn new(why: String, damaged: bool) -> Self {
        Self {
            why,
            damaged,
            waiting: Vec::new(),
        }
    }
}

/// Runs work on the store. A panic of the store is treated like any other failure. Mostly it concerns a page that the
/// store cannot interpret.
fn caught<T>(work: impl FnOnce() -> StoreResult<T>) -> Result<T, FailedBatch> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            let is_damage = matches!(error, StoreError::Damaged(_));
            Err(FailedBatch::new(error.to_string(), is_damage))
        }
        Err(panic) => Err(FailedBatch::new(panic_text(&*panic), true)),
    }
}
