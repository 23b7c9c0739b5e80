//! Tests of the way from turns to an adapter that serves, without failures.

use super::*;

#[tokio::test]
async fn corrections_become_a_step_and_are_served() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(2).await);
    assert_each_trained_once(&rig, &world).await;
    // The step was trained on the failed turns' prompts, the questions.
    let serving = rig.log.serving().await.unwrap();
    assert_eq!(world.adapter(&serving[0].1).unwrap(), [10, 20]);
    assert!(
        serving[0].1.starts_with("_default-") && serving[0].1.ends_with("-000001"),
        "{serving:?}"
    );
    assert_eq!(
        world.loaded(),
        [serving[0].1.as_str()],
        "in memory before it serves"
    );
    assert_eq!(*rig.swaps_in_memory.lock().unwrap(), [true]);
    let is_pruned = async || !world.kept().is_empty();
    rig.until("old checkpoints are deleted", is_pruned).await;
    assert!(world.kept()[0].contains(&serving[0].1), "not what serves");
    let status = rig.learner.status().await.unwrap();
    let step = status.agents[0].last_step.as_ref().unwrap();
    assert_eq!(
        (step.n, step.n_redo, step.n_binary_rl, step.n_turns),
        (1, 2, 0, 2)
    );
    assert_eq!(status.agents[0].funnel.trained, 2);
    // The rate is 5e-4 by model size, in the first of three warm-up steps.
    assert!(
        (world.rates()[0] - 5e-4 / 3.0).abs() < 1e-12,
        "{:?}",
        world.rates()
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_restart_goes_on_in_the_lineage_and_serves_again() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(2).await);
    rig.stop().await;

    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    assert!(rig.swaps.lock().unwrap()[0].ends_with("-000001"));
    append(&rig.log, &world, "c", &corrected_talk(3)).await;
    append(&rig.log, &world, "d", &corrected_talk(4)).await;
    assert!(rig.trained(4).await);
    assert_each_trained_once(&rig, &world).await;
    let lineages: BTreeSet<String> = world
        .checkpoints()
        .iter()
        .map(|(m, _)| m["lineage"].to_string())
        .collect();
    assert_eq!(lineages.len(), 1);
    rig.stop().await;
}

/// This test exists because at first nothing could undo weights that had changed too much.
#[tokio::test]
async fn the_next_step_starts_from_what_the_owner_chose() {
    let (dir, world, agent) = (folder(), World::default(), AgentId::default_agent());
    let mut rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    let talk = async |rig: &Rig, first: u32| {
        for number in [first, first + 1] {
            let session = format!("s{number}");
            append(&rig.log, &world, &session, &corrected_talk(number)).await;
        }
        assert!(rig.trained(first as usize + 1).await);
        rig.log.serving().await.unwrap()[0].1.clone()
    };
    let first = talk(&rig, 1).await;
    let ruined = talk(&rig, 3).await;
    assert_eq!(world.adapter(&ruined).unwrap(), [10, 20, 30, 40]);
    rig.log.choose(&agent, None).await.unwrap();
    let anew = talk(&rig, 5).await;
    assert_eq!(world.adapter(&anew).unwrap(), [50, 60]);
    assert_eq!(world.n_runs(), 1, "the run of the lineage before is closed");
    rig.log.choose(&agent, Some(first.clone())).await.unwrap();
    // A restart serves the adapter, and continues from it.
    rig.stop().await;
    rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    let served = rig.swaps.lock().unwrap().clone();
    assert_eq!(served, std::slice::from_ref(&first));
    let last = talk(&rig, 7).await;
    assert_eq!(world.adapter(&last).unwrap(), [10, 20, 70, 80]);
    // The counter changes a moment after the turns are trained.
    let is_counted = async || rig.learner.counts().n_steps > 0;
    rig.until("the step is counted", is_counted).await;
    let counts = rig.learner.counts();
    assert_eq!((counts.n_steps, counts.n_refused), (1, 0));
    assert_eq!((counts.n_bad, counts.n_good), (2, 2));
    rig.stop().await;
}

#[tokio::test]
async fn both_methods_make_one_step() {
    let (dir, world) = (folder(), World::default());
    let both = serde_json::json!({"rl": {"method": "redo+binary_rl", "learning_rate": 0.001, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&both)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(4).await);
    let checkpoints = world.checkpoints();
    // The step has two replies of the teacher, and the verdicts of four turns, those of the failed ones once.
    let mut weights = checkpoints.last().unwrap().1.clone();
    assert_eq!(weights[..2], [10, 20], "the teacher's replies first");
    weights.sort_unstable();
    assert_eq!(weights, [10, 10, 11, 20, 20, 21]);
    assert!(
        world
            .rates()
            .iter()
            .all(|rate| (rate - 0.001).abs() < 1e-12)
    );
    rig.stop().await;
}

/// Every number of `rl.*` for the training server reaches it.
#[tokio::test]
async fn the_training_server_is_asked_for_what_is_configured() {
    let (dir, world) = (folder(), World::default());
    let other = serde_json::json!({"rl": {
        "beta1": 0.5, "beta2": 0.6, "eps": 1e-3, "weight_decay": 0.1, "clip_norm": 7.0,
        "lora_rank": 3, "lora_alpha": 5, "targets": "q_proj+v_proj",
    }});
    let rig = Rig::start(dir.path(), &world, config(&other)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(2).await);
    let (run, step) = world.asked().unwrap();
    assert_eq!((run.rank, run.lora_alpha), (3, Some(5.0)));
    assert_eq!(run.targets.unwrap(), ["q_proj", "v_proj"]);
    let adam = step.adam;
    assert_eq!(
        (adam.beta1, adam.beta2, adam.eps),
        (Some(0.5), Some(0.6), Some(1e-3))
    );
    assert_eq!(
        (adam.weight_decay, adam.grad_clip_norm),
        (Some(0.1), Some(7.0))
    );
    rig.stop().await;
}

#[tokio::test]
async fn after_two_complaints_both_prompts_are_answered_again() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    let long = "word ".repeat(60);
    let twice = [
        said("question", &long, 1),
        said("Too long.", &long, 2),
        said("Still too long.", "It is a short one.", 3),
        said("Thanks.", "You are welcome.", 4),
    ];
    append(&rig.log, &world, "a", &twice).await;
    assert!(rig.trained(2).await);
    let serving = rig.log.serving().await.unwrap();
    assert_eq!(world.adapter(&serving[0].1).unwrap(), [1, 2]);
    rig.stop().await;
}

#[tokio::test]
async fn what_was_said_before_the_start_is_judged_and_learned() {
    let (dir, world) = (folder(), World::default());
    let log = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
    append(&log, &world, "a", &corrected_talk(1)).await;
    append(&log, &world, "b", &corrected_talk(2)).await;
    log.close().await;
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    assert!(rig.trained(2).await);
    assert_eq!(rig.n(StateKind::Captured).await, 2, "the two last ones");
    assert_each_trained_once(&rig, &world).await;
    rig.stop().await;
}
