//! The recording of a reply that is being relayed.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use metaclaw_chat::{AgentId, ChainHash, Message, SessionId, now_ms};
use metaclaw_dialects::{reply_id, request::ChatRequest};
use metaclaw_turns::{Done, NewTurn, Served, StreamEnd, TurnKind, TurnLog};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};
use tracing::Span;

use crate::{
    budget::{Budget, CaptureMetrics, Counter, Held},
    encoding::Encoding,
    reply::{Format, ResponseMeta},
    reply_copy::ReplyCopy,
};

/// Decompressed bytes at the beginning of a reply that are searched for its id. This takes about 100 us.
const BEGINNING: usize = 64 << 10;

/// The longest reply that is searched for tool calls at its end, in bytes as received. An event has about 300 bytes and
/// one token. The worker reads the calls of longer replies.
const CALLS: usize = 2 << 20;
const MOST_OPENED: u64 = 4 << 20;

/// How long a request waits at most for a log that lags, and for one that takes no turns in that time.
const WAITS: Duration = Duration::from_secs(1);
const WAITS_FOR_TURN: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Limits of captures.
#[derive(Debug, Clone, Copy)]
pub struct CaptureConfig {
    /// Memory of all captures together, in bytes.
    pub memory: u64,
    /// Captures that may wait for the worker.
    pub queue: usize,
    /// Whether the end of a reply waits until its turn is durable.
    pub strict: bool,
}

/// Starts recordings. Clones share one queue.
#[derive(derive_more::Debug, Clone)]
#[debug("Recorder")]
pub struct Recorder {
    queue: mpsc::Sender<Box<Recording>>,
    budget: Budget,
    /// The part of the budget that belongs to turns which wait for the log.
    waiting: Arc<Counter>,
    metrics: Arc<CaptureMetrics>,
    sink: Arc<dyn TurnSink>,
    is_strict: bool,
    is_cutting: Arc<AtomicBool>,
}

/// A request and the copy of its reply. The reply still comes while `end` is none, which is how it ended, as the relay
/// saw it. Then the recording is on its way to the log, unless it is only searched for its id and calls.
#[derive(derive_more::Debug)]
#[debug("Recording")]
pub struct Recording {
    recorder: Recorder,
    is_kept: bool,
    pub(crate) request: CapturedRequest,
    pub(crate) response: ResponseMeta,
    pub(crate) reply: ReplyCopy,
    /// Bytes of the reply, including those that were not copied.
    pub(crate) n_bytes: u64,
    pub(crate) first_byte_ms: Option<u64>,
    /// The memory that the request holds. From decoding on, the memory that the turn holds.
    pub(crate) memory: Held,
    /// The same memory once the reply has ended.
    pub(crate) waiting: Held,
    pub(crate) end: Option<StreamEnd>,
    pub(crate) ended_ms: u64,
    /// Notified when the turn is durable. Dropped if it never will be.
    pub(crate) ack: Option<oneshot::Sender<()>>,
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn new(
        queue: mpsc::Sender<Box<Recording>>,
        sink: Arc<dyn TurnSink>,
        config: CaptureConfig,
        metrics: Arc<CaptureMetrics>,
    ) -> Self {
        Self {
            queue,
            budget: Budget::new(config.memory, Arc::clone(&metrics.bytes)),
            waiting: Arc::default(),
            metrics,
            sink,
            is_strict: config.strict,
            is_cutting: Arc::default(),
        }
    }

    /// Returns the age of the oldest turn that the log has not flushed yet.
    pub fn oldest_unflushed(&self) -> Option<Duration> {
        self.sink.oldest_unflushed()
    }

    /// Reads a reply's id, which the next request may refer to, and its calls, which may start a sub-agent's request.
    /// Nothing of it becomes a turn.
    pub fn listen(&self, request: CapturedRequest, response: ResponseMeta) -> Option<Recording> {
        let recording = self.begin(request, response)?;
        Some(Recording {
            is_kept: false,
            ..recording
        })
    }

    /// Waits if the turns that wait for the log take a quarter of the memory, so that requests do not come faster than
    /// the log takes turns. A disk that hangs delays each request by 100 ms.
    pub async fn keep_up(&self) {
        let recorded = || self.metrics.recorded.get();
        let (until, mut n_recorded) = (Instant::now() + WAITS, recorded());
        let mut stalled = Instant::now() + WAITS_FOR_TURN;
        while self.waiting.get() > self.budget.limit / 4 && Instant::now() < until.min(stalled) {
            sleep(LOOK_EVERY).await;
            if recorded() != n_recorded {
                n_recorded = recorded();
                stalled = Instant::now() + WAITS_FOR_TURN;
            }
        }
    }

    /// Starts to record a reply. If there is no memory left, returns `None` and counts the loss.
    pub fn begin(&self, mut request: CapturedRequest, response: ResponseMeta) -> Option<Recording> {
        let n_bytes = request.chat.raw().len() + size_of::<Recording>() + size_of::<NewTurn>();
        let Some(memory) = self.budget.hold(n_bytes) else {
            self.metrics.overflowed.inc();
            return None;
        };
        // The request is detached from its body, because the body's memory must be free for the next requests before
        // the log has the turn.
        request.chat = request.chat.detached();
        Some(Recording {
            recorder: self.clone(),
            is_kept: true,
            request,
            response,
            reply: ReplyCopy::new(&self.budget, response.has_end_mark()),
            n_bytes: 0,
            first_byte_ms: None,
            memory,
            waiting: Budget::new(u64::MAX, Arc::clone(&self.waiting)).nothing(),
            end: None,
            ended_ms: 0,
            ack: None,
        })
    }

    /// From now on, replies that end early were cut by the proxy, not by their agents.
    pub fn cut(&self) {
        self.is_cutting.store(true, Ordering::Relaxed);
    }
}

// === impl Recording ===

impl Recording {
    /// Copies a frame. Returns whether the stream's own end mark has come with it.
    pub fn push(&mut self, data: &Bytes) -> bool {
        self.first_byte_ms.get_or_insert_with(now_ms);
        self.n_bytes += data.len() as u64;
        let has_enough = !self.is_kept && self.n_bytes > CALLS as u64;
        if self.response.encoding == Encoding::Unsupported || has_enough {
            return false;
        }
        if !self.reply.push(data) {
            self.recorder.metrics.overflowed.inc();
        }
        if !self.response.has_end_mark() {
            return false;
        }
        let copied = self.reply.bytes();
        copied.is_some_and(|copied| self.response.api.is_done(&copied))
    }

    /// Ends the recording. With `strict`, returns a receiver that is notified when the turn is durable, or dropped if
    /// it never will be.
    pub fn end(mut self, seen: StreamEnd) -> Option<oneshot::Receiver<()>> {
        self.tell_id();
        self.tell_calls();
        if !self.is_kept {
            return None;
        }
        let recorder = self.recorder.clone();
        self.end = Some(match seen {
            StreamEnd::ClientGone if recorder.is_cutting.load(Ordering::Relaxed) => StreamEnd::Cut,
            seen => seen,
        });
        self.ended_ms = now_ms();
        let n_request = self.request.chat.raw().len() as u64;
        self.waiting.set(n_request + self.n_bytes);
        let (ack, acknowledged) = recorder.is_strict.then(oneshot::channel).unzip();
        self.ack = ack;
        if recorder.queue.try_send(Box::new(self)).is_err() {
            // If the log cannot keep up, the turn is lost for learning and the chat is not affected.
            recorder.metrics.dropped.inc();
        }
        acknowledged
    }

    fn tell_calls(&mut self) {
        if self.n_bytes > CALLS as u64 {
            return;
        }
        let response = self.response;
        let copied = self.reply.bytes();
        let opened = copied
            .as_ref()
            .and_then(|bytes| response.encoding.open_to(MOST_OPENED, bytes));
        if let Some(opened) = opened.filter(|opened| (opened.len() as u64) < MOST_OPENED)
            && let Some(tell) = self.request.on_calls.take()
            && response.api.may_call(&opened)
            && let Some(reply) = response.parse(&opened).message
        {
            tell(&self.request.chat, &reply);
        }
    }

    fn tell_id(&mut self) {
        let response = self.response;
        let Some(tell) = self.request.on_reply_id.take() else {
            return;
        };
        let id = self.reply.beginning().and_then(|bytes| {
            let opened = response.encoding.open_to(BEGINNING as u64, bytes)?;
            let n_bytes = opened.len().min(BEGINNING);
            reply_id(
                response.api,
                &opened[..n_bytes],
                response.format == Format::Sse,
            )
        });
        match id {
            Some(id) => tell(id),
            None => self.request.on_reply_id = Some(tell),
        }
    }
}

/// A request on its way to the log.
#[derive(derive_more::Debug)]
#[debug("CapturedRequest")]
pub struct CapturedRequest {
    pub agent: AgentId,
    pub session: SessionId,
    pub kind: TurnKind,
    /// Whether the client says that the session ends with this turn.
    pub is_last: bool,
    /// The request as the client sent it.
    pub chat: ChatRequest,
    /// Hash of the conversation before its first message.
    pub start: ChainHash,
    /// `temperature` and `top_p`, if the request left them out and the proxy set them.
    pub sampling: Vec<(&'static str, f64)>,
    /// Which upstream, model and adapter serve it. Without a model, the request's own name is used.
    pub served: Served,
    /// For a model of vLLM: the base model, if it is an adapter.
    pub parent: Option<Parent>,
    /// Called with the reply's own id, because the next request may refer to it. If the id is among the first bytes,
    /// this happens before the agent has the end of the reply, else soon after.
    pub on_reply_id: Option<Box<dyn FnOnce(String) + Send>>,
    /// Called with a reply that has tool calls, because the text of a call may be the next request's first message.
    /// This happens before the agent has the end of the reply, unless the reply is very long.
    pub on_calls: Option<OnCalls>,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// The client's trace: W3C's `traceparent`.
    pub traceparent: Option<String>,
    /// The request's own span, in which the turn's line is written. Its field `turn` is set to the turn's id once the
    /// log has it.
    pub span: Span,
}

/// The base model of an adapter, once it is known. `None` inside means that the model is no adapter.
pub type Parent = Arc<OnceLock<Option<String>>>;

/// A callback with a request and a reply to it that has tool calls.
pub type OnCalls = Box<dyn FnOnce(&ChatRequest, &Message) + Send>;

pub trait TurnSink: Send + Sync + 'static {
    /// Hands a turn in. Resolves when the log has accepted it. `done` is notified when the turn is durable, or why it
    /// never will be.
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_>;

    /// Returns how long the oldest turn that was handed in and is not durable yet has been waiting.
    fn oldest_unflushed(&self) -> Option<Duration>;
}

/// The future that [`TurnSink::append`] returns.
pub type Appending<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl TurnSink for TurnLog {
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_> {
        Box::pin(self.hand_in(turn, done))
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        self.health().oldest_unflushed
    }
}
