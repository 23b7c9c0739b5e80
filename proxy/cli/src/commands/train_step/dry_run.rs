//! What the next step would be, in lines.

use metaclaw_learner::{SamplePreview, StepPreview};

use crate::out;

/// One agent's next step: what it goes on from, its samples, what would be set aside.
pub(super) fn text(step: &StepPreview) -> String {
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
    use metaclaw_learner::{BatchStats, Spread};
    use serde_json::{Value, json};

    use super::*;

    /// A step with this mean and deviation of scores.
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
        insta::assert_snapshot!(text(&preview(step, -0.333, 0.9428)), @r"
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
        let shown = text(&preview(fresh, 0.0, 0.0));
        assert!(shown.contains("step 1 of a fresh lineage"), "{shown}");
        assert!(shown.contains("from      a fresh adapter"), "{shown}");
        assert!(shown.contains("not continued: it is gone"), "{shown}");
    }
}
