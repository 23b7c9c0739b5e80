//! `metaclaw trainer`: the training server, brought here from a release archive.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use serde::Serialize;

use self::check::found;
use super::context::Context;
use crate::{installed, out, supervise::TrainerOrigin};

mod archive;
mod check;
mod install;

#[derive(Debug, Args)]
pub(crate) struct TrainerArgs {
    #[command(subcommand)]
    command: TrainerCommand,
}

#[derive(Debug, Subcommand)]
enum TrainerCommand {
    /// Install the training server and its libtorch where `metaclaw start` looks for them.
    Install(install::InstallArgs),
    /// Show which training server `metaclaw start` would use, and whether it can run on this machine.
    Status(TrainerStatusArgs),
    /// Remove the installed training server.
    Uninstall,
}

// === impl TrainerArgs ===

impl TrainerArgs {
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

#[derive(Debug, Args)]
pub(crate) struct TrainerStatusArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct SeenTrainer {
    program: PathBuf,
    origin: TrainerOrigin,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    /// The libtorch with CUDA that was installed for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cuda: Option<PathBuf>,
}

// === impl TrainerStatusArgs ===

impl TrainerStatusArgs {
    fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let seen = found(context)?.map(|found| {
            let folder = found.program.parent().unwrap_or_else(|| Path::new("/"));
            let version = check::version(folder);
            let checked = version.and_then(|version| {
                check::same_release(&version)?;
                Ok(version)
            });
            SeenTrainer {
                cuda: installed::cuda(folder),
                why_not: checked.as_ref().err().map(|error| format!("{error:#}")),
                version: checked.ok(),
                program: found.program,
                origin: found.origin,
            }
        });
        let is_usable = seen.as_ref().is_some_and(|seen| seen.why_not.is_none());
        out::answer(&seen, self.json, |one| status_text(one.as_ref()))?;
        Ok(if is_usable {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn status_text(seen: Option<&SeenTrainer>) -> String {
    let Some(seen) = seen else {
        return "there is no training server here: `metaclaw trainer install` brings it".to_owned();
    };
    let origin = match seen.origin {
        TrainerOrigin::Beside => "beside this program",
        TrainerOrigin::Installed => "installed",
        TrainerOrigin::Path => "found in PATH",
    };
    let mut lines = vec![format!("program   {} ({origin})", seen.program.display())];
    lines.extend(seen.version.iter().map(|one| format!("version   {one}")));
    lines.extend(seen.why_not.iter().map(|why| format!("BUT       {why}")));
    let cuda = seen.cuda.as_ref();
    lines.extend(cuda.map(|lib| format!("CUDA      {}", lib.display())));
    lines.join("\n")
}
