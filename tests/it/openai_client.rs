//! Tests with the `openai` Python package and the real engine: streaming and not, through the proxy; and conversations
//! whose turns can be merged.

use metaclaw_tests::{
    external,
    trainer::{Start, Trainer},
};
use serde_json::Value;
use tokio::process::Command;

use crate::chat::laptop_home;

#[tokio::test]
#[ignore = "needs the binaries, the model and the Python packages, cargo xtask test runs it"]
async fn the_openai_package_gets_the_same_answer_streamed_and_whole() {
    let python = external::python();
    let home = laptop_home();
    let proxy = home.start().await.unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/openai_package.py");
    let output = Command::new(python)
        .args([script, &proxy.base_url])
        .output()
        .await
        .expect("python runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();

    assert!(seen["whole"].as_str().unwrap().contains("Paris"), "{seen}");
    assert_eq!(seen["whole"], seen["streamed"], "greedy answers agree");
    assert!(seen["n_deltas"].as_u64().unwrap() > 3, "{seen}");
    assert_eq!(seen["n_usages"], 1, "{seen}");
    assert_eq!(seen["whole_usage"], seen["streamed_usage"], "{seen}");
    assert_eq!(seen["refused"]["status"], 400, "{seen}");
    assert!(
        seen["refused"]["message"]
            .as_str()
            .unwrap()
            .contains("temperature"),
        "{seen}"
    );
    assert!(!seen["models"].as_array().unwrap().is_empty(), "{seen}");
    proxy.stop().await.unwrap();
}

/// Tests what training a session as one sequence needs: the client sends text, whose ids must be those that were
/// sampled.
#[tokio::test]
#[ignore = "needs the binaries, the model and the Python packages, cargo xtask test --all runs it"]
async fn turns_go_on_from_the_ids_that_were_sampled() {
    let model = Some(external::model());
    let start = Start {
        model,
        ..Start::default()
    };
    let trainer = Trainer::start(&start).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/openai_merging.py");
    let mut command = Command::new(external::python());
    command
        .args([script, &trainer.url, "50"])
        .kill_on_drop(true);
    let output = command.output().await.expect("python runs");
    let logs = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{logs}");
    let merged: Vec<Vec<bool>> = serde_json::from_slice(&output.stdout).unwrap();
    let pairs: Vec<bool> = merged.into_iter().flatten().collect();
    let n_merged = pairs.iter().filter(|merged| **merged).count();
    assert_eq!(pairs.len(), 150);
    assert!(n_merged * 100 >= pairs.len() * 95, "{n_merged} of 150");
    eprintln!("{n_merged} of 150 turns go on from what was sampled");
    trainer.stop().await;
}
