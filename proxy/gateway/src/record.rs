//! From a reply's end to the turn log: beside the chat, bounded, and counted where it loses.

mod asked;
mod decode;
mod encoding;
mod ids;
mod said;

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_dialects::{Api, response_id};
use metaclaw_turns::{Done, LogError, RawTurn, StreamEnd, TurnLog};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::said::Said;
pub(crate) use self::{
    asked::{AsItCame, Asked, Request},
    encoding::Encoding,
};
use crate::{
    capture::{Budget, Capture, Held},
    clock,
    identity::Replies,
    metrics::Metrics,
};

/// Replies that wait to be read and handed to the log: one that stops for a second loses nothing. Their
/// bytes stay within `proxy.capture_memory`; beyond either, a turn is dropped and counted.
pub(crate) const AT_ONCE: usize = 16_384;

/// Replies that wait with what was asked as it came: where the log is behind, it is read before they wait,
/// as it takes of the memory of requests until then.
const UNREAD: usize = 16;

/// The most that a compressed reply is opened to while the agent waits for its end: a few milliseconds.
const AT_ITS_END: u64 = 1 << 20;

/// How long a turn is left lying after a pause of [`PAUSE`]: an agent that goes on at once, as with what a tool
/// has said, does not wait while its last turn is read and written.
const BREATH: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_millis(50);

/// How long the last turns may wait, at the end, for a log that is away.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where turns go.
pub trait TurnSink: Send + Sync + 'static {
    /// Hands a turn in; resolves when the log has taken it. `done` is told when it is durable, or why it
    /// never will be.
    fn append(&self, turn: RawTurn, done: Done) -> Appending<'_>;

    /// How long the oldest turn that was put and is not durable has been waiting.
    fn oldest_unflushed(&self) -> Option<Duration>;
}

/// What [`TurnSink::append`] gives.
pub type Appending<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Hands turns to the log. Clones share its queues.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Shared>);

struct Shared {
    queue: mpsc::Sender<Finished>,
    budget: Budget,
    replies: Arc<Replies>,
    metrics: Arc<Metrics>,
    sink: Arc<dyn TurnSink>,
    strict: bool,
}

/// The other end of the queue.
pub(crate) struct Recordings {
    queue: mpsc::Receiver<Finished>,
    sink: Arc<dyn TurnSink>,
    metrics: Arc<Metrics>,
}

/// What kind of reply began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Began {
    /// The API that it is in as the upstream sends it.
    pub api: Api,
    pub status: u16,
    pub format: Format,
    pub encoding: Encoding,
    /// vLLM was asked for token ids beside.
    pub has_ids: bool,
}

/// How a reply's bytes are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Sse,
    Json,
}

/// A reply under way.
#[derive(Debug)]
pub(crate) struct Recording {
    asked: Box<Asked>,
    began: Began,
    capture: Capture,
    n_bytes: u64,
    first_byte_ms: Option<u64>,
    /// There was nothing to relay since the first bytes were.
    has_rested: bool,
    /// Memory of the request.
    memory: Held,
    recorder: Recorder,
}

/// A reply that has ended.
#[derive(Debug)]
struct Finished {
    asked: Box<Asked>,
    began: Began,
    capture: Capture,
    n_bytes: u64,
    first_byte_ms: Option<u64>,
    ended_ms: u64,
    how: StreamEnd,
    /// Memory of the request.
    memory: Held,
    /// Dropped, not sent, when the turn never gets there.
    ack: Option<oneshot::Sender<()>>,
}

/// A reply that has been read.
struct Read {
    turn: RawTurn,
    ack: Option<oneshot::Sender<()>>,
    /// Given back when the turn is in the log.
    memory: Held,
}

impl TurnSink for TurnLog {
    fn append(&self, turn: RawTurn, done: Done) -> Appending<'_> {
        Box::pin(self.hand_in(turn, done))
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        self.health().oldest_unflushed
    }
}

/// The two ends of the queue to the log, of `at_once` replies that have ended.
pub(crate) fn recorder(
    sink: Arc<dyn TurnSink>,
    budget: Budget,
    replies: Arc<Replies>,
    metrics: Arc<Metrics>,
    strict: bool,
    at_once: usize,
) -> (Recorder, Recordings) {
    let (queue, receiver) = mpsc::channel(at_once);
    let recordings = Recordings {
        queue: receiver,
        sink: Arc::clone(&sink),
        metrics: Arc::clone(&metrics),
    };
    let recorder = Recorder(Arc::new(Shared {
        queue,
        budget,
        replies,
        metrics,
        sink,
        strict,
    }));
    (recorder, recordings)
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("strict", &self.0.strict)
            .finish_non_exhaustive()
    }
}

// === impl Recorder ===

impl Recorder {
    /// The age of the oldest turn that the log has and has not flushed.
    pub(crate) fn oldest_unflushed(&self) -> Option<Duration> {
        self.0.sink.oldest_unflushed()
    }

    /// Begins to record a reply; nothing, and counted, where there is no memory left.
    pub(crate) fn begin(&self, asked: Asked, began: Began) -> Option<Recording> {
        // All of it, while the reply runs: what it shares with others now may be forgotten meanwhile.
        let held = self.0.budget.hold(asked.n_raw() + size_of::<RawTurn>());
        if held.is_none() {
            self.0.metrics.overflowed.inc();
        }
        Some(Recording {
            asked: Box::new(asked),
            began,
            capture: Capture::new(&self.0.budget),
            n_bytes: 0,
            first_byte_ms: None,
            has_rested: false,
            memory: held?,
            recorder: self.clone(),
        })
    }
}

// === impl Recording ===

impl Recording {
    /// Copies a frame; whether the stream's own end mark has come with it.
    pub(crate) fn push(&mut self, data: &Bytes) -> bool {
        self.first_byte_ms.get_or_insert_with(clock::now_ms);
        self.n_bytes += data.len() as u64;
        if self.began.encoding == Encoding::Unread {
            return false;
        }
        self.capture.push(data);
        let is_plain = self.began.encoding == Encoding::Identity;
        let is_stream = is_plain && self.began.format == Format::Sse;
        is_stream
            && self
                .capture
                .bytes()
                .is_some_and(|bytes| self.began.api.is_done(bytes))
    }

    /// There is nothing to relay now. The first time after the first bytes they may not be written yet:
    /// whether to say so again when they are. Then what was asked is read.
    pub(crate) fn rest(&mut self) -> bool {
        if self.first_byte_ms.is_none() || !self.asked.is_unread() {
            return false;
        }
        if self.has_rested {
            self.asked.note(&self.recorder.0.metrics);
        }
        !std::mem::replace(&mut self.has_rested, true)
    }

    /// The Responses API goes on from a reply by its id: it is known before the agent has the end.
    fn remember(&mut self) {
        let Self { asked, began, .. } = self;
        if asked.api != Api::Responses {
            return;
        }
        let bytes = self.capture.bytes();
        let opened = bytes.and_then(|bytes| began.encoding.open_to(AT_ITS_END, bytes));
        let Some(opened) = opened else {
            return;
        };
        let id = response_id(&opened, began.format == Format::Sse);
        let recorder = &self.recorder.0;
        let replied = asked.replied(&recorder.metrics);
        if let Some((id, replied)) = id.zip(replied) {
            recorder.replies.put(&asked.who.agent, id, replied);
        }
    }

    /// Hands the turn over. With `strict`, what to wait for.
    pub(crate) fn end(mut self, how: StreamEnd) -> Option<oneshot::Receiver<()>> {
        self.remember();
        let recorder = self.recorder.0;
        let queue = &recorder.queue;
        if queue.max_capacity() - queue.capacity() >= UNREAD {
            self.asked.note(&recorder.metrics);
        }
        if let Request::Noted(noted) = &self.asked.request {
            self.memory.set(noted.n_bytes());
        }
        let (ack, acknowledged) = if recorder.strict {
            let (ack, acknowledged) = oneshot::channel();
            (Some(ack), Some(acknowledged))
        } else {
            (None, None)
        };
        let ended = Finished {
            asked: self.asked,
            began: self.began,
            capture: self.capture,
            n_bytes: self.n_bytes,
            first_byte_ms: self.first_byte_ms,
            ended_ms: clock::now_ms(),
            how,
            memory: self.memory,
            ack,
        };
        if queue.try_send(ended).is_err() {
            // A log that cannot keep up costs learning, not chat.
            recorder.metrics.dropped.inc();
        }
        acknowledged
    }
}

// === impl Recordings ===

impl Recordings {
    /// Puts turns into the log, in the order in which their replies ended, until there can be no
    /// more: all recorders are gone, or `stop` says so and the queue is empty. A log that is away
    /// then has [`PATIENCE`] to come back.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let metrics = Arc::clone(&self.metrics);
        let late = async {
            stop.cancelled().await;
            sleep(PATIENCE).await;
        };
        tokio::select! {
            biased;
            () = self.put_all(&stop) => {}
            () = late => {
                let n_bytes = metrics.capture_bytes.get();
                tracing::error!(n_bytes, "the log takes no turns: the last ones are lost");
            }
        }
    }

    async fn put_all(mut self, stop: &CancellationToken) {
        let waiting = TaskTracker::new();
        let mut is_stopping = false;
        let mut last = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    self.queue.close();
                }
                ended = self.queue.recv() => match ended {
                    Some(ended) => {
                        if ended.ack.is_none() && last.elapsed() >= PAUSE {
                            stop.run_until_cancelled(sleep(BREATH)).await;
                        }
                        self.put(ended, &waiting).await;
                        last = Instant::now();
                    }
                    None => break,
                },
            }
        }
        waiting.close();
        waiting.wait().await;
    }

    /// Hands a turn to the log. It is among those `waiting` until the log has it.
    async fn put(&self, ended: Finished, waiting: &TaskTracker) {
        let Some(Read { turn, ack, memory }) = ended.read(&self.metrics) else {
            return;
        };
        let agent: AgentId = turn.turn.agent.clone();
        let metrics = Arc::clone(&self.metrics);
        let token = waiting.token();
        let done = move |appended: Result<TurnId, LogError>| {
            drop(memory);
            match appended {
                Ok(_) => {
                    metrics.recorded.inc();
                    if let Some(ack) = ack {
                        // The agent may have hung up meanwhile.
                        let _ = ack.send(());
                    }
                }
                Err(reason) => {
                    metrics.failed.inc();
                    tracing::warn!(%agent, %reason, "a turn did not get into the log");
                }
            }
            drop(token);
        };
        self.sink.append(turn, Box::new(done)).await;
    }
}

#[cfg(test)]
mod tests;
