//! The loss by what a server answers of each token, where it does not say the sum.

use crate::{Datum, LossConfig, LossFn, Tensor2};

/// Positions with a weight or an advantage.
pub(super) fn n_counted(datum: &Datum) -> u64 {
    let parts = datum.parts();
    let counted = match (&parts.weights, &parts.advantages) {
        (Some(weights), _) => {
            let width = weights.width();
            let rows = weights.values().chunks(width);
            rows.filter(|row| row.iter().any(|it| *it != 0.0)).count()
        }
        (None, Some(advantages)) => advantages.iter().filter(|it| **it != 0.0).count(),
        (None, None) => 0,
    };
    counted as u64
}

/// The loss of a datum whose targets have these log-probabilities: a sum, by the formulas of [`LossFn`].
pub(super) fn loss(loss_fn: LossFn, config: &LossConfig, datum: &Datum, logprobs: &[f32]) -> f64 {
    let parts = datum.parts();
    if loss_fn == LossFn::CrossEntropy {
        let weights = parts.weights.as_ref().map(Tensor2::values);
        let terms = weights.unwrap_or_default().iter().zip(logprobs);
        let terms = terms.filter(|(weight, _)| **weight != 0.0);
        return -terms
            .map(|(weight, logprob)| f64::from(*weight) * f64::from(*logprob))
            .sum::<f64>();
    }
    let sampled = parts.logprobs.as_deref().unwrap_or_default();
    let advantages = parts.advantages.as_deref().unwrap_or_default();
    let terms = sampled.iter().zip(advantages).zip(logprobs);
    let terms = terms.filter(|((_, advantage), _)| **advantage != 0.0);
    let terms = terms.map(|((sampled, advantage), now)| {
        term(
            loss_fn,
            config,
            f64::from(*now),
            f64::from(*sampled),
            f64::from(*advantage),
        )
    });
    -terms.sum::<f64>()
}

/// A token's term of the objective, from its log-probability now and the one it was sampled with.
fn term(loss_fn: LossFn, config: &LossConfig, now: f64, sampled: f64, advantage: f64) -> f64 {
    let ratio = (now - sampled).exp();
    let bound = |key: &str, usual: f64| config.get(key).copied().unwrap_or(usual);
    let clipped = |low: f64, high: f64| {
        let low = bound("clip_low_threshold", low);
        ratio.max(low).min(bound("clip_high_threshold", high))
    };
    match loss_fn {
        LossFn::CrossEntropy => now,
        LossFn::ImportanceSampling => ratio * advantage,
        LossFn::Ppo => (ratio * advantage).min(clipped(0.8, 1.2) * advantage),
        LossFn::Cispo => clipped(0.0, 4.0) * now * advantage,
        LossFn::Dro => now * advantage - 0.5 * bound("beta", 0.05) * (now - sampled).powi(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn losses_are_sums_as_documented() {
        let logprobs = [-1.0, -2.0];
        let taught = Datum::cross_entropy(vec![1, 2], vec![2, 3], vec![0.0, 0.5]).unwrap();
        let none = LossConfig::new();
        near(loss(LossFn::CrossEntropy, &none, &taught, &logprobs), 1.0);
        assert_eq!(n_counted(&taught), 1);
        let pushed = Datum::policy(vec![1, 2], vec![2, 3], vec![-1.0, -1.0], vec![0.0, 2.0]);
        let pushed = pushed.unwrap();
        let ratio = (-1.0_f64).exp();
        let of = |loss_fn| loss(loss_fn, &none, &pushed, &logprobs);
        near(of(LossFn::ImportanceSampling), -2.0 * ratio);
        near(of(LossFn::Ppo), -2.0 * ratio);
        near(of(LossFn::Cispo), 4.0 * ratio);
        near(of(LossFn::Dro), 4.0 + 0.025);
        let clip = LossConfig::from([("clip_high_threshold".to_owned(), 0.1)]);
        near(loss(LossFn::Ppo, &clip, &pushed, &logprobs), -0.2);
    }
}
