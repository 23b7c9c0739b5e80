//! `metaclaw rollout`: runs of agents on tasks.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::context::Context;

mod agent;
mod host;
mod kept;
mod run;
mod serve;

/// Arguments of `rollout`.
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
    Serve(serve::ServeArgs),
    /// Do one task as a built-in agent. `rollout run` starts this for each episode.
    Agent(agent::AgentArgs),
    /// List the newest rollouts: agent, task and outcome.
    List(kept::ListArgs),
    /// Show a rollout, turn by turn.
    Show(kept::ShowArgs),
}

// === impl RolloutArgs ===

impl RolloutArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self.what {
            RolloutCommand::Run(args) => args.run(context).await,
            RolloutCommand::Serve(args) => args.run(context).await,
            RolloutCommand::Agent(args) => args.run(context).await,
            RolloutCommand::List(args) => args.run(context).await,
            RolloutCommand::Show(args) => args.run(context).await,
        }
    }
}
