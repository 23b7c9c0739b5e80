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
        "{}: step {} of {} turns in {:.1} s; {}",
        text("agent"),
        step["n"],
        step["n_turns"],
        step["seconds"].as_f64().unwrap_or_default(),
        came_to(step),
    )
}

/// What became of a step's adapter.
pub(super) fn came_to(step: &serde_json::Value) -> String {
    let adapter = step["adapter"].as_str().unwrap_or("?");
    if step["serves"] != false {
        return format!("{adapter} serves now");
    }
    let tests = step["gate"]["tests"].as_array().into_iter().flatten();
    let failed = tests.filter(|test| test["passed"] == false);
    let why: Vec<&str> = failed.filter_map(|test| test["why"].as_str()).collect();
    if why.is_empty() {
        format!("{adapter} does not serve: you chose another meanwhile")
    } else {
        format!("{adapter} is declined: {}", why.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_says_what_became_of_its_adapter() {
        let step = |serves: bool, tests: serde_json::Value| {
            step_line(
                &json!({"agent": "a", "n": 3, "n_turns": 8, "seconds": 2.0, "adapter": "a-1",
                "serves": serves, "gate": {"tests": tests}}),
            )
        };
        let passed = json!({"passed": true, "why": "fluency 1.00"});
        let failed =
            json!({"passed": false, "why": "relevance 0.31 of the reference's, at least 0.50"});
        assert_eq!(
            step(true, json!([passed])),
            "a: step 3 of 8 turns in 2.0 s; a-1 serves now"
        );
        assert_eq!(
            step(false, json!([passed, failed])),
            "a: step 3 of 8 turns in 2.0 s; a-1 is declined: relevance 0.31 of the reference's, at least 0.50"
        );
        assert!(step(false, json!([passed])).contains("you chose another"));
    }
}
