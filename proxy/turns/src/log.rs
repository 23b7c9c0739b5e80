//! The handle: what the rest of MetaClaw sees of the log.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use metaclaw_chat::{AgentId, SessionId, TurnId, Verdict, now_ms};
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore, broadcast,
    mpsc::{Sender, channel},
    oneshot,
};

use crate::{
    config::TurnsConfig,
    error::{FinishError, LogError, OpenError, TakeError},
    folder::{self, Opening},
    forget,
    health::{LogHealth, OpenOutcome, Shared},
    jobs::{Ack, Append, Done, Job, Receipt, Write, answer},
    keys,
    new_turn::NewTurn,
    state,
    step::{self, NewStep, StepOutcome},
    store::{Store, Table},
    tokens,
    turn::{Tokens, TurnState},
    txn::Txn,
    values::TxnError,
    verdicts,
    worker::Worker,
};

mod questions;

/// Jobs that may be queued; beyond it whoever asks waits.
const SLOTS: usize = 4_096;
/// KiB of turns that may wait for their flush; beyond it `append` waits, and fails if the log is
/// broken.
const ROOM_KIB: usize = 64 << 10;
/// The most bytes of one turn: thrice what the gateway accepts as a body.
const MAX_TURN: usize = 96 << 20;

/// The turn log. Cheap to clone; the last clone gone, the log is closed.
#[derive(Clone)]
pub struct TurnLog {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Sender<Job>,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
    outcome: OpenOutcome,
    /// Keys of turns: the first is drawn, the others count on from it.
    next_key: AtomicU64,
}

// === impl TurnLog ===

#[expect(
    clippy::missing_errors_doc,
    reason = "where nothing is said: the store's, or `LogError::NoSuchTurn`"
)]
impl TurnLog {
    /// Opens the log in `dir`, or makes one, on a thread of its own. Blocks until it is open.
    ///
    /// A database that is damaged or cut short, or of an older format, is moved aside, an empty one is
    /// begun, and [`TurnLog::outcome`] says so.
    ///
    /// # Errors
    /// [`OpenError`]: held by another process, no space, not writable, vanished, or of a later format.
    pub fn open(dir: &Path, config: &TurnsConfig) -> Result<Self, OpenError> {
        let (opened, outcome) = folder::open(dir, config, Opening::First)?;
        let shared = Arc::new(Shared::new());
        let (queue, jobs) = channel(SLOTS);
        let worker = Worker {
            dir: dir.to_owned(),
            config: config.clone(),
            queue: jobs,
            shared: Arc::clone(&shared),
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
            shared,
            outcome,
            next_key: AtomicU64::new(RandomState::new().build_hasher().finish()),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What opening found.
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
        let receipt = Receipt::new(done);
        let key = self.inner.next_key.fetch_add(1, Ordering::Relaxed);
        let ticket = self.inner.shared.wait(key);
        let n_bytes = turn.n_bytes();
        let new = Box::new(turn);
        async move {
            let room = match self.room(n_bytes).await {
                Ok(room) => room,
                Err(error) => return receipt.tell(Err(error)),
            };
            let append = Append {
                key,
                new,
                n_bytes,
                receipt,
                ticket,
                _room: room,
            };
            // Who is not taken is told so by being dropped.
            let _ = self.send(Job::Append(append)).await;
        }
    }

    /// Adds the ids that the reply was sampled as; false if the turn has some, or may have none as its text
    /// was masked.
    ///
    /// # Errors
    /// [`LogError::UnevenTokens`], [`LogError::NoSuchTurn`], or the store's.
    pub async fn add_tokens(&self, id: TurnId, tokens: Tokens) -> Result<bool, LogError> {
        self.write(move |txn| tokens::add(txn, id, &tokens)).await
    }

    /// Gives a turn its verdict; false, and nothing changed, if it has one.
    pub async fn judge(&self, id: TurnId, verdict: Verdict) -> Result<bool, LogError> {
        self.write(move |txn| verdicts::judge(txn, id, verdict))
            .await
    }

    /// Gives a turn a verdict that overrules the one it has, which is kept; whether it had one.
    pub async fn overrule(&self, id: TurnId, verdict: Verdict) -> Result<bool, LogError> {
        self.write(move |txn| verdicts::overrule(txn, id, verdict))
            .await
    }

    /// Sets a captured or judged turn aside for good, saying why; false if it is neither.
    pub async fn spend(&self, id: TurnId, why: &str) -> Result<bool, LogError> {
        let to = TurnState::Spent {
            why: why.to_owned(),
        };
        self.write(move |txn| state::set_aside(txn, id, &to)).await
    }

    /// Keeps a captured or judged turn for measuring; false if it is neither.
    pub async fn hold_out(&self, id: TurnId) -> Result<bool, LogError> {
        self.write(move |txn| state::set_aside(txn, id, &TurnState::HeldOut))
            .await
    }

    /// Begins a training step: writes it and takes its turns, all or nothing.
    ///
    /// # Errors
    /// [`TakeError`]; nothing was changed then, but for [`LogError::Broken`], after which
    /// [`TurnLog::open_steps`] tells.
    pub async fn take(&self, step: NewStep) -> Result<(), TakeError> {
        let now_ms = now_ms();
        self.write(move |txn| step::take(txn, step, now_ms)).await
    }

    /// Ends an agent's open step: its turns are trained, or free again.
    ///
    /// # Errors
    /// [`FinishError`]; nothing was changed then, but for [`LogError::Broken`].
    pub async fn finish_step(
        &self,
        agent: &AgentId,
        n: u64,
        outcome: StepOutcome,
    ) -> Result<(), FinishError> {
        let agent = agent.clone();
        self.write(move |txn| step::finish(txn, &agent, n, outcome))
            .await
    }

    /// Notes the adapter that an agent is served with; none is the base model.
    pub async fn set_serving(
        &self,
        agent: &AgentId,
        adapter: Option<String>,
    ) -> Result<(), LogError> {
        let key = keys::agent(agent);
        self.write(move |txn| {
            match adapter {
                Some(adapter) => txn.put(Table::Serving, &key, adapter.into_bytes())?,
                None => txn.remove(Table::Serving, &key)?,
            }
            Ok::<(), TxnError>(())
        })
        .await
    }

    /// Forgets a session: its turns, and the texts that no other session has. Counts and steps stay.
    /// Returns how many turns there were.
    ///
    /// sled overwrites what was removed only as it needs the room, and its file never shrinks: to have the
    /// text gone from the disk at once, export the log and import it into a new one.
    pub async fn forget(&self, agent: &AgentId, session: &SessionId) -> Result<u64, LogError> {
        let (agent, session) = (agent.clone(), session.clone());
        self.write(move |txn| forget::session(txn, &agent, &session))
            .await
    }

    /// Forgets the sessions whose last turn ended before a time, in Unix milliseconds; how many.
    ///
    /// # Errors
    /// The store's; what was forgotten until then is.
    pub async fn forget_before(&self, before_ms: u64) -> Result<u64, LogError> {
        let mut n_sessions = 0;
        for session in self.sessions(None, usize::MAX).await? {
            if session.ended_ms < before_ms {
                self.forget(&session.agent, &session.session).await?;
                n_sessions += 1;
            }
        }
        Ok(n_sessions)
    }

    /// Masks the texts of a session: `mask` is shown each and gives what it is to be instead. That turn and
    /// those behind it keep no token ids, and get none. Returns how many turns that are.
    ///
    /// # Errors
    /// [`LogError::Damaged`], or the store's.
    pub async fn mask(
        &self,
        agent: &AgentId,
        session: &SessionId,
        mask: impl Fn(&str) -> Option<String> + Send + 'static,
    ) -> Result<u64, LogError> {
        let (agent, session) = (agent.clone(), session.clone());
        self.write(move |txn| forget::mask(txn, &agent, &session, &mask))
            .await
    }

    /// Ids of turns as they are acknowledged. A receiver that lags is told so by its next `recv`; it
    /// then looks through [`TurnLog::in_state`].
    pub fn subscribe(&self) -> broadcast::Receiver<TurnId> {
        self.inner.shared.appended.subscribe()
    }

    /// How the log is, at once.
    pub fn health(&self) -> LogHealth {
        self.inner.shared.health()
    }

    /// Tells when the store goes away and comes back.
    #[cfg(test)]
    pub(crate) fn watch_broken(&self) -> tokio::sync::watch::Receiver<Option<String>> {
        self.inner.shared.watch_broken()
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
    async fn write<T, E>(
        &self,
        change: impl FnOnce(&mut Txn<'_>) -> Result<T, TxnError<E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<LogError> + Send + 'static,
    {
        let (tell, answered) = oneshot::channel();
        let write: Write = Box::new(move |txn| {
            let result = answer(change(txn))?;
            Ok(Box::new(move || {
                // A caller that went away wants no answer.
                let _ = tell.send(result);
            }) as Ack)
        });
        self.send(Job::Write(write)).await.map_err(E::from)?;
        answered.await.unwrap_or_else(|_| Err(self.gone().into()))
    }

    async fn send(&self, job: Job) -> Result<(), LogError> {
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
        let mut broken = self.inner.shared.watch_broken();
        tokio::select! {
            biased;
            room = room => room.map_err(|_| LogError::Closed),
            _ = broken.wait_for(Option::is_some) => Err(self.gone()),
        }
    }

    /// Why there is no answer.
    fn gone(&self) -> LogError {
        if self.inner.shared.is_closed() {
            return LogError::Closed;
        }
        let why = self.inner.shared.health().broken;
        LogError::Broken {
            why: why.unwrap_or_else(|| "it failed in between".to_owned()),
        }
    }
}

impl fmt::Debug for TurnLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnLog")
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
