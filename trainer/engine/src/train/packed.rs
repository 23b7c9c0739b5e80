//! One row of a batch, as all layers see it.

use tch::Tensor;

use super::live::Live;
use crate::layer::Attention;
use crate::rope::RopeSlice;

/// What all layers need to know about a row.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) rope: RopeSlice,
    pub(super) mask: Option<Tensor>,
    pub(super) live: Vec<Live>,
}

impl Packed {
    /// What each position sees.
    pub(super) fn attention(&self) -> Attention<'_> {
        Attention::Causal {
            mask: self.mask.as_ref(),
        }
    }
}
