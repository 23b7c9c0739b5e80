//! What was sampled for the latest replies, exactly: training data beside the bytes.
//!
//! A reply's record is put here before its last byte can be seen, so that a client that hangs up at
//! `[DONE]` costs nothing. Bounded in bytes and in age; at the bound the oldest go, and whoever did
//! not fetch them trains without those ids.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use metaclaw_trainer_api::wire::Sampled;
use tokio::time::Instant;

/// How long a record is kept.
pub(crate) const KEEP: Duration = Duration::from_secs(15 * 60);
/// Bytes held in total: about 1,300 replies at a prompt of 10,000 tokens.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// What a record costs beside its numbers.
const OVERHEAD: usize = 512;

#[derive(Debug)]
pub(crate) struct SampledRing {
    max_bytes: usize,
    keep: Duration,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    by_id: HashMap<String, Arc<Sampled>>,
    order: VecDeque<(Instant, String)>,
    n_bytes: usize,
}

// === impl SampledRing ===

impl SampledRing {
    pub(crate) fn new(max_bytes: usize, keep: Duration) -> Self {
        Self {
            max_bytes,
            keep,
            held: Mutex::default(),
        }
    }

    /// Keeps a record, at the cost of the oldest ones. One that alone is over the bound is not kept.
    pub(crate) fn put(&self, sampled: Sampled) {
        let cost = cost(&sampled);
        if cost > self.max_bytes {
            tracing::warn!(id = %sampled.id, cost, "a reply is too large to keep its token ids");
            return;
        }
        let now = Instant::now();
        let mut held = self.lock();
        held.drop_old(now, self.keep);
        while held.n_bytes + cost > self.max_bytes && held.drop_oldest() {}
        held.n_bytes += cost;
        held.order.push_back((now, sampled.id.clone()));
        held.by_id.insert(sampled.id.clone(), Arc::new(sampled));
    }

    /// The record of a reply, if it is still kept.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Sampled>> {
        let mut held = self.lock();
        held.drop_old(Instant::now(), self.keep);
        held.by_id.get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Each change is complete before the lock is given back.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Held ===

impl Held {
    fn drop_old(&mut self, now: Instant, keep: Duration) {
        let old = |held: &Self| {
            held.order
                .front()
                .is_some_and(|(at, _)| now.duration_since(*at) >= keep)
        };
        while old(self) && self.drop_oldest() {}
    }

    /// Whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some((_, id)) = self.order.pop_front() else {
            return false;
        };
        if let Some(sampled) = self.by_id.remove(&id) {
            self.n_bytes -= cost(&sampled);
        }
        true
    }
}

fn cost(sampled: &Sampled) -> usize {
    let numbers = sampled.prompt_ids.len()
        + sampled.ids.len()
        + sampled.logprobs.len()
        + sampled.sampling_logprobs.len();
    numbers * size_of::<u32>() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(id: &str, n_prompt: usize) -> Sampled {
        Sampled {
            id: id.to_owned(),
            prompt_ids: vec![7; n_prompt],
            ids: vec![1],
            logprobs: vec![-0.5],
            sampling_logprobs: vec![-0.25],
            adapter: None,
            version: None,
            base: "tiny".to_owned(),
            base_fingerprint: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_goes_when_the_bytes_are_full() {
        let one = cost(&sampled("a", 100));
        let ring = SampledRing::new(2 * one, KEEP);
        for id in ["a", "b", "c"] {
            ring.put(sampled(id, 100));
        }
        assert!(ring.get("a").is_none());
        assert_eq!(ring.get("c").unwrap().prompt_ids.len(), 100);
        assert_eq!(ring.lock().n_bytes, 2 * one);
        ring.put(sampled("huge", 10_000));
        assert!(ring.get("huge").is_none());
        assert!(ring.get("b").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_kept_for_a_quarter_of_an_hour() {
        let ring = SampledRing::new(MAX_BYTES, KEEP);
        ring.put(sampled("a", 1));
        tokio::time::advance(KEEP / 2).await;
        assert!(ring.get("a").is_some());
        tokio::time::advance(KEEP / 2).await;
        assert!(ring.get("a").is_none());
        assert_eq!(ring.lock().n_bytes, 0);
    }
}
