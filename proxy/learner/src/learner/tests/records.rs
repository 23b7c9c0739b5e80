//! Tests of what is recorded of each step: its numbers, and its checkpoint's manifest.
//!
//! Tests of `gate.accept_without`: with a training server that cannot score a reply, the tests that need scores are
//! skipped.

use super::*;
use crate::testing::Habit;

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
    let both = config(&json!({"rl": {"method": "redo+binary_rl"}}));
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
    assert!(scores.values().any(|score| *score == -1) && scores.values().any(|score| *score == 1));
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
    let redo = usual();
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

/// The method needs no scores; the teacher of redo would need them as well.
fn without(parts: &[&str]) -> LearnerConfig {
    config(&json!({
        "rl": {"method": "binary_rl"},
        "gate": {"accept_without": parts},
    }))
}

#[tokio::test]
async fn a_test_that_cannot_be_made_and_is_accepted_stands_in_the_record_of_its_step() {
    let (dir, world) = (folder(), World::default());
    world.lack_scores();
    let accepted = without(&["replies", "capability", "preference"]);
    let rig = Rig::start(dir.path(), &world, accepted).await;
    rig.talk(&world, &[1, 2]).await;
    let serves = async || !rig.served().await.is_empty();
    rig.until("an adapter serves", serves).await;
    let tests = rig.last_step().await.gate.unwrap().tests;
    let named = |name: &str| tests.iter().find(|test| test.name == name).unwrap();
    for part in ["replies", "capability"] {
        let test = named(part);
        assert_eq!((test.passed, test.value), (None, None), "{part}");
        assert!(
            test.why.starts_with(&format!(
                "{part} skipped: it could not be made: forward: world"
            )),
            "{}",
            test.why
        );
    }
    assert_eq!(
        named("tools").passed,
        Some(true),
        "what can be made is made"
    );
    rig.stop().await;
}

/// The remaining tests still decide.
#[tokio::test]
async fn what_fails_a_test_that_can_be_made_does_not_serve() {
    let (dir, world) = (folder(), World::default());
    world.lack_scores();
    world.train_into(&[], Habit::Chats);
    let accepted = without(&["replies", "capability", "preference"]);
    let rig = Rig::start(dir.path(), &world, accepted).await;
    rig.talk(&world, &[1, 2]).await;
    let declined = rig.declined_in_a_row(1).await;
    assert!(declined.why.contains("tools "), "{declined:?}");
    assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
    rig.stop().await;
}

#[tokio::test]
async fn a_test_that_cannot_be_made_and_is_not_accepted_keeps_every_adapter_from_serving() {
    for (accepted, lacking) in [
        (&[][..], "replies, capability, preference"),
        (&["replies", "preference"][..], "capability"),
        (&["replies", "capability", "tools"][..], "preference"),
    ] {
        let (dir, world) = (folder(), World::default());
        world.lack_scores();
        let rig = Rig::start(dir.path(), &world, without(accepted)).await;
        rig.talk(&world, &[1, 2]).await;
        let told = format!(
            "the gate's tests {lacking} cannot be made (forward: world does not answer this: it scores no given ids), and nothing that is not tested serves: name them in gate.accept_without"
        );
        rig.phase(
            "it says why",
            |phase| matches!(phase, Phase::WaitingForTrainer { why } if why.contains(&told)),
        )
        .await;
        let asked = rig.learner.train_now(None).await.unwrap_err();
        assert!(asked.to_string().contains(&told), "{asked}");
        assert!(world.asked().is_none(), "nothing was trained");
        assert!(rig.n(StateKind::Judged).await > 0, "its turns wait");
        assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
        rig.stop().await;
    }
}
