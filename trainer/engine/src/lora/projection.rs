//! The linear maps of a layer that can be adapted, and what PEFT calls them and the LM head.

use std::fmt;

/// One of the linear maps of a decoder layer that an adapter can follow: of attention, of the MLP, of a gated delta net.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Projection {
    Q,
    K,
    V,
    O,
    /// The gate of the feed-forward block.
    Gate,
    Up,
    Down,
    /// Queries, keys and values of a gated delta net.
    NetQkv,
    /// Its gate.
    NetZ,
    /// How strongly a position changes the state.
    NetB,
    /// How far the state decays.
    NetA,
    NetOut,
}

pub(super) const N_PROJECTIONS: usize = 12;

/// A projection of the base that is a part of a [`Linear`](crate::linear::Linear), and its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FusedPart {
    pub projection: Projection,
    /// The projection's rows of the weight.
    pub width: i64,
}

/// `"lora_A"` or `"lora_B"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The map into the bottleneck.
    A,
    /// The map out of it.
    B,
}

/// A copy of the base's own LM head, which PEFT puts into the file of an adapter that has one for it.
pub(super) const PEFT_HEAD_BASE: &str = "base_model.model.lm_head.base_layer.weight";

pub(super) const LM_HEAD: &str = "lm_head";

pub(super) fn allowed_names() -> String {
    let layers = Projection::ALL.map(Projection::peft).join(", ");
    format!("{layers}, {LM_HEAD}")
}

// === impl Projection ===

impl Projection {
    /// All projections, in the order in which parameters are listed.
    pub const ALL: [Self; N_PROJECTIONS] = [
        Self::Q,
        Self::K,
        Self::V,
        Self::O,
        Self::Gate,
        Self::Up,
        Self::Down,
        Self::NetQkv,
        Self::NetZ,
        Self::NetB,
        Self::NetA,
        Self::NetOut,
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
            Self::NetQkv => "in_proj_qkv",
            Self::NetZ => "in_proj_z",
            Self::NetB => "in_proj_b",
            Self::NetA => "in_proj_a",
            Self::NetOut => "out_proj",
        }
    }

    pub(super) const fn block(self) -> &'static str {
        match self {
            Self::Q | Self::K | Self::V | Self::O => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
            Self::NetQkv | Self::NetZ | Self::NetB | Self::NetA | Self::NetOut => "linear_attn",
        }
    }

    pub(super) fn is_of_net(self) -> bool {
        self.block() == "linear_attn"
    }

    pub(super) fn from_peft(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|projection| projection.peft() == name)
    }
}

impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.peft())
    }
}

// === impl Side ===

impl Side {
    pub(super) const fn peft(self) -> &'static str {
        match self {
            Self::A => "lora_A",
            Self::B => "lora_B",
        }
    }
}
