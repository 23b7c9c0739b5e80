//! Tests of held-out sessions: none of their turns is trained on, and the gate tests adapters with them.

use super::*;
use crate::{gate::GateTest, testing::Habit};

/// There are sixty sessions with a complaint each. Nothing is trained before the owner asks for a step.
async fn talked(dir: &Path, world: &World) -> Rig {
    let seldom = serde_json::json!({"rl": {"batch_size": 1_000}, "gate": {"held_out": 0.5}});
    let rig = Rig::start(dir, world, config(&seldom)).await;
    for number in 1..=60 {
        let session = format!("h{number}");
        append(&rig.log, world, &session, &corrected_talk(number)).await;
    }
    let is_looked_at = async || rig.n(StateKind::HeldOut).await >= 12;
    rig.until("some are held out", is_looked_at).await;
    rig
}

async fn preference(rig: &Rig) -> GateTest {
    let report = rig.learner.train_now(None).await.unwrap().remove(0);
    let mut tests = report.gate.unwrap().tests.into_iter();
    tests.find(|test| test.name == "preference").unwrap()
}

#[tokio::test]
async fn what_is_held_out_is_not_learned_from_and_is_asked_about() {
    let (dir, world) = (folder(), World::default());
    let rig = talked(dir.path(), &world).await;
    let test = preference(&rig).await;
    assert_eq!(
        (test.passed, test.value),
        (Some(true), Some(0.0)),
        "{}",
        test.why
    );
    let agent = AgentId::default_agent();
    let held_out = rig.log.in_state(&agent, StateKind::HeldOut).await.unwrap();
    let sessions: BTreeSet<u64> = held_out.iter().map(|it| it.session).collect();
    assert!(sessions.iter().all(|it| *it > 32), "{sessions:?}");
    let serving = rig.log.serving().await.unwrap().remove(0).1;
    let weights = world.adapter(&serving).unwrap();
    // A turn's mark is ten times the number of its session.
    let learned = |session: &u64| weights.contains(&(10 * u32::try_from(*session).unwrap()));
    assert!(!weights.is_empty() && !sessions.iter().any(learned));
    rig.stop().await;
}

#[tokio::test]
async fn an_adapter_that_likes_less_what_was_accepted_is_declined() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], Habit::Sulks);
    let rig = talked(dir.path(), &world).await;
    let test = preference(&rig).await;
    assert_eq!(test.passed, Some(false), "{}", test.why);
    assert!(test.why.starts_with("preference -0.50 nat"), "{}", test.why);
    assert!(rig.log.serving().await.unwrap().is_empty());
    rig.stop().await;
}
