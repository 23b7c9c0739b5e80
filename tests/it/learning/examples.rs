//! Tests of the examples for researchers, with the training server and the demo model.

use metaclaw_tests::{
    external,
    trainer::{Start, Trainer},
};
use tempfile::TempDir;
use tokio::process::Command;

/// Returns the output of an example.
async fn printed(name: &str, url: &str) -> String {
    let program = external::bin_dir().join("examples").join(name);
    let output = Command::new(program).arg(url).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}{failed}");
    eprintln!("{said}");
    said
}

/// Returns the numbers after a word, one on each line.
fn numbers(said: &str, before: &str) -> Vec<f64> {
    let lines = said.lines().filter_map(|line| line.split_once(before));
    let number = |text: &str| text.split_whitespace().next()?.parse().ok();
    lines.filter_map(|(_, after)| number(after)).collect()
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn both_loops_learn() {
    let checkpoints = TempDir::new().unwrap();
    let trainer = Trainer::start(&Start {
        model: Some(external::model()),
        checkpoints: Some(checkpoints.path().to_owned()),
        ..Start::default()
    })
    .await;
    let supervised = printed("sl_loop", &trainer.url).await;
    let losses = numbers(&supervised, ": ");
    assert!(
        losses.len() == 12 && losses[11] < losses[0] / 4.0,
        "{losses:?}"
    );
    assert!(supervised.contains("every pirate knows"), "{supervised}");
    let reinforced = printed("rl_loop", &trainer.url).await;
    let rewards = numbers(&reinforced, "reward ");
    assert!(
        rewards.len() == 5 && rewards[4] > rewards[0],
        "{reinforced}"
    );
    trainer.stop().await;
}
