//! A run: groups of episodes, training steps, measurements, until all steps are made.

use std::{cell::RefCell, path::Path};

use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{
    journal::{JournalEvent, RunJournal},
    measuring::MeasuredTasks,
    programs::local_program,
    task_run::TaskRun,
};
use crate::{
    episode::{EpisodeRunner, TaskRunError},
    pool::{EnvironmentAccess, EnvironmentPool},
    proxy::ProxyClient,
    report::RunProgress,
};

mod dry_run;
mod journal;
mod measuring;
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
    verifiers::verifiers_tasks,
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
        let journal = begin(setup, tasks)?;
        let folder = setup.folder.join(&journal.name);
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
            name: journal.name.clone(),
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

// === functions ===

fn begin(setup: &RunSetup<'_>, tasks: &RunTasks) -> Result<RunJournal, TaskRunError> {
    let stem = setup.file.path.file_stem().unwrap_or_default();
    let name = match &setup.name {
        Some(name) => name.clone(),
        None => stem.to_string_lossy().into_owned(),
    };
    let is_legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.bytes().all(is_legal) {
        return Err(TaskRunError::Refused(format!(
            "the run's name {name:?} is not allowed: 1 to 64 of a-z A-Z 0-9 _ - ., not beginning with a dot; --run gives another one"
        )));
    }
    let mut journal = match &setup.eval {
        Some(eval) => eval_journal(setup, &name, eval)?,
        None => RunJournal::open(&setup.folder, name)?,
    };
    let name = &journal.name;
    let plan = order::plan(setup.file, tasks, setup.eval.as_ref());
    match &journal.history.plan {
        Some(begun) if *begun == plan => {}
        Some(begun) => {
            return Err(TaskRunError::Refused(format!(
                "run {name} began with {begun}, and the file says {plan}: give the run another name with --run, or restore the file"
            )));
        }
        None => {
            let prefix = format!("{name}-{:08x}", rand::random::<u32>());
            journal.write(JournalEvent::Began { plan, prefix })?;
        }
    }
    Ok(journal)
}

/// The journal of a measurement: the last one if that is not complete, else a new one.
fn eval_journal(
    setup: &RunSetup<'_>,
    name: &str,
    eval: &EvalSetup,
) -> Result<RunJournal, TaskRunError> {
    let adapter = eval.adapter.as_ref().map(|adapter| format!("-{adapter}"));
    let base = format!("{name}-eval{}", adapter.unwrap_or_default());
    let named = |n: u32| format!("{base}-{n}");
    let is_there = |n: u32| setup.folder.join(named(n)).exists();
    let mut last = 1;
    while is_there(last + 1) {
        last += 1;
    }
    let newest = RunJournal::open(&setup.folder, named(last))?;
    if newest.history.measured.is_empty() {
        return Ok(newest);
    }
    RunJournal::open(&setup.folder, named(last + 1))
}

fn pool(setup: &RunSetup<'_>, folder: &Path) -> Result<EnvironmentPool, TaskRunError> {
    let file = setup.file;
    if file.environments.is_empty() {
        let program = local_program(file, &setup.metaclaw, folder)?;
        return Ok(EnvironmentPool::local(program, file.at_once));
    }
    let access = EnvironmentAccess {
        http: setup.http.clone(),
        key: setup
            .environment_key
            .as_ref()
            .map(|key| key.expose().to_owned()),
        timeout: file.timeout.0,
        at_once: file.at_once,
    };
    Ok(EnvironmentPool::remote(&file.environments, &access))
}
