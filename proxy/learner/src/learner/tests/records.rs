//! Tests of what is recorded of each step: its numbers, and its checkpoint's manifest.

use serde_json::Value;

use super::*;

fn lines(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("learning/steps.jsonl")).unwrap_or_default();
    let read = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(read).collect()
}

async fn recorded(rig: &Rig, dir: &Path, n: usize) -> Vec<Value> {
    let written = async || lines(dir).len() >= n;
    rig.until("the numbers of a step are written", written)
        .await;
    lines(dir)
}

#[tokio::test]
async fn each_step_leaves_its_numbers_and_how_it_was_made() {
    let (dir, world) = (folder(), World::default());
    let both = config(&serde_json::json!({"rl": {"method": "redo+binary_rl"}}));
    let rig = Rig::start(dir.path(), &world, both).await;
    for n in 0..2 {
        append(&rig.log, &world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    assert!(rig.trained(4).await);
    let line = recorded(&rig, dir.path(), 1).await.remove(0);
    assert_eq!((&line["step"], &line["n"]), (&1.into(), &1.into()));
    assert_eq!(line["samples"]["context_distillation"], 2);
    for name in [
        "loss/total",
        "loss/context_distillation",
        "loss/binary",
        "reward/std",
    ] {
        assert!(line[name].is_number(), "{name}: {line}");
    }
    assert_eq!(line["gradient/norm"], 0.5);
    let agent = AgentId::default_agent();
    let lineage = line["lineage"].as_str().unwrap();
    let run = dir.path().join("learning/tensorboard");
    assert!(run.join(agent.as_str()).join(lineage).is_dir());

    let (manifest, _) = world.checkpoints().remove(0);
    let turns = manifest["turns"].as_array().unwrap();
    let scores = manifest["scores"].as_object().unwrap();
    assert_eq!(turns.len(), scores.len());
    assert!(scores.values().any(|it| *it == -1) && scores.values().any(|it| *it == 1));
    let made = &manifest["made"];
    assert_eq!(made["version"], env!("CARGO_PKG_VERSION"));
    let seed = u64::from_str_radix(lineage, 16).unwrap();
    assert_eq!(made["seed"], seed);
    assert_eq!(made["config"]["batch_size"], 2);
    assert_eq!(manifest["shape"]["base_fingerprint"], "0badcafe");
    rig.stop().await;
}

/// The process is killed when the checkpoint exists and the step is not yet recorded as made.
#[tokio::test]
async fn a_step_that_was_interrupted_is_recorded_when_it_is_settled() {
    let (dir, world) = (folder(), World::default());
    let redo = config(&serde_json::json!({}));
    let rig = Rig::start(dir.path(), &world, redo.clone()).await;
    // The calls are checkpoints, create, checkpoints, forward_backward, optim_step and save_checkpoint; then the
    // process is killed.
    world.fail(5, Failure::ClientKilledAfter);
    for n in 0..2 {
        append(&rig.log, &world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    assert!(!rig.trained(2).await, "it was killed");
    rig.stop().await;
    assert!(lines(dir.path()).is_empty());
    let rig = Rig::start(dir.path(), &world, redo).await;
    assert!(rig.trained(2).await);
    let line = recorded(&rig, dir.path(), 1).await.remove(0);
    assert_eq!((&line["step"], &line["n"]), (&1.into(), &1.into()));
    assert_eq!(line["samples"]["context_distillation"], 2);
    assert!(line["perf/step_time"].is_null(), "nobody measured it");
    rig.stop().await;
    assert_eq!(lines(dir.path()).len(), 1, "once");
}
