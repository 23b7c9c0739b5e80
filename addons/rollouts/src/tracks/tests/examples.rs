//! Every task of the examples: its own solution scores 1, and a model that does nothing scores 0.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{
    super::Track,
    scripted::{Scripted, needs_sandbox, run_in},
};
use crate::task::tasks;

pub(super) fn folder(track: Track) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder
        .join("../../examples/rollouts")
        .join(track.name())
}

/// Reads the solution of a task: a shell script, or calls and an answer.
pub(super) fn solution(task: &Value) -> Vec<Scripted> {
    let solution = &task["solution"];
    if let Some(script) = solution.as_str() {
        return vec![Scripted::bash(script), Scripted::done()];
    }
    let calls = solution["calls"].as_array().unwrap();
    let calls = calls.iter().map(|call| {
        let name: &'static str = call["name"].as_str().unwrap().to_owned().leak();
        Scripted::Call(name, call["arguments"].clone())
    });
    let answer = Scripted::Text(solution["answer"].as_str().unwrap().to_owned());
    calls.chain([answer]).collect()
}

async fn play(track: Track, file: &str, n_tasks: usize) {
    needs_sandbox!();
    let folder = folder(track);
    let tasks = tasks(&folder.join(file)).unwrap();
    assert_eq!(tasks.len(), n_tasks);
    for task in tasks {
        let id = task.id;
        let task = Value::Object(task.fields);
        let solved = run_in(&folder, track, &task, solution(&task)).await;
        let score = solved.result.as_ref().map(|it| it.score);
        let shown = solved.requests.last();
        assert!(
            matches!(score, Ok(it) if it > 0.99),
            "{id}: {score:?} {shown:?}"
        );
        let lazy = run_in(&folder, track, &task, vec![Scripted::done()]).await;
        assert!(lazy.score() < 0.01, "{id} needs nothing to be done");
    }
}

#[tokio::test]
async fn terminal_tasks_can_be_solved_and_need_it() {
    play(Track::Terminal, "tasks.jsonl", 20).await;
    play(Track::Terminal, "eval.jsonl", 5).await;
}

#[tokio::test]
async fn toolcall_tasks_can_be_solved_and_need_it() {
    play(Track::Toolcall, "tasks.jsonl", 20).await;
    play(Track::Toolcall, "eval.jsonl", 5).await;
}

#[tokio::test]
#[ignore = "needs 8 s, cargo xtask test --all runs it"]
async fn swe_tasks_can_be_solved_and_need_it() {
    play(Track::Swe, "tasks.jsonl", 20).await;
}
