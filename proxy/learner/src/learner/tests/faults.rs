//! Tests of failed calls within a step.

use super::*;

#[tokio::test]
async fn what_the_trainer_refuses_is_said_and_tried_later_or_left_out() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(
        dir.path(),
        &world,
        config(&serde_json::json!({"mode": "auto"})),
    )
    .await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    rig.judged(2).await;
    // The calls are: checkpoints (for the head), create, checkpoints (for the step), forward_backward.
    world.fail(1, Failure::Refused);
    let error = rig.learner.train_now(None).await.unwrap_err();
    assert!(matches!(error, TrainError::Refused { .. }), "{error}");
    assert_eq!(rig.n(StateKind::Judged).await, 1, "free again");
    world.poison(10, Poison::Refused);
    assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
    let funnel = rig.log.funnel(None).await.unwrap();
    assert_eq!(
        funnel.spent.get("refused by the training server"),
        Some(&1),
        "{funnel:?}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn nothing_is_trained_twice_or_lost_wherever_it_fails() {
    let failures = Failure::OF_ANY_CALL;
    // The first step makes at most 8 calls, the second 6; a second failure concerns what follows the first.
    let plan = |seed: usize| {
        let second = seed % 13 + 1 + seed % 5;
        vec![
            (seed % 13, failures[seed % 7]),
            (second, failures[(seed / 7 + 3) % 7]),
        ]
    };
    // Most of the time is pauses, so several cases run at once.
    for seeds in (0..91).collect::<Vec<_>>().chunks(13) {
        join_all(seeds.iter().map(|seed| survive(plan(*seed)))).await;
    }
}

/// Makes two steps of four turns while calls fail as planned, and restarts a killed client.
async fn survive(plan: Vec<(usize, Failure)>) {
    println!("failing {plan:?}");
    let (dir, world) = (folder(), World::default());
    for (n, failure) in plan {
        world.fail(n, failure);
    }
    let mut rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    for number in 1..=4 {
        append(
            &rig.log,
            &world,
            &format!("s{number}"),
            &corrected_talk(number),
        )
        .await;
    }
    while !rig.trained(4).await {
        rig.stop().await;
        rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    }
    assert_each_trained_once(&rig, &world).await;
    assert_eq!(
        rig.n(StateKind::Taken).await + rig.n(StateKind::Judged).await,
        0
    );
    rig.stop().await;
}
