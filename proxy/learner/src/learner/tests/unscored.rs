//! Tests of `gate.accept_without`: with a training server that cannot score a reply, the tests that need scores are
//! skipped.

use super::*;
use crate::testing::Habit;

/// The method needs no scores; the teacher of redo would need them as well.
fn without(parts: &[&str]) -> LearnerConfig {
    config(&serde_json::json!({
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
    rig.two_talks(&world, 1).await;
    let serves = async || !rig.served().await.is_empty();
    rig.until("an adapter serves", serves).await;
    let tests = rig.last_step().await.gate.unwrap().tests;
    let named = |name: &str| tests.iter().find(|it| it.name == name).unwrap();
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
    rig.two_talks(&world, 1).await;
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
        rig.two_talks(&world, 1).await;
        let told = format!(
            "the gate's tests {lacking} cannot be made (forward: world does not answer this: it scores no given ids), and nothing that is not tested serves: name them in gate.accept_without"
        );
        let is_told = async || {
            let phase = rig.learner.status().await.unwrap().phase;
            matches!(phase, Phase::WaitingForTrainer { why } if why.contains(&told))
        };
        rig.until("it says why", is_told).await;
        let asked = rig.learner.train_now(None).await.unwrap_err();
        assert!(asked.to_string().contains(&told), "{asked}");
        assert!(world.asked().is_none(), "nothing was trained");
        assert!(rig.n(StateKind::Judged).await > 0, "its turns wait");
        assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
        rig.stop().await;
    }
}
