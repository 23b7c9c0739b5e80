//! `metaclaw rollout run`: an agent does the tasks of a file, and learns from how it went.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use metaclaw_chat::AgentId;
use metaclaw_control::caller::ControlCaller;
use metaclaw_llm::loopback_client;
use metaclaw_rollouts::{
    EvalSetup, HttpAddress, KEY_VARIABLE, ProxyAddress, RolloutFile, RunSetup, RunTasks,
    TaskRunError, TaskRunSummary, dry_run, run, tasks, verifiers_tasks,
};
use metaclaw_trainer_api::AdapterName;
use tokio_util::sync::CancellationToken;

use super::{
    super::{calling::caller, context::Context},
    host::CliHost,
};
use crate::{out, roots, signals::Signals};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The file that names the program, the tasks and the rewards (docs/training/rollouts.md).
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Train nothing. Run the held-out tasks, or all if there are none, and print how often they succeed.
    #[arg(long)]
    eval: bool,
    /// The adapter that answers. Without it, the one that serves the agent.
    #[arg(long, value_name = "NAME", requires = "eval")]
    adapter: Option<AdapterName>,
    /// How often each task is tried. Without it, group_size of the file.
    #[arg(long, value_name = "N", requires = "eval", value_parser = clap::value_parser!(u32).range(1..=256))]
    tries: Option<u32>,
    /// An environment of the Python package verifiers, instead of the file's program.
    #[arg(long, value_name = "NAME")]
    verifiers: Option<String>,
    /// The run's name. An interrupted run of this name continues. Without it, the file's name.
    #[arg(long = "run", value_name = "NAME")]
    name: Option<String>,
    /// Print what would be run, and run nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON, and progress on standard error.
    #[arg(long)]
    json: bool,
}

// === impl RunArgs ===

impl RunArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let file = RolloutFile::read(&self.file, self.verifiers.as_deref())?;
        let caller = caller(context, "rollout").await?;
        let proxy = self.proxy(context, &caller, &file.agent)?;
        let host = CliHost {
            context,
            caller: &caller,
        };
        let json = self.json;
        let print: fn(&str) = if json {
            |line| out::aside(line)
        } else {
            // Nobody reading the lines is no reason to end a run.
            |line| drop(out::line(line))
        };
        let folder = context.home.rollouts();
        let tasks = self.tasks(&file, &folder)?;
        let adapter = self.adapter.clone();
        let eval = self.eval.then_some(EvalSetup {
            adapter: adapter.map(|adapter| adapter.to_string()),
            tries: self.tries,
        });
        let setup = RunSetup {
            file: &file,
            host: &host,
            folder,
            name: self.name,
            eval,
            metaclaw: std::env::current_exe().context("cannot tell where this program is")?,
            proxy,
            local_http: loopback_client()?,
            http: roots::http_client()?,
            environment_key: context.environment.get(KEY_VARIABLE).map(Into::into),
            print,
        };
        if self.dry_run {
            for line in dry_run(&setup, &tasks)? {
                out::line(line)?;
            }
            return Ok(());
        }
        let done = until_signal(&setup, &tasks).await?;
        if json {
            out::json(&done)?;
        } else if done.funnel.opened > 0 {
            out::line(done.funnel.to_string())?;
        }
        Ok(())
    }

    fn proxy(
        &self,
        context: &Context,
        caller: &ControlCaller,
        agent: &AgentId,
    ) -> anyhow::Result<ProxyAddress> {
        let run = context.home.run_file()?.filter(|_| caller.is_process());
        if run.is_none() && !self.dry_run {
            bail!("metaclaw does not run here, and episodes need it: `metaclaw start -d` first");
        }
        let url = run.map_or_else(
            || "http://127.0.0.1:30000/v1".to_owned(),
            |run| run.base_url,
        );
        let base_url: HttpAddress = url.parse()?;
        let settings = context.settings(None, Vec::new())?.config.gateway.proxy;
        let mut of_agents = settings.keys.into_values();
        let of_agent = of_agents.find(|key| key.agents.contains(agent));
        let key = settings.api_key.or_else(|| of_agent.map(|key| key.key));
        Ok(ProxyAddress { base_url, key })
    }

    fn tasks(&self, file: &RolloutFile, folder: &std::path::Path) -> anyhow::Result<RunTasks> {
        let read = |path: &Option<PathBuf>| path.as_deref().map(tasks).transpose();
        let mut of_file = RunTasks {
            train: read(&file.tasks)?.unwrap_or_default(),
            held_out: read(&file.eval_tasks)?.unwrap_or_default(),
        };
        if of_file.train.is_empty()
            && let Some(listed) = verifiers_tasks(file, folder)?
        {
            of_file.train = listed.train;
            if of_file.held_out.is_empty() {
                of_file.held_out = listed.held_out;
            }
        }
        let is_enough = !of_file.train.is_empty() || self.eval && !of_file.held_out.is_empty();
        ensure!(
            is_enough,
            "{} names no tasks: set `tasks` to the path of a JSONL file, each line an object such as {{\"id\": \"a\", ..}}",
            file.path.display()
        );
        Ok(of_file)
    }
}

/// Runs until the end, or a signal. A second signal ends it at once.
async fn until_signal(setup: &RunSetup<'_>, tasks: &RunTasks) -> anyhow::Result<TaskRunSummary> {
    let cancel = CancellationToken::new();
    let mut signals = Signals::new()?;
    let mut running = std::pin::pin!(run(setup, tasks, &cancel));
    let done = tokio::select! {
        done = &mut running => done,
        () = signals.next() => {
            out::aside("ending the episodes; once more ends this at once");
            cancel.cancel();
            tokio::select! {
                done = running => done,
                () = signals.next() => Err(TaskRunError::Interrupted),
            }
        }
    };
    match done {
        Err(TaskRunError::Interrupted) => {
            bail!("interrupted: the same command goes on where this run stood")
        }
        other => Ok(other?),
    }
}
