//! Tests of methods that train on a turn's own ids, with a training server that returns log-probabilities.

use metaclaw_trainer_api::Datum;
use serde_json::json;

use super::*;

/// Returns the sum of the weights of each column of the reply's ids.
fn columns(datum: &Datum) -> Vec<f32> {
    let weights = datum.parts().weights.as_ref().unwrap();
    let mut sums = vec![0.0; weights.width()];
    for row in weights.values().chunks(weights.width()) {
        for (sum, weight) in sums.iter_mut().zip(row) {
            *sum += weight;
        }
    }
    sums
}

/// The status reports it after it is recorded.
async fn newest_step(rig: &Rig) -> crate::StepReport {
    let step = async || {
        rig.learner.status().await.unwrap().agents[0]
            .last_step
            .clone()
    };
    rig.until("a step is told", async || step().await.is_some())
        .await;
    step().await.unwrap()
}

async fn two_talks(rig: &Rig, world: &World) {
    append(&rig.log, world, "a", &corrected_talk(1)).await;
    append(&rig.log, world, "b", &corrected_talk(2)).await;
}

/// The expected weight is w (log p_T - log p_S) over the student's four most probable ids, which the test's server
/// gives probabilities of a half, a sixth ...
fn of_teacher(likeliest: f32) -> f32 {
    let p = [27.0, 9.0, 3.0, 1.0].map(|it| it / 45.0_f32);
    let sum: f32 = p.iter().sum();
    let of = |(k, p): (usize, &f32)| p / sum * (likeliest - k as f32 - p.ln()).clamp(-1.0, 1.0);
    p.iter().enumerate().map(of).sum()
}

#[tokio::test]
async fn hybrid_pushes_by_the_verdict_and_towards_the_hinted_teacher() {
    let (dir, world) = (folder(), World::default());
    let hybrid = json!({"rl": {"method": "hybrid", "w_rl": 1, "batch_size": 4, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&hybrid)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    let mut marks = world.passes()[0].clone();
    marks.sort_unstable();
    assert_eq!(marks, [10, 11, 20, 21]);
    for datum in world.cross_entropies() {
        let columns = columns(&datum);
        let is_failed = datum.parts().model_input_tokens[0] % 10 == 0;
        // The verdict contributes r / B, in the last column.
        let push = if is_failed { -0.25 } else { 0.25 };
        let (last, others) = columns.split_last().unwrap();
        assert!((last - push).abs() < 1e-4, "{columns:?}");
        assert_eq!(others.len(), if is_failed { 4 } else { 0 });
        if is_failed {
            let sum: f32 = others.iter().sum();
            // The hint's first word is in no prompt.
            let expected = of_teacher(-2.0) / 4.0;
            assert!((sum - expected).abs() < 1e-3, "{sum} for {expected}");
        }
    }
    // The student is asked with its adapter on its own prompt, the base model on a prompt that contains the wish.
    let looked_at = world.looked_at();
    assert_eq!(looked_at.iter().filter(|(adapter, _)| *adapter).count(), 4);
    let told = looked_at.iter().filter(|(adapter, _)| !adapter);
    let label = "question 1\n\n[user's hint / instruction]\nToo long.";
    assert!(
        told.clone().any(|(_, it)| it.starts_with(label)),
        "{looked_at:?}"
    );
    assert_eq!(told.count(), 2);
    rig.stop().await;
}

#[tokio::test]
async fn opd_alone_takes_what_somebody_said_something_about() {
    let (dir, world) = (folder(), World::default());
    let opd = json!({"rl": {"method": "opd", "batch_size": 2, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&opd)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(2).await);
    assert_eq!(world.passes(), [[10, 20]]);
    let widths = world.cross_entropies();
    assert!(widths.iter().all(|it| columns(it).len() == 4));
    let step = newest_step(&rig).await;
    assert_eq!(step.batch.samples["opd"], 2);
    let spent = rig.log.funnel(None).await.unwrap().spent;
    assert!(
        spent.contains_key("accepted: no method of rl.method has a use for it"),
        "{spent:?}"
    );
    rig.stop().await;
}

/// Each epoch is a step of the optimiser; the targets of the samples are computed once.
#[tokio::test]
async fn epochs_are_steps_on_one_batch() {
    let (dir, world) = (folder(), World::default());
    let twice = json!({"rl": {"method": "hybrid", "w_rl": 1, "epochs": 2, "batch_size": 4, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&twice)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    assert_eq!(world.rates().len(), 2);
    assert_eq!(world.passes().len(), 2);
    assert_eq!(world.looked_at().len(), 6, "asked once");
    let step = newest_step(&rig).await;
    assert_eq!((step.n, step.step), (1, 2));
    rig.stop().await;
}

#[tokio::test]
async fn the_originals_method_trains_through_the_whole_loop() {
    let (dir, world) = (folder(), World::default());
    let original = json!({"rl": {"method": "metaclaw", "batch_size": 4, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&original)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    let step = newest_step(&rig).await;
    assert_eq!(step.batch.samples["metaclaw"], 4);
    // There are two of each score, so the advantage is (r - 0) / 1.
    let advantage = step.batch.advantage;
    assert!((advantage.std - 1.0).abs() < 1e-4 && advantage.mean.abs() < 1e-4);
    rig.stop().await;
}

/// The anchor keeps the weights near the base model's replies to the wishes, on questions that belong to no turn.
#[tokio::test]
async fn an_anchor_holds_each_step_at_the_base_models_own_replies() {
    let (dir, world) = (folder(), World::default());
    let anchored =
        json!({"rl": {"method": "binary_rl", "anchor": 0.5, "batch_size": 4, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&anchored)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    let step = newest_step(&rig).await;
    assert_eq!(
        (
            step.batch.samples["binary_rl"],
            step.batch.samples["anchor"]
        ),
        (4, 8)
    );
    assert_eq!(step.n_turns, 4, "they are no turns");
    assert!(
        step.numbers.losses["anchor"] > 0.0,
        "{:?}",
        step.numbers.losses
    );
    let anchors = world.cross_entropies();
    assert_eq!(anchors.len(), 8);
    for anchor in anchors {
        let weights = columns(&anchor);
        assert_eq!(weights.len(), 20);
        // The test's student gives the first id a lower probability than the base model's 0.6.
        assert!(weights[0] > 0.0, "{weights:?}");
    }
    let told = world.looked_at();
    assert!(
        told.iter().all(|(adapter, _)| !adapter),
        "the base is asked once for each"
    );
    rig.stop().await;
}

#[tokio::test]
async fn no_more_steps_are_made_than_rl_max_steps() {
    let (dir, world) = (folder(), World::default());
    let two = json!({"rl": {"method": "binary_rl", "max_steps": 2}});
    let rig = Rig::start(dir.path(), &world, config(&two)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    append(&rig.log, &world, "c", &corrected_talk(3)).await;
    let is_finished = async || {
        let phase = rig.learner.status().await.unwrap().phase;
        matches!(phase, crate::Phase::Finished { n_steps: 2, .. })
    };
    rig.until("all steps are made", is_finished).await;
    let refused = rig.learner.train_now(None).await.unwrap_err();
    assert!(
        refused.to_string().contains("rl.max_steps is 2"),
        "{refused}"
    );
    assert_eq!(world.rates().len(), 2);
    rig.stop().await;
}
