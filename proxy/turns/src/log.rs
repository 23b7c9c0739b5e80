//! The handle: the interface of the log for the rest of MetaClaw.

use std::{
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use metaclaw_chat::{TurnId, lock};
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore, broadcast,
    mpsc::{Sender, channel},
    oneshot,
};

use crate::{
    clock::ClockReadings,
    config::TurnsConfig,
    error::{LogError, OpenError},
    folder::{self, OpenMode},
    health::{LogHealth, LogState, OpenOutcome},
    jobs::{Ack, Append, Done, LogJob, Write},
    new_turn::NewTurn,
    store::Store,
    txn::Txn,
    values::{self, TxnResult},
    worker::LogWorker,
};

/// Jobs that may be queued. Beyond this, callers wait.
const SLOTS: usize = 4_096;
/// KiB of turns that may wait for their flush. Beyond this, `append` waits, and fails if the log is broken.
const ROOM_KIB: usize = 64 << 10;
/// The largest turn in bytes: three times the largest body that the gateway accepts.
const MAX_TURN: usize = 96 << 20;

/// What the log's methods return. The future is boxed, because an `async fn` is compiled again by each crate that awaits
/// it, with all of the log that it reaches. A method that says nothing else of its errors returns the store's, or
/// [`LogError::Damaged`] where something does not read back.
pub type LogFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, LogError>> + Send + 'a>>;

/// A handle to the turn log. It is cheap to clone. When the last clone is dropped, the log is closed.
#[derive(Debug, Clone)]
pub struct TurnLog {
    pub(crate) inner: Arc<LogInner>,
}

#[derive(Debug)]
pub(crate) struct LogInner {
    queue: Sender<LogJob>,
    room: Arc<Semaphore>,
    pub(crate) state: Arc<LogState>,
    outcome: OpenOutcome,
    /// Keys of turns. The first is random, and the others count up from it.
    pub(crate) next_key: AtomicU64,
    dir: PathBuf,
    clock: Mutex<ClockReadings>,
}

// === impl TurnLog ===

impl TurnLog {
    /// Opens or creates the log in `dir`, on a separate thread. Blocks until it is open.
    ///
    /// If a database is damaged, parts that it works without are moved aside. Only if it does not open even then, the
    /// whole database is moved aside, and an empty one is created. [`TurnLog::outcome`] reports this.
    ///
    /// # Errors
    /// Returns [`OpenError`]: the log is held by another process, there is no space, it is not usable, vanished, or has
    /// another format.
    pub fn open(dir: &Path, config: &TurnsConfig) -> Result<Self, OpenError> {
        Self::open_as(dir, config, OpenMode::First)
    }

    /// Opens a copy of the log, which is removed when it is closed. Nothing of the log changes, whatever is wrong with it.
    ///
    /// # Errors
    /// Fails like [`TurnLog::open`], and also if the database is damaged, or if there is no room for a copy.
    pub fn open_copy(dir: &Path, config: &TurnsConfig) -> Result<Self, OpenError> {
        let copy = dir.join(folder::COPIES[0]);
        let opened = Self::open_scratch(&copy, folder::copy_log(dir, &copy), config);
        opened.map_err(|error| match error {
            OpenError::Other { why, .. } => OpenError::Other {
                dir: dir.to_owned(),
                why,
            },
            error => error,
        })
    }

    /// Opens a copy of a database that was set aside in the log's folder. The copy is removed when it is closed.
    ///
    /// # Errors
    /// Returns [`OpenError`] with the reason, or if there is no room for a copy.
    pub fn open_aside(database: &Path, config: &TurnsConfig) -> Result<Self, OpenError> {
        let copy = database.with_file_name(folder::COPIES[1]);
        Self::open_scratch(&copy, folder::copy(database, &copy), config)
    }

    fn open_scratch(
        dir: &Path,
        copied: Result<(), OpenError>,
        config: &TurnsConfig,
    ) -> Result<Self, OpenError> {
        let opened = copied.and_then(|()| Self::open_as(dir, config, OpenMode::Scratch));
        if opened.is_err() {
            fs::remove_dir_all(dir).ok();
        }
        opened
    }

    fn open_as(dir: &Path, config: &TurnsConfig, opening: OpenMode) -> Result<Self, OpenError> {
        let (opened, outcome) = folder::open(dir, config, opening)?;
        let state = Arc::new(LogState::new());
        let (queue, jobs) = channel(SLOTS);
        let worker = LogWorker {
            dir: dir.to_owned(),
            config: config.clone(),
            queue: jobs,
            state: Arc::clone(&state),
            is_scratch: opening == OpenMode::Scratch,
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
        let inner = LogInner {
            queue,
            room: Arc::new(Semaphore::new(ROOM_KIB)),
            state,
            outcome,
            next_key: AtomicU64::new(RandomState::new().build_hasher().finish()),
            dir: dir.to_owned(),
            clock: Mutex::new(ClockReadings::read(dir)),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    pub fn outcome(&self) -> &OpenOutcome {
        &self.inner.outcome
    }

    /// Notes what the clock shows after the proxy has run for `ran` more, and writes it to a small file. The first reading
    /// of all is the time of the last main turn, because it was made with an earlier clock.
    ///
    /// # Errors
    /// Returns the log's error, or that of the file. The reading counts in this process even then.
    pub fn note_clock(&self, ran: Duration, now_ms: u64) -> LogFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let is_first = *self.clock() == ClockReadings::default();
            let last_main_ms = self.last_main_ms().await?.filter(|_| is_first);
            let mut clock = self.clock();
            if let Some(last_main_ms) = last_main_ms {
                clock.add(Duration::ZERO, last_main_ms);
            }
            clock.add(ran, now_ms);
            Ok(clock.write(&self.inner.dir))
        })
    }

    /// Returns the readings of the clock.
    ///
    /// A panic elsewhere leaves usable readings, because each change is one call.
    pub fn clock(&self) -> MutexGuard<'_, ClockReadings> {
        lock(&self.inner.clock)
    }

    /// Finishes all queued jobs and closes the log. Afterwards another process can open it.
    pub fn close(self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let (done, closed) = oneshot::channel();
            if self.send(LogJob::Close(done)).await.is_ok() {
                // An error means that the thread is gone, and the log with it.
                let _ = closed.await;
            }
        })
    }

    /// Appends a finished turn. Returns when it is safe from a kill.
    ///
    /// If the request was sent before and that turn did not end well, the new turn replaces it and gets its id. If the
    /// log has the same reply, by id and text, to the same request, the id of that turn is returned.
    ///
    /// # Errors
    /// Returns [`LogError::TooLarge`], [`LogError::TooManyMessages`] or [`LogError::Unreadable`]. Returns
    /// [`LogError::Broken`] if the store is unavailable and there is no more room to wait. While there is room, turns wait
    /// for the store. The caller has to limit that time.
    ///
    /// # Cancel safety
    /// If the future is dropped before the turn is queued, nothing happens. If it is dropped later, the turn is still
    /// appended.
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
    pub fn append(&self, turn: NewTurn) -> LogFuture<'_, TurnId> {
        Box::pin(async move {
            let (ack, acked) = oneshot::channel();
            let done = |appended| {
                // The caller may be gone.
                let _ = ack.send(appended);
            };
            self.hand_in(turn, Box::new(done)).await;
            acked.await.unwrap_or_else(|_| Err(self.gone()))
        })
    }

    /// Hands a turn in like [`TurnLog::append`], but returns when it has its place in the queue. `done` gets the
    /// result. This is for callers with many turns. Reading and compressing the turn happens on the log's own thread.
    ///
    /// # Cancel safety
    /// Works like [`TurnLog::append`]. `done` is also notified of a turn that was not queued.
    pub fn hand_in(&self, turn: NewTurn, done: Done) -> impl Future<Output = ()> + Send {
        let key = self.inner.next_key.fetch_add(1, Ordering::Relaxed);
        let mut append = Append::new(&self.inner.state, key, turn, done);
        async move {
            match self.room(append.n_bytes).await {
                Ok(room) => append.room = Some(room),
                Err(error) => return append.answer(Err(error)),
            }
            // If the job is not accepted, dropping it notifies the caller.
            let _ = self.send(LogJob::Append(append)).await;
        }
    }

    /// Returns the ids of turns as they are acknowledged. A receiver that lags gets an error from its next `recv`. It
    /// then has to search with [`TurnLog::in_state`].
    pub fn subscribe(&self) -> broadcast::Receiver<TurnId> {
        self.inner.state.appended.subscribe()
    }

    /// Returns the state of the log without waiting.
    pub fn health(&self) -> LogHealth {
        self.inner.state.health()
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Store) -> TxnResult<T> + Send + 'static,
    ) -> LogFuture<'_, T> {
        let (tell, answered) = oneshot::channel();
        let read = move |store: &Store| {
            // The caller may be gone.
            let _ = tell.send(values::split(question(store))?);
            Ok(())
        };
        self.answered(LogJob::Read(Box::new(read)), answered)
    }

    /// Makes a change. Returns after the flush.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Txn<'_>) -> TxnResult<T> + Send + 'static,
    ) -> LogFuture<'_, T> {
        let (tell, answered) = oneshot::channel();
        let write: Write = Box::new(move |txn| {
            let result = values::split(change(txn))?;
            Ok(Box::new(move || {
                // The caller may be gone.
                let _ = tell.send(result);
            }) as Ack)
        });
        self.answered(LogJob::Write(write), answered)
    }

    fn answered<T: Send + 'static>(
        &self,
        job: LogJob,
        answer: oneshot::Receiver<Result<T, LogError>>,
    ) -> LogFuture<'_, T> {
        Box::pin(async move {
            self.send(job).await?;
            answer.await.unwrap_or_else(|_| Err(self.gone()))
        })
    }

    pub(crate) async fn send(&self, job: LogJob) -> Result<(), LogError> {
        self.inner.queue.send(job).await.map_err(|_| self.gone())
    }

    /// Waits for room for a turn of so many bytes. If the log is broken and its room is used up, no more turns are
    /// captured, and chats continue without it.
    async fn room(&self, n_bytes: usize) -> Result<OwnedSemaphorePermit, LogError> {
        if n_bytes > MAX_TURN {
            return Err(LogError::TooLarge {
                what: "a turn",
                n_bytes,
                max: MAX_TURN,
            });
        }
        let n_kib = u32::try_from((n_bytes / 1_024 + 1).min(ROOM_KIB)).unwrap_or(u32::MAX);
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
    pub(crate) fn watch_broken(&self) -> tokio::sync::watch::Receiver<Option<String>> {
        self.inner.state.watch_broken()
    }
}
