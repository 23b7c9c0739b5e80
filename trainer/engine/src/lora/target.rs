//! The maps of a model that are adapted, and their widths.

use super::error::LoraError;
use super::projection::{LM_HEAD, Projection};
use crate::model_config::{DeltaSpec, ModelConfig};

/// Which maps of a model have an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoraTargets {
    /// The adapted projections, the same in every layer that has them. Once checked, each is listed once, in the order of
    /// [`Projection::ALL`].
    pub layers: Vec<Projection>,
    /// The LM head, from the last hidden state to the logits; the embedding stays as it is, also where both are one matrix.
    pub lm_head: bool,
}

/// The dimensions of a base model: the widths of its maps, and whether two of them are one matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseDims {
    /// Width of the residual stream.
    pub hidden: i64,
    /// Query heads times head width.
    pub q_out: i64,
    /// Whether the query projection also gives a gate of each query head.
    pub output_gate: bool,
    /// The layers that are gated delta nets, which have projections of their own in place of attention's.
    pub delta: Option<DeltaSpec>,
    /// Key-value heads times head width.
    pub kv_out: i64,
    /// Width of the feed-forward block.
    pub ffn: i64,
    /// Rows of the LM head.
    pub vocab: i64,
    /// Whether the LM head is the embedding's matrix.
    pub tied: bool,
    /// The path of the layers among the model's modules, as transformers names them.
    pub layers_at: &'static str,
}

/// The path in a text model.
pub const ALONE: &str = "model.layers";
/// The path in a model of text and images.
pub const IN_PART: &str = "model.language_model.layers";

// === impl LoraTargets ===

impl Default for LoraTargets {
    /// The seven projections of a layer, and not the LM head.
    fn default() -> Self {
        Self::groups(true, true, false)
    }
}

impl From<Vec<Projection>> for LoraTargets {
    fn from(layers: Vec<Projection>) -> Self {
        Self {
            layers,
            lm_head: false,
        }
    }
}

impl LoraTargets {
    /// Chooses targets by Tinker's groups (`train_attn`, `train_mlp`, `train_unembed`): q, k, v and o; gate, up and
    /// down; the LM head.
    ///
    /// The result is empty if all three are false, which [`super::LoraSpec::checked`] refuses.
    pub fn groups(attn: bool, mlp: bool, unembed: bool) -> Self {
        let [q, k, v, o, gate, up, down, ..] = Projection::ALL;
        let mut layers = Vec::new();
        if attn {
            layers.extend([q, k, v, o]);
        }
        if mlp {
            layers.extend([gate, up, down]);
        }
        Self {
            layers,
            lm_head: unembed,
        }
    }

    /// Chooses targets by the names of `target_modules`, in any order: `q_proj`, `lm_head`.
    ///
    /// # Errors
    /// [`LoraError::UnknownTarget`], naming those that are known.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, LoraError> {
        let mut targets = Self::groups(false, false, false);
        for name in names {
            if name == LM_HEAD {
                targets.lm_head = true;
                continue;
            }
            let unknown = || LoraError::UnknownTarget { name: name.into() };
            let projection = Projection::from_peft(name).ok_or_else(unknown)?;
            targets.layers.push(projection);
        }
        Ok(targets)
    }

    /// The targets of a new adapter of a model: who adapts all of attention adapts all of its gated delta nets, too.
    #[must_use]
    pub fn of_model(mut self, dims: &BaseDims) -> Self {
        let [q, k, v, o, _, _, _, nets @ ..] = Projection::ALL;
        if dims.delta.is_some() && [q, k, v, o].iter().all(|one| self.layers.contains(one)) {
            self.layers.extend(nets);
        }
        self
    }

    /// The names that `target_modules` has.
    pub fn names(&self) -> Vec<&'static str> {
        let layers = self.layers.iter().map(|projection| projection.peft());
        layers.chain(self.lm_head.then_some(LM_HEAD)).collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && !self.lm_head
    }

    /// Numbers of adapters of `rank` on a model of `n_layers`.
    pub fn n_params(&self, rank: i64, dims: &BaseDims, n_layers: usize) -> usize {
        let sum = |(d_in, d_out): (i64, i64)| usize::try_from(rank * (d_in + d_out)).unwrap_or(0);
        let of_layer = |layer: usize| {
            let here = self.layers.iter().filter(|&&p| dims.has(layer, p));
            here.map(|&p| sum(dims.widths(p))).sum::<usize>()
        };
        let layers: usize = (0..n_layers).map(of_layer).sum();
        let head = if self.lm_head {
            sum((dims.hidden, dims.vocab))
        } else {
            0
        };
        layers.saturating_add(head)
    }
}

// === impl BaseDims ===

impl BaseDims {
    /// The dimensions of a model.
    pub const fn of(config: &ModelConfig) -> Self {
        Self {
            hidden: config.hidden,
            q_out: config.n_heads * config.head_dim,
            output_gate: config.output_gate,
            delta: config.delta,
            kv_out: config.n_kv_heads * config.head_dim,
            ffn: config.intermediate,
            vocab: config.vocab,
            tied: config.tied,
            layers_at: if config.is_part { IN_PART } else { ALONE },
        }
    }

    /// `(d_in, d_out)` of a projection.
    pub const fn widths(&self, projection: Projection) -> (i64, i64) {
        let (qkv, values, heads) = match &self.delta {
            Some(net) => (net.qkv(), net.values(), net.n_v_heads),
            None => (0, 0, 0),
        };
        match projection {
            Projection::Q if self.output_gate => (self.hidden, 2 * self.q_out),
            Projection::Q => (self.hidden, self.q_out),
            Projection::K | Projection::V => (self.hidden, self.kv_out),
            Projection::O => (self.q_out, self.hidden),
            Projection::Gate | Projection::Up => (self.hidden, self.ffn),
            Projection::Down => (self.ffn, self.hidden),
            Projection::NetQkv => (self.hidden, qkv),
            Projection::NetZ => (self.hidden, values),
            Projection::NetB | Projection::NetA => (self.hidden, heads),
            Projection::NetOut => (values, self.hidden),
        }
    }

    /// Whether a layer has a projection.
    pub fn has(&self, layer: usize, projection: Projection) -> bool {
        let is_net = self.delta.is_some_and(|net| net.is_at(layer));
        match projection {
            Projection::Gate | Projection::Up | Projection::Down => true,
            projection => projection.is_of_net() == is_net,
        }
    }

    /// Whether some layer may have a projection.
    pub(super) fn knows(&self, projection: Projection) -> bool {
        self.delta.is_some() || !projection.is_of_net()
    }

    pub(super) fn narrowest(&self) -> i64 {
        let widths = [self.q_out, self.kv_out, self.ffn, self.vocab];
        widths.into_iter().fold(self.hidden, i64::min)
    }
}
