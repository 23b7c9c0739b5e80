//! The recording of a reply that is being relayed.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use metaclaw_chat::now_ms;
use metaclaw_dialects::reply_id;
use metaclaw_turns::{NewTurn, StreamEnd};
use tokio::sync::{mpsc, oneshot};

use crate::{
    budget::{Budget, Held},
    encoding::Encoding,
    metrics::CaptureMetrics,
    reply::{Format, ResponseMeta},
    reply_copy::ReplyCopy,
    request::CapturedRequest,
    sink::TurnSink,
};

/// Decompressed bytes at the beginning of a reply that are searched for its id. This takes about 100 us.
const BEGINNING: usize = 64 << 10;

/// The longest reply that is searched for tool calls at its end, in bytes as received. An event has about 300 bytes and
/// one token. The worker reads the calls of longer replies.
const CALLS: usize = 2 << 20;
const MOST_OPENED: u64 = 4 << 20;

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
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Finished>,
    budget: Budget,
    metrics: Arc<CaptureMetrics>,
    sink: Arc<dyn TurnSink>,
    is_strict: bool,
    is_cutting: Arc<AtomicBool>,
}

/// The recording of one reply.
#[derive(Debug)]
pub struct Recording {
    capture: Box<Capture>,
    recorder: Recorder,
    /// Whether it becomes a turn. Otherwise it is only searched for its id and calls.
    is_kept: bool,
}

/// A request and the copy of its reply.
#[derive(Debug)]
pub(crate) struct Capture {
    pub request: CapturedRequest,
    pub response: ResponseMeta,
    pub reply: ReplyCopy,
    /// Bytes of the reply, including those that were not copied.
    pub n_bytes: u64,
    pub first_byte_ms: Option<u64>,
    /// The memory that the request holds. From decoding on, the memory that the turn holds.
    pub memory: Held,
}

/// A capture whose reply has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub capture: Box<Capture>,
    pub end: StreamEnd,
    pub ended_ms: u64,
    /// Notified when the turn is durable. Dropped if it never will be.
    pub ack: Option<oneshot::Sender<()>>,
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn new(
        queue: mpsc::Sender<Finished>,
        sink: Arc<dyn TurnSink>,
        config: CaptureConfig,
        metrics: Arc<CaptureMetrics>,
    ) -> Self {
        Self {
            queue,
            budget: Budget::new(config.memory, Arc::clone(&metrics.bytes)),
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

    /// Starts to record a reply. If there is no memory left, returns `None` and counts the loss.
    pub fn begin(&self, request: CapturedRequest, response: ResponseMeta) -> Option<Recording> {
        self.recording(request, response, true)
    }

    /// Reads a reply's id, which the next request may refer to, and its calls, which may start a sub-agent's request.
    /// Nothing of it becomes a turn.
    pub fn listen(&self, request: CapturedRequest, response: ResponseMeta) -> Option<Recording> {
        self.recording(request, response, false)
    }

    fn recording(
        &self,
        mut request: CapturedRequest,
        response: ResponseMeta,
        is_kept: bool,
    ) -> Option<Recording> {
        let n_bytes = request.chat.raw().len() + size_of::<Capture>() + size_of::<NewTurn>();
        let Some(memory) = self.budget.hold(n_bytes) else {
            self.metrics.overflowed.inc();
            return None;
        };
        // The request is detached from its body, because the body's memory must be free for the next requests before
        // the log has the turn.
        request.chat = request.chat.detached();
        Some(Recording {
            capture: Box::new(Capture {
                request,
                response,
                reply: ReplyCopy::new(&self.budget, response.has_end_mark()),
                n_bytes: 0,
                first_byte_ms: None,
                memory,
            }),
            recorder: self.clone(),
            is_kept,
        })
    }

    /// From now on, replies that end early were cut by the proxy, not by their agents.
    pub fn cut(&self) {
        self.is_cutting.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("is_strict", &self.is_strict)
            .finish_non_exhaustive()
    }
}

// === impl Recording ===

impl Recording {
    /// Copies a frame. Returns whether the stream's own end mark has come with it.
    pub fn push(&mut self, data: &Bytes) -> bool {
        let capture = &mut *self.capture;
        capture.first_byte_ms.get_or_insert_with(now_ms);
        capture.n_bytes += data.len() as u64;
        let has_enough = !self.is_kept && capture.n_bytes > CALLS as u64;
        if capture.response.encoding == Encoding::Unsupported || has_enough {
            return false;
        }
        if !capture.reply.push(data) {
            self.recorder.metrics.overflowed.inc();
        }
        if !capture.response.has_end_mark() {
            return false;
        }
        let came = capture.reply.bytes();
        came.is_some_and(|came| capture.response.api.is_done(&came))
    }

    /// Ends the recording. With `strict`, returns a receiver that is notified when the turn is durable, or dropped if
    /// it never will be.
    pub fn end(mut self, seen: StreamEnd) -> Option<oneshot::Receiver<()>> {
        self.capture.tell_id();
        self.capture.tell_calls();
        if !self.is_kept {
            return None;
        }
        let recorder = self.recorder;
        let end = match seen {
            StreamEnd::ClientGone if recorder.is_cutting.load(Ordering::Relaxed) => StreamEnd::Cut,
            seen => seen,
        };
        let (ack, acknowledged) = recorder.is_strict.then(oneshot::channel).unzip();
        let finished = Finished {
            capture: self.capture,
            end,
            ended_ms: now_ms(),
            ack,
        };
        if recorder.queue.try_send(finished).is_err() {
            // If the log cannot keep up, the turn is lost for learning and the chat is not affected.
            recorder.metrics.dropped.inc();
        }
        acknowledged
    }
}

// === impl Capture ===

impl Capture {
    /// Reports the reply's tool calls, if it has any.
    fn tell_calls(&mut self) {
        if self.n_bytes > CALLS as u64 {
            return;
        }
        let response = self.response;
        let bytes = self.reply.bytes();
        let opened = bytes
            .as_ref()
            .and_then(|bytes| response.encoding.open_to(MOST_OPENED, bytes));
        let Some(opened) = opened.filter(|it| (it.len() as u64) < MOST_OPENED) else {
            return;
        };
        let Some(tell) = self.request.on_calls.take() else {
            return;
        };
        if response.api.may_call(&opened)
            && let Some(reply) = response.parse(&opened).message
        {
            tell(&self.request.chat, &reply);
        }
    }

    /// Reports the reply's id, if its beginning contains it.
    fn tell_id(&mut self) {
        let Self {
            request,
            response,
            reply,
            ..
        } = self;
        let Some(tell) = request.on_reply_id.take() else {
            return;
        };
        let id = reply.beginning().and_then(|bytes| {
            let opened = response.encoding.open_to(BEGINNING as u64, bytes)?;
            let n_bytes = opened.len().min(BEGINNING);
            let is_stream = response.format == Format::Sse;
            reply_id(response.api, &opened[..n_bytes], is_stream)
        });
        match id {
            Some(id) => tell(id),
            None => request.on_reply_id = Some(tell),
        }
    }
}
