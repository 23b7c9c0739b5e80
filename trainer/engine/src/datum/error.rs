//! What is wrong with a datum, in words.

/// Why a datum cannot be trained on. `datum` counts from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DatumError {
    /// There is none.
    #[error("datums is empty: at least one is needed")]
    None,
    /// Nothing to read.
    #[error("datums[{datum}].model_input_tokens is empty: at least one token is needed")]
    Empty {
        /// Which.
        datum: usize,
    },
    /// Longer than the model can hold.
    #[error(
        "datums[{datum}].model_input_tokens has {found} tokens, allowed are at most {max}, the model's context"
    )]
    TooLong {
        /// Which.
        datum: usize,
        /// Tokens.
        found: usize,
        /// The context.
        max: usize,
    },
    /// A token id beyond the vocabulary.
    #[error("datums[{datum}].{field}[{index}] is {id}, allowed are 0 to {max}")]
    Id {
        /// Which.
        datum: usize,
        /// The field.
        field: &'static str,
        /// Where in it.
        index: usize,
        /// What was given.
        id: u32,
        /// The largest id.
        max: u32,
    },
    /// A field whose length does not follow from the input's.
    #[error(
        "datums[{datum}].{field} has {found} entries, {wanted} are needed: one for each of the {n} input tokens{times}"
    )]
    Length {
        /// Which.
        datum: usize,
        /// The field.
        field: &'static str,
        /// Entries.
        found: usize,
        /// Entries needed.
        wanted: usize,
        /// Input tokens.
        n: usize,
        /// `""`, or how many targets a token has.
        times: String,
    },
    /// Targets without K.
    #[error("datums[{datum}].target_tokens has {found} targets a position, allowed: {allowed}")]
    Targets {
        /// Which.
        datum: usize,
        /// K.
        found: usize,
        /// What the loss takes.
        allowed: &'static str,
    },
    /// A field that the loss needs.
    #[error("datums[{datum}].{field} is missing: {loss} needs it")]
    Missing {
        /// Which.
        datum: usize,
        /// The field.
        field: &'static str,
        /// The loss.
        loss: &'static str,
    },
    /// A field that the loss would not read.
    #[error("datums[{datum}].{field} is given, but {loss} does not use it: {instead}")]
    Unused {
        /// Which.
        datum: usize,
        /// The field.
        field: &'static str,
        /// The loss.
        loss: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// Not a list for each datum.
    #[error("positions has {found} lists, {wanted} are needed: one for each datum")]
    Positions {
        /// Lists.
        found: usize,
        /// Datums.
        wanted: usize,
    },
    /// A position that is not there, or not in order.
    #[error(
        "positions[{datum}][{index}] is {position}, allowed are 0 to {max}, each above the one before"
    )]
    Position {
        /// Which.
        datum: usize,
        /// Where in the list.
        index: usize,
        /// What was given.
        position: usize,
        /// The last position.
        max: usize,
    },
    /// Infinity, or no number.
    #[error("datums[{datum}].{field}[{index}] is {value}, allowed: a finite number")]
    NotFinite {
        /// Which.
        datum: usize,
        /// The field.
        field: &'static str,
        /// Where in it.
        index: usize,
        /// What was given.
        value: f32,
    },
}

// === impl DatumError ===

impl DatumError {
    /// Which datum it is about, from 0; none where it is about the list.
    pub fn datum(&self) -> Option<usize> {
        match self {
            Self::None | Self::Positions { .. } => None,
            Self::Empty { datum }
            | Self::TooLong { datum, .. }
            | Self::Id { datum, .. }
            | Self::Length { datum, .. }
            | Self::Targets { datum, .. }
            | Self::Missing { datum, .. }
            | Self::Unused { datum, .. }
            | Self::Position { datum, .. }
            | Self::NotFinite { datum, .. } => Some(*datum),
        }
    }
}
