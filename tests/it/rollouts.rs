//! Tests of `metaclaw rollout`: programs that nobody here wrote are run on tasks unchanged, and many at once survive
//! that the proxy and the trainer are killed.

mod harnesses;
mod many;

use std::path::PathBuf;

use metaclaw_tests::home::Home;
use serde_json::Value;

/// Writes the file of a run and its tasks into a home, and returns the file's path.
fn written(home: &Home, file: &str, tasks: &[Value]) -> PathBuf {
    let lines: Vec<String> = tasks.iter().map(Value::to_string).collect();
    std::fs::write(home.path().join("tasks.jsonl"), lines.join("\n")).expect("a writable home");
    let path = home.path().join("run.yaml");
    std::fs::write(&path, file).expect("a writable home");
    path
}

/// Returns every rollout of the log, the oldest first.
async fn rollouts(home: &Home) -> Vec<Value> {
    let listed = home.ask(&["rollout", "list", "--json", "-n", "0"]).await;
    let Value::Array(mut listed) = listed.expect("a list") else {
        panic!("rollout list --json prints a list");
    };
    listed.reverse();
    listed
}
