//! The handle: what the rest of MetaClaw sees of the log.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use metaclaw_chat::TurnId;
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore, broadcast,
    mpsc::{Sender, channel},
    oneshot,
};

use crate::{
    config::TurnsConfig,
    error::{LogError, OpenError},
    folder::{self, Opening},
    health::{LogHealth, LogState, OpenOutcome},
    jobs::{Ack, Append, Done, Job, PendingTurn, Write, answer},
    new_turn::NewTurn,
    store::Store,
    txn::Txn,
    values::TxnError,
    worker::Worker,
};

/// Jobs that may be queued; beyond it whoever asks waits.
const SLOTS: usize = 4_096;
/// KiB of turns that may wait for their flush; beyond it `append` waits, and fails if the log is
/// broken.
const ROOM_KIB: usize = 64 << 10;
/// The most bytes of one turn: thrice what the gateway accepts as a body.
const MAX_TURN: usize = 96 << 20;

/// The turn log. Cheap to clone; the last clone gone, the log is closed.
#[derive(Debug, Clone)]
pub struct TurnLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: Sender<Job>,
    room: Arc<Semaphore>,
    state: Arc<LogState>,
    outcome: OpenOutcome,
    /// Keys of turns: the first is drawn, the others count on from it.
    next_key: AtomicU64,
}

// === impl TurnLog ===

impl TurnLog {
    /// Opens the log in `dir`, or makes one, on a thread of its own. Blocks until it is open.
    ///
    /// Of a database that is damaged, what can be done without is moved aside; only one that does not open without that is
    /// moved aside as a whole, and an empty one is begun. [`TurnLog::outcome`] says so.
    ///
    /// # Errors
    /// [`OpenError`]: held by another process, no space, not usable, vanished, or of another format.
    pub fn open(dir: &Path, config: &TurnsConfig) -> Result<Self, OpenError> {
        Self::open_as(dir, config, Opening::First)
    }

    /// The same, but a database that does not open stays where it is.
    ///
    /// # Errors
    /// As of [`TurnLog::open`]; and where the database is damaged.
    pub fn open_unmoved(dir: &Path, config: &TurnsConfig) -> Result<Self, OpenError> {
        Self::open_as(dir, config, Opening::Look)
    }

    fn open_as(dir: &Path, config: &TurnsConfig, opening: Opening) -> Result<Self, OpenError> {
        let (opened, outcome) = folder::open(dir, config, opening)?;
        let state = Arc::new(LogState::new());
        let (queue, jobs) = channel(SLOTS);
        let worker = Worker {
            dir: dir.to_owned(),
            config: config.clone(),
            queue: jobs,
            state: Arc::clone(&state),
        };
        let run = move || worker.run(opened);
        let spawned = thread::Builder::new()
            .name("metaclaw-turns".to_owned())
            .spawn(run);
        if let Err(error) = spawned {
            return Err(OpenError::Other {
                dir: dir.to_owned(),
                why: format!("its thread does not start: {error}"),
            });
        }
        let inner = Inner {
            queue,
            room: Arc::new(Semaphore::new(ROOM_KIB)),
            state,
            outcome,
            next_key: AtomicU64::new(RandomState::new().build_hasher().finish()),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    pub fn outcome(&self) -> &OpenOutcome {
        &self.inner.outcome
    }

    /// Finishes what is queued and closes the log; it is free for another process afterwards.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        if self.send(Job::Close(done)).await.is_ok() {
            // An error means that the thread is gone, and the log with it.
            let _ = closed.await;
        }
    }

    /// Appends a finished turn; returns when it is safe from a kill.
    ///
    /// The same request after a turn that did not end well takes that turn's place and id. The
    /// same reply, by id and text, to the same request is the turn that is there.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], [`LogError::Unreadable`]; [`LogError::Broken`] when the store is away and
    /// there is no more room to wait in. While there is room, turns wait for the store to come back: the
    /// caller bounds that.
    ///
    /// # Cancel safety
    /// Dropped before the turn is queued, nothing happens; later, the turn is appended all the same.
    ///
    /// # Examples
    /// ```
    /// use metaclaw_chat::{AgentId, ChainHash, Message};
    /// use metaclaw_turns::{NewMessage, NewTurn, Served, TurnLog, TurnMeta, TurnsConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let log = TurnLog::open(folder.path(), &TurnsConfig::default())?;
    /// let agent = AgentId::default_agent();
    /// let asked = [Message::user("What is sled?")];
    /// let id = log
    ///     .append(NewTurn {
    ///         meta: TurnMeta::whole(ChainHash::start(&agent), 1_700_000_000_000),
    ///         messages: NewMessage::all(&agent, &asked)?,
    ///         agent,
    ///         session: "first".parse()?,
    ///         continues: None,
    ///         tools: None,
    ///         params: serde_json::Map::new(),
    ///         reply: Some(Message::assistant("An embedded database.")),
    ///         served: Served::default(),
    ///         tokens: None,
    ///     })
    ///     .await?;
    /// let turn = log.get(id).await?.ok_or("it is in the log")?;
    /// assert_eq!(turn.reply.unwrap().text(), "An embedded database.");
    /// log.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn append(&self, turn: NewTurn) -> Result<TurnId, LogError> {
        let (ack, acked) = oneshot::channel();
        let done = |appended| {
            // A caller that went away wants no answer.
            let _ = ack.send(appended);
        };
        self.hand_in(turn, Box::new(done)).await;
        acked.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Hands a turn in as [`TurnLog::append`] does, and returns when it has its place in the queue:
    /// `done` is told the rest, for those who hand in many. What there is to read and to compress of the
    /// turn is done on the log's own thread.
    ///
    /// # Cancel safety
    /// As [`TurnLog::append`]; `done` is told of a turn that was not queued, too.
    pub fn hand_in(&self, turn: NewTurn, done: Done) -> impl Future<Output = ()> + Send {
        let key = self.inner.next_key.fetch_add(1, Ordering::Relaxed);
        let pending = PendingTurn::new(&self.inner.state, key, done);
        let n_bytes = turn.n_bytes();
        let new = Box::new(turn);
        async move {
            let room = match self.room(n_bytes).await {
                Ok(room) => room,
                Err(error) => return pending.tell(Err(error)),
            };
            let append = Append {
                key,
                new,
                n_bytes,
                pending,
                _room: room,
            };
            // Who is not taken is told so by being dropped.
            let _ = self.send(Job::Append(append)).await;
        }
    }

    /// Ids of turns as they are acknowledged. A receiver that lags is told so by its next `recv`; it
    /// then looks through [`TurnLog::in_state`].
    pub fn subscribe(&self) -> broadcast::Receiver<TurnId> {
        self.inner.state.appended.subscribe()
    }

    /// How the log is, at once.
    pub fn health(&self) -> LogHealth {
        self.inner.state.health()
    }

    /// Asks the thread; the answer comes from what is stored.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Store) -> Result<T, TxnError> + Send + 'static,
    ) -> Result<T, LogError> {
        let (tell, answered) = oneshot::channel();
        let read = move |store: &Store| {
            // A caller that went away wants no answer.
            let _ = tell.send(answer(question(store))?);
            Ok(())
        };
        self.send(Job::Read(Box::new(read))).await?;
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Changes something; returns after the flush.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Txn<'_>) -> Result<T, TxnError> + Send + 'static,
    ) -> Result<T, LogError> {
        let (tell, answered) = oneshot::channel();
        let write: Write = Box::new(move |txn| {
            let result = answer(change(txn))?;
            Ok(Box::new(move || {
                // A caller that went away wants no answer.
                let _ = tell.send(result);
            }) as Ack)
        });
        self.send(Job::Write(write)).await?;
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    pub(crate) fn next_key(&self) -> &AtomicU64 {
        &self.inner.next_key
    }

    pub(crate) async fn send(&self, job: Job) -> Result<(), LogError> {
        self.inner.queue.send(job).await.map_err(|_| self.gone())
    }

    /// Room for a turn of so many bytes. When the log is broken and its room is used up, capture
    /// stops: the chat goes on without it.
    async fn room(&self, n_bytes: usize) -> Result<OwnedSemaphorePermit, LogError> {
        if n_bytes > MAX_TURN {
            return Err(LogError::TooLarge {
                what: "a turn",
                n_bytes,
                max: MAX_TURN,
            });
        }
        let n_kib = (n_bytes / 1_024 + 1).min(ROOM_KIB);
        let n_kib = u32::try_from(n_kib).unwrap_or(u32::MAX);
        let room = || Arc::clone(&self.inner.room);
        if let Ok(room) = room().try_acquire_many_owned(n_kib) {
            return Ok(room);
        }
        let room = room().acquire_many_owned(n_kib);
        let mut broken = self.inner.state.watch_broken();
        tokio::select! {
            biased;
            room = room => room.map_err(|_| LogError::Closed),
            _ = broken.wait_for(Option::is_some) => Err(self.gone()),
        }
    }

    /// Why there is no answer.
    pub(crate) fn gone(&self) -> LogError {
        if self.inner.queue.is_closed() {
            return LogError::Closed;
        }
        let why = self.inner.state.health().broken;
        LogError::Broken {
            why: why.unwrap_or_else(|| "it failed in between".to_owned()),
        }
    }
}

#[cfg(test)]
impl TurnLog {
    /// Tells when the store goes away and comes back.
    pub(crate) fn watch_broken(&self) -> tokio::sync::watch::Receiver<Option<String>> {
        self.inner.state.watch_broken()
    }
}
