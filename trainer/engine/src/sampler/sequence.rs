//! The sampling state of one sequence.

use tch::{Device, Tensor};

use super::counts::TokenCounts;
use crate::rng::SplitMix64;
use crate::torch::Result;
use metaclaw_trainer_terms::{ParamError, SamplingParams};

/// The parameters and the history that a draw for one sequence depends on.
#[derive(Debug, Clone)]
pub struct SequenceSampler {
    pub(super) params: SamplingParams,
    seed: u64,
    /// Ids that are not drawn before `min_tokens`.
    pub(super) end_ids: Vec<i64>,
    pub(super) counts: TokenCounts,
    pub(super) n_generated: usize,
}

// === impl SequenceSampler ===

impl SequenceSampler {
    /// The state before the first token of a reply to `prompt_ids`; `end_ids` are the ids that would end it.
    ///
    /// # Errors
    /// As [`SamplingParams::check`].
    pub fn new(
        params: SamplingParams,
        seed: u64,
        prompt_ids: &[u32],
        end_ids: &[u32],
    ) -> Result<Self, ParamError> {
        params.check()?;
        Ok(Self {
            counts: TokenCounts::new(&params, prompt_ids),
            end_ids: end_ids.iter().copied().map(i64::from).collect(),
            params,
            seed,
            n_generated: 0,
        })
    }

    /// Counts a token that the reply now holds.
    pub fn accept(&mut self, id: u32) {
        self.n_generated += 1;
        self.counts.accept(id);
    }

    /// A number in `[0, 1)` from the seed and the position in the reply. Recomputation and other sequences do not
    /// change it.
    pub(super) fn point(&self) -> f64 {
        SplitMix64::stream(self.seed, self.n_generated as u64).unit()
    }

    pub(super) fn is_greedy(&self) -> bool {
        self.params.temperature == 0.0
    }
}

/// Makes a column with one f64 for each sequence, `[n, 1]`.
pub(super) fn column(numbers: impl Iterator<Item = f64>, device: Device) -> Result<Tensor> {
    let numbers: Vec<f64> = numbers.collect();
    Tensor::f_from_slice(&numbers)?
        .f_unsqueeze(1)?
        .f_to_device(device)
}
