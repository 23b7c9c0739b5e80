//! Tests of training through quantised weights: it equals training of a model with these numbers as weights, and it
//! learns.

use super::*;
use crate::matrix::{Matrix, Quantization};
use crate::optim::AdamConfig;
use crate::run::{OpenRun, RunConfig};
use crate::testing::write_tiny_model;

/// Makes the tiny model unquantised and quantised, and an unquantised model with the quantised one's numbers.
fn models(kind: Kind) -> [Model; 3] {
    let dir = tempfile::tempdir().unwrap();
    write_tiny_model(dir.path(), 7).unwrap();
    let load =
        |quantization| Model::load_as(dir.path(), kind, &Devices::cpu(), quantization).unwrap();
    let [plain, rounded, mut unrolled] = [
        load(None),
        load(Some(Quantization::Int8)),
        load(Some(Quantization::Int8)),
    ];
    unrolled.quantization = None;
    let weights = &mut unrolled.weights;
    let layers = weights.layers.iter_mut();
    let linears = layers.flat_map(|it| [&mut it.qkv, &mut it.o, &mut it.gate_up, &mut it.down]);
    let matrices = linears.map(|it| &mut it.weight);
    for matrix in matrices.chain([&mut weights.embed, &mut weights.lm_head]) {
        assert!(matches!(matrix, Matrix::Int8 { .. }));
        *matrix = matrix.plain().unwrap().into();
    }
    [plain, rounded, unrolled]
}

fn logits(model: &Model, n: i64) -> Tensor {
    let _guard = tch::no_grad_guard();
    let ids = (Tensor::arange(n, (Kind::Int64, tch::Device::Cpu)) * 7 + 3).unsqueeze(0);
    let hidden = model.forward(&ids, None).unwrap();
    model.logits(&hidden, None).unwrap()
}

#[test]
fn logits_are_those_of_the_rounded_numbers_and_near_the_others() {
    // A short row uses the 8-bit product, and a long one the matrix that is made from it.
    for n in [5, 30] {
        let [plain, rounded, unrolled] = models(Kind::Float);
        let found = logits(&rounded, n);
        let exact = distance(&found, &logits(&unrolled, n));
        assert!(exact < 1e-5, "{n} ids: {exact:e}");
        // This is the bound in docs/operating/gpu.md.
        let near = distance(&found, &logits(&plain, n));
        assert!((1e-6..4e-2).contains(&near), "{n} ids: {near:e}");
    }
}

#[test]
fn gradients_are_those_of_the_rounded_numbers_and_a_run_learns() {
    let [_, rounded, unrolled] = models(Kind::Float);
    let targets = LoraTargets::groups(true, true, true);
    let adapter = lora(&rounded, &targets);
    for (chunk_tokens, memory) in [(40, 1 << 30), (8, 300_000)] {
        let gradients = |model: &Model| {
            let sizes = SliceSizes {
                chunk_tokens,
                memory: Some(memory),
                ..sizes()
            };
            let datums = datums(false);
            let job =
                TrainJob::forward_backward(model, &adapter, &datums, Loss::CrossEntropy, sizes);
            job.unwrap().finish(model).unwrap().gradients
        };
        assert_same(&gradients(&rounded), &gradients(&unrolled), 1e-4);
    }
    let config = RunConfig {
        lora: LoraSpec {
            rank: 4,
            alpha: 8,
            targets,
        },
        seed: 1,
    };
    let mut run = OpenRun::new(&rounded, &config).unwrap();
    let text: Vec<u32> = (0..24).map(|i| 40 + i % 5).collect();
    let datum = Datum::cross_entropy(text[..23].to_vec(), text[1..].to_vec(), vec![1.0; 23]);
    let datums = [datum.unwrap()];
    let mut losses = Vec::new();
    for _ in 0..30 {
        let job =
            TrainJob::forward_backward(&rounded, run.lora(), &datums, Loss::CrossEntropy, sizes());
        let mut out = job.unwrap().finish(&rounded).unwrap();
        losses.push(out.loss);
        run.accumulate_grads(run.version(), &mut out).unwrap();
        run.optim_step(&AdamConfig {
            learning_rate: 1e-2,
            ..AdamConfig::default()
        })
        .unwrap();
    }
    assert!(losses[29] < losses[0] / 4.0, "{losses:?}");
}
