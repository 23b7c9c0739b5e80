//! The calls of one model, executed in the order of their numbers.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const MAX_WAITING: usize = 4096;

#[derive(Debug)]
pub(crate) struct Lane<C> {
    state: Mutex<State<C>>,
    arrived: Notify,
    closed: CancellationToken,
}

#[derive(Debug)]
struct State<C> {
    next: u32,
    waiting: BTreeMap<u32, C>,
    running: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The number was executed, or another call has it.
    Taken,
    Full,
    /// The model is gone.
    Closed,
}

// === impl Lane ===

impl<C> Lane<C> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                next: 0,
                waiting: BTreeMap::new(),
                running: false,
            }),
            arrived: Notify::new(),
            closed: CancellationToken::new(),
        }
    }

    /// Whether all other calls wait for this number. Such a call must be accepted even if the server is full.
    pub(crate) fn waits_for(&self, seq: u32) -> bool {
        let state = self.state.lock();
        !state.running && state.next == seq
    }

    /// Returns the number for a call without one: after all known numbers.
    pub(crate) fn behind_all(&self) -> u32 {
        let state = self.state.lock();
        let last = state.waiting.keys().next_back();
        last.map_or(state.next, |last| last.saturating_add(1))
    }

    /// Queues a call.
    ///
    /// # Errors
    /// Returns [`NoPlace`] if the call cannot be queued.
    pub(crate) fn put(&self, seq: u32, call: C) -> Result<(), NoPlace> {
        if self.closed.is_cancelled() {
            return Err(NoPlace::Closed);
        }
        let mut state = self.state.lock();
        if seq < state.next || state.waiting.contains_key(&seq) {
            return Err(NoPlace::Taken);
        }
        if state.waiting.len() >= MAX_WAITING && seq != state.next {
            return Err(NoPlace::Full);
        }
        state.waiting.insert(seq, call);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Returns the next call once it arrives, or `None` after the end.
    ///
    /// # Cancel safety
    /// No call is lost if the future is dropped. Only one caller at a time may wait.
    pub(crate) async fn next(&self) -> Option<C> {
        self.state.lock().running = false;
        loop {
            if self.closed.is_cancelled() {
                return None;
            }
            {
                let mut state = self.state.lock();
                let next = state.next;
                if let Some(call) = state.waiting.remove(&next) {
                    state.next += 1;
                    state.running = true;
                    return Some(call);
                }
            }
            tokio::select! {
                () = self.arrived.notified() => {}
                () = self.closed.cancelled() => {}
            }
        }
    }

    /// Ends the lane; returns the calls that waited.
    pub(crate) fn close(&self) -> Vec<C> {
        self.closed.cancel();
        std::mem::take(&mut self.state.lock().waiting)
            .into_values()
            .collect()
    }

    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_go_by_their_numbers() {
        let lane = Lane::new();
        lane.put(2, "two").unwrap();
        lane.put(0, "zero").unwrap();
        assert_eq!(lane.put(2, "again"), Err(NoPlace::Taken));
        assert_eq!(lane.next().await, Some("zero"));
        assert_eq!(lane.put(0, "again"), Err(NoPlace::Taken));
        let next = lane.next();
        tokio::pin!(next);
        assert!(futures_util::poll!(&mut next).is_pending());
        assert!(lane.waits_for(1));
        lane.put(1, "one").unwrap();
        assert_eq!(next.await, Some("one"));
        assert_eq!(lane.behind_all(), 3);
        assert_eq!(lane.close(), ["two"]);
        assert_eq!(lane.next().await, None);
        assert_eq!(lane.put(3, "late"), Err(NoPlace::Closed));
    }
}
