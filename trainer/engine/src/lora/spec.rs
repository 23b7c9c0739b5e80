//! The shape of an adapter without weights.

use metaclaw_trainer_terms::{DEFAULT_ALPHA, DEFAULT_RANK};

use super::error::LoraError;
use super::target::{BaseDims, LoraTargets};

/// The shape of a set of adapters without weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoraSpec {
    /// Width of the bottleneck; 1 or more.
    pub rank: i64,
    /// The numerator of the scale `alpha / rank`.
    pub alpha: u32,
    /// The maps that get a pair.
    pub targets: LoraTargets,
}

// === impl LoraSpec ===

impl Default for LoraSpec {
    fn default() -> Self {
        Self {
            rank: DEFAULT_RANK.into(),
            alpha: DEFAULT_ALPHA,
            targets: LoraTargets::default(),
        }
    }
}

impl LoraSpec {
    /// `alpha / rank`.
    pub fn scale(&self) -> f64 {
        f64::from(self.alpha) / self.rank as f64
    }

    /// Puts the targets in order, each once, and checks all against a model's widths.
    ///
    /// # Errors
    /// [`LoraError::Rank`], [`LoraError::NotInModel`], [`LoraError::Alpha`], [`LoraError::NoTargets`].
    pub fn checked(mut self, dims: &BaseDims) -> Result<Self, LoraError> {
        let (rank, max) = (self.rank, dims.narrowest());
        if !(1..=max).contains(&rank) {
            return Err(LoraError::Rank { rank, max });
        }
        if let Some(target) = self.targets.layers.iter().find(|&&it| !dims.knows(it)) {
            let name = target.to_string();
            return Err(LoraError::NotInModel { name });
        }
        if self.alpha == 0 {
            return Err(LoraError::Alpha);
        }
        self.targets.layers.sort_unstable();
        self.targets.layers.dedup();
        if self.targets.is_empty() {
            return Err(LoraError::NoTargets);
        }
        Ok(self)
    }
}
