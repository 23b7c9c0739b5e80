//! Tests of training through quantised weights: it equals training of a model with these numbers as weights, and it
//! learns.

use super::*;
use crate::device::Devices;
use crate::layer::{AttentionWeights, Mixer};
use crate::matrix::{Matrix, Quantization};
use crate::optim::AdamConfig;
use crate::run::{OpenRun, RunConfig};
use crate::tests::model_folder;

/// Makes the tiny model unquantised and quantised, and an unquantised model with the quantised one's numbers.
fn models(kind: Kind) -> [Model; 3] {
    let dir = model_folder(&tiny_config(), 7);
    let load = |quantization| Model::load_as(dir.path(), kind, &Devices::cpu(), quantization);
    let int8 = Some(Quantization::Int8);
    let [plain, rounded, mut unrolled] = [None, int8, int8].map(|q| load(q).unwrap());
    unrolled.quantization = None;
    let weights = &mut unrolled.weights;
    let layers = weights.layers.iter_mut();
    let linears = layers.flat_map(|l| {
        let Mixer::Attention(attention) = &mut l.mixer else {
            panic!("it attends")
        };
        let AttentionWeights { qkv, o, .. } = attention;
        [qkv, o, &mut l.gate_up, &mut l.down]
    });
    let matrices = linears.map(|linear| &mut linear.weight);
    for matrix in matrices.chain([&mut weights.embed, &mut weights.lm_head]) {
        assert!(matches!(matrix, Matrix::Int8 { .. }));
        *matrix = matrix.plain().unwrap().into();
    }
    [plain, rounded, unrolled]
}

fn logits(model: &Model, n: u32) -> Tensor {
    let _guard = tch::no_grad_guard();
    let ids: Vec<u32> = (0..n).map(|i| i * 7 + 3).collect();
    forward(model, &ids, None)
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
    let adapter = lora(&rounded);
    for (chunk_tokens, memory) in [(40, 1 << 30), (8, 300_000)] {
        let (sizes, loss) = (sizes(chunk_tokens, Some(memory)), Loss::CrossEntropy);
        let gradients = |model| train(model, &adapter, &datums(false), loss, sizes).gradients;
        assert_same(&gradients(&rounded), &gradients(&unrolled), 1e-4);
    }
    let lora = lora_spec(4, 8, all_targets());
    let mut run = OpenRun::new(&rounded, &RunConfig { lora, seed: 1 }).unwrap();
    let adam = AdamConfig {
        learning_rate: 1e-2,
        ..AdamConfig::default()
    };
    let text: Vec<u32> = (0..24).map(|i| 40 + i % 5).collect();
    let datum = Datum::cross_entropy(text[..23].to_vec(), text[1..].to_vec(), vec![1.0; 23]);
    let datums = [datum.unwrap()];
    let mut losses = Vec::new();
    for _ in 0..30 {
        let loss = Loss::CrossEntropy;
        let mut out = train(&rounded, run.lora(), &datums, loss, sizes(40, None));
        losses.push(out.loss);
        run.accumulate_grads(run.version(), &mut out).unwrap();
        run.optim_step(&adam).unwrap();
    }
    assert!(losses[29] < losses[0] / 4.0, "{losses:?}");
}
