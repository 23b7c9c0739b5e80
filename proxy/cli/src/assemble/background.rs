//! The tasks beside the gateway.

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[derive(Debug, Clone, Default)]
pub(super) struct Background {
    pub(super) tasks: TaskTracker,
    /// Cancelled once no reply is under way.
    pub(super) ending: CancellationToken,
}

// === impl Background ===

impl Background {
    /// Runs a task without which the process is of no use: when it ends, well or badly, so does `process`.
    pub(super) fn spawn_critical(
        &self,
        process: &CancellationToken,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let process = process.clone().drop_guard();
        self.tasks.spawn(async move {
            work.await;
            drop(process);
        })
    }
}
