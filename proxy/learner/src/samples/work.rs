//! What cannot be known of a sample before its step is made.

use std::sync::Arc;

use serde::Serialize;

use super::{anchor::Anchor, distil::Distil};

/// What a sample's weights are worked out from, with the weights that the model has when its step is made.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// The turn's own reply, and what a teacher makes of it.
    Distil(Arc<Distil>),
    /// A reply of the base model.
    Anchor(Anchor),
}

// === impl Work ===

impl Work {
    /// Ids of the reply, all of which have weights.
    pub(crate) fn n_trained(&self) -> usize {
        match self {
            Self::Distil(distil) => distil.reply.len(),
            Self::Anchor(anchor) => anchor.reply.ids.len(),
        }
    }
}
