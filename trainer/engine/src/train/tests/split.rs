//! Tests of layers on several devices: the results equal those of one device to the last bit.
//!
//! The CPU is named several times. Copies at the borders, and the choice of each device's own angles, masks and pages,
//! are the same as between GPUs.

use serde_json::json;

use super::*;
use crate::batch::{Keep, Rows};
use crate::device::Devices;
use crate::kv::{KvPool, StateMove};
use crate::optim::AdamConfig;
use crate::run::{OpenRun as TrainingRun, RunConfig};
use crate::testing::tiny_gemma4;
use crate::tests::{model_folder, positions, tiny_nets, tiny_with};

const IDS: [u32; 13] = [10, 200, 33, 258, 1, 90, 91, 92, 17, 40, 5, 6, 7];

/// Makes the same model of 7 layers on one device and on three: 2, 2 and 3 layers.
fn models(kind: Kind, tied: bool) -> [Model; 2] {
    models_of(
        &tiny_with(&[
            ("num_hidden_layers", json!(7)),
            ("tie_word_embeddings", json!(tied)),
        ]),
        kind,
    )
}

fn models_of(config: &serde_json::Value, kind: Kind) -> [Model; 2] {
    let dir = model_folder(config, 7);
    let models = ["cpu", "cpu,cpu,cpu"].map(|devices| {
        let devices: Devices = devices.parse().unwrap();
        Model::load(dir.path(), kind, &devices).unwrap()
    });
    let stages =
        |model: &Model| -> Vec<usize> { (0..7).map(|i| model.placement.stage_of(i)).collect() };
    assert_eq!(stages(&models[0]), [0; 7]);
    assert_eq!(stages(&models[1]), [0, 0, 1, 1, 2, 2, 2]);
    models
}

/// Returns logits of a whole row, and of the same ids in portions over pages beside another sequence.
fn logits(model: &Model, lora: &Lora) -> Vec<Tensor> {
    let _guard = tch::no_grad_guard();
    let mut all = vec![forward(model, &IDS, Some(lora))];

    let served = lora.for_serving(&model.placement).unwrap();
    let budget = KvPool::position_bytes(&model.config, model.kind) * 256;
    let (config, kind, placement) = (&model.config, model.kind, &model.placement);
    let pool = KvPool::new(config, budget, kind, placement).unwrap();
    let mut pool = pool.with_states(config, 2, kind, placement).unwrap();
    let mut start = 0;
    for n in [4, 1, 7, 1] {
        let rows = |slot: usize, lora| {
            let past = if n == 1 { start + 1 } else { start };
            let run = positions(slot, past);
            let to = if slot == 32 { 1 } else { 2 };
            Rows {
                ids: &IDS[start..start + n],
                start,
                slots: (slot + start..slot + start + n).collect(),
                past: Some(run).filter(|run| run.len > 0).into_iter().collect(),
                states: StateMove {
                    from: if start == 0 { 0 } else { to },
                    to,
                    kept: Vec::new(),
                },
                lora,
                keep: Keep::All,
            }
        };
        let rows = [rows(32, Some(&served)), rows(96, None)];
        let hidden = model.forward_batch(&rows, &mut pool).unwrap();
        all.push(model.logits(&hidden, None).unwrap());
        start += n;
    }
    all
}

/// Returns the results of a batch, and the parameters after a step on it.
fn trained(model: &Model, sizes: SliceSizes) -> (f64, Vec<Vec<Option<f32>>>, Vec<Tensor>) {
    let lora = lora_spec(4, 8, all_targets());
    let adam = AdamConfig {
        learning_rate: 0.05,
        ..AdamConfig::default()
    };
    let mut run = TrainingRun::new(model, &RunConfig { lora, seed: 1 }).unwrap();
    let mut out = None;
    // B is zero before the first step, which hides gradients.
    for _ in 0..2 {
        let mut done = train(model, run.lora(), &datums(false), Loss::CrossEntropy, sizes);
        let gradients: Vec<Tensor> = done.gradients.iter().map(Tensor::copy).collect();
        run.accumulate_grads(run.version(), &mut done).unwrap();
        run.optim_step(&adam).unwrap();
        out = Some((done.loss, done.logprobs, gradients));
    }
    let (loss, logprobs, mut tensors) = out.unwrap();
    tensors.extend(run.lora().params().map(Tensor::copy));
    (loss, logprobs, tensors)
}

fn same(one: &[Tensor], other: &[Tensor]) -> bool {
    one.len() == other.len() && are_equal(one, other)
}

#[test]
fn logits_are_the_same_to_the_last_bit() {
    let (full, half) = (Kind::Float, Kind::BFloat16);
    for (kind, tied) in [(full, true), (full, false), (half, true)] {
        let [one, three] = models(kind, tied);
        let lora = lora(&one);
        let (one, three) = (logits(&one, &lora), logits(&three, &lora));
        assert!(same(&one, &three), "{kind:?}, tied {tied}");
    }
}

/// Gated delta nets on several devices.
#[test]
fn nets_have_their_plans_and_states_where_they_are() {
    let [one, three] = models_of(&tiny_nets(7), Kind::Float);
    let adapter = lora(&one);
    let (found, wanted) = (logits(&three, &adapter), logits(&one, &adapter));
    assert!(same(&found, &wanted));
    let sizes = sizes(8, Some(1 << 30));
    let (loss, logprobs, tensors) = trained(&one, sizes);
    let split = trained(&three, sizes);
    assert_eq!(loss.to_bits(), split.0.to_bits());
    assert_eq!(logprobs, split.1);
    assert!(same(&tensors, &split.2));
}

#[test]
fn gradients_and_steps_are_the_same_to_the_last_bit() {
    for kind in [Kind::Float, Kind::BFloat16] {
        let [one, three] = models(kind, true);
        // The cases are: one chunk per row and several; every graph kept, and every layer recomputed.
        for (chunk_tokens, memory) in [(64, 1 << 30), (8, 1 << 30), (8, 400_000)] {
            let sizes = sizes(chunk_tokens, Some(memory));
            let (loss, logprobs, tensors) = trained(&one, sizes);
            let split = trained(&three, sizes);
            assert_eq!(loss.to_bits(), split.0.to_bits(), "{kind:?}, {sizes:?}");
            assert_eq!(logprobs, split.1);
            assert!(same(&tensors, &split.2), "{kind:?}, {sizes:?}");
            let is_zero = |t: &Tensor| t.equal(&t.zeros_like());
            assert!(!tensors.iter().any(is_zero));
        }
    }
}

#[test]
fn layers_that_share_keys_are_not_parted() {
    let dir = model_folder(&tiny_gemma4(), 7);
    let devices: Devices = "cpu,cpu".parse().unwrap();
    let error = Model::load(dir.path(), Kind::Float, &devices).unwrap_err();
    insta::assert_snapshot!(error, @"devices is cpu,cpu, allowed: one device: layers of this model attend to the keys and values of others");
}
