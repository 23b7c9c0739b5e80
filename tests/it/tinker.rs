//! Tests of Tinker's own SDK with MetaClaw's training server.

use std::{ffi::OsStr, path::Path};

use metaclaw_tests::{
    external,
    trainer::{Start, Trainer},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

const KEY: &str = "of-this-server";

/// A server with a folder of its own. A session ends after 15 s without a heartbeat; clients send one every 10.
async fn server() -> (Trainer, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let start = Start {
        model: Some(external::model()),
        checkpoints: Some(folder.path().join("checkpoints")),
        key: Some(KEY.to_owned()),
        flags: ["--session-idle=15", "--threads=1", "--dtype=f32"]
            .map(str::to_owned)
            .to_vec(),
        ..Start::default()
    };
    (Trainer::start(&start).await, folder)
}

/// Runs a program of this folder to its end and reads its output.
async fn run(program: &str, trainer: &Trainer) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/tinker");
    let model = external::model();
    let base = model.file_stem().and_then(OsStr::to_str).expect("a name");
    let mut command = Command::new(external::tinker());
    command
        .arg(folder.join(program))
        .args([&trainer.url, &format!("tml-{KEY}"), base])
        .env("TINKER_TELEMETRY", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .kill_on_drop(true);
    let output = command.output().await.expect("python runs");
    let logs = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{logs}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().expect("a list");
    list.iter()
        .map(|it| it.as_f64().expect("a number"))
        .collect()
}

fn are_close(one: &[f64], other: &[f64], relative: f64) -> bool {
    let is_close =
        |(a, b): (&f64, &f64)| (a - b).abs() <= relative * a.abs().max(b.abs()).max(1e-6);
    one.len() == other.len() && one.iter().zip(other).all(is_close)
}

#[tokio::test]
#[ignore = "needs the model and Tinker's SDK, cargo xtask test --all runs it"]
async fn the_sdk_trains_saves_loads_and_samples() {
    let (trainer, _folder) = server().await;
    let seen = run("sdk.py", &trainer).await;

    assert_eq!(seen["ranks"], serde_json::json!([4, 16, 4]));
    assert_eq!(seen["shapes"], serde_json::json!([[11], [8], [6]]));
    let (losses, norms) = (numbers(&seen["losses"]), numbers(&seen["norms"]));
    assert_eq!((losses.len(), norms.len()), (16, 16));
    // Calls that arrived in another order were carried out by their numbers: the result is that of one call after the
    // other.
    assert!(
        are_close(&losses, &numbers(&seen["losses_in_turn"]), 1e-2),
        "{seen}"
    );
    assert!(
        are_close(&norms, &numbers(&seen["norms_in_turn"]), 5e-2),
        "{seen}"
    );
    let before = seen["before"].as_f64().expect("a loss");
    assert!((losses[0] - before).abs() < 1e-3 * before, "{seen}");
    assert!(losses[15] < 0.5 * losses[0], "{seen}");
    // The other model, of another rank, was trained meanwhile, and also after a refused datum.
    let other = numbers(&seen["other"]);
    assert!(other[1] < other[0] && other[2] < other[1], "{seen}");

    // A model made from a checkpoint with its optimiser continues as the saved one does.
    assert_eq!(seen["continued"][0], seen["continued"][1]);
    assert!(
        seen["after"].as_f64().expect("a loss") < losses[15] * 1.5,
        "{seen}"
    );
    let text = |field: &str| seen[field].as_str().unwrap_or_default().to_owned();
    assert!(
        text("state").ends_with(":train:0/weights/step-16"),
        "{seen}"
    );
    assert!(
        text("named").ends_with(":train:0/sampler_weights/step-17"),
        "{seen}"
    );
    assert!(text("taken").contains("is there already"), "{seen}");
    assert!(text("wrong_datum").contains("1000000"), "{seen}");
    assert_eq!(
        seen["checkpoints"],
        serde_json::json!(["sampler_weights/step-17", "weights/step-16"])
    );
    assert_eq!(seen["left"], serde_json::json!(["weights/step-16"]));
    // A killed client delayed nobody, and its model was freed.
    assert_eq!(seen["victim"], serde_json::json!([true, true]));
    samples_are_of_their_weights(&seen);
}

fn samples_are_of_their_weights(seen: &Value) {
    let [ephemeral, named, base] = [0, 1, 2].map(|at| &seen["drawn"][at]);
    assert_eq!(ephemeral["tokens"], named["tokens"]);
    assert_eq!(ephemeral["prompt"], named["prompt"]);
    assert_ne!(ephemeral["prompt"], base["prompt"]);
    assert_eq!(ephemeral["prompt"][0], Value::Null);
    assert_eq!(ephemeral["prompt"].as_array().map(Vec::len), Some(4));
    assert_eq!(ephemeral["top"][1].as_array().map(Vec::len), Some(2));
    assert_eq!(ephemeral["logprobs"], serde_json::json!([6, 6]));
    assert_ne!(ephemeral["ids"][0], ephemeral["ids"][1]);
    // The model was trained on this text: with greedy sampling it says the rest, and ends with the end token.
    let stopped = serde_json::json!({"tokens": [260, 1296], "reason": "stop"});
    assert_eq!(seen["stopped"], stopped, "{seen}");
    // A sampler scores a text as the model that it was saved from does, whose first target has no loss.
    let scored = &seen["scored"].as_array().expect("a list")[1..];
    let scored = numbers(&Value::Array(scored.to_vec()));
    let forward = numbers(&seen["forward"]);
    assert!(are_close(&scored, &forward, 1e-3), "{scored:?} {forward:?}");
}

#[tokio::test]
#[ignore = "needs the model and Tinker's SDK, cargo xtask test --all runs it"]
async fn every_loss_is_the_same_by_the_sdk_and_by_rest() {
    let (trainer, _folder) = server().await;
    let seen = run("losses.py", &trainer).await;
    let losses = seen.as_object().expect("an object");
    assert_eq!(losses.len(), 6);
    for (loss, seen) in losses {
        let (sdk, rest) = (&seen["sdk"], &seen["rest"]);
        // Returns losses, norms of gradients and log-probabilities of two steps, and all numbers of the adapter.
        assert_eq!(sdk["seen"], rest["seen"], "{loss}");
        assert_eq!(sdk["sha256"], rest["sha256"], "{loss}");
        assert!(sdk["seen"][0][1].as_f64().expect("a norm") > 0.0, "{loss}");
        assert!(
            are_close(
                &[sdk["forward"][0].as_f64().expect("a loss")],
                &[sdk["forward"][1].as_f64().expect("a loss")],
                1e-5
            ),
            "{loss}: {sdk}"
        );
    }
}
