//! What training takes in memory: counted from shapes before anything is computed.
//!
//! A batch is never begun that would end in the kernel killing the process. Rows are computed one after the
//! other, so only the largest counts; where its activations do not all fit, the lowest layers are computed again on the way
//! down; where that does not suffice, rows are cut smaller; where one sample alone is too long, it is refused.

use std::fmt;

use tch::{Device, Kind};

use super::sizes::SliceSizes;
use crate::free_memory;
use crate::lora::{BaseDims, Lora, LoraSpec};
use crate::matrix::Quantization;
use crate::model::Model;
use crate::torch::Result;
use crate::weights;

/// Memory of a model, and of its training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The base, mapped from disk.
    pub weights: usize,
    /// The bytes of each open run: parameters, two moments, pending gradients.
    pub run: usize,
    /// Positions in the largest row.
    pub row_tokens: usize,
    /// Activations if every layer is computed again in the backward pass.
    pub recomputed: usize,
    /// Activations if every layer is kept.
    pub kept: usize,
    pub budget: usize,
    /// The bytes for the caches of replies; 0 if nothing is served.
    pub cache: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    /// A position's input to a layer.
    input: usize,
    /// A position of a layer with its graph.
    graph: usize,
    /// A position of a chunk in the backward pass through its graph.
    down: usize,
    /// A position of keys and values, copied for a branch.
    keys: usize,
    /// A position of the layer at work: input, gradients, keys and values and their gradients.
    at_work: usize,
    /// A layer's weights and the LM head's, made from rounded numbers; 0 where they are not rounded.
    made: (usize, usize),
    lm_head: usize,
    n_layers: usize,
    chunk: usize,
}

/// Fewer positions than this leave parts of a GPU idle.
const FULL_GPU: usize = 2048;
/// The most positions of a slice. The backward pass of one layer with so many is expected to take an H100 some 40 ms (4B parameters),
/// and replies wait for it.
const MOST_GPU: usize = 16_384;
/// Positions of the LM head in a slice.
const HEAD_GPU: usize = 512;
/// The rank of adapters for which a GPU's sizes are counted.
const RANK: i64 = 32;

/// Positions of a piece of a gated delta net.
const PIECE: usize = 64;

/// Without knowledge of the machine's memory: what any machine has that runs a model at all.
const UNKNOWN: usize = 2 << 30;

// === impl Plan ===

impl Plan {
    /// Plans runs of `spec` on a model. `cache` bytes are for the caches of replies.
    pub fn new(model: &Model, spec: &LoraSpec, sizes: SliceSizes, cache: usize) -> Self {
        let config = &model.config;
        let costs = Costs::new(model, spec.rank, sizes);
        let rows = config.context.min(sizes.row_tokens);
        let dims = BaseDims::of(config);
        let n_lora = spec.targets.n_params(spec.rank, &dims, config.n_layers);
        let n_base = usize::try_from(weights::n_params(config)).unwrap_or(usize::MAX);
        let recomputed = costs.recomputed(rows);
        Self {
            weights: n_base.saturating_mul(match model.quantization {
                Some(Quantization::Int8) => 1,
                None => width(model.kind),
            }),
            run: n_lora * 4 * size_of::<f32>(),
            row_tokens: rows,
            recomputed,
            kept: costs.kept(rows),
            budget: budget(sizes),
            cache,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "weights {}, a training run {}, a row of {} tokens {} ({} without recomputation), activations at most {}, cache {}",
            bytes(self.weights),
            bytes(self.run),
            self.row_tokens,
            bytes(self.recomputed),
            bytes(self.kept),
            bytes(self.budget),
            bytes(self.cache)
        )
    }
}

// === impl SliceSizes ===

impl SliceSizes {
    /// The sizes for a model where it is: a GPU's follow from its memory, a CPU's are measured.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn of_model(model: &Model, memory: Option<usize>) -> Result<Self> {
        match model.placement.first() {
            Device::Cpu => Self::measured(model, memory),
            _ => Ok(Self::of_gpu(model, memory.unwrap_or(UNKNOWN))),
        }
    }

    /// The sizes for a GPU with so much memory for activations. A row goes through a layer in one call, if the memory allows it. Rows of
    /// samples that share nothing are so short that no layer has to be computed again, unless they would leave parts of the GPU idle.
    pub(crate) fn of_gpu(model: &Model, memory: usize) -> Self {
        let mut sizes = Self {
            chunk_tokens: MOST_GPU,
            head_positions: HEAD_GPU,
            as_gpu: true,
            memory: Some(memory),
            ..Self::default()
        };
        let costs = |sizes| Costs::new(model, RANK, sizes);
        while sizes.chunk_tokens > FULL_GPU && costs(sizes).recomputed(sizes.chunk_tokens) > memory
        {
            sizes.chunk_tokens /= 2;
        }
        let all_kept = costs(sizes).fitting_kept(memory);
        sizes.pack_tokens = all_kept.clamp(FULL_GPU, sizes.chunk_tokens);
        sizes.row_tokens = sizes.row_tokens.max(sizes.pack_tokens);
        sizes
    }
}

// === impl Costs ===

impl Costs {
    /// Counts for adapters of rank `rank` on all projections and the LM head; 0 for none.
    pub(super) fn new(model: &Model, rank: i64, sizes: SliceSizes) -> Self {
        let config = &model.config;
        let n = |x: i64| usize::try_from(x).unwrap_or(0);
        let (narrow, wide) = (width(model.kind), size_of::<f32>());
        let d = n(config.hidden);
        let f = n(config.widest_mlp());
        let gate = if config.output_gate { 2 } else { 1 };
        let heads = || config.all_heads();
        let q = n(config.n_heads * heads().map(|it| it.dim).max().unwrap_or(0)) * gate;
        let kv = n(heads().map(|it| it.n * it.dim).max().unwrap_or(0));
        // Of a Gemma 4 what layers take from the token ids, and its way to what is added; keys that layers share, and their gradients.
        let (own, shared) = config
            .gemma4
            .map_or((0, 0), |it| (n(it.own_input), 4 * kv * (narrow + wide)));
        let own_way = 3 * own * narrow + if own > 0 { 2 * d * wide } else { 0 };
        // What autograd saves. Attention: the input; the normed input in f32 for A of q, k and v; queries, keys,
        // values, the mix and the mix in f32. MLP: its input; the normed one in f32 for gate and up; gate, its silu, up;
        // their product in f32. The narrow side of every adapter, twice.
        // Of gated delta nets in f32: the convolution's inputs and sum, queries and keys of each value head eight times over, values and
        // outputs nine times, five triangles of a piece, and three states for each piece.
        let net = config.delta.map_or(0, |net| {
            let (qkv, values) = (n(net.qkv()), n(net.values()));
            let keys = n(net.n_v_heads * net.k_dim);
            let pieces = 5 * PIECE * n(net.n_v_heads) + 3 * n(net.state()) / PIECE;
            (3 * qkv + 8 * keys + 9 * values + pieces) * wide + (qkv + 2 * values) * narrow
        });
        let (attention, mlp, down) = if sizes.as_gpu {
            // On a GPU, adapters take the normed input and the mix in the model's dtype, and norms are fused. So attention saves the
            // input, the normed input, queries, keys and values before and after their rotation, the mix and its log-sum-exps. The
            // backward pass adds gradients by gate, its silu, up, their product and both together, and by queries, keys and values.
            let qkv = (2 * q + 3 * kv) * narrow;
            let attention = d * (wide + narrow) + qkv + q * narrow + n(config.n_heads) * wide;
            let mlp = d * (wide + narrow) + 4 * f * narrow;
            (
                attention,
                mlp,
                6 * f * narrow + (q + 2 * kv) * (wide + narrow),
            )
        } else {
            let attention = 4 * d * wide + q * (2 * narrow + wide) + 2 * kv * narrow;
            (attention, 3 * d * wide + f * (3 * narrow + wide), 0)
        };
        let capped = usize::from(config.logit_cap.is_some());
        // Outputs that are normalised before they are added, in f32.
        let added = if config.added_norms { 2 * d * wide } else { 0 };
        let low = 7 * 2 * n(rank) * wide;
        Self {
            input: d * wide,
            graph: attention.max(net + d * (wide + narrow)) + mlp + added + own_way + low,
            down,
            keys: 2 * kv * narrow,
            at_work: 6 * d * wide
                + kv * (4 * narrow + 2 * wide)
                + shared
                + own * config.n_layers * narrow,
            // Rough and exact logits, log-probabilities, their gradient in f32 and in the dtype of the weights. What an
            // adapter of it adds is added in place; its narrow side, once on the way up and twice down.
            lm_head: sizes.head_positions
                * (n(config.vocab) * ((4 + capped) * wide + 2 * narrow) + 3 * n(rank) * wide),
            made: made(model),
            n_layers: config.n_layers,
            chunk: sizes.chunk_tokens + sizes.chunk_tokens / 4,
        }
    }

    pub(super) fn recomputed(&self, t: usize) -> usize {
        t * (self.n_layers * self.input + self.at_work)
            + t.min(self.chunk) * (self.graph + self.down)
            + self.fixed()
    }

    pub(super) fn kept(&self, t: usize) -> usize {
        self.recomputed(t) + t * self.graph * self.n_layers
    }

    fn fixed(&self) -> usize {
        let (layer, head) = self.made;
        self.lm_head + layer.max(head)
    }

    pub(super) fn fitting(&self, memory: usize) -> usize {
        let place = self.n_layers * self.input + self.at_work;
        let left = memory.saturating_sub(self.fixed());
        let at_once = self.graph + self.down;
        let within_a_chunk = left / (place + at_once).max(1);
        let beyond = left.saturating_sub(self.chunk * at_once) / place.max(1);
        if beyond > self.chunk {
            beyond
        } else {
            within_a_chunk.min(self.chunk)
        }
    }

    /// How many positions of a row within a chunk can keep the graphs of all layers.
    pub(super) fn fitting_kept(&self, memory: usize) -> usize {
        let place = self.n_layers * (self.input + self.graph + self.keys) + self.at_work;
        memory.saturating_sub(self.fixed()) / (place + self.graph + self.down).max(1)
    }

    /// How many layers of a row of `t` positions can keep their graphs; `n_copied` positions are copied for branches.
    pub(super) fn n_kept(&self, t: usize, n_copied: usize, memory: usize) -> usize {
        let a_layer = t * self.graph + n_copied * self.keys + self.made.0;
        memory.saturating_sub(self.recomputed(t)) / a_layer.max(1)
    }
}

fn made(model: &Model) -> (usize, usize) {
    if model.quantization.is_none() {
        return (0, 0);
    }
    let config = &model.config;
    let n = |x: i64| usize::try_from(x).unwrap_or(0);
    let d = n(config.hidden);
    let f = n(config.widest_mlp());
    let heads = config
        .all_heads()
        .map(|it| 2 * (config.n_heads + it.n) * it.dim);
    let heads = n(heads.max().unwrap_or(0));
    let nets = config
        .delta
        .map_or(0, |net| n(net.qkv() + 2 * net.values()));
    let layer = d * (heads.max(nets) + 3 * f);
    let width = width(model.kind);
    (layer * width, n(config.vocab) * d * width)
}

pub(super) fn budget(sizes: SliceSizes) -> usize {
    let usual = || free_memory::available().map_or(UNKNOWN, |free| free / 2);
    sizes.memory.unwrap_or_else(usual)
}

pub(super) fn rank(lora: Option<&Lora>) -> i64 {
    lora.map_or(0, |lora| lora.spec.rank)
}

/// A size as text: `1.5 GB`.
pub(super) fn bytes(n: usize) -> String {
    let n = n as f64;
    match n {
        ..1e6 => format!("{:.0} kB", n / 1e3),
        ..1e9 => format!("{:.0} MB", n / 1e6),
        _ => format!("{:.1} GB", n / 1e9),
    }
}

fn width(kind: Kind) -> usize {
    if kind == Kind::Float { 4 } else { 2 }
}
