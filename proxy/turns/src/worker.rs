//! The one thread that owns the store.
//!
//! It takes what is queued and gives it to the `engine`, which writes it in one transaction. While turns
//! come fast it lets a moment pass between two transactions, so that more of them share one. When the
//! store fails it stops acknowledging, drops the store, opens it again with back-off, and writes the turns
//! that wait once more; each is stored once, as it carries a key of its own.

use std::{
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
    engine::{Batch, Engine, Failed},
    folder::{self, Opened, Opening},
    health::LogState,
    jobs::{Append, Job},
};

/// From one transaction to the next while turns come fast: those that come meanwhile share it.
const PACE: Duration = Duration::from_millis(25);
/// Turns in one transaction that say so. Fewer may be of callers who wait for each one.
const FAST: usize = 4;
/// The first wait before the store is opened again; each next one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(15);
/// How often the queue is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) struct Worker {
    pub(crate) dir: PathBuf,
    pub(crate) config: TurnsConfig,
    pub(crate) queue: Receiver<Job>,
    pub(crate) state: Arc<LogState>,
}

/// That the log is to be closed, and who is told; nobody where all handles are gone.
struct Close(Option<oneshot::Sender<()>>);

/// What is to be done once the jobs before it are.
enum Then {
    Compact(oneshot::Sender<()>),
    Close(Close),
}

// === impl Worker ===

impl Worker {
    /// Works until it is closed or nobody can ask any more.
    pub(crate) fn run(mut self, opened: Opened) {
        let mut engine = Some(Engine::new(opened));
        let mut next = Instant::now();
        let Close(done) = loop {
            let Some(first) = self.queue.blocking_recv() else {
                break Close(None);
            };
            if let Job::Append(_) = &first {
                // Nobody waits for a turn; for everything else somebody does.
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
                // Its lock must be gone before it is opened again.
                engine = None;
                // Who waits for a compaction hears that it failed.
                let close = then.and_then(Then::close);
                match self.recover(failed, close) {
                    Ok(recovered) => engine = Some(recovered),
                    Err(close) => break close,
                }
                continue;
            }
            match then {
                None => {}
                Some(Then::Close(close)) => break close,
                Some(Then::Compact(done)) => match self.compact(engine.take()) {
                    Ok(compacted) => {
                        engine = Some(compacted);
                        // Nobody listening is no error.
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
        // The lock is free when the answer comes.
        drop(engine);
        folder::wait_until_free(&self.dir);
        done.map(|done| done.send(()));
    }

    /// Whether turns come so fast that the next transaction should wait. With `strict` the agent waits for
    /// its turn.
    fn is_fast(&self, batch: &Batch) -> bool {
        self.config.durability == Durability::Normal && batch.appends.len() >= FAST
    }

    /// Takes what is queued, up to a job that closes the log or writes it anew.
    fn gather(&mut self, first: Job) -> (Batch, Option<Then>) {
        let mut batch = Batch::default();
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Append(append) => batch.appends.push(append),
                Job::Write(write) => batch.writes.push(write),
                Job::Read(read) => batch.reads.push(read),
                Job::Compact(done) => return (batch, Some(Then::Compact(done))),
                Job::Close(done) => return (batch, Some(Then::Close(Close(Some(done))))),
            }
            let queued = || self.queue.try_recv().ok();
            next = (!batch.is_full()).then(queued).flatten();
        }
        (batch, None)
    }

    /// Writes the database anew; it is closed for that moment, and turns wait in the queue.
    fn compact(&self, engine: Option<Engine>) -> Result<Engine, Failed> {
        let failed = |why: String| Failed {
            why,
            damaged: false,
            waiting: Vec::new(),
        };
        let engine = engine.ok_or_else(|| failed("it is not open".to_owned()))?;
        let compacted = folder::compact(&self.dir, &self.config, engine.into_opened());
        let opened = compacted.map_err(|error| failed(error.to_string()))?;
        Ok(Engine::new(opened))
    }

    /// Opens the store again and writes what waits. Fails only when asked to close meanwhile.
    fn recover(&mut self, failed: Failed, mut close: Option<Close>) -> Result<Engine, Close> {
        let Failed {
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
            match folder::open(&self.dir, &self.config, Opening::Again { damaged }) {
                Err(error) => self.fail(error.to_string()),
                Ok((opened, _)) => match self.rewrite(Engine::new(opened), waiting) {
                    // If it was asked to close meanwhile, all is written.
                    Ok(engine) => return close.map_or(Ok(engine), Err),
                    Err(failed) => {
                        self.fail(failed.why);
                        damaged |= failed.damaged;
                        waiting = failed.waiting;
                    }
                },
            }
        }
    }

    /// Lets turns wait, and tells all others that the store is away, for a time or until closed.
    fn hold(&mut self, wait: Duration, waiting: &mut Vec<Append>) -> Option<Close> {
        let until = Instant::now() + wait;
        loop {
            match self.queue.try_recv() {
                Ok(Job::Append(append)) => waiting.push(append),
                // Dropped without an answer, they have failed.
                Ok(Job::Write(_) | Job::Read(_) | Job::Compact(_)) => {}
                Ok(Job::Close(done)) => return Some(Close(Some(done))),
                Err(TryRecvError::Disconnected) => return Some(Close(None)),
                Err(TryRecvError::Empty) if Instant::now() >= until => return None,
                Err(TryRecvError::Empty) => pause_until(until.min(Instant::now() + LOOK)),
            }
        }
    }

    /// Writes the turns that waited. Some may be there: the flush that failed may have written them.
    fn rewrite(&self, mut engine: Engine, waiting: Vec<Append>) -> Result<Engine, Failed> {
        let mut left = waiting.into_iter();
        loop {
            let mut batch = Batch::default();
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

// === impl Then ===

impl Then {
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
