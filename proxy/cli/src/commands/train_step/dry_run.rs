//! What the next step would be, in lines.

use serde_json::Value;

use crate::out;

/// One agent's next step: what it goes on from, its samples, what would be set aside.
pub(super) fn text(step: &Value) -> String {
    let said = |key: &str| step[key].as_str().map(str::to_owned);
    let place = match said("lineage") {
        Some(lineage) => format!("step {} of lineage {lineage}", step["n"]),
        None => "step 1 of a fresh lineage".to_owned(),
    };
    let parent = said("parent").unwrap_or_else(|| "a fresh adapter".to_owned());
    let rate = step["learning_rate"].as_f64().map_or_else(
        || "by the model's size, which the first step asks for".to_owned(),
        |rate| format!("{rate:.3e}"),
    );
    let stats = &step["batch"];
    let mut lines = vec![
        format!("agent     {}: {place}", said("agent").unwrap_or_default()),
        format!(
            "from      {parent}, on {}",
            said("base").unwrap_or_default()
        ),
        format!("rate      {rate} (optimiser step {})", step["step"]),
        format!(
            "takes     {}, {} read",
            out::count(step["n_turns"].as_u64().unwrap_or_default(), "turn"),
            out::count(step["n_tokens"].as_u64().unwrap_or_default(), "token"),
        ),
        format!(
            "scores    mean {}, deviation {}",
            number(&stats["reward"]["mean"]),
            number(&stats["reward"]["std"])
        ),
    ];
    if let Some(why) = said("begins_anew") {
        lines.push(format!(
            "anew      what was learned last is not continued: {why}"
        ));
    }
    let rows: Vec<Vec<String>> = list(&step["samples"]).map(row).collect();
    let head = ["method", "loss", "turns", "tokens", "trained", "weight"];
    lines.push(out::table(&head, &rows));
    for turn in list(&step["unanswered"]) {
        let turn = turn.as_str().unwrap_or_default();
        lines.push(format!(
            "unasked   turn {turn}: the teacher answers it first, and the step has it if a reply is worth teaching"
        ));
    }
    for spent in list(&step["spends"]) {
        let (turn, why) = (&spent["turn"], &spent["why"]);
        lines.push(format!(
            "aside     turn {}: {}",
            turn.as_str().unwrap_or_default(),
            why.as_str().unwrap_or_default()
        ));
    }
    lines.join("\n")
}

fn row(sample: &Value) -> Vec<String> {
    let text = |key: &str| sample[key].as_str().unwrap_or_default().to_owned();
    let turns: Vec<&str> = list(&sample["turns"]).filter_map(Value::as_str).collect();
    vec![
        text("method"),
        text("loss"),
        turns.join(" -> "),
        sample["n_tokens"].to_string(),
        sample["n_trained"].to_string(),
        number(&sample["weight"]),
    ]
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn number(value: &Value) -> String {
    format!("{:+.4}", value.as_f64().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_that_is_not_made_is_shown_whole() {
        let step = json!({
            "agent": "main", "base": "demo", "lineage": "0badcafe", "n": 3, "step": 3,
            "parent": "main-0badcafe-000002", "begins_anew": null, "learning_rate": 5e-4, "n_turns": 3, "n_tokens": 700,
            "samples": [
                {"method": "redo", "loss": "cross_entropy", "turns": ["7-1"], "n_tokens": 400, "n_trained": 30, "weight": 1.0},
                {"method": "binary_rl", "loss": "importance_sampling", "turns": ["8-1"], "n_tokens": 300, "n_trained": 20, "weight": -0.15},
            ],
            "batch": {"reward": {"mean": -0.333, "std": 0.9428}},
            "spends": [{"turn": "9-1", "why": "verdict unclear"}],
            "unanswered": ["8-2"],
        });
        insta::assert_snapshot!(text(&step), @r"
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
        let fresh = json!({"agent": "main", "base": "demo", "n": 1, "step": 1, "begins_anew": "it is gone"});
        let shown = text(&fresh);
        assert!(shown.contains("step 1 of a fresh lineage"), "{shown}");
        assert!(shown.contains("from      a fresh adapter"), "{shown}");
        assert!(shown.contains("not continued: it is gone"), "{shown}");
    }
}
