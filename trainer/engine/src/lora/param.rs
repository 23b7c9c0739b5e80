//! A parameter of a set: its name in PEFT, and the generator of its initial values.

use super::projection::{LM_HEAD, Projection, Side};
use super::target::BaseDims;

#[derive(Debug, Clone, Copy)]
pub(super) enum Param {
    /// A parameter of a layer's projection.
    Layer(usize, Projection, Side),
    /// A parameter of the LM head.
    Head(Side),
}

// === impl Param ===

impl Param {
    /// The LM head's generator, beyond that of any layer.
    const HEAD_STREAM: u64 = u64::MAX;

    /// Its name in a PEFT file, such as `base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight`; `layers_at` is where the
    /// model has its layers.
    pub(super) fn peft_name(self, layers_at: &str) -> String {
        let (module, side) = match self {
            Self::Layer(layer, projection, side) => {
                let (block, name) = (projection.block(), projection.peft());
                (format!("{layers_at}.{layer}.{block}.{name}"), side)
            }
            Self::Head(side) => (LM_HEAD.to_owned(), side),
        };
        format!("base_model.model.{module}.{}.weight", side.peft())
    }

    pub(super) fn shape(self, dims: &BaseDims, rank: i64) -> [i64; 2] {
        let ((d_in, d_out), side) = match self {
            Self::Layer(layer, projection, side) => (dims.widths(layer, projection), side),
            Self::Head(side) => ((dims.hidden, dims.vocab), side),
        };
        match side {
            Side::A => [rank, d_in],
            Side::B => [d_out, rank],
        }
    }

    /// The generator that a fresh `A` draws from; `None` for a `B`, which begins with zeros.
    pub(super) fn stream(self) -> Option<u64> {
        match self {
            Self::Layer(layer, projection, Side::A) => {
                Some((layer as u64) << 8 | projection as u64)
            }
            Self::Head(Side::A) => Some(Self::HEAD_STREAM),
            Self::Layer(_, _, Side::B) | Self::Head(Side::B) => None,
        }
    }
}
