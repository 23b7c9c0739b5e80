//! `metaclaw trainer`: the training server, brought here from a release archive.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::context::Context;
use crate::{installed, out};

mod archive;
mod check;
mod found;
mod install;
mod status;

/// Arguments of `trainer`.
#[derive(Debug, Args)]
pub(crate) struct TrainerArgs {
    #[command(subcommand)]
    command: TrainerCommand,
}

#[derive(Debug, Subcommand)]
enum TrainerCommand {
    /// Install the training server and its libtorch where `metaclaw start` looks for them.
    Install(install::InstallArgs),
    /// Show which training server `metaclaw start` would use, and whether it runs here.
    Status(status::TrainerStatusArgs),
    /// Remove the installed training server.
    Uninstall,
}

// === impl TrainerArgs ===

impl TrainerArgs {
    /// Does it.
    pub(super) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self.command {
            TrainerCommand::Install(args) => args.run(context),
            TrainerCommand::Status(args) => args.run(context),
            TrainerCommand::Uninstall => uninstall(context),
        }
    }
}

fn uninstall(context: &Context) -> anyhow::Result<ExitCode> {
    let programs = installed::programs(&context.home);
    let cuda = installed::cuda(&programs.trainer());
    let was_there = programs.change()?.remove()?;
    let home = context.home.dir().display();
    out::line(if was_there {
        format!("the training server is gone from {home}")
    } else {
        format!("no training server was installed in {home}")
    })?;
    if cuda.is_some() {
        let folder = metaclaw_fetch::torch::cuda_environment(&context.environment.cache());
        out::line(format!(
            "its libtorch with CUDA is still in {}",
            folder.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
