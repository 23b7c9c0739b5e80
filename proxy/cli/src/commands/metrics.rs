//! `metaclaw metrics`: the numbers of training steps, handed to others.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use tokio::process::Command;

use super::context::Context;
use crate::{assemble, out};

const WANDB: &str = include_str!("metrics/wandb.py");
const HAS_WANDB: &str = "import wandb; print(wandb.__version__)";

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    #[command(subcommand)]
    what: MetricsCommand,
}

#[derive(Debug, Subcommand)]
enum MetricsCommand {
    /// Send the figures of each step to Weights & Biases by its Python client. What was sent before is not sent again.
    Wandb {
        /// The project at Weights & Biases.
        #[arg(long, default_value = "metaclaw")]
        project: String,
        /// A Python that has the package wandb.
        #[arg(long, value_name = "FILE", default_value = "python3")]
        python: PathBuf,
        /// The folder with steps.jsonl, for example learning/replays/NAME for a replay. Without it, the home's.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

// === impl MetricsArgs ===

impl MetricsArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let MetricsCommand::Wandb {
            project,
            python,
            dir,
        } = self.what;
        let folder = match dir {
            Some(dir) => dir,
            None => folder(context)?,
        };
        ensure!(
            folder.join("steps.jsonl").exists(),
            "there is no {} yet: it has a line for each training step, where rl.report_to has jsonl",
            folder.join("steps.jsonl").display()
        );
        let offline = context.environment.get("WANDB_MODE") == Some("offline");
        ensure!(
            offline || context.environment.get("WANDB_API_KEY").is_some(),
            "neither WANDB_API_KEY nor WANDB_MODE=offline is set: nothing is sent"
        );
        let version = version(&python).await?;
        let whither = if offline {
            "kept below ./wandb, as WANDB_MODE=offline says"
        } else {
            "sent: numbers, and names of agents; not a word of what was said"
        };
        out::aside(format!("wandb {version}; {whither}"));
        let mut script = Command::new(&python);
        script.args(["-c", WANDB]).arg(&folder).arg(&project);
        let status = script.status().await?;
        if !status.success() {
            bail!("the wandb client ended with {status}: what it had sent by then is sent");
        }
        Ok(())
    }
}

fn folder(context: &Context) -> anyhow::Result<PathBuf> {
    let loaded = context.settings(None, Vec::new())?;
    Ok(assemble::step_figures(&loaded.config, &context.home))
}

async fn version(python: &Path) -> anyhow::Result<String> {
    let asked = Command::new(python).args(["-c", HAS_WANDB]).output().await;
    let asked = asked.with_context(|| format!("cannot run {}", python.display()))?;
    ensure!(
        asked.status.success(),
        "{} has no wandb package: `pip install wandb`, or --python names a Python that has it",
        python.display()
    );
    Ok(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
}
