//! Tests of the way from turns to an adapter that serves, without failures.
//!
//! Tests of samples that redo uses in several steps: how often, and each use once in a lineage.

use super::*;

#[tokio::test]
async fn corrections_become_a_step_and_are_served() {
    let (_dir, world, rig) = begin(usual()).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    assert_each_trained_once(&rig, &world).await;
    // The step was trained on the failed turns' prompts, the questions.
    let serving = rig.log.serving().await.unwrap();
    assert_eq!(world.adapter(&serving[0].1).unwrap(), [10, 20]);
    let is_so = serving[0].1.starts_with("_default-") && serving[0].1.ends_with("-000001");
    assert!(is_so, "{serving:?}");
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
    let is_so = (world.rates()[0] - 5e-4 / 3.0).abs() < 1e-12;
    assert!(is_so, "{:?}", world.rates());
    rig.stop().await;
}

#[tokio::test]
async fn a_restart_goes_on_in_the_lineage_and_serves_again() {
    let (dir, world, rig) = begin(usual()).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    rig.stop().await;

    let rig = Rig::start(dir.path(), &world, usual()).await;
    assert!(rig.swaps.lock().unwrap()[0].ends_with("-000001"));
    rig.talk(&world, &[3, 4]).await;
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
    let mut rig = Rig::start(dir.path(), &world, usual()).await;
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
    rig = Rig::start(dir.path(), &world, usual()).await;
    let served = rig.swaps();
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
    let both =
        json!({"rl": {"method": "redo+binary_rl", "learning_rate": 0.001, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&both)).await;
    rig.talk(&world, &[1, 2]).await;
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
    let other = json!({"rl": {
        "beta1": 0.5, "beta2": 0.6, "eps": 1e-3, "weight_decay": 0.1, "clip_norm": 7.0,
        "lora_rank": 3, "lora_alpha": 5, "targets": "q_proj+v_proj",
    }});
    let rig = Rig::start(dir.path(), &world, config(&other)).await;
    rig.talk(&world, &[1, 2]).await;
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
    let (_dir, world, rig) = begin(usual()).await;
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
    let rig = Rig::start(dir.path(), &world, usual()).await;
    assert!(rig.trained(2).await);
    assert_eq!(rig.n(StateKind::Captured).await, 2, "the two last ones");
    assert_each_trained_once(&rig, &world).await;
    rig.stop().await;
}

/// Returns the uses of turns in the checkpoints behind an adapter; each use must occur once.
pub(super) fn behind(world: &World, adapter: &str) -> Vec<(String, u64)> {
    let manifests: Vec<Value> = world.checkpoints().into_iter().map(|c| c.0).collect();
    let name = |value: &Value| {
        let n = value["n"].as_u64().unwrap();
        let (agent, lineage) = (value["agent"].as_str(), value["lineage"].as_str());
        format!("{}-{}-{n:06}", agent.unwrap(), lineage.unwrap())
    };
    let (mut found, mut at) = (Vec::new(), Some(adapter.to_owned()));
    while let Some(manifest) = at.and_then(|at| manifests.iter().rfind(|m| name(m) == at)) {
        let turns = manifest["turns"].as_array().unwrap().iter();
        let uses = manifest["uses"].as_array().unwrap().iter();
        found.extend(
            turns
                .zip(uses)
                .map(|(turn, n)| (turn.to_string(), n.as_u64().unwrap())),
        );
        at = manifest["parent"].as_str().map(str::to_owned);
    }
    let unique: BTreeSet<_> = found.iter().collect();
    assert_eq!(unique.len(), found.len(), "twice: {found:?}");
    assert_eq!(world.adapter(adapter).unwrap().len(), found.len());
    found
}

#[tokio::test]
async fn a_batch_is_of_new_samples_and_as_many_again() {
    let (dir, world, mut rig) = begin(again(3)).await;
    for (first, n_trained) in [(1, 2), (3, 4), (5, 6)] {
        for number in [first, first + 1] {
            let session = format!("s{number}");
            append(&rig.log, &world, &session, &corrected_talk(number)).await;
        }
        assert!(rig.trained(n_trained).await);
        if first == 1 {
            // The drawn replies are lost, and are drawn again.
            rig.stop().await;
            rig = Rig::start(dir.path(), &world, again(3)).await;
        }
    }
    let serving = rig.log.serving().await.unwrap()[0].1.clone();
    let sorted = |weights: &[u32]| {
        let mut weights = weights.to_vec();
        weights.sort_unstable();
        weights
    };
    let weights = world.adapter(&serving).unwrap();
    let (second, third) = (sorted(&weights[2..6]), sorted(&weights[6..]));
    assert_eq!(second, [10, 20, 30, 40]);
    assert_eq!(third, [30, 40, 50, 60], "those that were used least");
    let mut uses: Vec<u64> = behind(&world, &serving).iter().map(|used| used.1).collect();
    uses.sort_unstable();
    assert_eq!(uses, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
    let step = rig.learner.status().await.unwrap().agents[0]
        .last_step
        .clone();
    assert_eq!(step.map(|step| (step.n_redo, step.n_again)), Some((4, 2)));
    rig.stop().await;
}

#[tokio::test]
async fn no_turn_is_used_more_often_than_it_may() {
    let (_dir, world, rig) = begin(again(2)).await;
    // Each requested step has one new sample, because the others are used up.
    for number in 1..=5 {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &corrected_talk(number)).await;
        rig.judged(2 * u64::from(number)).await;
        rig.learner.train_now(None).await.unwrap();
    }
    let serving = rig.log.serving().await.unwrap()[0].1.clone();
    let most = behind(&world, &serving).iter().map(|used| used.1).max();
    assert_eq!(most, Some(2));
    assert_eq!(
        rig.learner.train_now(None).await,
        Ok(Vec::new()),
        "none is new"
    );
    rig.stop().await;
}

/// Samples of an adapter that the gate declined are not in the weights, so they are used again and count once. Samples
/// of a step that the owner undid are not in the weights either, and are not used again.
#[tokio::test]
async fn what_was_declined_is_tried_again_and_what_was_undone_is_not() {
    for owner_went_back in [false, true] {
        let (dir, world, agent) = (folder(), World::default(), AgentId::default_agent());
        if !owner_went_back {
            world.damage("-000002", crate::testing::Damage::NotFinite);
        }
        let rig = Rig::start(dir.path(), &world, again(4)).await;
        let talk = async |numbers: [u32; 2], n_trained| {
            for number in numbers {
                let session = format!("s{number}");
                append(&rig.log, &world, &session, &corrected_talk(number)).await;
            }
            assert!(rig.trained(n_trained).await);
            rig.log.serving().await.unwrap()[0].1.clone()
        };
        let first = talk([1, 2], 2).await;
        let second = talk([3, 4], 4).await;
        assert_ne!(second, first, "if need be at the second attempt");
        if owner_went_back {
            rig.log.choose(&agent, Some(first.clone())).await.unwrap();
        }
        let last = talk([5, 6], 6).await;
        let weights = world.adapter(&last).unwrap();
        let mut later = weights[2..].to_vec();
        later.sort_unstable();
        if owner_went_back {
            assert_eq!(later, [10, 20, 50, 60]);
        } else {
            assert_eq!(later, [10, 20, 30, 30, 40, 40, 50, 60]);
        }
        behind(&world, &last);
        rig.stop().await;
    }
}

#[tokio::test]
async fn each_use_is_in_a_lineage_once_wherever_it_fails() {
    let failures = Failure::OF_ANY_CALL;
    for seeds in (0..28_usize).collect::<Vec<_>>().chunks(7) {
        let runs = seeds
            .iter()
            .map(|seed| survive_with_reuse(seed % 19, failures[seed % 7]));
        join_all(runs).await;
    }
}

/// Trains six turns in several steps each while a call fails, and restarts a killed client.
async fn survive_with_reuse(call: usize, failure: Failure) {
    println!("{failure:?} at call {call}");
    let (dir, world) = (folder(), World::default());
    world.fail(call, failure);
    let mut rig = Rig::start(dir.path(), &world, again(3)).await;
    for number in 1..=6 {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &corrected_talk(number)).await;
    }
    while !rig.trained(6).await {
        rig.stop().await;
        rig = Rig::start(dir.path(), &world, again(3)).await;
    }
    let serving = rig.log.serving().await.unwrap()[0].1.clone();
    let behind = behind(&world, &serving);
    let turns: BTreeSet<String> = behind.into_iter().map(|used| used.0).collect();
    assert_eq!(turns.len(), 6, "each at least once");
    rig.stop().await;
}
