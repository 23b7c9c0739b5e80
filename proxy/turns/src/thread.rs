//! The one thread that owns the store.
//!
//! It takes what is queued and gives it to the `engine`, which writes it in one transaction. When
//! turns come faster than that, it waits a moment between two transactions, so that many share one.
//! When the store fails it stops acknowledging, drops the store, opens it again with back-off, and
//! writes the turns that wait once more; each is stored once, as it carries a key of its own.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use metaclaw_chat::TurnId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    append::Prepared,
    config::{Durability, TurnsConfig},
    engine::{Engine, Ran, Read, Write},
    error::LogError,
    health::{Shared, Ticket},
    open::{OnDamage, Opened, open, wait_until_free},
};

/// How long a turn waits for its flush while turns come fast: between two transactions there is what is left
/// of it after the first, so that as many turns as can be share the next.
const WAIT: Duration = Duration::from_millis(50);
/// Where transactions take most of that, none begins sooner after another than this,
const MIN_PACE: Duration = Duration::from_millis(20);
/// and where they take little of it, none begins later.
const MAX_PACE: Duration = Duration::from_millis(40);
/// Turns in one transaction that say so. Fewer may be of callers who wait for each one.
const FAST: usize = 4;
/// The first wait before the store is opened again; each next one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LAST_WAIT: Duration = Duration::from_secs(15);

/// What the thread is asked to do.
pub(crate) enum Job {
    Work(Work),
    Close(oneshot::Sender<()>),
}

/// What is asked of the store.
pub(crate) enum Work {
    Append(Append),
    Write(Write),
    Read(Read),
}

/// A job in its place in the queue.
pub(crate) struct Queued {
    pub(crate) job: Job,
    pub(crate) _slot: OwnedSemaphorePermit,
}

/// A turn on its way, kept until it is acknowledged.
pub(crate) struct Append {
    /// Apart, as what waits is handed on several times.
    pub(crate) new: Box<Prepared>,
    pub(crate) receipt: Receipt,
    pub(crate) ticket: Ticket,
    pub(crate) _room: OwnedSemaphorePermit,
}

/// Hears what became of a turn: its id once it is safe from a kill, or why it is not in the log. On the
/// log's own thread: it must be quick.
pub type Done = Box<dyn FnOnce(Result<TurnId, LogError>) + Send>;

/// Tells what became of a turn; dropped, that the log is closed.
pub(crate) struct Receipt(Option<Done>);

/// The thread's own.
pub(crate) struct Worker {
    dir: PathBuf,
    config: TurnsConfig,
    queue: Receiver<Queued>,
    shared: Arc<Shared>,
}

/// Work as it lies in the queue, up to a job that closes the log.
struct Incoming<'a> {
    first: Option<Job>,
    queue: &'a Receiver<Queued>,
    close: Option<oneshot::Sender<()>>,
}

// === impl Receipt ===

impl Receipt {
    pub(crate) fn new(done: Done) -> Self {
        Self(Some(done))
    }

    pub(crate) fn tell(mut self, what: Result<TurnId, LogError>) {
        if let Some(done) = self.0.take() {
            done(what);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(LogError::Closed));
        }
    }
}

// === impl Incoming ===

impl Iterator for Incoming<'_> {
    type Item = Work;

    fn next(&mut self) -> Option<Work> {
        if self.close.is_some() {
            return None;
        }
        let queued = || self.queue.try_recv().ok().map(|queued| queued.job);
        match self.first.take().or_else(queued)? {
            Job::Work(work) => Some(work),
            Job::Close(done) => {
                self.close = Some(done);
                None
            }
        }
    }
}

// === impl Worker ===

impl Worker {
    pub(crate) fn new(
        dir: PathBuf,
        config: TurnsConfig,
        queue: Receiver<Queued>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            dir,
            config,
            queue,
            shared,
        }
    }

    /// Works until it is closed or nobody can ask any more.
    pub(crate) fn run(self, opened: Opened) {
        let mut engine = Engine::new(opened);
        let mut next = Instant::now();
        let done = loop {
            let Ok(first) = self.queue.recv() else {
                break None;
            };
            if let Job::Work(Work::Append(append)) = &first.job {
                self.shared.takes(append.ticket.since);
                // Nobody waits for a turn; for everything else somebody does.
                wait_until(next);
            }
            let began = Instant::now();
            let mut incoming = Incoming {
                first: Some(first.job),
                queue: &self.queue,
                close: None,
            };
            let ran = engine.run(&mut incoming, &self.shared);
            let close = incoming.close;
            if matches!(ran, Ran::Well(_)) {
                self.shared.flushed(began);
            }
            match ran {
                Ran::Well(_) if close.is_some() => break close,
                Ran::Well(n_turns) => next = began + self.pace(n_turns, began.elapsed()),
                Ran::Failed { why, waiting } => {
                    drop(engine);
                    match self.recover(why, waiting, close) {
                        Ok(recovered) => engine = recovered,
                        Err(done) => {
                            self.shared.close();
                            wait_until_free(&self.dir);
                            done.map(|done| done.send(()));
                            return;
                        }
                    }
                }
            }
        };
        self.shared.close();
        // The lock is free when the answer comes.
        drop(engine);
        wait_until_free(&self.dir);
        done.map(|done| done.send(()));
    }

    /// How long after the beginning of a transaction of so many turns, which took so long, the next one may
    /// begin.
    ///
    /// With `strict` the agent waits for its turn.
    fn pace(&self, n_turns: usize, took: Duration) -> Duration {
        match self.config.durability {
            Durability::Normal if n_turns >= FAST => {
                WAIT.saturating_sub(took).clamp(MIN_PACE, MAX_PACE)
            }
            Durability::Normal | Durability::Strict => Duration::ZERO,
        }
    }

    /// Opens the store again and writes what waits. Fails only when asked to close meanwhile.
    fn recover(
        &self,
        why: String,
        mut waiting: Vec<Append>,
        mut close: Option<oneshot::Sender<()>>,
    ) -> Result<Engine, Option<oneshot::Sender<()>>> {
        let mut wait = FIRST_WAIT;
        self.fail(why);
        loop {
            if close.is_some() {
                return Err(close);
            }
            self.hold(wait, &mut waiting, &mut close)?;
            wait = (wait * 2).min(LAST_WAIT);
            match open(&self.dir, &self.config, OnDamage::Fail) {
                Err(error) => self.fail(error.to_string()),
                Ok((opened, _)) => match self.rewrite(Engine::new(opened), waiting) {
                    // It was asked to close meanwhile, and all is written.
                    Ok(_) if close.is_some() => return Err(close),
                    Ok(engine) => return Ok(engine),
                    Err((why, left)) => {
                        self.fail(why);
                        waiting = left;
                    }
                },
            }
        }
    }

    /// Takes jobs while the store is away: turns wait, everything else fails at once.
    fn hold(
        &self,
        wait: Duration,
        waiting: &mut Vec<Append>,
        close: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), Option<oneshot::Sender<()>>> {
        let until = Instant::now() + wait;
        while close.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            match self.queue.recv_timeout(left).map(|queued| queued.job) {
                Ok(Job::Work(Work::Append(append))) => waiting.push(append),
                // Dropped: whoever asked is told that the log is broken.
                Ok(Job::Work(Work::Write(_) | Work::Read(_))) => {}
                Ok(Job::Close(done)) => *close = Some(done),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(None),
            }
        }
        Ok(())
    }

    fn rewrite(
        &self,
        mut engine: Engine,
        waiting: Vec<Append>,
    ) -> Result<Engine, (String, Vec<Append>)> {
        let began = Instant::now();
        if let Err(why) = engine.recall(waiting.len()) {
            return Err((why, waiting));
        }
        let mut left = waiting.into_iter();
        while left.len() > 0 {
            let work = left.by_ref().map(Work::Append);
            if let Ran::Failed { why, mut waiting } = engine.run(work, &self.shared) {
                waiting.extend(left);
                return Err((why, waiting));
            }
        }
        engine.forget();
        tracing::info!("the turn log works again");
        self.shared.flushed(began);
        self.shared.set_broken(None);
        Ok(engine)
    }

    fn fail(&self, why: String) {
        tracing::error!(%why, "the turn log failed: turns wait in memory until it opens again");
        self.shared.set_broken(Some(why));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what comes meanwhile shares a flush, and waking for each would cost what that saves"
)]
fn wait_until(next: Instant) {
    let left = next.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        thread::sleep(left);
    }
}
