//! `metaclaw turns show --train`: what a training step would use of a turn, token by token.

use metaclaw_chat::TurnId;
use metaclaw_learner::{SamplePreview, TokenPreview, TurnPreview};
use metaclaw_turns::{Tokens, Turn, TurnState};
use serde::Serialize;

use super::outcome::outcome;
use crate::out;

/// The turn's samples in tables; where no step would use it, why not, and its own ids. `preview` is what the running
/// process says, if one runs.
pub(super) fn text(turn: &Turn, preview: Option<&TurnPreview>) -> String {
    let mut lines = vec![format!("turn      {}: {}", turn.id, becomes(turn, preview))];
    let samples = preview.map_or(&[][..], |one| &one.samples);
    match (samples, &turn.tokens) {
        ([], Some(tokens)) => lines.push(sampled(tokens)),
        ([], None) => lines.push("its token ids are not kept".to_owned()),
        (samples, _) => lines.extend(samples.iter().map(sample)),
    }
    lines.join("\n")
}

#[derive(Debug, Serialize)]
pub(super) struct TrainingView<'a> {
    id: TurnId,
    state: &'a TurnState,
    becomes: String,
    /// The samples of the next step that it is in; none where nothing runs.
    samples: Option<&'a [SamplePreview]>,
    sampled: Option<SampledIds<'a>>,
}

#[derive(Debug, Serialize)]
struct SampledIds<'a> {
    prompt_ids: &'a [u32],
    ids: &'a [u32],
    logprobs: &'a [f32],
}

pub(super) fn json<'a>(turn: &'a Turn, preview: Option<&'a TurnPreview>) -> TrainingView<'a> {
    TrainingView {
        id: turn.id,
        state: &turn.state,
        becomes: becomes(turn, preview),
        samples: preview.map(|preview| &preview.samples[..]),
        sampled: turn.tokens.as_ref().map(|tokens| SampledIds {
            prompt_ids: &tokens.prompt_ids,
            ids: &tokens.ids,
            logprobs: &tokens.logprobs,
        }),
    }
}

fn becomes(turn: &Turn, preview: Option<&TurnPreview>) -> String {
    let state = outcome(turn.meta.end, &turn.state);
    let Some(preview) = preview else {
        return format!("{state} (metaclaw does not run, so what a step would use is not known)");
    };
    let n = preview.samples.len() as u64;
    match (&turn.state, &preview.spent) {
        (_, Some(why)) => format!("{state}; the next step sets it aside: {why}"),
        (_, None) if n > 0 => format!("{state}; in the next step with {}", out::count(n, "sample")),
        (_, None) if preview.is_unanswered => {
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
fn sample(sample: &SamplePreview) -> String {
    let turns: Vec<String> = sample.turns.iter().map(ToString::to_string).collect();
    let head = format!(
        "{} by {}, of turn {}: {} tokens, {} trained, weight {:+.4}",
        sample.method,
        sample.loss,
        turns.join(" -> "),
        sample.n_tokens,
        sample.n_trained,
        sample.weight,
    );
    let rows: Vec<PositionRow> = sample.tokens.iter().map(row).collect();
    format!("{head}\n{}", table(&rows))
}

struct PositionRow {
    counts: bool,
    cells: Vec<String>,
}

fn row(token: &TokenPreview) -> PositionRow {
    let ids: Vec<String> = token.ids.iter().map(ToString::to_string).collect();
    let advantages = token.advantage.iter().map(|one| format!("{one:+.6}"));
    let given: Vec<String> = advantages.collect();
    let logprob = token.logprob.map(|logprob| format!("{logprob:.4}"));
    PositionRow {
        counts: token.mask == 1,
        cells: vec![
            token.position.to_string(),
            ids.join(" "),
            logprob.unwrap_or_else(|| "-".to_owned()),
            token.mask.to_string(),
            given.join(" "),
        ],
    }
}

fn sampled(tokens: &Tokens) -> String {
    let first = tokens.prompt_ids.len().saturating_sub(1);
    let pairs = tokens.ids.iter().zip(&tokens.logprobs).enumerate();
    let rows: Vec<PositionRow> = pairs
        .map(|(at, (id, logprob))| PositionRow {
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

fn table(rows: &[PositionRow]) -> String {
    let n_prompt = rows.iter().take_while(|row| !row.counts).count();
    let sampled = rows.iter().skip(n_prompt);
    let cells: Vec<Vec<String>> = sampled.map(|row| row.cells.clone()).collect();
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
    use serde_json::{Value, json};

    use super::*;

    fn preview(value: Value) -> TurnPreview {
        serde_json::from_value(value).unwrap()
    }

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
        let next = preview(
            json!({"id": "7-2", "spent": null, "waits": false, "is_unanswered": false, "samples": [{
            "method": "binary_rl", "loss": "importance_sampling", "turns": ["7-2"], "n_tokens": 4, "n_trained": 2,
            "weight": -0.3, "tokens": [
                token(0, 2, Some(0.0), 0, 0.0), token(1, 3, Some(0.0), 0, 0.0),
                token(2, 4, Some(-0.5), 1, -0.15), token(3, 5, Some(-0.25), 1, -0.15),
            ]}]}),
        );
        let judged = turn(&json!({"is": "judged"}));
        insta::assert_snapshot!(text(&judged, Some(&next)), @r"
        turn      7-2: judged; in the next step with 1 sample
        binary_rl by importance_sampling, of turn 7-2: 4 tokens, 2 trained, weight -0.3000
        2 positions of the prompt before: mask 0 (--json has them)
        position  token  log-prob  mask  advantage
        2         4      -0.5000   1     -0.150000
        3         5      -0.2500   1     -0.150000
        ");
        let all = serde_json::to_value(super::json(&judged, Some(&next))).unwrap();
        assert_eq!(all["samples"][0]["tokens"][0]["mask"], 0);
        assert_eq!(all["sampled"]["logprobs"][1], -0.25);
    }

    #[test]
    fn of_a_turn_that_is_in_no_step_it_says_why() {
        let of_turn = |spent: Value, is_unanswered: bool| {
            preview(
                json!({"id": "7-2", "samples": [], "spent": spent, "waits": false, "is_unanswered": is_unanswered}),
            )
        };
        let none = of_turn(Value::Null, false);
        let spent = of_turn(json!("verdict unclear"), false);
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
        let unanswered = of_turn(Value::Null, true);
        let teacher = text(&judged, Some(&unanswered));
        assert!(
            teacher.contains("the teacher has still to answer it"),
            "{teacher}"
        );
        let offline = text(&judged, None);
        assert!(offline.contains("metaclaw does not run"), "{offline}");
    }
}
