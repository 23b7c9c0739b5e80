//! The one thread that owns the store.
//!
//! It takes what is queued, runs it into one transaction, flushes, and only then acknowledges. When
//! the store fails it stops acknowledging, drops the store, opens it again with back-off, and writes
//! the turns that wait once more; each is stored once, as it carries a key of its own.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use metaclaw_chat::TurnId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    append::{self, Prepared},
    config::TurnsConfig,
    error::LogError,
    health::{Shared, Ticket},
    open::{OnDamage, Opened, open, wait_until_free},
    store::{Batch, StoreError, panic_text},
    tail::Cache,
    txn::{Fault, Reader, Txn},
    witness::Witness,
};

/// Operations in one transaction. A turn takes 35 µs there, and everything else waits.
const MAX_BATCH: usize = 64;
/// Time in which a batch is gathered from what is queued.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes of turns in one transaction.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// The first wait before the store is opened again; each next one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LAST_WAIT: Duration = Duration::from_secs(15);

/// Tells whoever asked; run after the flush.
pub(crate) type Ack = Box<dyn FnOnce() + Send>;
/// A change, run into a transaction. Dropped without its acknowledgement, it has failed.
pub(crate) type Write =
    Box<dyn FnOnce(&Reader, &mut Cache, &mut Batch) -> Result<Ack, StoreError> + Send>;
/// A question, answered by itself.
pub(crate) type Read = Box<dyn FnOnce(&Reader) -> Result<(), StoreError> + Send>;

/// What the thread is asked to do.
pub(crate) enum Job {
    Append(Box<Append>),
    Write(Write),
    Read(Read),
    Close(oneshot::Sender<()>),
}

/// A job in its place in the queue.
pub(crate) struct Queued {
    pub(crate) job: Job,
    pub(crate) _slot: OwnedSemaphorePermit,
}

/// A turn on its way, kept until it is acknowledged.
pub(crate) struct Append {
    pub(crate) new: Prepared,
    pub(crate) ack: oneshot::Sender<Result<TurnId, LogError>>,
    pub(crate) _ticket: Ticket,
    pub(crate) _room: OwnedSemaphorePermit,
}

/// The store with what is remembered about it.
struct Engine {
    reader: Reader,
    witness: Witness,
    cache: Cache,
}

/// The thread's own.
pub(crate) struct Worker {
    dir: PathBuf,
    config: TurnsConfig,
    queue: Receiver<Queued>,
    shared: Arc<Shared>,
}

/// Jobs that were taken from the queue together.
#[derive(Default)]
struct Gathered {
    appends: Vec<Append>,
    writes: Vec<Write>,
    reads: Vec<Read>,
    n_bytes: usize,
    close: Option<oneshot::Sender<()>>,
}

/// How a batch ended.
enum Ran {
    Well,
    /// The store failed; these turns are still to be written.
    Failed {
        why: String,
        waiting: Vec<Append>,
    },
}

// === impl Gathered ===

impl Gathered {
    fn add(&mut self, job: Job) {
        match job {
            Job::Append(append) => {
                self.n_bytes += append.new.n_bytes();
                self.appends.push(*append);
            }
            Job::Write(write) => self.writes.push(write),
            Job::Read(read) => self.reads.push(read),
            Job::Close(done) => self.close = Some(done),
        }
    }

    fn is_full(&self) -> bool {
        let n = self.appends.len() + self.writes.len();
        self.close.is_some() || n >= MAX_BATCH || self.n_bytes >= MAX_BATCH_BYTES
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
        let done = loop {
            let Ok(first) = self.queue.recv() else {
                break None;
            };
            let mut gathered = self.gather(first);
            let close = gathered.close.take();
            if let Ran::Failed { why, waiting } = engine.run(gathered, &self.shared) {
                drop(engine);
                match self.recover(why, waiting, close) {
                    Ok(recovered) => engine = recovered,
                    Err(done) => {
                        self.shared.close();
                        done.map(|done| done.send(()));
                        return;
                    }
                }
            } else if close.is_some() {
                break close;
            }
        };
        self.shared.close();
        // The lock is free when the answer comes.
        drop(engine);
        wait_until_free(&self.dir);
        done.map(|done| done.send(()));
    }

    /// What is queued now, up to one batch; it does not wait for more.
    fn gather(&self, first: Queued) -> Gathered {
        let began = Instant::now();
        let mut gathered = Gathered::default();
        gathered.add(first.job);
        while !gathered.is_full() && began.elapsed() < GATHER {
            match self.queue.try_recv() {
                Ok(queued) => gathered.add(queued.job),
                Err(_) => break,
            }
        }
        gathered
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
                Ok(Job::Append(append)) => waiting.push(*append),
                // Dropped: whoever asked is told that the log is broken.
                Ok(Job::Write(_) | Job::Read(_)) => {}
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
        let mut left = waiting.into_iter();
        loop {
            let mut gathered = Gathered::default();
            while !gathered.is_full() {
                let Some(append) = left.next() else { break };
                gathered.add(Job::Append(Box::new(append)));
            }
            if gathered.appends.is_empty() {
                tracing::info!("the turn log works again");
                self.shared.set_broken(None);
                return Ok(engine);
            }
            if let Ran::Failed { why, mut waiting } = engine.run(gathered, &self.shared) {
                waiting.extend(left);
                return Err((why, waiting));
            }
        }
    }

    fn fail(&self, why: String) {
        tracing::error!(%why, "the turn log failed: turns wait in memory until it opens again");
        self.shared.set_broken(Some(why));
    }
}

// === impl Engine ===

impl Engine {
    fn new(opened: Opened) -> Self {
        Self {
            reader: opened.reader,
            witness: opened.witness,
            cache: Cache::default(),
        }
    }

    /// Writes in one transaction, flushes, acknowledges; then answers the questions.
    fn run(&mut self, gathered: Gathered, shared: &Shared) -> Ran {
        let Gathered {
            appends,
            writes,
            reads,
            ..
        } = gathered;
        let write = AssertUnwindSafe(|| self.write(&appends, writes));
        let (ids, acks) = match flatten(catch_unwind(write)) {
            Ok(written) => written,
            Err(why) => {
                return Ran::Failed {
                    why,
                    waiting: appends,
                };
            }
        };
        for (append, result) in appends.into_iter().zip(ids) {
            if let Ok(id) = &result {
                // Nobody listening is no error.
                let _ = shared.appended.send(*id);
            }
            // Nor is a caller that did not wait.
            let _ = append.ack.send(result);
        }
        for ack in acks {
            ack();
        }
        self.cache.trim();
        for read in reads {
            let read = AssertUnwindSafe(|| read(&self.reader));
            if let Err(why) = flatten(catch_unwind(read)) {
                return Ran::Failed {
                    why,
                    waiting: Vec::new(),
                };
            }
        }
        Ran::Well
    }

    #[expect(clippy::type_complexity, reason = "two lists, used in one place")]
    fn write(
        &mut self,
        appends: &[Append],
        writes: Vec<Write>,
    ) -> Result<(Vec<Result<TurnId, LogError>>, Vec<Ack>), StoreError> {
        let Self {
            reader,
            witness,
            cache,
        } = self;
        let mut batch = Batch::default();
        let mut ids = Vec::with_capacity(appends.len());
        for append in appends {
            let append = |txn: &mut Txn<'_>| append::append(txn, &append.new);
            ids.push(operate(reader, cache, &mut batch, append)?);
        }
        let acks = writes
            .into_iter()
            .map(|write| write(reader, cache, &mut batch));
        let acks = acks.collect::<Result<_, _>>()?;
        let counts = |txn: &mut Txn<'_>| txn.write_counts();
        operate(reader, cache, &mut batch, counts)?.map_err(|error: LogError| {
            // No agent has as many reasons as that.
            StoreError::Other(error.to_string())
        })?;
        if !batch.writes.is_empty() {
            witness.join(&mut batch);
            reader.store.apply(&batch)?;
            reader.store.flush()?;
            witness.flushed();
        }
        Ok((ids, acks))
    }
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
        Ok(value) => {
            txn.commit();
            Ok(Ok(value))
        }
        Err(Fault::Refused(error)) => Ok(Err(error)),
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
