//! `metaclaw turns show --train`: what a training step would use of a turn, token by token.

use metaclaw_turns::{Tokens, Turn, TurnState};
use serde_json::Value;

use super::outcome::outcome;
use crate::out;

/// The turn's samples in tables; where no step would use it, why not, and its own ids. `preview` is what the running
/// process says, if one runs.
pub(super) fn text(turn: &Turn, preview: Option<&Value>) -> String {
    let mut lines = vec![format!("turn      {}: {}", turn.id, becomes(turn, preview))];
    let samples = preview.and_then(|it| it["samples"].as_array());
    let samples = samples.filter(|it| !it.is_empty());
    match (samples, &turn.tokens) {
        (Some(samples), _) => lines.extend(samples.iter().map(sample)),
        (None, Some(tokens)) => lines.push(sampled(tokens)),
        (None, None) => lines.push("its token ids are not kept".to_owned()),
    }
    lines.join("\n")
}

/// The same as JSON.
pub(super) fn json(turn: &Turn, preview: Option<&Value>) -> Value {
    let sampled = turn.tokens.as_ref().map(|tokens| {
        serde_json::json!({"prompt_ids": tokens.prompt_ids, "ids": tokens.ids, "logprobs": tokens.logprobs})
    });
    serde_json::json!({
        "id": turn.id,
        "state": turn.state,
        "becomes": becomes(turn, preview),
        "samples": preview.map(|it| it["samples"].clone()),
        "sampled": sampled,
    })
}

/// What training makes of it.
fn becomes(turn: &Turn, preview: Option<&Value>) -> String {
    let state = outcome(turn.meta.end, &turn.state);
    let Some(preview) = preview else {
        return format!("{state} (metaclaw does not run, so what a step would use is not known)");
    };
    let n = preview["samples"].as_array().map_or(0, Vec::len) as u64;
    match (&turn.state, preview["spent"].as_str()) {
        (_, Some(why)) => format!("{state}; the next step sets it aside: {why}"),
        (_, None) if n > 0 => format!("{state}; in the next step with {}", out::count(n, "sample")),
        (_, None) if preview["is_unanswered"] == true => {
            format!("{state}; the teacher has still to answer it")
        }
        (TurnState::Judged, None) => {
            format!("{state}; it waits: for its ids, or for room in a batch")
        }
        (TurnState::Captured, None) => format!("{state}; not judged, so no step uses it"),
        (
            TurnState::Taken { .. }
            | TurnState::Trained { .. }
            | TurnState::Spent { .. }
            | TurnState::HeldOut,
            None,
        ) => state,
    }
}

/// One sample with its positions; those of the prompt, which count for nothing, in one line.
fn sample(sample: &Value) -> String {
    let text = |key: &str| sample[key].as_str().unwrap_or_default();
    let turns = sample["turns"].as_array().into_iter().flatten();
    let turns: Vec<&str> = turns.filter_map(Value::as_str).collect();
    let head = format!(
        "{} by {}, of turn {}: {} tokens, {} trained, weight {:+.4}",
        text("method"),
        text("loss"),
        turns.join(" -> "),
        sample["n_tokens"],
        sample["n_trained"],
        sample["weight"].as_f64().unwrap_or_default(),
    );
    let tokens = sample["tokens"].as_array().into_iter().flatten();
    let rows: Vec<Row> = tokens.map(row).collect();
    format!("{head}\n{}", table(&rows))
}

/// A row of the table, and whether its position counts.
struct Row {
    counts: bool,
    cells: Vec<String>,
}

fn row(token: &Value) -> Row {
    let ids = token["ids"].as_array().into_iter().flatten();
    let ids: Vec<String> = ids.map(Value::to_string).collect();
    let given = token["advantage"].as_array().into_iter().flatten();
    let given = given.filter_map(Value::as_f64);
    let given: Vec<String> = given.map(|it| format!("{it:+.6}")).collect();
    Row {
        counts: token["mask"] == 1,
        cells: vec![
            token["position"].to_string(),
            ids.join(" "),
            token["logprob"]
                .as_f64()
                .map_or_else(|| "-".to_owned(), |it| format!("{it:.4}")),
            token["mask"].to_string(),
            given.join(" "),
        ],
    }
}

/// What was sampled, of a turn that is in no step.
fn sampled(tokens: &Tokens) -> String {
    let first = tokens.prompt_ids.len().saturating_sub(1);
    let pairs = tokens.ids.iter().zip(&tokens.logprobs).enumerate();
    let rows: Vec<Row> = pairs
        .map(|(at, (id, logprob))| Row {
            counts: true,
            cells: vec![
                (first + at).to_string(),
                id.to_string(),
                format!("{logprob:.4}"),
                "-".to_owned(),
                "-".to_owned(),
            ],
        })
        .collect();
    let n = tokens.prompt_ids.len();
    format!(
        "as it was sampled, after {n} ids of the prompt\n{}",
        table(&rows)
    )
}

fn table(rows: &[Row]) -> String {
    let n_prompt = rows.iter().take_while(|row| !row.counts).count();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .skip(n_prompt)
        .map(|row| row.cells.clone())
        .collect();
    let head = ["position", "token", "log-prob", "mask", "advantage"];
    let table = out::table(&head, &cells);
    if n_prompt == 0 {
        return table;
    }
    let before = out::count(n_prompt as u64, "position");
    format!("{before} of the prompt before: mask 0 (--json has them)\n{table}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(state: &Value) -> Turn {
        let turn = json!({
            "id": "7-2", "agent": "main", "session": "s", "kind": "main", "chain": "01".repeat(32),
            "end": {"how": "complete"}, "started_ms": 1, "ended_ms": 2, "new_from": 0,
            "request": {"messages": []}, "reply": null, "served": {}, "state": state,
            "tokens": {"prompt_ids": [1, 2, 3], "ids": [4, 5], "logprobs": [-0.5, -0.25], "sampling_logprobs": [],
                "adapter": null, "version": null, "base": "demo"},
        });
        serde_json::from_value(turn).unwrap()
    }

    #[test]
    fn each_token_that_counts_is_a_row() {
        let token = |position: u32, id: u32, logprob: Option<f64>, mask: u8, given: f64| json!({"position": position, "ids": [id], "logprob": logprob, "mask": mask, "advantage": [given]});
        let preview = json!({"id": "7-2", "spent": null, "waits": false, "samples": [{
        "method": "binary_rl", "loss": "importance_sampling", "turns": ["7-2"], "n_tokens": 4, "n_trained": 2,
        "weight": -0.3, "tokens": [
            token(0, 2, Some(0.0), 0, 0.0), token(1, 3, Some(0.0), 0, 0.0),
            token(2, 4, Some(-0.5), 1, -0.15), token(3, 5, Some(-0.25), 1, -0.15),
        ]}]});
        let judged = turn(&json!({"is": "judged"}));
        insta::assert_snapshot!(text(&judged, Some(&preview)), @r"
        turn      7-2: judged; in the next step with 1 sample
        binary_rl by importance_sampling, of turn 7-2: 4 tokens, 2 trained, weight -0.3000
        2 positions of the prompt before: mask 0 (--json has them)
        position  token  log-prob  mask  advantage
        2         4      -0.5000   1     -0.150000
        3         5      -0.2500   1     -0.150000
        ");
        let all = json(&judged, Some(&preview));
        assert_eq!(all["samples"][0]["tokens"][0]["mask"], 0);
        assert_eq!(all["sampled"]["logprobs"][1], -0.25);
    }

    #[test]
    fn of_a_turn_that_is_in_no_step_it_says_why() {
        let none = json!({"id": "7-2", "samples": [], "spent": null});
        let spent = json!({"id": "7-2", "samples": [], "spent": "verdict unclear"});
        let judged = turn(&json!({"is": "judged"}));
        let trained = turn(&json!({"is": "trained", "n": 3}));
        insta::assert_snapshot!(text(&trained, Some(&none)), @r"
        turn      7-2: trained in step 3
        as it was sampled, after 3 ids of the prompt
        position  token  log-prob  mask  advantage
        2         4      -0.5000   -     -
        3         5      -0.2500   -     -
        ");
        let aside = text(&judged, Some(&spent));
        assert!(aside.contains("sets it aside: verdict unclear"), "{aside}");
        let waits = text(&judged, Some(&none));
        assert!(waits.contains("it waits"), "{waits}");
        let unanswered = json!({"id": "7-2", "samples": [], "spent": null, "is_unanswered": true});
        let teacher = text(&judged, Some(&unanswered));
        assert!(
            teacher.contains("the teacher has still to answer it"),
            "{teacher}"
        );
        let offline = text(&judged, None);
        assert!(offline.contains("metaclaw does not run"), "{offline}");
    }
}
