//! `metaclaw rollout`: runs of agents on tasks.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use metaclaw_rollouts::{
    KEY_VARIABLE, RolloutFile, ServeSetup, serve,
    tracks::{AgentSettings, Track},
};

use super::context::Context;
use crate::{out, roots, signals::Signals};

mod host;
mod kept;
mod run;

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    what: RolloutCommand,
}

#[derive(Debug, Subcommand)]
enum RolloutCommand {
    /// Run an agent on the tasks of a file, in groups, and train on the rewards.
    Run(Box<run::RunArgs>),
    /// Run the programs of episodes for a `rollout run` on another machine.
    Serve(ServeArgs),
    /// Do one task as a built-in agent. `rollout run` starts this for each episode.
    Agent(AgentArgs),
    /// List the newest rollouts: agent, task and outcome.
    List(kept::ListArgs),
    /// Show a rollout, turn by turn.
    Show(kept::ShowArgs),
}

// === impl RolloutArgs ===

impl RolloutArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.what {
            RolloutCommand::Run(args) => args.run(context).await,
            RolloutCommand::Serve(args) => args.run(context).await,
            RolloutCommand::Agent(args) => args.run(context).await,
            RolloutCommand::List(args) => args.run(context).await,
            RolloutCommand::Show(args) => args.run(context).await,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The built-in agent: terminal, toolcall, swe or gui (docs/training/tracks.md).
    #[arg(value_name = "TRACK")]
    track: Track,
}

// === impl AgentArgs ===

impl AgentArgs {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let environment = &context.environment;
        let settings =
            AgentSettings::from_environment(|name| environment.get(name).map(OsString::from))?;
        let http = roots::http_client()?;
        // The agents of all tracks make a large future.
        let agent = Box::pin(self.track.run_agent(&settings, http));
        let score = agent.await?;
        Ok(out::line(format!("score {}", score.score))?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The file that names the program, its time limit and how many run at once. The tasks come from the run.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The address to listen on. If other machines can reach it, set METACLAW_ENVIRONMENT_KEY here and at the run.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:30100")]
    listen: SocketAddr,
    /// An environment of the Python package verifiers, instead of the file's program.
    #[arg(long, value_name = "NAME")]
    verifiers: Option<String>,
}

// === impl ServeArgs ===

impl ServeArgs {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let file = RolloutFile::read(&self.file, self.verifiers.as_deref())?;
        let setup = ServeSetup {
            file: &file,
            address: self.listen,
            key: context.environment.get(KEY_VARIABLE).map(Into::into),
            metaclaw: std::env::current_exe().context("cannot tell where this program is")?,
            folder: context.home.rollouts().join("serve"),
        };
        let server = serve(&setup).await?;
        let mut signals = Signals::new()?;
        out::line(format!(
            "runs episodes at http://{}, {} at once, until Ctrl-C",
            server.address()?,
            file.at_once
        ))?;
        server.serve(async move { signals.next().await }).await?;
        Ok(())
    }
}
