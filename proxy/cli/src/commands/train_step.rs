//! `metaclaw train-step`: trains one batch now, whatever the mode says about when; or says what that would be.

use std::time::Duration;

use clap::Args;
use metaclaw_chat::AgentId;
use metaclaw_control::operations::weights::{PreviewStep, TrainStep};
use metaclaw_learner::{GateReport, SamplePreview, StepPreview, StepReport};
use serde::Serialize;

use super::{calling::caller, context::Context};
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct TrainStepArgs {
    /// The agent whose turns are trained on.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Show what the step would be made of. Nothing is judged or trained.
    #[arg(long)]
    dry_run: bool,
    /// Seconds to wait for the step.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl TrainStepArgs ===

impl TrainStepArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let caller = caller(context, "train-step").await?;
        let deadline = Duration::from_secs(self.timeout);
        if self.dry_run {
            let preview = PreviewStep(self.agent);
            let steps = caller.call_within(preview, deadline).await?;
            return show(&steps, preview_text, self.json);
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

fn preview_text(step: &StepPreview) -> String {
    let place = match &step.lineage {
        Some(lineage) => format!("step {} of lineage {lineage}", step.n),
        None => "step 1 of a fresh lineage".to_owned(),
    };
    let parent = step.parent.as_deref().unwrap_or("a fresh adapter");
    let rate = step.learning_rate.map_or_else(
        || "by the model's size, which the first step asks for".to_owned(),
        |rate| format!("{rate:.3e}"),
    );
    let reward = &step.batch.reward;
    let mut lines = vec![
        format!("agent     {}: {place}", step.agent),
        format!("from      {parent}, on {}", step.base),
        format!("rate      {rate} (optimiser step {})", step.step),
        format!(
            "takes     {}, {} read",
            out::count(step.n_turns as u64, "turn"),
            out::count(step.n_tokens as u64, "token"),
        ),
        format!(
            "scores    mean {:+.4}, deviation {:+.4}",
            reward.mean, reward.std
        ),
    ];
    if let Some(why) = &step.begins_anew {
        lines.push(format!(
            "anew      what was learned last is not continued: {why}"
        ));
    }
    let rows: Vec<Vec<String>> = step.samples.iter().map(row).collect();
    let head = ["method", "loss", "turns", "tokens", "trained", "weight"];
    lines.push(out::table(&head, &rows));
    for turn in &step.unanswered {
        lines.push(format!(
            "unasked   turn {turn}: the teacher answers it first, and the step has it if a reply is worth teaching"
        ));
    }
    for spent in &step.spends {
        lines.push(format!("aside     turn {}: {}", spent.turn, spent.why));
    }
    lines.join("\n")
}

fn row(sample: &SamplePreview) -> Vec<String> {
    let turns: Vec<String> = sample.turns.iter().map(ToString::to_string).collect();
    vec![
        sample.method.clone(),
        sample.loss.clone(),
        turns.join(" -> "),
        sample.n_tokens.to_string(),
        sample.n_trained.to_string(),
        format!("{:+.4}", sample.weight),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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

#[cfg(test)]
mod dry_run_tests {
    use metaclaw_learner::{BatchStats, Spread};
    use serde_json::{Value, json};

    use super::*;

    fn preview(mut step: Value, mean: f64, std: f64) -> StepPreview {
        let reward = Spread {
            mean,
            std,
            ..Spread::default()
        };
        let batch = BatchStats {
            reward,
            ..BatchStats::default()
        };
        step["batch"] = serde_json::to_value(batch).unwrap();
        serde_json::from_value(step).unwrap()
    }

    #[test]
    fn a_step_that_is_not_made_is_shown_whole() {
        let step = json!({
            "agent": "main", "base": "demo", "lineage": "0badcafe", "n": 3, "step": 3,
            "parent": "main-0badcafe-000002", "begins_anew": null, "learning_rate": 5e-4, "n_turns": 3, "n_tokens": 700,
            "samples": [
                {"method": "redo", "loss": "cross_entropy", "turns": ["7-1"], "n_tokens": 400, "n_trained": 30, "weight": 1.0},
                {"method": "binary_rl", "loss": "importance_sampling", "turns": ["8-1"], "n_tokens": 300, "n_trained": 20, "weight": -0.15},
            ],
            "spends": [{"turn": "9-1", "why": "verdict unclear"}],
            "unanswered": ["8-2"],
        });
        insta::assert_snapshot!(preview_text(&preview(step, -0.333, 0.9428)), @r"
        agent     main: step 3 of lineage 0badcafe
        from      main-0badcafe-000002, on demo
        rate      5.000e-4 (optimiser step 3)
        takes     3 turns, 700 tokens read
        scores    mean -0.3330, deviation +0.9428
        method     loss                 turns  tokens  trained  weight
        redo       cross_entropy        7-1    400     30       +1.0000
        binary_rl  importance_sampling  8-1    300     20       -0.1500
        unasked   turn 8-2: the teacher answers it first, and the step has it if a reply is worth teaching
        aside     turn 9-1: verdict unclear
        ");
        let fresh = json!({"agent": "main", "base": "demo", "n": 1, "step": 1, "begins_anew": "it is gone",
            "n_turns": 0, "n_tokens": 0, "samples": [], "spends": [], "unanswered": []});
        let shown = preview_text(&preview(fresh, 0.0, 0.0));
        assert!(shown.contains("step 1 of a fresh lineage"), "{shown}");
        assert!(shown.contains("from      a fresh adapter"), "{shown}");
        assert!(shown.contains("not continued: it is gone"), "{shown}");
    }
}
