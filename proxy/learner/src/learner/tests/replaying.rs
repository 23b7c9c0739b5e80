//! Weights trained again from the log: elsewhere, by other settings, and nothing else changes.

use std::sync::Mutex;

use super::*;
use crate::{ReplayEvent, ReplayReport, ReplayWanted, testing::Habit};

/// A learner that has made a step of each of two batches.
async fn trained(dir: &Path, world: &World, rl: serde_json::Value) -> Rig {
    let rig = Rig::start(dir, world, config(&serde_json::json!({"rl": rl}))).await;
    for n in 0..4 {
        append(&rig.log, world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    rig.trained(8).await;
    // A step is told after its turns are trained, and after old checkpoints were deleted.
    let n_steps = rig
        .log
        .steps(&AgentId::default_agent())
        .await
        .unwrap()
        .len();
    let are_told = async || rig.learner.counts().n_steps == n_steps as u64;
    rig.until("each step is told", are_told).await;
    rig
}

/// The settings of a learner with both methods.
fn both() -> serde_json::Value {
    serde_json::json!({"method": "redo+binary_rl"})
}

fn wanted(rig: &Rig, rl: &serde_json::Value) -> ReplayWanted {
    let mut all = serde_json::to_value(rig.learner.config()).unwrap();
    for (key, value) in rl.as_object().unwrap() {
        all["rl"][key] = value.clone();
    }
    ReplayWanted {
        name: "slow".to_owned(),
        agent: AgentId::default_agent(),
        since_ms: None,
        steps: None,
        seed: Some(7),
        config: serde_json::from_value(all).unwrap(),
    }
}

/// What it came to, and the steps that it told of.
async fn replayed(
    rig: &Rig,
    wanted: ReplayWanted,
) -> Result<(ReplayReport, Vec<StepReport>), TrainError> {
    let dir = folder();
    let scratch = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
    let steps = Mutex::new(Vec::new());
    let told = |event| {
        if let ReplayEvent::Step(step) = event {
            steps.lock().unwrap().push(*step);
        }
    };
    let replay = rig
        .learner
        .replay(wanted, scratch.clone(), Recorder::default(), Box::new(told));
    let replayed = replay.await;
    scratch.close().await;
    let report = replayed?;
    Ok((report, steps.into_inner().unwrap()))
}

#[tokio::test]
async fn a_replay_is_the_same_steps_elsewhere_and_changes_nothing_here() {
    let (dir, world) = (folder(), World::default());
    let rl = serde_json::json!({"method": "redo+binary_rl", "warmup_steps": 0});
    let rig = trained(dir.path(), &world, rl).await;
    let agent = AgentId::default_agent();
    let (steps, serving) = (
        rig.log.steps(&agent).await.unwrap(),
        rig.log.serving().await.unwrap(),
    );
    let funnel = rig.log.funnel(None).await.unwrap();
    let (swaps, made) = (rig.swaps.lock().unwrap().clone(), world.checkpoints());
    let n_kept = world.kept().len();

    let other = serde_json::json!({"learning_rate": 1e-5, "lora_rank": 4});
    let (report, told) = replayed(&rig, wanted(&rig, &other)).await.unwrap();
    assert_eq!(report.n_sessions, 4);
    assert_eq!((report.n_steps, told.len()), (steps.len(), steps.len()));
    assert_eq!(report.n_left, Some(0));
    let all = world.checkpoints();
    let replays = &all[made.len()..];
    // The same turns in the same steps, as far as the order of the log tells it.
    for ((manifest, _), (live, _)) in replays.iter().zip(&made) {
        assert_eq!(manifest["turns"], live["turns"]);
        assert_eq!(manifest["uses"], live["uses"]);
        assert_ne!(manifest["lineage"], live["lineage"]);
        let made = &manifest["made"];
        assert_eq!(
            (&made["seed"], &made["replay"]["name"]),
            (&7.into(), &"slow".into())
        );
        assert_eq!(made["config"]["learning_rate"], 1e-5);
        assert!(live["made"]["replay"].is_null(), "{live}");
    }
    let (created, stepped) = world.asked().unwrap();
    assert_eq!((created.rank, created.seed), (4, Some(7)));
    assert!((stepped.learning_rate - 1e-5).abs() < 1e-12);
    assert_eq!(report.adapter, told.last().map(|step| step.adapter.clone()));

    // Here all is as it was, and nobody is served by it.
    assert_eq!(rig.log.steps(&agent).await.unwrap(), steps);
    assert_eq!(rig.log.serving().await.unwrap(), serving);
    assert_eq!(rig.log.funnel(None).await.unwrap(), funnel);
    assert_eq!(*rig.swaps.lock().unwrap(), swaps);
    assert_eq!(world.kept().len(), n_kept, "it knows not what serves");
    rig.stop().await;
}

#[tokio::test]
async fn a_replay_ends_after_so_many_steps_and_begins_where_it_is_told() {
    let (dir, world) = (folder(), World::default());
    let rig = trained(dir.path(), &world, both()).await;
    let one = ReplayWanted {
        steps: Some(1),
        ..wanted(&rig, &serde_json::json!({}))
    };
    let (report, told) = replayed(&rig, one).await.unwrap();
    assert_eq!((report.n_steps, told.len(), report.n_left), (1, 1, None));
    let none = ReplayWanted {
        since_ms: Some(metaclaw_chat::now_ms() + 60_000),
        ..wanted(&rig, &serde_json::json!({}))
    };
    let (report, _) = replayed(&rig, none).await.unwrap();
    assert_eq!(
        (report.n_sessions, report.n_steps, report.adapter),
        (0, 0, None)
    );
    rig.stop().await;
}

#[tokio::test]
async fn what_the_gate_declines_in_a_replay_is_told_and_is_not_its_outcome() {
    let (dir, world) = (folder(), World::default());
    let rig = trained(dir.path(), &world, both()).await;
    world.train_into(&[], Habit::Greets);
    let (report, told) = replayed(&rig, wanted(&rig, &serde_json::json!({})))
        .await
        .unwrap();
    assert_eq!(report.adapter, None);
    assert!(!told.is_empty() && told.iter().all(|step| !step.serves));
    rig.stop().await;
}

#[tokio::test]
async fn a_replays_adapter_is_tested_before_it_may_serve() {
    let (dir, world) = (folder(), World::default());
    let rig = trained(dir.path(), &world, both()).await;
    let mut ungated = wanted(&rig, &serde_json::json!({"lora_rank": 4}));
    ungated.config.gate.enabled = false;
    world.train_into(&[Habit::Greets, Habit::Fine], Habit::Fine);
    let (_, told) = replayed(&rig, ungated).await.unwrap();
    let test = async |step: &StepReport| {
        let name = step.adapter.parse().unwrap();
        rig.learner.test(&name).await.unwrap().unwrap()
    };
    let greets = test(&told[0]).await;
    assert_eq!(greets.failed().next().unwrap().name, "relevance");
    let fine = test(&told[1]).await;
    assert!(fine.passed() && !fine.tests.is_empty(), "{fine:?}");
    let nobody: AdapterName = "main-0badcafe-000009".parse().unwrap();
    assert_eq!(rig.learner.test(&nobody).await.unwrap(), None);
    rig.stop().await;
}
