//! Against autograd over the whole model, sample by sample.

#![expect(clippy::cast_possible_truncation, reason = "random test data")]

mod int8;
mod memory;
mod split;
mod trees;

use metaclaw_trainer_terms::{DatumParts, LossConfig, LossFn, Tensor2};
use tch::{Kind, Tensor};

use super::*;
use crate::device::Devices;
use crate::lora::{BaseDims, LoraSpec, LoraTargets, Projection};
use crate::rng::SplitMix64;
use crate::testing::{tiny_config, write_model};

fn model() -> Model {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), &tiny_config(), 7).unwrap();
    Model::load(dir.path(), Kind::Float, &Devices::cpu()).unwrap()
}

/// An adapter whose B is not zero, so that every gradient is felt.
fn lora(model: &Model, targets: &LoraTargets) -> Lora {
    let spec = LoraSpec {
        rank: 4,
        alpha: 8,
        targets: targets.clone(),
    };
    let dims = BaseDims::of(&model.config);
    let fresh = Lora::init(spec, dims, model.config.n_layers, 3).unwrap();
    let mut rng = SplitMix64::new(5);
    let noise = |t: &Tensor| {
        let n = t.numel();
        let values: Vec<f64> = (0..n).map(|_| rng.uniform(-0.3, 0.3)).collect();
        Tensor::f_from_slice(&values)?
            .f_view_as(t)?
            .f_to_kind(Kind::Float)
    };
    fresh.try_map::<TchError>(noise).unwrap()
}

/// Lengths 9, 30, 6: two share a row of 40, their prompts have no loss.
fn datums(rl: bool) -> Vec<Datum> {
    let mut rng = SplitMix64::new(9);
    let datum = |n: usize| {
        let ids: Vec<u32> = (0..=n).map(|_| rng.next_u64() as u32 % 259).collect();
        let mut numbers = |low, high| {
            (0..n)
                .map(|_| rng.uniform(low, high) as f32)
                .collect::<Vec<_>>()
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

fn sizes() -> SliceSizes {
    SliceSizes {
        chunk_tokens: 40,
        row_tokens: 400,
        head_positions: 4,
        memory: None,
    }
}

/// Loss and gradients by one `backward` through the whole model, sample by sample, unpacked.
fn by_autograd(model: &Model, lora: &Lora, datums: &[Datum], loss: Loss) -> (f64, Vec<Tensor>) {
    let leaves = lora
        .try_map(|t| t.f_detach()?.f_set_requires_grad(true))
        .unwrap();
    let samples = LossSample::check_all(datums, Some(&loss), limits(model)).unwrap();
    let mut total = 0.0;
    for sample in samples {
        let ids = Tensor::from_slice(&sample.input_ids).unsqueeze(0);
        let hidden = model.forward(&ids, Some(&leaves)).unwrap();
        let all = model
            .logits(&hidden, Some(&leaves))
            .unwrap()
            .squeeze_dim(0)
            .log_softmax(-1, Kind::Float);
        let targets = Tensor::from_slice(&sample.target_ids)
            .reshape([-1, to_i64(sample.targets_per_position)]);
        let logprobs = all.gather(1, &targets, false).reshape([-1]);
        let values = Vec::<f32>::try_from(&logprobs.detach()).unwrap();
        let terms: Vec<_> = values
            .iter()
            .zip(&sample.signals)
            .map(|(&l, &signal)| loss.term(f64::from(l), signal))
            .collect();
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

/// 2-norm of the difference over 2-norm.
fn distance(found: &Tensor, wanted: &Tensor) -> f64 {
    let norm = |t: &Tensor| t.to_kind(Kind::Double).norm().double_value(&[]);
    norm(&(found - wanted)) / norm(wanted).max(1e-12)
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
    for (name, targets) in [
        (LossFn::CrossEntropy, LoraTargets::default()),
        (LossFn::CrossEntropy, LoraTargets::groups(true, true, true)),
        (
            LossFn::CrossEntropy,
            LoraTargets::groups(false, false, true),
        ),
        (
            LossFn::ImportanceSampling,
            some(&[Projection::Q, Projection::Down]),
        ),
        (
            LossFn::ImportanceSampling,
            LoraTargets::groups(false, true, true),
        ),
        (LossFn::Ppo, LoraTargets::default()),
        (LossFn::Ppo, LoraTargets::groups(true, true, true)),
        (LossFn::Cispo, some(&[Projection::V])),
        (LossFn::Cispo, LoraTargets::groups(true, false, true)),
        (LossFn::Dro, LoraTargets::default()),
        (LossFn::Dro, LoraTargets::groups(false, false, true)),
    ] {
        let lora = lora(&model, &targets);
        let loss = Loss::new(name, &LossConfig::new()).unwrap();
        let datums = datums(name != LossFn::CrossEntropy);
        let (total, wanted) = by_autograd(&model, &lora, &datums, loss);
        // Rows of 39 and 6 positions, and rows of one sample each that are cut into chunks of 8.
        for chunk_tokens in [40, 8] {
            let sizes = SliceSizes {
                chunk_tokens,
                ..sizes()
            };
            let job = TrainJob::forward_backward(&model, &lora, &datums, loss, sizes).unwrap();
            let out = job.finish(&model).unwrap();
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
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
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
    let run = |datums: &[Datum]| {
        let loss = Loss::CrossEntropy;
        let job = TrainJob::forward_backward(&model, &lora, datums, loss, sizes()).unwrap();
        job.finish(&model).unwrap()
    };
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
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    let job = || {
        let (datums, loss) = (datums(true), Loss::ImportanceSampling);
        TrainJob::forward_backward(&model, &lora, &datums, loss, sizes()).unwrap()
    };
    let whole = job().finish(&model).unwrap();
    let mut rest = job();
    let mut pauses = 0;
    let sliced = loop {
        // What a decoding stream does on this thread: no gradients, other shapes.
        let _guard = tch::no_grad_guard();
        let ids = Tensor::from_slice(&[1i64, 2, 3]).unsqueeze(0);
        let _ = model
            .logits(&model.forward(&ids, Some(&lora)).unwrap(), Some(&lora))
            .unwrap();
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
    assert!(
        whole
            .gradients
            .iter()
            .zip(&sliced.gradients)
            .all(|(a, b)| a.equal(b))
    );
}

#[test]
fn forward_gives_every_position_and_needs_no_adapter() {
    let model = model();
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    let datums = datums(false);
    let run = |lora: Option<&Lora>, top_k| {
        let wanted = Wanted {
            top_k,
            ..Wanted::default()
        };
        TrainJob::forward(&model, lora, &datums, &wanted, sizes())
            .unwrap()
            .finish(&model)
            .unwrap()
    };
    let out = run(Some(&lora), 3);
    assert_eq!(out.gradients.len(), 0);
    for (i, d) in datums.iter().enumerate() {
        let parts = d.parts();
        let input = parts.model_input_tokens.iter().copied();
        let ids: Vec<i64> = input.map(i64::from).collect();
        let hidden = model
            .forward(&Tensor::from_slice(&ids).unsqueeze(0), Some(&lora))
            .unwrap();
        let all = model
            .logits(&hidden, Some(&lora))
            .unwrap()
            .squeeze_dim(0)
            .log_softmax(-1, Kind::Float);
        let (top, ids) = all.topk(3, -1, true, true);
        let targets = parts.target_tokens.values().iter().copied();
        let targets: Vec<i64> = targets.map(i64::from).collect();
        let targets = Tensor::from_slice(&targets).unsqueeze(1);
        let near = |found: &[f32], wanted: &Tensor| {
            let wanted = wanted.reshape([-1]);
            assert!(Tensor::from_slice(found).allclose(&wanted, 1e-4, 1e-4, false));
        };
        let found: Option<Vec<f32>> = out.logprobs[i].iter().copied().collect();
        near(&found.unwrap(), &all.gather(1, &targets, false));
        near(&out.top[i].logprobs, &top);
        let ids = Vec::<i64>::try_from(&ids.reshape([-1])).unwrap();
        assert_eq!(
            out.top[i]
                .ids
                .iter()
                .copied()
                .map(i64::from)
                .collect::<Vec<_>>(),
            ids
        );
    }
    let base = run(None, 0);
    assert_ne!(base.logprobs, out.logprobs);
    assert!(base.top.is_empty());
}

#[test]
fn positions_without_a_loss_are_not_computed() {
    let model = model();
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    let mut datums = datums(false);
    datums[1] = changed(&datums[1], |parts| {
        parts.weights = Some(Tensor2::vector(vec![0.0; 30]));
    });
    let (sizes, loss) = (
        SliceSizes {
            chunk_tokens: 1,
            ..sizes()
        },
        Loss::CrossEntropy,
    );
    let job = TrainJob::forward_backward(&model, &lora, &datums, loss, sizes).unwrap();
    let out = job.finish(&model).unwrap();
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
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    let mut datums = datums(true);
    datums[2] = changed(&datums[2], |parts| {
        parts.logprobs.as_mut().unwrap()[4] = -1e30;
    });
    let loss = Loss::ImportanceSampling;
    let job = TrainJob::forward_backward(&model, &lora, &datums, loss, sizes()).unwrap();
    let error = job.finish(&model).unwrap_err().to_string();
    let wanted = "the importance_sampling loss of datums[2] at position 4 is not finite";
    assert!(error.starts_with(wanted), "{error}");
}

#[test]
fn an_adapter_of_another_depth_is_refused() {
    let model = model();
    let dims = BaseDims::of(&model.config);
    let deep = Lora::init(LoraSpec::default(), dims, 5, 0);
    assert!(deep.is_err(), "rank 32 is over this model's narrowest side");
    let spec = LoraSpec {
        rank: 2,
        ..LoraSpec::default()
    };
    let deep = Lora::init(spec, dims, 5, 0).unwrap();
    let wanted = Wanted::default();
    let job = TrainJob::forward(&model, Some(&deep), &datums(false), &wanted, sizes());
    assert_eq!(
        job.unwrap_err().to_string(),
        "the adapter has 5 layers, the model has 2"
    );
    let wanted = Wanted {
        top_k: 260,
        ..wanted
    };
    let job = TrainJob::forward(&model, None, &datums(false), &wanted, sizes());
    assert_eq!(
        job.unwrap_err().to_string(),
        "top_k is 260, allowed are 0 to 259, the vocabulary"
    );
}

#[test]
fn forward_computes_what_is_wanted_and_no_more() {
    let model = model();
    let datums = datums(false);
    let run = |wanted: &Wanted| {
        let job = TrainJob::forward(&model, None, &datums, wanted, sizes()).unwrap();
        job.finish(&model).unwrap()
    };
    let all = run(&Wanted {
        top_k: 2,
        ..Wanted::default()
    });
    let some = run(&Wanted {
        positions: Some(vec![vec![7, 8], vec![], vec![0, 5]]),
        top_k: 2,
    });
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
