//! Replies whose log-probabilities are requested.

use metaclaw_trainer_api::{Datum, DatumError};

use super::datum;

/// A reply of R ids after a prompt, and what is requested at each of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogprobQuery {
    pub(crate) datum: Datum,
    /// R: the positions where the reply's ids are predicted.
    pub(crate) positions: Vec<usize>,
    /// K: the number of ids at each position.
    pub(crate) width: usize,
}

// === impl LogprobQuery ===

impl LogprobQuery {
    /// Asks for the reply's own ids.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    pub(crate) fn own(prompt: &[u32], reply: &[u32]) -> Result<Self, DatumError> {
        let own: Vec<Vec<u32>> = reply.iter().map(|id| vec![*id]).collect();
        Self::of(prompt, reply, &own)
    }

    /// Asks for other ids at their positions, `[R][K]`.
    ///
    /// # Errors
    /// Returns the same error, also if the lists do not have the same length, with one entry for each id.
    pub(crate) fn of(
        prompt: &[u32],
        reply: &[u32],
        ids_tk: &[Vec<u32>],
    ) -> Result<Self, DatumError> {
        let weightless = |ids: &Vec<u32>| ids.iter().map(|id| (*id, 0.0)).collect();
        let rows: Vec<Vec<(u32, f32)>> = ids_tk.iter().map(weightless).collect();
        let datum = datum::weighted(prompt, reply, &rows)?;
        let first = prompt.len().saturating_sub(1);
        Ok(Self {
            datum,
            positions: (first..first + reply.len()).collect(),
            width: ids_tk.first().map_or(1, Vec::len),
        })
    }
}
