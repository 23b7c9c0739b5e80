//! Promises: what was asked, and what came of it.
//!
//! The same call has the same id ([`Futures::open`]), so that a client that got no answer may ask again. A result is
//! kept for a while after it is there, in memory bounded in bytes; the oldest goes first, and who asks for it then is
//! told that it has gone.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use metaclaw_trainer_api::tinker::{
    RequestId, SampleOutput, TopK, TrainOutput,
    json::{FailedPromise, FailureCategory, Promise},
};
use metaclaw_trainer_terms::ErrorCode;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, timeout},
};

use crate::error::{ApiError, Result};

#[derive(Debug)]
pub(crate) enum PromiseOutcome {
    Json(serde_json::Value),
    /// The result of forward and forward_backward.
    Train(TrainOutput),
    /// The result of asample, with the ids that the promise gave.
    Sample(SampleOutput, Vec<String>),
    Failed(FailedPromise),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PromiseLimits {
    pub(crate) n: usize,
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
}

#[derive(Debug)]
pub(crate) struct Futures {
    inner: Mutex<Inner>,
    keep: PromiseLimits,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<RequestId, PromiseEntry>,
    /// The finished promises, the oldest first.
    done: VecDeque<(Instant, RequestId)>,
    bytes: usize,
}

#[derive(Debug)]
struct PromiseEntry {
    asked: blake3::Hash,
    outcome: watch::Sender<Option<Arc<PromiseOutcome>>>,
    bytes: usize,
    task: Option<AbortHandle>,
}

#[derive(Debug)]
pub(crate) enum PromiseOpening {
    /// The call is new and will be carried out.
    New,
    Known,
}

#[derive(Debug)]
pub(crate) enum Found {
    Done(Arc<PromiseOutcome>),
    Pending,
    /// The promise was never made here, or too long ago.
    Gone,
}

// === impl PromiseOutcome ===

impl PromiseOutcome {
    /// A result that is JSON.
    ///
    /// # Errors
    /// 500 for what JSON cannot express.
    pub(crate) fn json(body: &impl Serialize) -> Result<Self> {
        Self::value(body).map(Self::Json)
    }

    /// # Errors
    /// As [`Self::json`].
    pub(crate) fn value(body: &impl Serialize) -> Result<serde_json::Value> {
        serde_json::to_value(body).map_err(|error| ApiError::internal(format!("writing: {error}")))
    }

    pub(crate) fn failed(error: &ApiError) -> Self {
        let category = if error.is_ours() {
            FailureCategory::Server
        } else {
            FailureCategory::User
        };
        let error = error.body().error.message;
        Self::Failed(FailedPromise { error, category })
    }

    fn bytes(&self) -> usize {
        const BESIDE: usize = 1 << 10;
        let top = |rows: &Option<Vec<Option<TopK>>>| -> usize {
            let rows = rows.iter().flatten();
            rows.map(|row| 32 + 8 * row.as_ref().map_or(0, Vec::len))
                .sum()
        };
        let size = match self {
            Self::Json(_) | Self::Failed(_) => 0,
            Self::Train(output) => {
                let sizes = output.logprobs.iter();
                sizes.map(|tensor| 64 + 4 * tensor.values().len()).sum()
            }
            Self::Sample(output, _) => {
                let sequences = output.sequences.iter();
                let sequences: usize = sequences
                    .map(|sequence| 256 + 8 * sequence.tokens.len() + top(&sequence.topk_logprobs))
                    .sum();
                let prompt = output.prompt_logprobs.as_ref().map_or(0, Vec::len);
                sequences + 8 * prompt + top(&output.topk_prompt_logprobs)
            }
        };
        BESIDE + size
    }
}

// === impl Futures ===

impl Futures {
    pub(crate) fn new(keep: PromiseLimits) -> Self {
        let inner = Mutex::default();
        Self { inner, keep }
    }

    /// Makes a promise, or finds that it was made before for the same call.
    ///
    /// # Errors
    /// 409 where it was made for another call; 429 where too many are open.
    pub(crate) fn open(&self, promise: Promise, asked: blake3::Hash) -> Result<PromiseOpening> {
        let mut inner = self.inner.lock();
        if let Some(known) = inner.entries.get(&promise.request_id) {
            if known.asked == asked {
                return Ok(PromiseOpening::Known);
            }
            let id = &promise.request_id;
            let text =
                format!("request {id} was made with another body: a seq_id stands for one call");
            return Err(ApiError::conflict(text).with_code(ErrorCode::SeqIdReused));
        }
        inner.drop_old(&self.keep);
        if inner.entries.len() >= self.keep.n {
            let text = format!("{} requests are open: try again later", inner.entries.len());
            return Err(ApiError::busy(text));
        }
        let entry = PromiseEntry {
            asked,
            outcome: watch::channel(None).0,
            bytes: 0,
            task: None,
        };
        inner.entries.insert(promise.request_id, entry);
        Ok(PromiseOpening::New)
    }

    /// Takes a promise back that nothing was done for yet.
    pub(crate) fn forget(&self, id: &RequestId) {
        self.inner.lock().entries.remove(id);
    }

    /// Notes which task works on a promise, so that [`Futures::cancel`] can end it.
    pub(crate) fn worked_on(&self, id: &RequestId, task: AbortHandle) {
        if let Some(entry) = self.inner.lock().entries.get_mut(id) {
            entry.task = Some(task);
        }
    }

    /// Keeps what a promise became. The first outcome counts.
    pub(crate) fn finish(&self, id: &RequestId, outcome: PromiseOutcome) {
        let mut inner = self.inner.lock();
        let bytes = outcome.bytes();
        let Some(entry) = inner.entries.get_mut(id) else {
            return;
        };
        if entry.outcome.borrow().is_some() {
            return;
        }
        entry.bytes = bytes;
        entry.task = None;
        entry.outcome.send_replace(Some(Arc::new(outcome)));
        inner.bytes += bytes;
        inner.done.push_back((Instant::now(), id.clone()));
        inner.drop_old(&self.keep);
    }

    pub(crate) fn cancel(&self, id: &RequestId) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(id);
        let task = entry.and_then(|entry| entry.task.take());
        drop(inner);
        if let Some(task) = task {
            task.abort();
            let outcome = PromiseOutcome::Failed(FailedPromise {
                error: "the request was cancelled by its client".to_owned(),
                category: FailureCategory::User,
            });
            self.finish(id, outcome);
        }
    }

    /// The result of a promise, waiting at most `hold` for it.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn wait(&self, id: &RequestId, hold: Duration) -> Found {
        let Some(mut outcome) = self
            .inner
            .lock()
            .entries
            .get(id)
            .map(|entry| entry.outcome.subscribe())
        else {
            return Found::Gone;
        };
        match timeout(hold, outcome.wait_for(Option::is_some)).await {
            Ok(Ok(done)) => done.clone().map_or(Found::Pending, Found::Done),
            Ok(Err(_)) => Found::Gone,
            Err(_) => Found::Pending,
        }
    }
}

// === impl Inner ===

impl Inner {
    fn drop_old(&mut self, keep: &PromiseLimits) {
        while let Some((since, id)) = self.done.front() {
            let too_many = self.bytes > keep.bytes || self.entries.len() >= keep.n;
            if since.elapsed() < keep.time && !too_many {
                return;
            }
            if let Some(entry) = self.entries.remove(id) {
                self.bytes -= entry.bytes;
            }
            self.done.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn futures(bytes: usize) -> Futures {
        Futures::new(PromiseLimits {
            n: 3,
            bytes,
            time: Duration::from_secs(60),
        })
    }

    fn promise(id: &str) -> Promise {
        Promise {
            request_id: id.parse().unwrap(),
            model_id: None,
            sample_sequence_ids: None,
        }
    }

    fn json() -> PromiseOutcome {
        PromiseOutcome::Json(serde_json::Value::Null)
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_call_is_one_promise_and_another_is_refused() {
        let futures = futures(1 << 20);
        let (one, other) = (blake3::hash(b"one"), blake3::hash(b"other"));
        assert!(matches!(
            futures.open(promise("a"), one),
            Ok(PromiseOpening::New)
        ));
        assert!(matches!(
            futures.open(promise("a"), one),
            Ok(PromiseOpening::Known)
        ));
        insta::assert_snapshot!(futures.open(promise("a"), other).unwrap_err(), @"request a was made with another body: a seq_id stands for one call");
        let id: RequestId = "a".parse().unwrap();
        let hold = Duration::from_secs(30);
        assert!(matches!(futures.wait(&id, hold).await, Found::Pending));
        futures.finish(&id, json());
        assert!(matches!(futures.wait(&id, hold).await, Found::Done(_)));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(matches!(
            futures.open(promise("b"), one),
            Ok(PromiseOpening::New)
        ));
        assert!(matches!(futures.wait(&id, hold).await, Found::Gone));
    }

    #[tokio::test]
    async fn open_promises_are_bounded_and_results_give_way() {
        let futures = futures(1 << 20);
        let hash = blake3::hash(b"");
        for id in ["a", "b", "c"] {
            assert!(futures.open(promise(id), hash).is_ok());
        }
        assert!(futures.open(promise("d"), hash).is_err());
        futures.finish(&"b".parse().unwrap(), json());
        assert!(futures.open(promise("d"), hash).is_ok());
        let now = Duration::ZERO;
        let gone = futures.wait(&"b".parse().unwrap(), now).await;
        assert!(matches!(gone, Found::Gone));
        let open = futures.wait(&"a".parse().unwrap(), now).await;
        assert!(matches!(open, Found::Pending));
    }
}
