//! Writes finished captures to the log, in parallel with the chats.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use metaclaw_chat::TurnId;
use metaclaw_turns::LogError;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Dispatch, dispatcher, field::display};

use crate::{
    budget::CaptureMetrics,
    long_texts::LongTexts,
    recording::{CaptureConfig, Recorder, Recording, TurnSink},
};

/// How long the last turns may wait at shutdown for a log that accepts none.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(10);
/// How often the thread reads the queue. Waking it for each turn would cost three system calls.
const PACE: Duration = Duration::from_millis(5);

/// Hands turns to the log.
#[derive(derive_more::Debug)]
#[debug("Worker")]
pub struct Worker {
    queue: mpsc::Receiver<Box<Recording>>,
    sink: Arc<dyn TurnSink>,
    metrics: Arc<CaptureMetrics>,
    texts: LongTexts,
}

/// Makes both ends of the queue to the log.
pub fn recorder(
    sink: Arc<dyn TurnSink>,
    config: CaptureConfig,
    metrics: Arc<CaptureMetrics>,
) -> (Recorder, Worker) {
    let (sender, queue) = mpsc::channel(config.queue);
    let worker = Worker {
        queue,
        sink: Arc::clone(&sink),
        metrics: Arc::clone(&metrics),
        texts: LongTexts::new(),
    };
    (Recorder::new(sender, sink, config, metrics), worker)
}

// === impl Worker ===

impl Worker {
    /// Hands turns to the log, in the order in which their replies ended. Ends when all recorders are gone, or when
    /// `stop` is cancelled and the queue is empty. If the log accepts no turns at the end, it has 10 s to recover.
    ///
    /// The work is done on a separate thread.
    ///
    /// # Cancel safety
    /// If the future is dropped, the worker ends after its current turn. Waiting turns are lost.
    pub async fn run(self, stop: CancellationToken) {
        let metrics = Arc::clone(&self.metrics);
        let abandoned = CancellationToken::new();
        let _guard = abandoned.clone().drop_guard();
        let (ends, ended) = oneshot::channel();
        let (is_stopping, runtime) = (stop.clone(), Handle::current());
        // The worker's thread uses the caller's tracing dispatcher.
        let lines = dispatcher::get_default(Dispatch::clone);
        let work = move || {
            let all = abandoned.run_until_cancelled(self.put_all(&is_stopping));
            let ended = dispatcher::with_default(&lines, || runtime.block_on(all));
            // The receiver may be gone.
            let _ = ends.send(ended);
        };
        let thread = thread::Builder::new().name("metaclaw-capture".to_owned());
        if let Err(error) = thread.spawn(work) {
            tracing::error!(%error, "turns are not recorded: there is no thread for them");
            return;
        }
        let late = async {
            stop.cancelled().await;
            sleep(LAST_WAIT).await;
        };
        tokio::select! {
            biased;
            ended = ended => if ended.is_err() {
                tracing::error!("turns are not recorded any more: their thread broke");
            },
            () = late => {
                let n_bytes = metrics.bytes.get();
                tracing::error!(n_bytes, "the log takes no turns: the last ones are lost");
            }
        }
    }

    async fn put_all(mut self, stop: &CancellationToken) {
        let unacknowledged = TaskTracker::new();
        let mut is_stopping = false;
        loop {
            let finished = tokio::select! {
                () = stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    self.queue.close();
                    continue;
                }
                finished = self.queue.recv() => match finished {
                    Some(finished) => finished,
                    None => break,
                },
            };
            let next = Instant::now() + PACE;
            let is_awaited = finished.ack.is_some();
            self.put(finished, &unacknowledged).await;
            while let Ok(finished) = self.queue.try_recv() {
                self.put(finished, &unacknowledged).await;
            }
            if !is_awaited {
                pause_until(next);
            }
        }
        unacknowledged.close();
        unacknowledged.wait().await;
    }

    /// Reads a capture and hands its turn to the log. The turn is tracked in `unacknowledged` until the log is done
    /// with it.
    async fn put(&mut self, mut finished: Box<Recording>, unacknowledged: &TaskTracker) {
        let ack = finished.ack.take();
        let span = finished.request.span.clone();
        let Some((turn, memory)) = finished.decode(&self.metrics, &mut self.texts) else {
            return;
        };
        let agent = turn.agent.clone();
        let metrics = Arc::clone(&self.metrics);
        let token = unacknowledged.token();
        let done = move |appended: Result<TurnId, LogError>| {
            drop(memory);
            let span = span.entered();
            match appended {
                Ok(id) => {
                    span.record("turn", display(id));
                    metrics.recorded.inc();
                    if let Some(ack) = ack {
                        // The agent may have closed the connection in the meantime.
                        let _ = ack.send(());
                    }
                }
                Err(reason) => {
                    match reason {
                        LogError::Unreadable { .. } => metrics.unreadable.inc(),
                        _ => metrics.failed.inc(),
                    }
                    tracing::warn!(%agent, %reason, "a turn did not get into the log");
                }
            }
            drop(token);
        };
        self.sink.append(turn, Box::new(done)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the thread has nothing else to do, and waking it is what this saves"
)]
fn pause_until(next: Instant) {
    thread::sleep(next.saturating_duration_since(Instant::now()));
}
