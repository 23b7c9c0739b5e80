//! The losses that a training from a data set minimises.
//!
//! In direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290), the loss of a pair is -log sigmoid(m). m
//! is beta times the difference between how much the chosen and the rejected reply have gained over the reference. The
//! gradient in the log-probability of each id of the chosen reply is -beta sigmoid(-m), and the opposite for the
//! rejected one. So a weighted `cross_entropy` with these weights, computed at the current weights, has the same
//! gradient.

/// What is minimised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Objective {
    /// The mean over all trained tokens of a batch.
    CrossEntropy,
    /// The mean over the pairs of a batch.
    Preference { beta: f64 },
}

/// The log-probabilities of the replies of a pair, each summed over its ids, in nats.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PairLogprobs {
    pub(super) chosen: f64,
    pub(super) rejected: f64,
}

/// Log-probabilities of pairs now, and where the training started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PairMargin(f64);

// === impl Objective ===

impl Objective {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::CrossEntropy => "cross_entropy",
            Self::Preference { .. } => "dpo",
        }
    }
}

// === impl PairMargin ===

impl PairMargin {
    pub(super) fn new(beta: f64, now: PairLogprobs, reference: PairLogprobs) -> Self {
        let gained = |now: f64, before: f64| now - before;
        let chosen = gained(now.chosen, reference.chosen);
        let rejected = gained(now.rejected, reference.rejected);
        Self(beta * (chosen - rejected))
    }

    /// -log sigmoid(m), in nats.
    pub(super) fn loss(self) -> f64 {
        // ln(1 + e^-m) without overflow.
        (-self.0).max(0.0) + (-self.0.abs()).exp().ln_1p()
    }

    /// The weight of each id of the chosen reply; that of the rejected one is its opposite.
    pub(super) fn weight(self, beta: f64) -> f64 {
        beta / (1.0 + self.0.exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BETA: f64 = 0.1;

    fn margin(chosen: f64, rejected: f64) -> PairMargin {
        let reference = PairLogprobs {
            chosen: -20.0,
            rejected: -30.0,
        };
        PairMargin::new(BETA, PairLogprobs { chosen, rejected }, reference)
    }

    #[test]
    fn weights_are_the_gradient_of_the_loss() {
        for (chosen, rejected) in [(-20.0, -30.0), (-5.0, -60.0), (-80.0, -10.0)] {
            let at = margin(chosen, rejected);
            let step = 1e-4;
            let by_chosen = (margin(chosen + step, rejected).loss() - at.loss()) / step;
            let by_rejected = (margin(chosen, rejected + step).loss() - at.loss()) / step;
            // The loss of cross_entropy is -weight · log p.
            let weight = at.weight(BETA);
            assert!((by_chosen + weight).abs() < 1e-5, "{by_chosen} {weight}");
            assert!(
                (by_rejected - weight).abs() < 1e-5,
                "{by_rejected} {weight}"
            );
        }
    }

    #[test]
    fn at_the_start_every_pair_costs_ln_2_and_no_margin_overflows() {
        assert!((margin(-20.0, -30.0).loss() - 2.0_f64.ln()).abs() < 1e-12);
        assert!((margin(-20.0, -30.0).weight(BETA) - BETA / 2.0).abs() < 1e-12);
        assert!((margin(-1e6, 1e6).loss() - 2e5).abs() < 2.0);
        let won = margin(1e6, -1e6);
        assert!(won.loss().abs() < 1e-12 && won.weight(BETA).abs() < 1e-12);
    }
}
