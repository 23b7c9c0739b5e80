//! A run at work: its episodes, one by one.

use std::{cell::RefCell, path::PathBuf};

use futures_util::future;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    journal::{EpisodePlace, JournalEvent, RunJournal},
    setup::TaskRunSummary,
};
use crate::{
    episode::{AfterEpisode, EpisodeEnd, EpisodeRunner, OpenedEpisode, TaskRunError, deadline_s},
    program::end_processes,
    proxy::{RolloutRequest, WantedHeldOut},
    report::RunProgress,
    task::RolloutTask,
};

/// How often one episode is run because its place or the model is gone.
const RERUNS: usize = 3;

pub(super) struct TaskRun<'a> {
    pub(super) runner: EpisodeRunner<'a>,
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) journal: RefCell<RunJournal>,
    pub(super) progress: RunProgress,
    pub(super) cancel: CancellationToken,
    /// Why the run ends, if it is not the user's wish.
    pub(super) failure: RefCell<Option<TaskRunError>>,
    pub(super) wanted: watch::Sender<WantedHeldOut>,
}

#[derive(Debug, Clone)]
pub(super) struct WantedEpisode<'a> {
    pub(super) task: &'a RolloutTask,
    pub(super) place: EpisodePlace,
    pub(super) group_size: u32,
    pub(super) adapter: Option<&'a str>,
}

// === impl TaskRun ===

impl TaskRun<'_> {
    pub(super) async fn fail_open(&self) -> Result<(), TaskRunError> {
        let open = self.journal.borrow().history.open();
        if !open.is_empty() {
            let n = open.len();
            self.progress.line(&format!(
                "{n} episodes were open when run {} ended: they are run again",
                self.name
            ));
        }
        for rollout in open {
            end_processes(&rollout);
            let end = self.runner.close(&rollout, EpisodeEnd::Unfinished).await?;
            self.write(JournalEvent::Closed { rollout, end })?;
        }
        Ok(())
    }

    /// Runs one episode, unless the journal has its end. If the run cannot continue, all other episodes are interrupted.
    pub(super) async fn episode(
        &self,
        wanted: WantedEpisode<'_>,
        cancel: &CancellationToken,
    ) -> Result<EpisodeEnd, TaskRunError> {
        let ended = self.try_episode(wanted, cancel).await;
        ended.map_err(|error| {
            if !matches!(error, TaskRunError::Interrupted) {
                self.failure.borrow_mut().get_or_insert(error);
                self.cancel.cancel();
            }
            TaskRunError::Interrupted
        })
    }

    async fn try_episode(
        &self,
        wanted: WantedEpisode<'_>,
        cancel: &CancellationToken,
    ) -> Result<EpisodeEnd, TaskRunError> {
        let known = self.journal.borrow().history.end(&wanted.place).cloned();
        if let Some(end) = known {
            return Ok(end);
        }
        let mut n_runs = 0;
        loop {
            let ready = self.runner.open(&self.request(&wanted), cancel).await?;
            let rollout = ready.opened.id.to_string();
            self.write(JournalEvent::Opened {
                rollout: rollout.clone(),
                place: wanted.place.clone(),
            })?;
            let episode = OpenedEpisode {
                opened: &ready.opened,
                task: wanted.task,
                cancel,
            };
            let finished = self.runner.run(ready.slot, &episode).await?;
            self.progress.episode(&finished.end, &rollout);
            let end = finished.end;
            self.write(JournalEvent::Closed {
                rollout,
                end: end.clone(),
            })?;
            n_runs += 1;
            match finished.next {
                AfterEpisode::Rerun if n_runs < RERUNS => self.wait_until_ready(cancel).await?,
                AfterEpisode::Stop(error) => return Err(error),
                AfterEpisode::Continue | AfterEpisode::Rerun => return Ok(end),
            }
        }
    }

    pub(super) async fn wait_until_ready(
        &self,
        cancel: &CancellationToken,
    ) -> Result<(), TaskRunError> {
        let tell = |line: &str| self.progress.line(line);
        let waiting = self.runner.proxy.wait_until_ready(tell);
        match cancel.run_until_cancelled(waiting).await {
            Some(ready) => ready.map_err(TaskRunError::from),
            None => Err(TaskRunError::Interrupted),
        }
    }

    fn request(&self, wanted: &WantedEpisode<'_>) -> RolloutRequest {
        let file = self.runner.file;
        RolloutRequest {
            agent: file.agent.clone(),
            task: wanted.task.id.clone(),
            group: wanted.place.group.clone(),
            group_size: wanted.group_size,
            attempt: wanted.place.attempt,
            held_out: wanted.place.held_out,
            adapter: wanted.adapter.map(str::to_owned),
            timeout_s: deadline_s(file),
            run: self.name.clone(),
        }
    }

    pub(super) fn write(&self, event: JournalEvent) -> Result<(), TaskRunError> {
        self.journal.borrow_mut().write(event)
    }

    pub(super) fn summary(&self) -> TaskRunSummary {
        let journal = self.journal.borrow();
        TaskRunSummary {
            run: self.name.clone(),
            n_steps: journal.history.steps.len() as u64,
            funnel: journal.history.funnel(),
            measurements: journal.history.measured.clone(),
        }
    }
}

/// Waits for all, and returns the first failure only then: each closes what it has opened.
pub(super) async fn all<T>(
    futures: impl Iterator<Item = impl Future<Output = Result<T, TaskRunError>>>,
) -> Result<Vec<T>, TaskRunError> {
    future::join_all(futures).await.into_iter().collect()
}
