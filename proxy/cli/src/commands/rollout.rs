//! `metaclaw rollout`: runs of agents on tasks.

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
    /// Run an agent on the tasks of a file, in groups, and train on what each try earned.
    Run(Box<run::RunArgs>),
    /// Run the programs of episodes for `rollout run` on another machine.
    Serve(serve::ServeArgs),
    /// Do one task, as the program of a track: `rollout run` starts it for each episode.
    Agent(agent::AgentArgs),
    /// The newest rollouts, one a line: who tried which task, and how it ended.
    List(kept::ListArgs),
    /// One rollout, turn by turn.
    Show(kept::ShowArgs),
}

// === impl RolloutArgs ===

impl RolloutArgs {
    /// Does it.
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
