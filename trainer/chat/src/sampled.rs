//! Keeps the exact samples of the latest replies, which are training data.
//!
//! A reply's record is stored before its last byte can be seen, so that a client that disconnects at `[DONE]` loses
//! nothing. The records are limited in bytes and in age. Beyond the limit the oldest are removed, and a client that did
//! not fetch them trains without these ids.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use metaclaw_trainer_api::wire::Sampled;
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) const KEEP: Duration = Duration::from_secs(15 * 60);
/// Bytes held in total, enough for about 1,300 replies to a prompt of 10,000 tokens.
pub(crate) const MAX_BYTES: usize = 64 << 20;
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

    /// Stores a record, and removes the oldest ones for it. A record that alone exceeds the limit is not stored.
    pub(crate) fn put(&self, sampled: Sampled) {
        let cost = cost(&sampled);
        if cost > self.max_bytes {
            tracing::warn!(id = %sampled.id, cost, "a reply is too large to keep its token ids");
            return;
        }
        let now = Instant::now();
        let mut held = self.held.lock();
        held.drop_old(now, self.keep);
        while held.n_bytes + cost > self.max_bytes && held.drop_oldest() {}
        held.n_bytes += cost;
        held.order.push_back((now, sampled.id.clone()));
        held.by_id.insert(sampled.id.clone(), Arc::new(sampled));
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Sampled>> {
        let mut held = self.held.lock();
        held.drop_old(Instant::now(), self.keep);
        held.by_id.get(id).cloned()
    }
}

// === impl Held ===

impl Held {
    fn drop_old(&mut self, now: Instant, keep: Duration) {
        let old = |held: &Self| {
            let first = held.order.front();
            first.is_some_and(|(at, _)| now.duration_since(*at) >= keep)
        };
        while old(self) && self.drop_oldest() {}
    }

    /// Removes the oldest record. Returns whether there was one.
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
    let logprobs = sampled.logprobs.len() + sampled.sampling_logprobs.len();
    let numbers = sampled.prompt_ids.len() + sampled.ids.len() + logprobs;
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
        assert_eq!(ring.held.lock().n_bytes, 2 * one);
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
        assert_eq!(ring.held.lock().n_bytes, 0);
    }
}
