//! The fault matrix. Whatever fails, the agent sees what happened and no more, the log has the conversation, memory
//! stays within its limits, and no temporary state remains.
//!
//! Tests that need a separate process (a full disk, a broken log, signals) are in `tests/it/faults.rs`. Tests that need
//! a paused clock are beside the code: `relay`, `timed_stream`.

mod agent;
mod crowd;
mod upstream;

use metaclaw_chat::Message;
use metaclaw_turns::{StreamEnd, Turn};
use tokio::{runtime::Handle, time::timeout};

use super::harness::{Harness, SOON, SetUp};

/// Memory that a test may add to its process, while 1 GB passes through.
const MEMORY: u64 = 96 << 20;

/// A harness whose test ends with [`Scene::leaves_nothing`].
struct Scene {
    harness: Harness,
    /// The number of tasks of the test itself, among them that of the upstream.
    n_own: usize,
    memory: u64,
}

// === impl Scene ===

impl Scene {
    async fn start() -> Self {
        Self::with(SetUp::default()).await
    }

    async fn with(set_up: SetUp) -> Self {
        let n_before = Handle::current().metrics().num_alive_tasks();
        Self {
            harness: Harness::with(set_up).await,
            n_own: n_before + 1,
            memory: peak_memory(),
        }
    }

    /// Returns the only turn in the log: how it ended, and its text.
    async fn turn(&self) -> (StreamEnd, Option<String>) {
        let turns = self.harness.log.wait(1).await;
        assert_eq!(turns.len(), 1);
        said(&turns[0])
    }

    /// Waits until every request is over, and everything that it held is released.
    async fn is_at_rest(&self) {
        let at_rest = async {
            loop {
                let counts = self.harness.metrics.counts();
                let held = [
                    counts.active_streams,
                    counts.capture_bytes,
                    counts.body_bytes,
                ];
                if held == [0; 3] {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let at_rest = timeout(SOON, at_rest).await;
        let counts = self.harness.metrics.counts();
        at_rest.unwrap_or_else(|_| panic!("something is still held: {counts:?}"));
    }

    /// Checks that nothing is held, memory stayed within its limits, and no task is left at the end.
    async fn leaves_nothing(self) {
        self.is_at_rest().await;
        let grown = peak_memory() - self.memory;
        assert!(grown < MEMORY, "{} MiB more than before", grown >> 20);
        self.harness.stop.cancel();
        // Dropping it also ends the task for idle connections.
        drop(self.harness);
        let none_left = async {
            while Handle::current().metrics().num_alive_tasks() > self.n_own {
                tokio::task::yield_now().await;
            }
        };
        let n_own = self.n_own;
        timeout(SOON, none_left).await.unwrap_or_else(|_| {
            let left = Handle::current().metrics().num_alive_tasks() - n_own;
            panic!("{left} tasks are left")
        });
    }
}

fn said(turn: &Turn) -> (StreamEnd, Option<String>) {
    let text = |reply: &Message| reply.text().into_owned();
    (turn.meta.end, turn.reply.as_ref().map(text))
}

/// Returns the largest memory that this process ever had in bytes, or 0 if the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
