//! The sizes of slices: how much is computed in one call.

use std::time::{Duration, Instant};

use tch::{Device, Tensor};

use crate::layer::{LayerWeights, mlp_half};
use crate::model::Model;
use crate::pack::to_i64;
use crate::torch::Result;

/// How a job is cut into slices. The batch and these sizes, without the memory, decide what is computed and in which order sums are
/// taken. The memory only decides which activations are kept and which are computed again, and this changes no bit of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceSizes {
    /// Positions that go through a layer in one call.
    pub chunk_tokens: usize,
    /// The longest row of samples that share nothing, within a chunk.
    pub pack_tokens: usize,
    /// The longest row of samples that share a beginning, unless a single sample is longer. The rest goes to another
    /// row, with a copy of the shared part.
    pub row_tokens: usize,
    /// Positions that go through the LM head in one call.
    pub head_positions: usize,
    /// Whether training is computed as on a GPU: attention has no mask, except in layers with a sliding window, and adapters are
    /// multiplied in the dtype of the model. On a CPU, attention has a mask where that is faster, and adapters are multiplied in f32.
    /// Parameters and gradients of adapters are f32 in both cases.
    pub as_gpu: bool,
    /// Bytes for the activations of a row; `None` takes half of the free memory when a job begins.
    pub memory: Option<usize>,
}

/// How long a slice may take, which is the longest gap that training makes in a stream beside it. Chunks of 256 positions
/// take 0.14 s on a CPU without AVX-512. When a slice was at most 40 ms, chunks had 32 or 64 positions there, and a step took
/// 1.46 or 1.2 times the processor's time (135M parameters, f32, two cores, 4 x 256). With 256, four streams wait 2.2 times as
/// long between tokens as without training.
const SLICE: Duration = Duration::from_millis(250);
/// A layer's slice on the way down, computed again, in passes over its second half: that half is three quarters of a
/// layer, and a layer there is its forward pass twice and its gradient.
const PASSES: u32 = 4;
/// How long it is tried. Four runs right after the start gave chunks of 32 or 64, this long 128 or 256 (135M parameters, f32,
/// two cores).
const MEASURED: Duration = Duration::from_millis(200);
/// Below this a chunk reads the weights more than it computes.
const FEWEST: usize = 32;
const SMALLEST: usize = 8;
/// Beyond this a chunk gains nothing: on a CPU its activations leave the caches.
const MOST: usize = 256;
/// Fewest and most positions of the LM head.
const HEAD: (usize, usize) = (8, 64);
/// The fewest positions of the LM head that are measured to be worth a slice. Fewer mostly copy the LM head's weights: with 254 million
/// of them, 8 positions take 0.6 s, 16 take 0.9 s, and 64 take 1.8 s (f32, two cores).
const FULL_HEAD: usize = 16;

impl Default for SliceSizes {
    /// For a small model on a few CPU cores: around 30 ms a slice. Rows of 128 and 32 positions of the LM head took
    /// 1.25 times the processor's time (SmolLM2, two cores, bf16, 4 x 256).
    fn default() -> Self {
        Self {
            chunk_tokens: 256,
            pack_tokens: 256,
            row_tokens: 4096,
            head_positions: 64,
            as_gpu: false,
            memory: None,
        }
    }
}

impl SliceSizes {
    /// Halves the sizes. `None` if the result would not be worth a pass over the weights.
    pub(super) fn smaller(self) -> Option<Self> {
        let smallest = self.chunk_tokens <= SMALLEST && self.head_positions <= HEAD.0;
        let half = |n: usize, least: usize| (n / 2).max(least.min(n));
        (!smallest).then(|| Self {
            chunk_tokens: half(self.chunk_tokens, SMALLEST),
            row_tokens: half(self.row_tokens, SMALLEST),
            head_positions: half(self.head_positions, HEAD.0),
            ..self
        })
    }

    /// As many positions a chunk, in powers of two, as this machine computes in a slice: measured once, so that
    /// the cuts of every batch are the same from then on.
    ///
    /// Two cuts of one batch differ by the order of sums: about 1e-6 of the gradient in f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(super) fn measured(model: &Model, memory: Option<usize>) -> Result<Self> {
        let mut chunk_tokens = FEWEST;
        if let Some(layer) = model.weights.layers.first() {
            // The first runs read the weights from disk, start threads and kernels, and wait for cores that other
            // programs use.
            let mut slice = slice_of(model, layer, FEWEST, MEASURED)?;
            while slice <= SLICE && chunk_tokens < MOST {
                slice = slice_of(model, layer, 2 * chunk_tokens, MEASURED / 4)?;
                chunk_tokens *= if slice <= SLICE { 2 } else { 1 };
            }
        }
        let config = &model.config;
        let layer = config.hidden * (config.intermediate + config.n_heads * config.head_dim) * 3;
        let head = config.hidden * config.vocab;
        // A position of the LM head is two products; a layer in the backward pass has twice as many.
        let fitting = to_i64(chunk_tokens) * 2 * layer / head.max(1);
        let fitting = 1 << fitting.max(1).ilog2();
        Ok(Self {
            chunk_tokens,
            pack_tokens: chunk_tokens,
            head_positions: fitting.clamp(FULL_HEAD, HEAD.1),
            memory,
            ..Self::default()
        })
    }
}

/// Measures how long a layer's slice of `n` positions takes.
///
/// This does not grow in proportion to `n`, because a product of few rows mostly copies the weights: 32 positions take 22 ms, and 128
/// take 60 (0.8B parameters, f32, two cores). If it did, chunks would have 64 positions there instead of 128, and a step would take
/// 1.1 times the processor's time.
fn slice_of(model: &Model, layer: &LayerWeights, n: usize, measured: Duration) -> Result<Duration> {
    let _guard = tch::no_grad_guard();
    let shape = [1, to_i64(n), model.config.hidden];
    let x = Tensor::f_zeros(shape, (tch::Kind::Float, Device::Cpu))?;
    let (began, mut best) = (Instant::now(), Duration::MAX);
    while best == Duration::MAX || began.elapsed() < measured {
        let begun = Instant::now();
        let _computed = mlp_half(&model.config, layer, None, (&x, None))?;
        best = best.min(begun.elapsed());
    }
    Ok(best.saturating_mul(PASSES))
}
