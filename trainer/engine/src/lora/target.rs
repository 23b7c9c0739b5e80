//! What can be adapted: the seven projections, their names in PEFT files, their widths.

use std::fmt;

use tch::TchError;

use crate::model_config::ModelConfig;

/// One of the seven linear maps of a decoder layer that an adapter can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Projection {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Attention's output.
    O,
    /// The gate of the feed-forward block.
    Gate,
    /// Its rising half.
    Up,
    /// Its falling half.
    Down,
}

/// Widths of a layer's projections, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerDims {
    /// Width of the residual stream.
    pub hidden: i64,
    /// Query heads times head width.
    pub q_out: i64,
    /// Key-value heads times head width.
    pub kv_out: i64,
    /// Width of the feed-forward block.
    pub ffn: i64,
}

/// A projection of the base that is a part of a [`Linear`](crate::linear::Linear), and its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which.
    pub projection: Projection,
    /// Its rows of the weight.
    pub width: i64,
}

/// `"lora_A"` or `"lora_B"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The map into the bottleneck.
    A,
    /// The map out of it.
    B,
}

/// The name of a parameter in a PEFT file: the one place where it is made.
///
/// `base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight`
pub fn peft_name(layer: usize, projection: Projection, side: Side) -> String {
    let (block, module) = (projection.block(), projection.peft());
    let side = match side {
        Side::A => "lora_A",
        Side::B => "lora_B",
    };
    format!("base_model.model.model.layers.{layer}.{block}.{module}.{side}.weight")
}

/// Why a set of adapters cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LoraError {
    /// Rank 0, or wider than any projection could use.
    #[error("lora rank {rank} is not allowed: 1 to {max}")]
    Rank {
        /// What was given.
        rank: i64,
        /// The narrowest side of a projection of this model.
        max: i64,
    },
    /// No projection is to be adapted.
    #[error("lora targets are empty: at least one of {}", Projection::names())]
    NoTargets,
    /// A projection that this engine does not adapt.
    #[error("lora target {name:?} is unknown: allowed are {}", Projection::names())]
    UnknownTarget {
        /// What was given.
        name: String,
    },
    /// Alpha 0 would switch the adapter off for good.
    #[error("lora alpha 0 is not allowed: 1 or more")]
    Alpha,
    /// A parameter is not there.
    #[error("tensor {name:?} is missing")]
    Missing {
        /// Its PEFT name.
        name: String,
    },
    /// A tensor that belongs to no parameter of this set.
    #[error("tensor {name:?} belongs to no adapted projection of this model")]
    Unexpected {
        /// As it was given.
        name: String,
    },
    /// A parameter of the wrong shape.
    #[error("tensor {name:?} has shape {found:?}, this model and rank need {wanted:?}")]
    Shape {
        /// Its PEFT name.
        name: String,
        /// Its shape.
        found: Vec<i64>,
        /// The shape that fits.
        wanted: Vec<i64>,
    },
    /// libtorch refused.
    #[error(transparent)]
    Torch(#[from] TchError),
}

// === impl Projection ===

impl Projection {
    /// All seven, in the order in which parameters are listed.
    pub const ALL: [Self; 7] = [
        Self::Q,
        Self::K,
        Self::V,
        Self::O,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];

    /// The module's name in `transformers` and in `target_modules`.
    pub const fn peft(self) -> &'static str {
        match self {
            Self::Q => "q_proj",
            Self::K => "k_proj",
            Self::V => "v_proj",
            Self::O => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// The block of a layer that holds the module.
    const fn block(self) -> &'static str {
        match self {
            Self::Q | Self::K | Self::V | Self::O => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        }
    }

    /// Reads a name of `target_modules`.
    ///
    /// # Errors
    /// [`LoraError::UnknownTarget`], naming those that are known.
    pub fn from_peft(name: &str) -> Result<Self, LoraError> {
        Self::ALL
            .into_iter()
            .find(|projection| projection.peft() == name)
            .ok_or_else(|| LoraError::UnknownTarget { name: name.into() })
    }

    pub(super) fn names() -> String {
        Self::ALL.map(Self::peft).join(", ")
    }
}

impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.peft())
    }
}

// === impl LayerDims ===

impl LayerDims {
    /// The widths of a model's layers.
    pub const fn of(config: &ModelConfig) -> Self {
        Self {
            hidden: config.hidden,
            q_out: config.n_heads * config.head_dim,
            kv_out: config.n_kv_heads * config.head_dim,
            ffn: config.intermediate,
        }
    }

    /// `(d_in, d_out)` of a projection.
    pub const fn widths(&self, projection: Projection) -> (i64, i64) {
        match projection {
            Projection::Q => (self.hidden, self.q_out),
            Projection::K | Projection::V => (self.hidden, self.kv_out),
            Projection::O => (self.q_out, self.hidden),
            Projection::Gate | Projection::Up => (self.hidden, self.ffn),
            Projection::Down => (self.ffn, self.hidden),
        }
    }

    /// The shape of one parameter.
    pub(super) fn shape(&self, projection: Projection, side: Side, rank: i64) -> [i64; 2] {
        let (d_in, d_out) = self.widths(projection);
        match side {
            Side::A => [rank, d_in],
            Side::B => [d_out, rank],
        }
    }

    pub(super) fn narrowest(&self) -> i64 {
        let Self {
            hidden,
            q_out,
            kv_out,
            ffn,
        } = *self;
        hidden.min(q_out).min(kv_out).min(ffn)
    }
}
