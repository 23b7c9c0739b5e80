//! The divergence of two models over the ids that the second finds most probable, and one bin for all other ids.
//!
//! KL(p || q) = sum of p (log p - log q) over K + 1 bins: exact if K = V - 1, and never above the divergence over all
//! ids.

/// The largest log of a sum of probabilities, so that something is left for the other ids (OpenClaw-RL's top-k variant
/// of March 2026).
const MOST_LOG_SUM: f64 = -1e-7;

/// Returns KL(p || q), and the weight of each log p in cross_entropy for the divergence's gradient.
///
/// The probability of the other ids is 1 - sum of p, so the gradient by log p_v is p_v ((log p_v - log q_v) - (log
/// p_rest - log q_rest)); cross_entropy reverses the sign.
///
/// # Shapes
/// `p_k`, `q_k`: `[K]` log-probabilities of the same ids. The weights: `[K]`.
pub(crate) fn reverse_kl(p_k: &[f32], q_k: &[f32]) -> (f64, Vec<f64>) {
    let (p_rest, q_rest) = (rest(p_k), rest(q_k));
    let gap_rest = p_rest - q_rest;
    let mut kl = p_rest.exp() * gap_rest;
    let pairs = p_k.iter().zip(q_k);
    let weights = pairs.map(|(p, q)| {
        let (p, gap) = (f64::from(*p).exp(), f64::from(*p) - f64::from(*q));
        kl += p * gap;
        p * (gap_rest - gap)
    });
    let weights = weights.collect();
    (kl, weights)
}

/// Returns the log-probability of all other ids together.
fn rest(logprobs: &[f32]) -> f64 {
    let sum: f64 = logprobs.iter().map(|l| f64::from(*l).exp()).sum();
    let log_sum = sum.ln().min(MOST_LOG_SUM);
    // This is log(1 - e^x) for x < 0.
    (-log_sum.exp_m1()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ln(p: &[f32]) -> Vec<f32> {
        p.iter().map(|p| p.ln()).collect()
    }

    fn whole(p: &[f32], q: &[f32]) -> f64 {
        let pairs = p.iter().zip(q).map(|(p, q)| (f64::from(*p), f64::from(*q)));
        pairs.map(|(p, q)| p * (p / q).ln()).sum()
    }

    /// This is acceptance test 6 of OpenClaw-RL's specification.
    #[test]
    fn with_all_ids_but_one_it_is_the_whole_divergence() {
        let (p, q) = ([0.5, 0.2, 0.2, 0.1], [0.1, 0.3, 0.2, 0.4]);
        let expected = whole(&p, &q);
        let (kl, _) = reverse_kl(&ln(&p[..3]), &ln(&q[..3]));
        assert!((kl - expected).abs() < 1e-6, "{kl} for {expected}");
        let (less, _) = reverse_kl(&ln(&p[..2]), &ln(&q[..2]));
        assert!(
            less > 0.0 && less < expected,
            "bins hide what differs in them"
        );
        let (same, weights) = reverse_kl(&ln(&p[..2]), &ln(&p[..2]));
        assert!(same.abs() < 1e-7 && weights.iter().all(|it| it.abs() < 1e-7));
    }

    /// A probability that one id gains is lost by the others.
    #[test]
    fn the_weights_are_its_gradient_with_the_sign_turned() {
        let (p, q) = (ln(&[0.5, 0.2, 0.1]), ln(&[0.2, 0.3, 0.3]));
        let (_, weights) = reverse_kl(&p, &q);
        let h = 1e-3;
        for v in 0..3 {
            let at = |step: f32| {
                let mut moved = p.clone();
                moved[v] += step;
                reverse_kl(&moved, &q).0
            };
            let slope = (at(h) - at(-h)) / (2.0 * f64::from(h));
            assert!(
                (slope + weights[v]).abs() < 1e-3,
                "{v}: {slope} {weights:?}"
            );
        }
    }

    #[test]
    fn nothing_left_for_the_rest_is_no_infinity() {
        let (kl, weights) = reverse_kl(&ln(&[0.7, 0.3]), &ln(&[0.5, 0.5]));
        assert!(
            kl.is_finite() && weights.iter().all(|it| it.is_finite()),
            "{kl} {weights:?}"
        );
    }
}
