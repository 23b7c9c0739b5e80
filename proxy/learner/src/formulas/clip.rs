//! PPO's clipped surrogate (<https://arxiv.org/abs/1707.06347>), for a loss that the learner computes itself.
//!
//! A training server's ppo takes one target for each token. For several targets, the learner sends the surrogate as
//! cross_entropy: at given log-probabilities, a weight of A·ρ (or 0 if the ratio is clipped) has the same gradient.

use serde::Serialize;

/// Bounds of the ratio between a probability now and at sampling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct RatioClip {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

// === impl RatioClip ===

impl RatioClip {
    /// Returns max(-ρ A, -clip(ρ) A), which training minimises.
    pub(crate) fn loss(self, advantage: f64, ratio: f64) -> f64 {
        let clipped = ratio.clamp(self.low, self.high);
        (-advantage * ratio).max(-advantage * clipped)
    }

    /// Returns the weight of a token's log-probability for the same gradient: ρ A, or 0 if the ratio is clipped.
    pub(crate) fn weight(self, advantage: f64, ratio: f64) -> f64 {
        let is_held = if advantage > 0.0 {
            ratio > self.high
        } else {
            ratio < self.low
        };
        if is_held { 0.0 } else { advantage * ratio }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: RatioClip = RatioClip {
        low: 0.8,
        high: 1.28,
    };

    /// This is acceptance test 2 of OpenClaw-RL's specification.
    #[test]
    fn the_clip_table() {
        for (advantage, ratio, loss) in [
            (1.0, 1.5, -1.28),
            (1.0, 0.5, -0.5),
            (-1.0, 0.5, 0.8),
            (-1.0, 1.5, 1.5),
        ] {
            let found = CLIP.loss(advantage, ratio);
            assert!((found - loss).abs() < 1e-12, "{advantage} {ratio}: {found}");
        }
    }

    #[test]
    fn the_weight_is_the_gradient_with_its_sign_turned() {
        let h = 1e-6;
        for advantage in [-2.0, -1.0, 0.5, 1.0] {
            for l in [-0.7f64, -0.3, -0.1, 0.0, 0.1, 0.2, 0.3, 0.5] {
                let at = |l: f64| CLIP.loss(advantage, l.exp());
                let slope = (at(l + h) - at(l - h)) / (2.0 * h);
                let weight = CLIP.weight(advantage, l.exp());
                assert!(
                    (slope + weight).abs() < 1e-5,
                    "A {advantage}, l {l}: {slope}"
                );
            }
        }
    }
}
