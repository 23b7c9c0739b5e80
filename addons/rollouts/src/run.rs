//! A run: groups of episodes, training steps, measurements, until all steps are made.

use std::cell::RefCell;

use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{
    measuring::MeasuredTasks,
    opening::{NamedJournal, begin, pool},
    task_run::TaskRun,
};
use crate::{
    episode::{EpisodeRunner, TaskRunError},
    proxy::ProxyClient,
    report::RunProgress,
};

mod dry_run;
mod groups;
mod journal;
mod measuring;
mod opening;
mod order;
mod programs;
mod setup;
mod task_run;
#[cfg(test)]
mod tests;
mod training;
mod verifiers;

pub use self::{
    dry_run::dry_run,
    programs::{ServeSetup, serve},
    setup::{EvalSetup, RunSetup, RunTasks, TaskRunSummary},
    verifiers::VerifiersTasks,
};

/// Runs what a file says, from where an earlier run of the same name stood.
///
/// `cancel` ends the programs that run, and then the run.
///
/// # Errors
/// [`TaskRunError`]. What was done until then is in the journal.
pub fn run<'a>(
    setup: &'a RunSetup<'a>,
    tasks: &'a RunTasks,
    cancel: &'a CancellationToken,
) -> LocalBoxFuture<'a, Result<TaskRunSummary, TaskRunError>> {
    Box::pin(async move {
        let NamedJournal { name, journal } = begin(setup, tasks)?;
        let folder = setup.folder.join(&name);
        let proxy = ProxyClient::new(setup.local_http.clone(), setup.proxy.clone());
        let pool = pool(setup, &folder)?;
        let run = TaskRun {
            runner: EpisodeRunner {
                file: setup.file,
                host: setup.host,
                http: &setup.http,
                proxy: &proxy,
                pool: &pool,
            },
            folder,
            name,
            journal: RefCell::new(journal),
            progress: RunProgress::new(setup.print),
            cancel: cancel.child_token(),
            failure: RefCell::default(),
            wanted: watch::Sender::default(),
        };
        let done = tokio::select! {
            done = run.everything(tasks, setup.eval.as_ref()) => done,
            () = run.ask_what_is_wanted() => Ok(()),
        };
        run.progress.end();
        if let Some(failure) = run.failure.take() {
            return Err(failure);
        }
        done?;
        Ok(run.summary())
    })
}

// === impl TaskRun ===

impl TaskRun<'_> {
    async fn everything(
        &self,
        tasks: &RunTasks,
        eval: Option<&EvalSetup>,
    ) -> Result<(), TaskRunError> {
        self.fail_open().await?;
        self.wait_until_ready(&self.cancel).await?;
        self.runner
            .pool
            .refresh(|line| self.progress.line(line))
            .await;
        match eval {
            Some(eval) => {
                let measured = MeasuredTasks {
                    tasks: tasks.measured(),
                    name: "eval".to_owned(),
                    adapter: eval.adapter.clone(),
                    tries: eval.tries.unwrap_or(self.runner.file.group_size),
                };
                self.measure(&measured).await
            }
            None => self.steps(tasks).await,
        }
    }
}
