//! Tests of samples that redo uses in several steps: how often, and each use once in a lineage.

use serde_json::Value;

use super::*;

/// Returns the uses of turns in the checkpoints behind an adapter; each use must occur once.
pub(super) fn behind(world: &World, adapter: &str) -> Vec<(String, u64)> {
    let manifests: Vec<Value> = world.checkpoints().into_iter().map(|it| it.0).collect();
    let name = |it: &Value| {
        let n = it["n"].as_u64().unwrap();
        let (agent, lineage) = (it["agent"].as_str(), it["lineage"].as_str());
        format!("{}-{}-{n:06}", agent.unwrap(), lineage.unwrap())
    };
    let (mut found, mut at) = (Vec::new(), Some(adapter.to_owned()));
    while let Some(manifest) = at.and_then(|at| manifests.iter().rfind(|it| name(it) == at)) {
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
    let (dir, world) = (folder(), World::default());
    let mut rig = Rig::start(dir.path(), &world, again(3)).await;
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
    let mut uses: Vec<u64> = behind(&world, &serving).iter().map(|it| it.1).collect();
    uses.sort_unstable();
    assert_eq!(uses, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
    let step = rig.learner.status().await.unwrap().agents[0]
        .last_step
        .clone();
    assert_eq!(step.map(|it| (it.n_redo, it.n_again)), Some((4, 2)));
    rig.stop().await;
}

#[tokio::test]
async fn no_turn_is_used_more_often_than_it_may() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, again(2)).await;
    // Each requested step has one new sample, because the others are used up.
    for number in 1..=5 {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &corrected_talk(number)).await;
        rig.judged(2 * u64::from(number)).await;
        rig.learner.train_now(None).await.unwrap();
    }
    let serving = rig.log.serving().await.unwrap()[0].1.clone();
    let most = behind(&world, &serving).iter().map(|it| it.1).max();
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
    let turns: BTreeSet<String> = behind.into_iter().map(|it| it.0).collect();
    assert_eq!(turns.len(), 6, "each at least once");
    rig.stop().await;
}
