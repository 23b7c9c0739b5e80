//! Tests of when a step is made: on request, or while the owner is away.

use super::*;

#[tokio::test]
async fn a_step_can_be_asked_for() {
    let (dir, world) = (folder(), World::default());
    let auto = serde_json::json!({"mode": "auto", "gate": {"enabled": false}});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    append(&rig.log, &world, "c", &corrected_talk(3)).await;
    let waits = async || rig.learner.status().await.unwrap().phase == Phase::AwaitingRequest;
    rig.until("it waits to be asked", waits).await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "nobody asked");
    let reports = rig.learner.train_now(None).await.unwrap();
    // The step uses all samples, not only one batch.
    assert_eq!((reports.len(), reports[0].n_redo), (1, 3));
    rig.stop().await;
}

#[tokio::test]
async fn with_the_manual_trigger_no_mode_trains_by_itself() {
    let (dir, world) = (folder(), World::default());
    let manual = serde_json::json!({"mode": "rl", "rl": {"manual_train_trigger": true}});
    let rig = Rig::start(dir.path(), &world, config(&manual)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let waits = async || rig.learner.status().await.unwrap().phase == Phase::AwaitingRequest;
    rig.until("it waits to be asked", waits).await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "nobody asked");
    assert_eq!(rig.learner.train_now(None).await.unwrap().len(), 1);
    rig.stop().await;
}

/// With a gate, nobody has to ask for a step: the owner's absence is enough.
#[tokio::test]
async fn in_auto_a_batch_waits_until_its_owner_is_away() {
    let (dir, world) = (folder(), World::default());
    let auto = serde_json::json!({"mode": "auto"});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let waits = async || rig.learner.status().await.unwrap().phase == Phase::AwaitingWindow;
    rig.until("it waits for its owner to leave", waits).await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "its owner chats");
    rig.stop().await;
}

#[tokio::test]
async fn what_costs_something_waits_until_its_owner_is_away() {
    let (dir, world) = (folder(), World::default());
    let auto = serde_json::json!({"mode": "auto", "agents": {"busy": {"mode": "rl"}}});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    let (any, busy) = (AgentId::default_agent(), "busy".parse().unwrap());
    assert!(rig.learner.may_cost(&any).await.unwrap(), "nobody is here");
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    assert!(!rig.learner.may_cost(&any).await.unwrap());
    assert!(
        rig.learner.may_cost(&busy).await.unwrap(),
        "mode rl waits for nobody"
    );
    let window = rig.learner.status().await.unwrap().window;
    let why = |window| match window {
        Window::Closed { why } => Some(why),
        Window::Open { .. } => None,
    };
    assert!(matches!(why(window), Some(Obstacle::Chatting { .. })));
    rig.stop().await;
}
