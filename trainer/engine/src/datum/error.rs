//! Errors in the input of a training pass.

use metaclaw_trainer_terms::LossFn;

/// Why datums cannot be computed with this model and this loss. `datum` counts from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TrainInputError {
    #[error("datums is empty: at least one is needed")]
    None,
    /// Longer than the model can hold.
    #[error(
        "datums[{datum}].model_input_tokens has {found} tokens, allowed are at most {max}, the model's context"
    )]
    TooLong {
        datum: usize,
        found: usize,
        max: usize,
    },
    /// A token id beyond the vocabulary.
    #[error("datums[{datum}].{field}[{index}] is {id}, allowed are 0 to {max}")]
    Id {
        datum: usize,
        field: &'static str,
        index: usize,
        id: u32,
        max: u32,
    },
    /// Several targets a position, of a loss that takes one.
    #[error("datums[{datum}].target_tokens has {found} targets a position, allowed: 1 with {loss}")]
    Targets {
        datum: usize,
        found: usize,
        loss: LossFn,
    },
    /// A field that the loss needs.
    #[error("datums[{datum}].{field} is missing: {loss} needs it")]
    Missing {
        datum: usize,
        field: &'static str,
        loss: LossFn,
    },
    /// A field that the loss would not read.
    #[error("datums[{datum}].{field} is given, but {loss} does not use it: {instead}")]
    Unused {
        datum: usize,
        field: &'static str,
        loss: LossFn,
        instead: &'static str,
    },
    /// The number of lists is not the number of datums.
    #[error("positions has {found} lists, {wanted} are needed: one for each datum")]
    Positions { found: usize, wanted: usize },
    /// A position that is not there, or not in order.
    #[error(
        "positions[{datum}][{index}] is {position}, allowed are 0 to {max}, each above the one before"
    )]
    Position {
        datum: usize,
        /// The index in the list.
        index: usize,
        position: usize,
        max: usize,
    },
}

// === impl TrainInputError ===

impl TrainInputError {
    /// The index of the datum that the error is about; `None` if the error is about the list.
    pub fn datum(&self) -> Option<usize> {
        match self {
            Self::None | Self::Positions { .. } => None,
            Self::TooLong { datum, .. }
            | Self::Id { datum, .. }
            | Self::Targets { datum, .. }
            | Self::Missing { datum, .. }
            | Self::Unused { datum, .. }
            | Self::Position { datum, .. } => Some(*datum),
        }
    }
}
