//! A parameter of a set: its name in PEFT, and the generator of its initial values.

use super::projection::{Projection, Side, peft_head_name, peft_name};

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

    pub(super) fn peft_name(self, layers_at: &str) -> String {
        match self {
            Self::Layer(layer, projection, side) => peft_name(layers_at, layer, projection, side),
            Self::Head(side) => peft_head_name(side),
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
