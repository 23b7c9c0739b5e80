//! What a replay says, in lines.

use serde_json::Value;

use crate::out;

/// Sessions after which it is told how many were read: the teacher may take its time.
const READ: u64 = 10;

/// One event; nothing of those that only programs want.
pub(super) fn text(event: &Value) -> Option<String> {
    match event["is"].as_str()? {
        "began" => Some(format!(
            "{} to read; a step is made whenever a batch is full",
            out::count(number(&event["n_sessions"]), "session")
        )),
        "read" if number(&event["n_sessions"]).is_multiple_of(READ) => {
            let sessions = out::count(number(&event["n_sessions"]), "session");
            Some(format!("{sessions} read"))
        }
        "step" => Some(step(event)),
        "ended" => Some(ended(event)),
        _ => None,
    }
}

fn step(step: &Value) -> String {
    let tests = step["gate"]["tests"].as_array();
    let is_tested = tests.is_some_and(|tests| !tests.is_empty());
    let failed = tests
        .into_iter()
        .flatten()
        .filter(|test| test["passed"] == false);
    let why: Vec<&str> = failed.filter_map(|test| test["why"].as_str()).collect();
    let came_to = match (&why[..], is_tested) {
        ([], true) => "passes the gate".to_owned(),
        ([], false) => "not tested".to_owned(),
        (why, _) => format!("declined: {}", why.join("; ")),
    };
    format!(
        "step {}: {} of {} ({} again), loss {:.4}, rate {:.1e}, {:.1} s; {came_to}",
        step["step"],
        step["adapter"].as_str().unwrap_or_default(),
        out::count(number(&step["n_turns"]), "turn"),
        step["n_again"],
        step["loss"].as_f64().unwrap_or_default(),
        step["learning_rate"].as_f64().unwrap_or_default(),
        step["seconds"].as_f64().unwrap_or_default(),
    )
}

fn ended(report: &Value) -> String {
    let name = report["name"].as_str().unwrap_or_default();
    let steps = out::count(number(&report["n_steps"]), "step");
    let mut lines = vec![format!("replay {name} ended: {steps}")];
    if let Some(left) = report["n_left"].as_u64().filter(|n| *n > 0) {
        let left = out::count(left, "sample");
        lines.push(format!("{left} left, which make no full batch"));
    }
    let not_taught = report["not_taught"].as_object().into_iter().flatten();
    for (why, n) in not_taught {
        lines.push(format!("{}: {why}", out::count(number(n), "turn")));
    }
    lines.push(match report["adapter"].as_str() {
        Some(adapter) => format!(
            "{adapter} is its last that may serve, and serves nobody: `metaclaw eval {adapter}` measures it, `metaclaw adapters promote {adapter}` has the gate test it and then serves it"
        ),
        None => "no adapter of it is fit to serve".to_owned(),
    });
    lines.join("\n")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_tells_its_steps_and_what_to_do_with_them() {
        let step = |gate: Value| {
            json!({"is": "step", "step": 3, "adapter": "main-3fa9c0d1-000003", "n_turns": 8, "n_again": 4,
                "loss": 2.53, "learning_rate": 3e-4, "seconds": 12.34, "gate": gate})
        };
        let passed =
            json!({"tests": [{"name": "relevance", "passed": true, "why": "relevance 0.9"}]});
        let failed = json!({"tests": [{"name": "relevance", "passed": false, "why": "relevance 0.31 of the reference's, at least 0.80"}]});
        let ended = |adapter: Value, n_left: Value| {
            json!({"is": "ended", "name": "slow", "agent": "main", "n_steps": 1, "adapter": adapter, "n_left": n_left,
                "not_taught": {"no draw of the teacher does what is wished": 2}})
        };
        let events = [
            json!({"is": "began", "n_sessions": 40}),
            json!({"is": "read", "n_sessions": 9}),
            json!({"is": "read", "n_sessions": 10}),
            step(passed),
            step(failed),
            step(json!({"tests": []})),
            ended(json!("main-3fa9c0d1-000003"), json!(3)),
            ended(Value::Null, Value::Null),
        ];
        let told: Vec<String> = events.iter().filter_map(text).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
