//! `metaclaw train-step`: trains one batch now, whatever the mode says about when; or says what that would be.

use std::time::Duration;

use clap::Args;
use metaclaw_chat::AgentId;
use metaclaw_control::operations::weights::{PreviewStep, TrainStep};
use metaclaw_learner::{GateReport, StepReport};
use serde::Serialize;

use super::{calling::caller, context::Context};
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
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let caller = caller(context, "train-step").await?;
        let deadline = Duration::from_secs(self.timeout);
        if self.dry_run {
            let preview = PreviewStep(self.agent);
            let steps = caller.call_within(preview, deadline).await?;
            return show(&steps, dry_run::text, self.json);
        }
        let steps = caller.call_within(TrainStep(self.agent), deadline).await?;
        show(&steps, step_line, self.json)
    }
}

fn show<T: Serialize>(steps: &[T], text: fn(&T) -> String, json: bool) -> anyhow::Result<()> {
    if json {
        out::json(&steps)?;
    } else if steps.is_empty() {
        out::line("there was nothing to train on: `metaclaw status` shows how far turns got")?;
    } else {
        for step in steps {
            out::line(text(step))?;
        }
    }
    Ok(())
}

/// One step in one line.
fn step_line(step: &StepReport) -> String {
    format!(
        "{}: step {} of {} turns in {:.1} s; {}",
        step.agent,
        step.n,
        step.n_turns,
        step.seconds,
        came_to(step),
    )
}

/// What became of a step's adapter.
pub(super) fn came_to(step: &StepReport) -> String {
    let adapter = &step.adapter;
    if step.serves {
        return format!("{adapter} serves now");
    }
    match step.gate.as_ref().map(GateReport::why) {
        Some(why) if !why.is_empty() => format!("{adapter} is declined: {why}"),
        _ => format!("{adapter} does not serve: you chose another meanwhile"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A step of which the gate made these tests.
    fn report(serves: bool, tests: &Value) -> StepReport {
        let spread = json!({"n": 0, "mean": 0.0, "std": 0.0, "min": 0.0, "max": 0.0});
        let step = json!({
            "agent": "a", "lineage": "0badcafe", "n": 3, "step": 3, "adapter": "a-1", "n_redo": 8, "n_binary_rl": 0,
            "n_again": 0, "n_turns": 8, "mean_reward": 0.0, "success_rate": 0.0, "loss": 1.0, "grad_norm": 0.5,
            "learning_rate": 5e-4, "serves": serves, "gate": {"tests": tests, "seconds": 1.0}, "seconds": 2.0,
            "ended_ms": 0, "batch": {"samples": {}, "reward": spread, "success_rate": 0.0, "advantage": spread,
                "response_len": spread, "logprob": spread, "truncated_ratio": 0.0, "version": spread},
        });
        serde_json::from_value(step).unwrap()
    }

    #[test]
    fn a_step_says_what_became_of_its_adapter() {
        let step = |serves: bool, tests: Value| step_line(&report(serves, &tests));
        let passed = json!({"name": "fluency", "passed": true, "why": "fluency 1.00"});
        let failed = json!({"name": "relevance", "passed": false, "why": "relevance 0.31 of the reference's, at least 0.50"});
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
