//! The only thread that owns the store.
//!
//! It passes the queued jobs to the `engine`, which writes them in one transaction. While turns come fast, it waits a
//! moment between two transactions, so that more turns share one. If the store fails, it stops acknowledging, drops the
//! store, opens it again with increasing waits, and writes the waiting turns again. Each is stored once, because it has
//! a unique key.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{
    mpsc::{Receiver, error::TryRecvError},
    oneshot,
};

use crate::{
    config::{Durability, TurnsConfig},
    engine::{FailedBatch, JobBatch, StoreEngine},
    folder::{self, OpenMode, OpenedStore},
    health::LogState,
    jobs::{Append, LogJob},
};

/// Time from one transaction to the next while turns come fast. Turns that arrive in this time share the next one.
const PACE: Duration = Duration::from_millis(25);
/// Number of turns in one transaction from which turns count as fast. With fewer, the callers may wait for each turn.
const FAST: usize = 4;
/// The first wait before the store is opened again. Each following one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(15);
/// Interval at which the queue is checked in the meantime.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) struct LogWorker {
    pub(crate) dir: PathBuf,
    pub(crate) config: TurnsConfig,
    pub(crate) queue: Receiver<LogJob>,
    pub(crate) state: Arc<LogState>,
    /// The folder is removed at the end.
    pub(crate) is_scratch: bool,
}

/// A request to close the log, with the sender to notify. It is `None` if all handles were dropped.
struct Close(Option<oneshot::Sender<()>>);

enum AfterBatch {
    Compact(oneshot::Sender<()>),
    Close(Close),
}

// === impl LogWorker ===

impl LogWorker {
    pub(crate) fn run(mut self, opened: OpenedStore) {
        let mut engine = Some(StoreEngine::new(opened, &self.state.names));
        let mut next = Instant::now();
        let Close(done) = loop {
            let Some(first) = self.queue.blocking_recv() else {
                break Close(None);
            };
            if let LogJob::Append(_) = &first {
                // Nobody waits for a turn. For all other jobs, a caller waits.
                pause_until(next);
            }
            let began = Instant::now();
            let (batch, then) = self.gather(first);
            if self.is_fast(&batch) {
                next = began + PACE;
            }
            let ran = match &mut engine {
                Some(engine) => engine.run(batch, &self.state),
                None => Ok(()),
            };
            if let Err(failed) = ran {
                // The lock must be released before the store is opened again.
                engine = None;
                // A caller who waits for a compaction is notified that it failed.
                let close = then.and_then(AfterBatch::close);
                match self.recover(failed, close) {
                    Ok(recovered) => engine = Some(recovered),
                    Err(close) => break close,
                }
                continue;
            }
            match then {
                None => {}
                Some(AfterBatch::Close(close)) => break close,
                Some(AfterBatch::Compact(done)) => match self.compact(engine.take()) {
                    Ok(compacted) => {
                        engine = Some(compacted);
                        // It is no error if nobody listens.
                        let _ = done.send(());
                    }
                    Err(failed) => match self.recover(failed, None) {
                        Ok(recovered) => engine = Some(recovered),
                        Err(close) => break close,
                    },
                },
            }
        };
        self.queue.close();
        // The lock is released before the caller is notified.
        drop(engine);
        folder::wait_until_free(&self.dir);
        if self.is_scratch
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            let place = self.dir.display();
            tracing::warn!(%error, %place, "a copy of a turn log cannot be removed");
        }
        done.map(|done| done.send(()));
    }

    /// Returns whether turns come so fast that the next transaction should wait. With `strict`, it never
    /// waits, because the agent waits until its turn is on disk. Nor does it after a full one, because more turns are
    /// in the queue already: with the pause, 54 KB turns were limited to 6,000 a second.
    fn is_fast(&self, batch: &JobBatch) -> bool {
        let is_some = batch.appends.len() >= FAST && !batch.is_full();
        self.config.durability == Durability::Normal && is_some
    }

    /// Collects queued jobs, up to one that closes the log or writes it anew.
    fn gather(&mut self, first: LogJob) -> (JobBatch, Option<AfterBatch>) {
        let mut batch = JobBatch::default();
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                LogJob::Append(append) => batch.appends.push(append),
                LogJob::Write(write) => batch.writes.push(write),
                LogJob::Read(read) => batch.reads.push(read),
                LogJob::Compact(done) => return (batch, Some(AfterBatch::Compact(done))),
                LogJob::Close(done) => return (batch, Some(AfterBatch::Close(Close(Some(done))))),
            }
            let queued = || self.queue.try_recv().ok();
            next = (!batch.is_full()).then(queued).flatten();
        }
        (batch, None)
    }

    /// Writes the database anew. It is closed during that time, and turns wait in the queue.
    fn compact(&self, engine: Option<StoreEngine>) -> Result<StoreEngine, FailedBatch> {
        let failed = |why: String| FailedBatch::new(why, false);
        let engine = engine.ok_or_else(|| failed("it is not open".to_owned()))?;
        let compacted = folder::compact(&self.dir, &self.config, engine.opened);
        let opened = compacted.map_err(|error| failed(error.to_string()))?;
        Ok(StoreEngine::new(opened, &self.state.names))
    }

    /// Opens the store again and writes the waiting turns. Fails only if it is asked to close in the meantime.
    fn recover(
        &mut self,
        failed: FailedBatch,
        mut close: Option<Close>,
    ) -> Result<StoreEngine, Close> {
        let FailedBatch {
            why,
            mut damaged,
            mut waiting,
        } = failed;
        let mut wait = FIRST_WAIT;
        self.fail(why);
        loop {
            if let Some(close) = close {
                return Err(close);
            }
            close = self.hold(wait, &mut waiting);
            wait = (wait * 2).min(LAST_WAIT);
            match folder::open(&self.dir, &self.config, OpenMode::Again { damaged }) {
                Err(error) => self.fail(error.to_string()),
                Ok((opened, _)) => {
                    match self.rewrite(StoreEngine::new(opened, &self.state.names), waiting) {
                        // If it was asked to close in the meantime, everything has been written now.
                        Ok(engine) => return close.map_or(Ok(engine), Err),
                        Err(failed) => {
                            self.fail(failed.why);
                            damaged |= failed.damaged;
                            waiting = failed.waiting;
                        }
                    }
                }
            }
        }
    }

    /// Keeps turns waiting and rejects all other jobs, for a time or until closed.
    fn hold(&mut self, wait: Duration, waiting: &mut Vec<Append>) -> Option<Close> {
        let until = Instant::now() + wait;
        loop {
            match self.queue.try_recv() {
                Ok(LogJob::Append(append)) => waiting.push(append),
                // Dropping them without an answer reports the failure.
                Ok(LogJob::Write(_) | LogJob::Read(_) | LogJob::Compact(_)) => {}
                Ok(LogJob::Close(done)) => return Some(Close(Some(done))),
                Err(TryRecvError::Disconnected) => return Some(Close(None)),
                Err(TryRecvError::Empty) if Instant::now() >= until => return None,
                Err(TryRecvError::Empty) => pause_until(until.min(Instant::now() + LOOK)),
            }
        }
    }

    /// Writes the waiting turns. Some may be there already, because the failed flush may have written them.
    fn rewrite(
        &self,
        mut engine: StoreEngine,
        waiting: Vec<Append>,
    ) -> Result<StoreEngine, FailedBatch> {
        let mut left = waiting.into_iter();
        loop {
            let mut batch = JobBatch::default();
            while !batch.is_full()
                && let Some(append) = left.next()
            {
                batch.appends.push(append);
            }
            if batch.appends.is_empty() {
                break;
            }
            if let Err(mut failed) = engine.run(batch, &self.state) {
                failed.waiting.extend(left);
                return Err(failed);
            }
        }
        tracing::info!("the turn log works again");
        self.state.set_broken(None);
        Ok(engine)
    }

    fn fail(&self, why: String) {
        tracing::error!(%why, "the turn log failed: turns wait in memory until it opens again");
        self.state.set_broken(Some(why));
    }
}

// === impl AfterBatch ===

impl AfterBatch {
    fn close(self) -> Option<Close> {
        match self {
            Self::Close(close) => Some(close),
            Self::Compact(_) => None,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what comes meanwhile shares a flush, and waking for each would cost what that saves"
)]
fn pause_until(next: Instant) {
    let left = next.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        thread::sleep(left);
    }
}
