use std::sync::Arc;

use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{LossConfig, LossFn};
use serde_json::json;

use super::{
    groups,
    testing::{by, config, of},
    *,
};
use crate::{
    config::RlConfig,
    methods::{Distil, Example, ExampleState, NotAnExample},
    sample::{
        Baselines, Batch, ExcludeReason, Sample,
        testing::{answered, answered_by, hinted, own, turn},
    },
};

mod rollouts;

fn turns(batch: &Batch) -> Vec<TurnId> {
    batch.turns().into_keys().collect()
}

fn batch(samples: &Samples, rl: &RlConfig, limit: usize) -> Batch {
    choose(samples, Vec::new(), by(rl, limit))
}

#[test]
fn a_batch_is_due_when_it_is_full_or_has_waited() {
    let rl = config(json!({"batch_size": 3, "max_wait": "1 min"}));
    let some = |n: u32| of((0..n).map(|i| answered(i, 1)).collect(), Vec::new());
    assert!(!Samples::default().are_due(&rl, 1_000_000));
    assert!(!some(2).are_due(&rl, 1_000));
    assert!(some(3).are_due(&rl, 1_000));
    assert!(some(2).are_due(&rl, 60_001));
    assert!(!some(1).are_due(&rl, 1_000_000), "one alone is noise");
    let mut waits = some(2);
    waits.unanswered.push(turn(9, Score::Bad, 1));
    assert!(waits.may_be_due(&rl, 1_000), "with the teacher's reply");
    assert!(!waits.are_due(&rl, 1_000), "and not without");
}

#[test]
fn of_what_is_taught_every_id_counts_alike() {
    let rl = config(json!({"method": "redo", "w_redo": 2.0}));
    let redo = vec![answered_by(0, &[2, 4]), answered(2, 8)];
    let batch = batch(&of(redo, Vec::new()), &rl, 4);
    assert_eq!(batch.turns().len(), 2);
    let groups = groups(&batch, &rl).unwrap();
    assert_eq!((groups.len(), groups[0].loss), (1, LossFn::CrossEntropy));
    assert_eq!(
        stats(&batch, &groups).samples["context_distillation"],
        2,
        "turns"
    );
    let turns = groups[0].examples.iter().map(|e| e.turns[0].seq);
    assert_eq!(turns.collect::<Vec<_>>(), [0, 0, 2]);
    let sums = groups[0].examples.iter().map(|example| {
        let weights = example.datum.parts().weights.clone().unwrap();
        weights.values().iter().sum::<f32>()
    });
    let expected = [2.0, 4.0, 8.0].map(|n_ids| 2.0 * n_ids / 14.0);
    for (sum, expected) in sums.zip(expected) {
        assert!((sum - expected).abs() < 1e-6, "{sum}, not {expected}");
    }
    let first = groups[0].examples[0].datum.parts();
    assert_eq!(first.model_input_tokens, [100, 1, 0]);
}

/// This is acceptance test 13 of OpenClaw-RL's specification.
#[test]
fn ten_tokens_and_a_thousand_push_alike() {
    let rl = config(json!({"method": "binary_rl", "w_rl": 1.0}));
    let samples = of(
        Vec::new(),
        vec![turn(0, Score::Good, 10), turn(1, Score::Good, 1_000)],
    );
    let groups = groups(&batch(&samples, &rl, 4), &rl).unwrap();
    for example in &groups[0].examples {
        let advantages = example.datum.parts().advantages.clone().unwrap();
        // The expected sum is A w / B = 1 · 1 / 2 for each.
        let sum: f32 = advantages.iter().sum();
        assert!((sum - 0.5).abs() < 1e-4, "{} ids: {sum}", advantages.len());
    }
}

#[test]
fn two_methods_are_two_calls_and_a_turn_is_taken_once() {
    let rl = config(json!({"method": "redo+binary_rl", "w_rl": 0.6}));
    let samples = of(vec![answered(0, 2)], vec![turn(5, Score::Good, 4)]);
    let batch = batch(&samples, &rl, 4);
    assert_eq!(batch.counts(), (1, 2));
    assert_eq!(batch.turns().len(), 2);
    let groups = groups(&batch, &rl).unwrap();
    let losses: Vec<LossFn> = groups.iter().map(|group| group.loss).collect();
    assert_eq!(losses, [LossFn::CrossEntropy, LossFn::Cispo]);
    let bounds = [("clip_high_threshold", 2.0), ("clip_low_threshold", 0.0)]
        .map(|(key, value)| (key.to_owned(), value));
    assert_eq!(groups[1].loss_config, LossConfig::from(bounds));
    let sum = |example: &Example| {
        let advantages = example.datum.parts().advantages.clone();
        advantages.unwrap().iter().sum::<f32>()
    };
    let sums: Vec<f32> = groups[1].examples.iter().map(sum).collect();
    // The expected sum is w A / B = 0.6 · (+1, -1) / 2, with the verdict's own turn first.
    for (sum, expected) in sums.iter().zip([0.3, -0.3]) {
        assert!((sum - expected).abs() < 1e-6, "{sums:?}");
    }
    assert_eq!(batch.rewards(), (0.0, 0.5));
    let stats = stats(&batch, &groups);
    assert_eq!(
        (
            stats.samples["context_distillation"],
            stats.samples["binary_rl"]
        ),
        (1, 2)
    );
    let reward = stats.reward;
    assert_eq!((reward.n, reward.min, reward.max), (2, -1.0, 1.0));
    assert!(reward.mean.abs() < 1e-9 && (reward.std - 1.0).abs() < 1e-9);
    assert!(stats.advantage.mean.abs() < 1e-9);
    let length = stats.response_len;
    assert_eq!(
        (length.n, length.mean, length.min, length.max),
        (2, 3.5, 3.0, 4.0)
    );
    assert_eq!((stats.logprob.mean, stats.version.n), (-1.0, 0));
    assert_eq!(batch.scores().len(), 2);
}

/// A verdict has the same weight however often its turn is answered again.
#[test]
fn what_is_used_again_is_not_pushed_again() {
    let rl = config(json!({"method": "redo+binary_rl"}));
    let samples = of(vec![answered(0, 2)], Vec::new());
    let used = Sample {
        is_fresh: false,
        ..answered(3, 2)
    };
    let batch = choose(&samples, vec![used], by(&rl, 4));
    assert_eq!((batch.counts(), batch.n_again()), ((2, 1), 1));
    let groups = groups(&batch, &rl).unwrap();
    let id = |seq| TurnId { session: 1, seq };
    assert_eq!(groups[1].examples.len(), 1);
    assert_eq!(groups[1].examples[0].turns, [id(0)]);
    assert_eq!(turns(&batch), [id(0), id(3)]);
}

#[test]
fn what_is_as_good_as_usual_teaches_nothing() {
    let rl = config(json!({"method": "binary_rl"}));
    let samples = of(
        Vec::new(),
        vec![turn(0, Score::Good, 1), turn(1, Score::Bad, 1)],
    );
    let usual = Choosing {
        baselines: Baselines {
            tool: 0.0,
            chat: 0.95,
        },
        ..by(&rl, 4)
    };
    let batch = choose(&samples, Vec::new(), usual);
    assert_eq!(
        batch.spent,
        [(TurnId { session: 1, seq: 0 }, ExcludeReason::NoAdvantage)]
    );
    assert_eq!(turns(&batch), [TurnId { session: 1, seq: 1 }]);
    let saturated = of(Vec::new(), vec![turn(0, Score::Good, 1)]);
    assert!(choose(&saturated, Vec::new(), usual).is_empty());
}

#[test]
fn a_limit_holds_for_each_method() {
    let rl = config(json!({"method": "redo"}));
    let samples = of((0..6).map(|i| answered(i, 1)).collect(), Vec::new());
    assert_eq!(batch(&samples, &rl, 4).counts(), (4, 0));
    assert_eq!(batch(&samples, &rl, 64).counts(), (6, 0));
}

#[test]
fn a_batch_goes_on_without_what_is_set_aside() {
    let rl = config(json!({"method": "redo+binary_rl"}));
    let samples = of(
        vec![answered(0, 2), answered(2, 2)],
        vec![turn(8, Score::Good, 2), turn(9, Score::Bad, 2)],
    );
    let batch = batch(&samples, &rl, 4);
    assert_eq!(batch.counts(), (2, 4));
    let id = |seq| TurnId { session: 1, seq };
    let rest = batch.without(&[id(0)]);
    assert_eq!(rest.counts(), (1, 3), "its verdict goes with it");
    assert_eq!(turns(&rest), [2, 8, 9].map(id));
    let [first, second] = batch.halves();
    assert_eq!((first.counts(), second.counts()), ((0, 2), (2, 2)));
    let [second, _] = second.halves();
    assert!(second.is_one_sample() && !first.is_one_sample());
    let [none, alone] = second.halves();
    assert!(none.is_empty());
    assert_eq!(turns(&alone), [id(0)]);
}

#[test]
fn a_sample_that_is_no_example_is_named() {
    let rl = config(json!({"method": "redo+binary_rl"}));
    let mut uneven = turn(9, Score::Bad, 3);
    let tokens = Arc::get_mut(&mut uneven).unwrap().tokens.as_mut();
    tokens.unwrap().logprobs.pop();
    let samples = of(vec![answered(0, 2)], vec![uneven]);
    let error = groups(&batch(&samples, &rl, 4), &rl).unwrap_err();
    let NoGroups::Example(NotAnExample { turns, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(turns, [TurnId { session: 1, seq: 9 }]);
}

fn distil(example: &Example) -> &Distil {
    match example.state.as_ref().unwrap() {
        ExampleState::Distil(distil) => distil,
        ExampleState::Surrogate(_) | ExampleState::Anchor(_) => panic!("{example:?}"),
    }
}

/// OpenClaw-RL's form computes both parts over all samples of the batch.
#[test]
fn hybrid_weighs_verdict_and_hint_over_the_whole_batch() {
    let rl = config(json!({"method": "hybrid", "w_rl": 1.0, "w_opd": 0.5}));
    let samples = Samples {
        own: vec![hinted(0, Score::Bad, 10), own(turn(1, Score::Good, 4))],
        ..Samples::default()
    };
    let groups = groups(&batch(&samples, &rl, 4), &rl).unwrap();
    assert_eq!((groups.len(), groups[0].method.name()), (1, "hybrid"));
    let [first, second] = &groups[0].examples[..] else {
        panic!("{groups:?}");
    };
    // The weight is w / (B |M|), with B = 2.
    let near = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-6, "{found}");
    near(distil(first).push, -1.0 / 20.0);
    near(distil(first).share, 0.5 / 20.0);
    near(distil(second).push, 1.0 / 8.0);
    let is_so = distil(second).hinted.is_empty();
    assert!(is_so, "only pushed by its verdict");
    let known = first.datum.parts().weights.as_ref().unwrap();
    near(known.values().iter().sum(), -0.5);
}

#[test]
fn opd_stands_beside_the_verdict() {
    let rl = config(json!({"method": "opd+binary_rl", "w_rl": 0.5}));
    let samples = Samples {
        own: vec![hinted(0, Score::Bad, 2), own(turn(1, Score::Good, 4))],
        ..Samples::default()
    };
    let batch = batch(&samples, &rl, 4);
    let groups = groups(&batch, &rl).unwrap();
    let shown: Vec<_> = groups
        .iter()
        .map(|group| (group.method.name(), group.examples.len()))
        .collect();
    assert_eq!(shown, [("binary_rl", 2), ("opd", 1)]);
    let opd = distil(&groups[1].examples[0]);
    assert!((opd.share - 0.5).abs() < 1e-6 && opd.push == 0.0, "{opd:?}");
    // A turn without an advantage can still be used by opd.
    let usual = Choosing {
        baselines: Baselines {
            tool: 0.0,
            chat: -1.0,
        },
        ..by(&rl, 4)
    };
    let batch = choose(&samples, Vec::new(), usual);
    let methods = super::groups(&batch, &rl)
        .unwrap()
        .into_iter()
        .map(|group| group.method.name());
    assert_eq!(methods.collect::<Vec<_>>(), ["binary_rl", "opd"]);
    assert_eq!(batch.spent, []);
}

/// The formula covers the whole batch, and sums over tokens.
#[test]
fn the_originals_method_is_the_originals() {
    let rl = config(json!({"method": "metaclaw"}));
    let scores = [Score::Good, Score::Bad, Score::Unclear, Score::Unclear];
    let turns = (0..4).zip(scores);
    let samples = of(
        Vec::new(),
        turns.map(|(seq, it)| turn(seq, it, 2)).collect(),
    );
    let batch = batch(&samples, &rl, 4);
    let groups = groups(&batch, &rl).unwrap();
    assert_eq!(
        (groups[0].method.name(), groups[0].loss),
        ("metaclaw", LossFn::ImportanceSampling)
    );
    assert!(groups[0].loss_config.is_empty());
    let pushed = groups[0].examples.iter().map(|example| {
        let advantages = example.datum.parts().advantages.clone().unwrap();
        advantages[1]
    });
    // The expected advantage is (r - 0) / sqrt(1/2) at each id, without 1 / |M| and without w_rl. An unclear verdict
    // counts in the mean.
    for (found, expected) in pushed.zip([1.0, -1.0].map(|r| r * std::f32::consts::SQRT_2)) {
        assert!((found - expected).abs() < 1e-4, "{found}");
    }
    assert_eq!(groups[0].examples.len(), 2);
    assert_eq!(batch.turns().len(), 4, "all four are taken");
    let same = of(
        Vec::new(),
        vec![turn(0, Score::Good, 2), turn(1, Score::Good, 2)],
    );
    let batch = choose(&same, Vec::new(), by(&rl, 4));
    let is_so = batch.is_empty() && batch.spent.len() == 2;
    assert!(is_so, "equal rewards say nothing");
}

#[test]
fn siblings_are_held_against_each_other_and_go_together() {
    let rl = config(json!({"method": "grpo", "w_rl": 1.0}));
    let sibling = |seq, score| {
        let mut turn = turn(seq, score, 1);
        let tokens = Arc::get_mut(&mut turn).unwrap().tokens.as_mut().unwrap();
        tokens.prompt_ids = vec![5, 6];
        turn
    };
    let samples = of(
        Vec::new(),
        vec![
            sibling(0, Score::Good),
            turn(1, Score::Bad, 1),
            sibling(2, Score::Bad),
            turn(3, Score::Bad, 1),
        ],
    );
    // The third sample is taken although a batch has two; the fourth waits.
    let groups = groups(&batch(&samples, &rl, 2), &rl).unwrap();
    let pushed = groups[0].examples.iter().map(|example| {
        let advantages = example.datum.parts().advantages.clone().unwrap();
        (example.turns[0].seq, advantages.iter().sum::<f32>() * 3.0)
    });
    for ((seq, found), (of, expected)) in pushed.zip([(0, 1.0), (1, -1.0), (2, -1.0)]) {
        assert_eq!(seq, of);
        assert!((found - expected).abs() < 1e-4, "{seq}: {found}");
    }
    assert_eq!(groups[0].examples.len(), 3);
}

/// The external teacher's advantage is added to the verdict's at each id, and is also used where the verdict gives
/// none.
#[test]
fn an_external_teacher_adds_to_each_ids_advantage() {
    let rl = config(json!({"method": "metaclaw"}));
    let same = of(
        Vec::new(),
        vec![turn(0, Score::Good, 2), turn(1, Score::Good, 2)],
    );
    let hears = Choosing {
        external_teacher: true,
        ..by(&rl, 4)
    };
    let batch = choose(&same, Vec::new(), hears);
    let asked: Vec<TurnId> = batch.to_be_scored().map(|turn| turn.id).collect();
    assert_eq!((asked.len(), batch.spent.len()), (2, 0));
    let pulls = [(asked[0], Arc::from([0.5, -9.0]))].into();
    let pulled = batch.with_deltas(&pulls);
    let groups = groups(&pulled, &rl).unwrap();
    let [example] = groups[0].examples.as_slice() else {
        panic!("the other has no advantage: {groups:?}")
    };
    let on_reply = |example: &Example| {
        let advantages = example.datum.parts().advantages.clone().unwrap();
        advantages[advantages.len() - 2..].to_vec()
    };
    assert_eq!(
        on_reply(example),
        [0.5, -9.0],
        "the original bounds nothing"
    );
    // The other methods limit the sum, and give each sample the same weight.
    let rl = config(json!({"method": "binary_rl", "w_rl": 1.0}));
    let hears = Choosing {
        external_teacher: true,
        ..by(&rl, 4)
    };
    let one = of(Vec::new(), vec![turn(0, Score::Good, 2)]);
    let batch = choose(&one, Vec::new(), hears).with_deltas(&pulls);
    let groups = super::groups(&batch, &rl).unwrap();
    assert_eq!(on_reply(&groups[0].examples[0]), [0.75, -2.5]);
}

#[test]
fn the_verdict_of_support_pushes_nothing_and_nothing_is_compared_with_it() {
    let rl = config(json!({"method": "hybrid", "w_rl": 1.0, "w_opd": 1.0}));
    let support = |seqs: &[u32]| {
        let evidence = seqs.iter().map(|seq| turn(*seq, Score::Bad, 1).id);
        Arc::new(Support {
            evidence: evidence.collect(),
            ..Support::default()
        })
    };
    let mut samples = Samples {
        own: vec![hinted(0, Score::Bad, 2), hinted(1, Score::Bad, 2)],
        ..Samples::default()
    };
    samples.support = support(&[0]);
    let advantages = batch(&samples, &rl, 4);
    let advantages = advantages.samples.iter().map(|sample| sample.push.as_ref());
    let advantages: Vec<f32> = advantages.map(|push| push.unwrap().advantage).collect();
    assert_eq!(advantages, [0.0, -1.0], "the hint of both is used");

    // The mean of the batch is that of the others: equal rewards push nothing.
    let rl = config(json!({"method": "redo+metaclaw"}));
    let good = [turn(4, Score::Good, 2), turn(5, Score::Good, 2)];
    let mut samples = of(vec![answered(0, 2)], good.to_vec());
    assert!(batch(&samples, &rl, 4).pushed().count() > 0);
    samples.support = support(&[0]);
    let batch = batch(&samples, &rl, 4);
    assert_eq!((batch.pushed().count(), batch.counts()), (0, (1, 0)));
}
