//! `metaclaw train-step`: trains one batch now, whatever the mode says about when; or says what that would be.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use metaclaw_chat::AgentId;

use super::{context::Context, source::running};
use crate::out;

mod dry_run;

/// Arguments of `train-step`.
#[derive(Debug, Args)]
pub(crate) struct TrainStepArgs {
    /// The agent whose turns are trained on.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Make no step: show what it would be made of. Nothing is judged, taken or trained.
    #[arg(long)]
    dry_run: bool,
    /// Seconds to wait for the step.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

// === impl TrainStepArgs ===

impl TrainStepArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let Some(client) = running(&context.home).await? else {
            anyhow::bail!(
                "metaclaw does not run in {}: `metaclaw start` starts it",
                context.home.dir().display()
            );
        };
        let deadline = Duration::from_secs(self.timeout);
        let what = if self.dry_run {
            "dry_run"
        } else {
            "train_step"
        };
        let steps: Vec<serde_json::Value> = client.order(what, &self.agent, deadline).await?;
        if self.json {
            out::json(&steps)?;
        } else if steps.is_empty() {
            out::line("there was nothing to train on: `metaclaw status` shows how far turns got")?;
        } else {
            for step in &steps {
                let text = if self.dry_run {
                    dry_run::text(step)
                } else {
                    step_line(step)
                };
                out::line(text)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One step in one line.
fn step_line(step: &serde_json::Value) -> String {
    let text = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
    format!(
        "{}: step {} of {} turns in {:.1} s; {} serves now",
        text("agent"),
        step["n"],
        step["n_turns"],
        step["seconds"].as_f64().unwrap_or_default(),
        text("adapter"),
    )
}
