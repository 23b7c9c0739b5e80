//! A learner with its tasks.

use metaclaw_turns::TurnLog;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{learner::Learner, shared::Parts};

pub(crate) struct Running {
    pub(crate) learner: Learner,
    pub(crate) cancel: CancellationToken,
    tasks: TaskTracker,
    log: TurnLog,
}

impl Running {
    pub(crate) async fn start(parts: Parts, cancel: CancellationToken) -> Self {
        let (tasks, log) = (TaskTracker::new(), parts.log.clone());
        let learner = Learner::start(parts, &tasks, cancel.clone()).await.unwrap();
        Self {
            learner,
            cancel,
            tasks,
            log,
        }
    }

    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        drop(self.learner);
        self.log.close().await;
    }
}
