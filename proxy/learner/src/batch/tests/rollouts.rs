//! Tests of the batches that groups of rollouts make.

use std::sync::Arc;

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::LossFn;
use serde_json::json;

use super::{config, groups, stats};
use crate::{
    methods::{Example, Group},
    sample::{
        Batch, RolloutGroup, Sample, StepAdvantage, first_groups, rollout_batch, step_advantages,
        testing::rollout_group,
    },
};
fn batch(groups: &[RolloutGroup], rollouts: &serde_json::Value) -> Batch {
    let rl = config(json!({ "rollouts": rollouts }));
    rollout_batch(groups, &step_advantages(groups, rl.rollouts.advantage))
}

/// The sum of the weighted advantages of each example, by session and number of the turn.
fn sums(groups: &[Group]) -> Vec<(u64, u32, f32)> {
    let examples = groups.iter().flat_map(|group| &group.examples);
    let sum = |example: &Example| {
        let advantages = example.datum.parts().advantages.clone().unwrap();
        let id = example.turns[0];
        (id.session % 100, id.seq, advantages.iter().sum::<f32>())
    };
    examples.map(sum).collect()
}

fn close(found: &[(u64, u32, f32)], expected: &[(u64, u32, f32)]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1));
        let is_so = (found.2 - expected.2).abs() < 1e-5;
        assert!(is_so, "{found:?}, not {expected:?}");
    }
}

#[test]
fn outcomes_are_compared_within_the_group_and_long_rollouts_count_no_more() {
    let group = rollout_group(
        "g",
        &[
            (1.0, &[], &[2]),
            // Three turns and fifty times the ids.
            (-1.0, &[], &[20, 30, 50]),
            (-1.0, &[], &[4]),
        ],
    );
    let batch = batch(&[group], &json!({}));
    let rl = config(json!({"method": "redo", "w_rl": 0.5}));
    let made = groups(&batch, &rl).unwrap();
    let shown: Vec<_> = made.iter().map(|g| (g.method.name(), g.loss)).collect();
    assert_eq!(
        shown,
        [("rollouts", LossFn::Cispo)],
        "whatever rl.method is"
    );
    // The mean is -1/3, the standard deviation sqrt(8)/3: the advantages are sqrt(2) and -1/sqrt(2).
    let (up, down) = (
        std::f32::consts::SQRT_2 / 3.0,
        -std::f32::consts::FRAC_1_SQRT_2 / 3.0,
    );
    let expected = [
        (0, 0, up),
        (1, 0, down * 0.2),
        (1, 1, down * 0.3),
        (1, 2, down * 0.5),
        (2, 0, down),
    ];
    close(&sums(&made), &expected);
    let stats = stats(&batch, &made);
    let rollouts = stats.rollouts.unwrap();
    assert_eq!(
        (rollouts.n, rollouts.n_groups, rollouts.n_without_difference),
        (3, 1, 0)
    );
    assert!((rollouts.success - 1.0 / 3.0).abs() < 1e-9 && (rollouts.pass_at_k - 1.0).abs() < 1e-9);
    assert_eq!((stats.reward.n, stats.samples["rollouts"]), (3, 5));
    let (mean, good) = batch.rewards();
    assert!((mean + 1.0 / 3.0).abs() < 1e-6 && (good - 1.0 / 3.0).abs() < 1e-6);
}

/// OpenClaw-RL's form, with the same numbers as its acceptance test.
#[test]
fn steps_are_compared_with_the_same_step_of_the_others() {
    let steps: [(f32, &[f32], &[u32]); 4] = [
        (0.5, &[0.5, 0.0], &[1, 1]),
        (0.0, &[-1.0, 0.5], &[1, 1]),
        (0.5, &[0.5], &[1]),
        // The third step has no other.
        (0.0, &[1.0, 0.5, -1.0], &[1, 1, 1]),
    ];
    let group = [rollout_group("g", &steps)];
    let of = |rl: serde_json::Value| {
        let batch = batch(&group, &rl);
        let given = |sample: &Sample| {
            (
                sample.id().session % 100,
                sample.id().seq,
                sample.push.as_ref().unwrap().advantage,
            )
        };
        let samples: Vec<_> = batch.samples.iter().map(given).collect();
        (samples, batch.counted.len())
    };
    let (samples, n_counted) = of(json!({}));
    let (up, down) = (0.577_35, -1.732_05);
    let expected = [
        (0, 0, up),
        (1, 0, down),
        (2, 0, up),
        (3, 0, up),
        (3, 2, -1.0),
    ];
    close(&samples, &expected);
    // The second steps have the same reward.
    assert_eq!(n_counted, 3);
    assert_eq!(of(json!({"advantage": "step"})).0.len(), 5);
    let (samples, _) = of(json!({"advantage": "group"}));
    assert!(samples.len() == 8 && samples.iter().all(|sample| sample.2.abs() > 0.9));
}

#[test]
fn groups_without_difference_are_excluded_and_still_count_as_tried() {
    let groups = [
        rollout_group("a", &[(1.0, &[], &[1]), (1.0, &[], &[1])]),
        rollout_group("b", &[(1.0, &[], &[1]), (0.0, &[], &[1])]),
        rollout_group("c", &[(0.0, &[], &[1]), (0.0, &[], &[1])]),
    ];
    let batch = batch(&groups, &json!({}));
    assert_eq!(batch.samples.len(), 2);
    let spent: Vec<_> = batch.spent.iter().map(|(_, why)| why.as_str()).collect();
    assert_eq!(spent, ["no difference in the group"; 4]);
    // Each of two rollouts has half of the weight.
    let shares = batch
        .pushed()
        .map(|s| s.push.as_ref().unwrap().rollout.as_ref().unwrap().share);
    assert_eq!(shares.collect::<Vec<_>>(), [0.5, 0.5]);
    let stats = stats(&batch, &[]);
    let rollouts = stats.rollouts.unwrap();
    assert_eq!((rollouts.n, rollouts.n_without_difference), (6, 2));
    assert!((rollouts.success - 0.5).abs() < 1e-9);
    assert!((rollouts.pass_at_k - 2.0 / 3.0).abs() < 1e-9);
}

#[test]
fn a_batch_has_whole_groups() {
    let group = |name: &str| {
        rollout_group(
            name,
            &[(1.0, &[], &[1]), (0.0, &[], &[1]), (0.0, &[], &[1])],
        )
    };
    let all = || vec![group("a"), group("b"), group("c")];
    for (limit, n) in [(1, 1), (3, 1), (5, 1), (6, 2), (512, 3)] {
        assert_eq!(first_groups(all(), limit).len(), n, "{limit}");
    }
}

#[test]
fn turns_that_older_weights_sampled_go_and_their_outcomes_stay() {
    let mut group = rollout_group("g", &[(1.0, &[], &[1, 1]), (0.0, &[], &[1])]);
    let sampled = [(None, None), (Some("a-2"), Some(2)), (Some("remote"), None)];
    for (step, (adapter, version)) in group.steps.iter_mut().zip(sampled) {
        let turn = Arc::make_mut(&mut step.turn);
        let tokens = turn.tokens.as_mut().unwrap();
        tokens.adapter = adapter.map(str::to_owned);
        tokens.version = version;
    }
    assert!(group.clone().take_lagging(4, 4).is_empty());
    let first = group.steps[0].turn.id;
    assert_eq!(group.clone().take_lagging(5, 4), [first]);
    let found = group.take_lagging(7, 4).len();
    assert_eq!(found, 2, "a version that nobody tells stays");
    assert_eq!(group.n_rollouts(), 2);
    // What served may be older than what sampled: the owner went back.
    assert!(group.take_lagging(0, 4).is_empty());
}

#[test]
fn advantages_of_a_function_may_differ_by_id_and_are_weighed_alike() {
    let group = [rollout_group("g", &[(1.0, &[], &[2, 2]), (0.0, &[], &[1])])];
    let ids: Vec<TurnId> = group[0].steps.iter().map(|step| step.turn.id).collect();
    let given = [
        (ids[0], StepAdvantage::ById(Arc::from([2.0, -1.0]))),
        (ids[1], StepAdvantage::One(0.0)),
        (ids[2], StepAdvantage::One(-0.5)),
    ];
    let batch = rollout_batch(&group, &given.into());
    assert_eq!((batch.samples.len(), batch.counted.len()), (2, 1));
    let made = groups(&batch, &config(json!({}))).unwrap();
    let advantages = made[0].examples[0]
        .datum
        .parts()
        .advantages
        .clone()
        .unwrap();
    assert_eq!(advantages, [2.0 / 8.0, -1.0 / 8.0]);
    assert_eq!(
        made[0].examples[1]
            .datum
            .parts()
            .advantages
            .clone()
            .unwrap()
            .last(),
        Some(&-0.25)
    );
}
