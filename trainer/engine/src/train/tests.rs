//! Against autograd over the whole model, sample by sample.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "random test data"
)]

mod gpu;
mod int8;
mod memory;
mod split;
mod trees;

use metaclaw_trainer_terms::{DatumParts, LossConfig, LossFn, Tensor2};
use tch::{Kind, Tensor};

use super::*;
use crate::lora::{BaseDims, LoraTargets, Projection};
use crate::rng::SplitMix64;
use crate::testing::tiny_config;
use crate::tests::{
    all_targets, are_equal, distance, forward, fresh_lora, is_near, lora_spec, make_model,
    with_noise,
};

fn model() -> Model {
    make_model(&tiny_config())
}

/// An adapter whose B is not zero, so that every gradient is felt.
fn lora_of(model: &Model, targets: impl Into<LoraTargets>) -> Lora {
    with_noise(&fresh_lora(model, lora_spec(4, 8, targets), 3), 5)
}

fn lora(model: &Model) -> Lora {
    lora_of(model, all_targets())
}

/// Makes sizes with rows of 400 tokens, and four positions of the LM head at once.
fn sizes(chunk_tokens: usize, memory: Option<usize>) -> SliceSizes {
    SliceSizes {
        chunk_tokens,
        row_tokens: 400,
        head_positions: 4,
        memory,
        ..SliceSizes::default()
    }
}

fn train(model: &Model, lora: &Lora, datums: &[Datum], loss: Loss, sizes: SliceSizes) -> TrainOut {
    let job = TrainJob::forward_backward(model, lora, datums, loss, sizes).unwrap();
    job.finish(model).unwrap()
}

/// Lengths 9, 30, 6: two share a row of 40, their prompts have no loss.
fn datums(rl: bool) -> Vec<Datum> {
    let mut rng = SplitMix64::new(9);
    let datum = |n: usize| {
        let ids: Vec<u32> = (0..=n).map(|_| rng.next_u64() as u32 % 259).collect();
        let mut numbers = |low, high| -> Vec<f32> {
            let number = |_| rng.uniform(low, high) as f32;
            (0..n).map(number).collect()
        };
        let mut pull = numbers(-1.0, 1.0);
        pull[..n / 3].fill(0.0);
        let sampled = numbers(-6.0, -4.0);
        let (input, targets) = (ids[..n].to_vec(), ids[1..].to_vec());
        let made = if rl {
            Datum::policy(input, targets, sampled, pull)
        } else {
            Datum::cross_entropy(input, targets, pull)
        };
        made.unwrap()
    };
    [9, 30, 6].into_iter().map(datum).collect()
}

fn changed(datum: &Datum, change: impl FnOnce(&mut DatumParts)) -> Datum {
    let mut parts = datum.parts().clone();
    change(&mut parts);
    Datum::new(parts).unwrap()
}

/// Loss and gradients by one `backward` through the whole model, sample by sample, unpacked.
fn by_autograd(model: &Model, lora: &Lora, datums: &[Datum], loss: Loss) -> (f64, Vec<Tensor>) {
    let leaf = |t: &Tensor| t.f_detach()?.f_set_requires_grad(true);
    let leaves = lora.try_map(leaf).unwrap();
    let samples = LossSample::check_all(datums, Some(&loss), limits(model)).unwrap();
    let mut total = 0.0;
    for sample in samples {
        let ids: Vec<u32> = sample.input_ids.iter().map(|&id| id as u32).collect();
        let all = forward(model, &ids, Some(&leaves)).log_softmax(-1, Kind::Float);
        let targets = Tensor::from_slice(&sample.target_ids)
            .reshape([-1, to_i64(sample.targets_per_position)]);
        let logprobs = all.gather(1, &targets, false).reshape([-1]);
        let values = Vec::<f32>::try_from(&logprobs.detach()).unwrap();
        let pairs = values.iter().zip(&sample.signals);
        let each = pairs.map(|(&l, &signal)| loss.term(f64::from(l), signal));
        let terms: Vec<_> = each.collect();
        total += terms.iter().map(|term| term.loss).sum::<f64>();
        let grads: Vec<f64> = terms.iter().map(|term| term.grad_logprob).collect();
        let grads = Tensor::from_slice(&grads).to_kind(Kind::Float);
        (logprobs * grads).sum(Kind::Float).backward();
    }
    (total, leaves.params().map(Tensor::grad).collect())
}

fn to_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap()
}

#[track_caller]
fn assert_same(found: &[Tensor], wanted: &[Tensor], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let distance = distance(found, wanted);
        assert!(distance <= tolerance, "parameter {i}: {distance:e}");
    }
}

fn close(a: Option<f32>, b: Option<f32>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-4,
        (a, b) => a == b,
    }
}

#[test]
fn layer_by_layer_is_the_gradient_of_the_whole() {
    let model = model();
    let some = |layers: &[Projection]| LoraTargets::from(layers.to_vec());
    let layers = LoraTargets::default;
    let groups = LoraTargets::groups;
    for (name, targets) in [
        (LossFn::CrossEntropy, layers()),
        (LossFn::CrossEntropy, all_targets()),
        (LossFn::CrossEntropy, groups(false, false, true)),
        (
            LossFn::ImportanceSampling,
            some(&[Projection::Q, Projection::Down]),
        ),
        (LossFn::ImportanceSampling, groups(false, true, true)),
        (LossFn::Ppo, layers()),
        (LossFn::Ppo, all_targets()),
        (LossFn::Cispo, some(&[Projection::V])),
        (LossFn::Cispo, groups(true, false, true)),
        (LossFn::Dro, layers()),
        (LossFn::Dro, groups(false, false, true)),
    ] {
        let lora = lora_of(&model, targets);
        let loss = Loss::new(name, &LossConfig::new()).unwrap();
        let datums = datums(name != LossFn::CrossEntropy);
        let (total, wanted) = by_autograd(&model, &lora, &datums, loss);
        // Rows of 39 and 6 positions, and rows of one sample each that are cut into chunks of 8.
        for chunk_tokens in [40, 8] {
            let out = train(&model, &lora, &datums, loss, sizes(chunk_tokens, None));
            let gap = (out.loss - total).abs();
            assert!(gap <= 1e-4 * total.abs(), "{name}: {} {total}", out.loss);
            assert_eq!(out.n_tokens, 45);
            assert_same(&out.gradients, &wanted, 2e-5);
        }
    }
}

/// Two values a position.
fn beside<T: Copy>(firsts: &[T], seconds: &[T]) -> Tensor2<T> {
    let pairs = firsts.iter().zip(seconds);
    let values = pairs.flat_map(|(a, b)| [*a, *b]).collect();
    Tensor2::shaped(values, &[firsts.len(), 2]).unwrap()
}

#[test]
fn targets_side_by_side_are_the_sum_of_their_losses() {
    let model = model();
    let lora = lora(&model);
    let one = datums(false).remove(0);
    let parts = one.parts();
    let firsts = parts.target_tokens.values();
    let seconds: Vec<u32> = firsts.iter().map(|id| (id + 7) % 259).collect();
    let weights = parts.weights.as_ref().unwrap().values();
    let halves: Vec<f32> = weights.iter().map(|weight| weight * 0.5).collect();
    let both = Datum::new(DatumParts {
        target_tokens: beside(firsts, &seconds),
        weights: Some(beside(weights, &halves)),
        ..parts.clone()
    });
    let both = both.unwrap();
    let input = parts.model_input_tokens.clone();
    let other = Datum::cross_entropy(input, seconds, halves).unwrap();
    let sizes = sizes(40, None);
    let run = |datums: &[Datum]| train(&model, &lora, datums, Loss::CrossEntropy, sizes);
    // Beside a sample with one target a position, so that the chunks are filled up.
    let apart = run(&[one.clone(), other, one.clone()]);
    let together = run(&[both, one]);
    assert!((apart.loss - together.loss).abs() < 1e-4);
    assert_same(&together.gradients, &apart.gradients, 1e-5);
    let firsts = together.logprobs[0].iter().step_by(2);
    let mut both = firsts.zip(&apart.logprobs[0]);
    assert!(both.all(|(a, b)| close(*a, *b)));
}

#[test]
fn what_runs_between_slices_changes_no_bit() {
    let model = model();
    let lora = lora(&model);
    let job = || {
        let (datums, loss) = (datums(true), Loss::ImportanceSampling);
        TrainJob::forward_backward(&model, &lora, &datums, loss, sizes(40, None)).unwrap()
    };
    let whole = job().finish(&model).unwrap();
    let mut rest = job();
    let mut pauses = 0;
    let sliced = loop {
        // What a decoding stream does on this thread: no gradients, other shapes.
        let _guard = tch::no_grad_guard();
        let _ = forward(&model, &[1, 2, 3], Some(&lora));
        match rest.advance(&model, Duration::ZERO).unwrap() {
            ControlFlow::Break(out) => break out,
            ControlFlow::Continue(more) => rest = more,
        }
        pauses += 1;
    };
    // Two rows, each up and down every layer.
    assert!(pauses > 2 * 2 * model.config.n_layers, "{pauses} pauses");
    assert!((whole.loss - sliced.loss).abs() == 0.0);
    assert_eq!(whole.logprobs, sliced.logprobs);
    assert!(are_equal(&whole.gradients, &sliced.gradients));
}

#[test]
fn forward_gives_every_position_and_needs_no_adapter() {
    let model = model();
    let lora = lora(&model);
    let datums = datums(false);
    let run = |lora: Option<&Lora>, top_k| {
        let positions = None;
        let wanted = Wanted { positions, top_k };
        let job = TrainJob::forward(&model, lora, &datums, &wanted, sizes(40, None));
        job.unwrap().finish(&model).unwrap()
    };
    let out = run(Some(&lora), 3);
    assert_eq!(out.gradients.len(), 0);
    for (i, d) in datums.iter().enumerate() {
        let parts = d.parts();
        let logits = forward(&model, &parts.model_input_tokens, Some(&lora));
        let all = logits.log_softmax(-1, Kind::Float);
        let (top, ids) = all.topk(3, -1, true, true);
        let targets = parts.target_tokens.values().iter().copied();
        let targets: Vec<i64> = targets.map(i64::from).collect();
        let targets = Tensor::from_slice(&targets).unsqueeze(1);
        let near = |found: &[f32], wanted: &Tensor| {
            let (found, wanted) = (Tensor::from_slice(found), wanted.reshape([-1]));
            assert!(is_near(&found, &wanted, 1e-4));
        };
        let found: Option<Vec<f32>> = out.logprobs[i].iter().copied().collect();
        near(&found.unwrap(), &all.gather(1, &targets, false));
        near(&out.top[i].logprobs, &top);
        let ids = Vec::<i64>::try_from(&ids.reshape([-1])).unwrap();
        let found: Vec<i64> = out.top[i].ids.iter().copied().map(i64::from).collect();
        assert_eq!(found, ids);
    }
    let base = run(None, 0);
    assert_ne!(base.logprobs, out.logprobs);
    assert!(base.top.is_empty());
}

#[test]
fn positions_without_a_loss_are_not_computed() {
    let model = model();
    let lora = lora(&model);
    let mut datums = datums(false);
    datums[1] = changed(&datums[1], |parts| {
        parts.weights = Some(Tensor2::vector(vec![0.0; 30]));
    });
    let loss = Loss::CrossEntropy;
    let out = train(&model, &lora, &datums, loss, sizes(1, None));
    assert_eq!(out.n_tokens, 9 + 6, "a datum without a loss is skipped");
    assert_eq!(out.n_loss_tokens, 6 + 4);
    // Nothing was computed there, and nothing is said.
    assert!(out.logprobs[0][..3].iter().all(Option::is_none));
    assert!(out.logprobs[0][3].is_some_and(|l| l < 0.0));
    assert!(out.logprobs[1].iter().all(Option::is_none));
}

#[test]
fn an_infinite_loss_is_refused_with_its_place() {
    let model = model();
    let lora = lora(&model);
    let mut datums = datums(true);
    datums[2] = changed(&datums[2], |parts| {
        parts.logprobs.as_mut().unwrap()[4] = -1e30;
    });
    let (loss, sizes) = (Loss::ImportanceSampling, sizes(40, None));
    let job = TrainJob::forward_backward(&model, &lora, &datums, loss, sizes).unwrap();
    let error = job.finish(&model).unwrap_err().to_string();
    let wanted = "the importance_sampling loss of datums[2] at position 4 is not finite";
    assert!(error.starts_with(wanted), "{error}");
}

#[test]
fn an_adapter_of_another_depth_is_refused() {
    let model = model();
    let dims = BaseDims::of(&model.config);
    let deep = |rank| Lora::init(lora_spec(rank, 32, LoraTargets::default()), dims, 5, 0);
    assert!(deep(32).is_err(), "it is over this model's narrowest side");
    let error = |lora: Option<&Lora>, top_k| {
        let positions = None;
        let wanted = Wanted { positions, top_k };
        let job = TrainJob::forward(&model, lora, &datums(false), &wanted, sizes(40, None));
        job.unwrap_err().to_string()
    };
    let depth = "the adapter has 5 layers, the model has 2";
    assert_eq!(error(Some(&deep(2).unwrap()), 0), depth);
    let vocab = "top_k is 260, allowed are 0 to 259, the vocabulary";
    assert_eq!(error(None, 260), vocab);
}

#[test]
fn forward_computes_what_is_wanted_and_no_more() {
    let model = model();
    let datums = datums(false);
    let run = |positions| {
        let wanted = Wanted {
            positions,
            top_k: 2,
        };
        let job = TrainJob::forward(&model, None, &datums, &wanted, sizes(40, None));
        job.unwrap().finish(&model).unwrap()
    };
    let all = run(None);
    let some = run(Some(vec![vec![7, 8], vec![], vec![0, 5]]));
    assert_eq!(some.n_tokens, 9 + 6, "a datum of which nothing is wanted");
    for (datum, positions) in [(0, &[7, 8][..]), (1, &[]), (2, &[0, 5])] {
        for (i, found) in some.logprobs[datum].iter().enumerate() {
            assert_eq!(found.is_some(), positions.contains(&i), "{datum} {i}");
            assert!(found.is_none() || close(*found, all.logprobs[datum][i]));
        }
        let ids = |at: &usize| all.top[datum].ids[2 * at..2 * at + 2].to_vec();
        let wanted: Vec<u32> = positions.iter().flat_map(ids).collect();
        assert_eq!(some.top[datum].ids, wanted);
    }
}
