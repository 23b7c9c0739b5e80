//! The numbers of the training methods and of the gate: from verdicts and log-probabilities to what a token is weighted
//! with. Nothing here asks anybody. In this order:
//!
//! - the learning rate, which depends on the model's size and is warmed up;
//! - advantages from rewards, centred and scaled within a group;
//! - PPO's clipped surrogate (<https://arxiv.org/abs/1707.06347>). A training server's ppo takes one target for each token.
//!   For several, the learner sends the surrogate as cross_entropy: at given log-probabilities, a weight of A·ρ (or 0 if the
//!   ratio is clipped) has the same gradient;
//! - the divergence of two models over the K ids that the second finds most probable, and one bin for all other ids: KL(p ||
//!   q) = sum of p (log p - log q) over K + 1 bins, exact if K = V - 1, and never above the divergence over all ids;
//! - distillation over the most probable ids at each token of the student's own reply (OpenClaw-RL, arXiv 2603.10165
//!   version 2). Index letters: `t` an id of the reply, `k` one of the ids most probable there, `h` a hint;
//! - means, and how far they may lie from what is behind them.

use std::collections::BTreeMap;

use serde::Serialize;

#[expect(
    clippy::cast_possible_truncation,
    reason = "a weight has a few digits that matter, and f32 on the wire"
)]
pub(crate) fn single(weight: f64) -> f32 {
    weight as f32
}

/// The rate of models up to [`SMALL`] parameters; measured on SmolLM2-135M.
const SMALL_RATE: f64 = 5e-4;
const SMALL: f64 = 200e6;
/// The rate of models from [`LARGE`] parameters on, which is Tinker's default.
const LARGE_RATE: f64 = 1e-4;
const LARGE: f64 = 1e9;

/// Returns the rate for a model: 5e-4 up to 200M parameters, 1e-4 from 1B, and between them a straight line in the
/// logarithms of both.
pub(crate) fn rate_for_size(n_params: f64) -> f64 {
    let along = ((n_params / SMALL).ln() / (LARGE / SMALL).ln()).clamp(0.0, 1.0);
    SMALL_RATE * (LARGE_RATE / SMALL_RATE).powf(along)
}

/// Returns the rate of step `n`, from 1: it rises in equal parts to the full rate at step `warmup_steps`.
pub(crate) fn warmed_up(rate: f64, n: u64, warmup_steps: u64) -> f64 {
    if n >= warmup_steps {
        return rate;
    }
    rate * n as f64 / warmup_steps as f64
}

/// Returns the number of a model's parameters from a training server's text, such as `328.60M / 3890.12M`.
pub(crate) fn n_params(trainable_params: &str) -> Option<f64> {
    let all = trainable_params.rsplit('/').next()?.trim();
    let split = all.find(|c: char| c.is_alphabetic()).unwrap_or(all.len());
    let (number, unit) = all.split_at(split);
    let factor = match unit.trim() {
        "" => 1.0,
        "K" | "k" => 1e3,
        "M" => 1e6,
        "B" | "G" => 1e9,
        _ => return None,
    };
    let number: f64 = number.trim().replace(',', "").parse().ok()?;
    (number > 0.0 && number.is_finite()).then_some(number * factor)
}

/// Added to the standard deviation of a bucket, as in slime.
const BUCKET_EPS: f64 = 1e-6;
/// Added to the standard deviation of a batch, as in the Python original.
const BATCH_EPS: f32 = 1e-8;

/// Returns (r - mean)/(std + 1e-6) within each bucket: replies to one prompt, or steps of one number in one task
/// (DeepSeekMath, <https://arxiv.org/abs/2402.03300>; population std). A reward alone in its bucket stays as it is, and
/// equal rewards have no advantage.
///
/// The result has double precision, so a custom advantage function in another language gives the same numbers after
/// rounding to single precision.
///
/// # Shapes
/// One entry for each reward: its bucket and the reward. Returns one advantage for each entry.
pub(crate) fn by_bucket<K: Ord>(rewards: &[(K, f64)]) -> Vec<f64> {
    let mut buckets: BTreeMap<&K, Vec<f64>> = BTreeMap::new();
    for (bucket, reward) in rewards {
        buckets.entry(bucket).or_default().push(*reward);
    }
    let advantage = |(bucket, reward): &(K, f64)| match buckets.get(bucket) {
        Some(of) if of.len() > 1 => {
            let n = of.len() as f64;
            let mean = of.iter().sum::<f64>() / n;
            let square = of.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
            let gap = reward - mean;
            // Equal rewards may differ from their mean by a rounding error.
            if gap.abs() < f64::from(f32::EPSILON) {
                0.0
            } else {
                gap / (square.sqrt() + BUCKET_EPS)
            }
        }
        Some(_) | None => *reward,
    };
    rewards.iter().map(advantage).collect()
}

/// Returns (r - mean)/(std + 1e-8) over a whole batch, as in the Python original; 0 for a single reward, and if all are
/// equal.
pub(crate) fn by_batch(rewards: &[f32]) -> Vec<f32> {
    let scaled = |reward: &f32| scaled(*reward, rewards, BATCH_EPS);
    rewards.iter().map(scaled).collect()
}

fn scaled(reward: f32, of: &[f32], eps: f32) -> f32 {
    let n = of.len().max(1) as f32;
    let mean = of.iter().sum::<f32>() / n;
    let square = of.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / n;
    let gap = reward - mean;
    // Equal rewards may differ from their mean by a rounding error, which a small eps would magnify.
    if gap.abs() < f32::EPSILON {
        return 0.0;
    }
    gap / (square.sqrt() + eps)
}

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

fn rest(logprobs: &[f32]) -> f64 {
    let sum: f64 = logprobs.iter().map(|l| f64::from(*l).exp()).sum();
    let log_sum = sum.ln().min(MOST_LOG_SUM);
    // This is log(1 - e^x) for x < 0.
    (-log_sum.exp_m1()).ln()
}

/// Returns the teacher that agrees most with the student: argmax over h of the sum over t of the number of ids that
/// both lists share. If several are equal, it returns the first.
///
/// # Shapes
/// `student_tk`: `[T][K]` ids; `teachers_htk`: `[H][T][K]`. Returns `None` if there is no teacher.
pub(crate) fn most_agreeing(
    student_tk: &[Vec<u32>],
    teachers_htk: &[Vec<Vec<u32>>],
) -> Option<usize> {
    let overlap = |teacher_tk: &Vec<Vec<u32>>| -> usize {
        let pairs = student_tk.iter().zip(teacher_tk);
        pairs
            .map(|(student, teacher)| n_shared(student, teacher))
            .sum()
    };
    let overlaps = teachers_htk.iter().map(overlap).enumerate();
    // The first of the greatest is needed, and `max_by_key` would return the last.
    let best = overlaps.min_by_key(|(_, overlap)| std::cmp::Reverse(*overlap));
    best.map(|(h, _)| h)
}

fn n_shared(student_k: &[u32], teacher_k: &[u32]) -> usize {
    student_k.iter().filter(|id| teacher_k.contains(id)).count()
}

/// Returns how much better the teacher finds each id than the student does: A = w·clip(log p_T - log p_S, -C, C), where
/// w is the softmax of the student's log-probabilities over these ids.
///
/// # Shapes
/// `student_k`, `teacher_k`: `[K]` log-probabilities of the same ids. Returns `[K]`.
///
/// # Units
/// `most`: C, in nats, above 0.
pub(crate) fn advantages(student_k: &[f32], teacher_k: &[f32], most: f32) -> Vec<f32> {
    let sum: f32 = student_k.iter().map(|l| l.exp()).sum();
    let pairs = student_k.iter().zip(teacher_k);
    let advantage = |(student, teacher): (&f32, &f32)| {
        let weight = student.exp() / sum.max(f32::MIN_POSITIVE);
        weight * (teacher - student).clamp(-most, most)
    };
    pairs.map(advantage).collect()
}

/// The normal distribution's 90 % point.
const Z: f64 = 1.281_551_6;

/// Returns the median; for an even count the mean of the two in the middle, and 0 for no numbers.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.get(middle) {
        None => 0.0,
        Some(upper) if values.len() % 2 == 1 => *upper,
        Some(upper) => f64::midpoint(values[middle - 1], *upper),
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the standard error of the mean, or 0 for fewer than two numbers.
pub(crate) fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if values.len() < 2 {
        return 0.0;
    }
    let middle = mean(values);
    let squares = values.iter().map(|value| (value - middle).powi(2));
    (squares.sum::<f64>() / (n - 1.0) / n).sqrt()
}

/// Returns an upper bound of the mean that the values are drawn from, true in 90 % of cases: Student's one-sided bound.
pub(crate) fn upper_bound(values: &[f64]) -> f64 {
    mean(values) + student(values.len() as f64 - 1.0) * standard_error(values)
}

/// Returns the lower bound of the same kind.
pub(crate) fn lower_bound(values: &[f64]) -> f64 {
    2.0 * mean(values) - upper_bound(values)
}

/// The 90 % point of Student's distribution, by the first terms of Cornish and Fisher; from 11 degrees of freedom on right to
/// three digits.
fn student(freedom: f64) -> f64 {
    let first = (Z.powi(3) + Z) / (4.0 * freedom);
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * freedom.powi(2));
    Z + first + second
}

#[cfg(test)]
mod tests {
    use std::f32::consts::SQRT_2;

    use super::*;

    fn is(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
    }

    #[test]
    fn the_bound_is_students() {
        for (freedom, is) in [(11.0, 1.3634), (20.0, 1.3253), (63.0, 1.2951)] {
            let is_so = (student(freedom) - is).abs() < 5e-4;
            assert!(is_so, "{freedom}: {}", student(freedom));
        }
        // Mean 0, deviation 1.0445 of 12: 1.3634 · 1.0445 / √12.
        let values = [1.0, -1.0].repeat(6);
        let is_so = (upper_bound(&values) - 0.4111).abs() < 1e-3;
        assert!(is_so, "{}", upper_bound(&values));
        assert!((upper_bound(&[0.2; 12]) - 0.2).abs() < 1e-9);
        is(lower_bound(&values), -upper_bound(&values));
    }

    #[test]
    fn a_median_is_in_the_middle() {
        is(median(vec![]), 0.0);
        is(median(vec![7.0]), 7.0);
        is(median(vec![9.0, 1.0, 3.0]), 3.0);
        is(median(vec![9.0, 1.0, 3.0, 4.0]), 3.5);
    }

    #[test]
    fn the_error_of_a_mean_is_less_of_more_numbers() {
        // Computed by hand: the variance of 4 numbers is 1.
        is(
            standard_error(&[1.0, 2.0, 3.0, 2.0]),
            (2.0_f64 / 3.0 / 4.0).sqrt(),
        );
        is(standard_error(&[0.5; 16]), 0.0);
        is(standard_error(&[3.0]), 0.0);
        is(standard_error(&[]), 0.0);
    }

    #[test]
    fn the_rate_falls_with_size_between_two_ends() {
        for (n_params, rate) in [
            (135e6, 5e-4),
            (200e6, 5e-4),
            (447.2e6, 2.236e-4),
            (1e9, 1e-4),
            (8e9, 1e-4),
        ] {
            let is_so = (rate_for_size(n_params) / rate - 1.0).abs() < 1e-3;
            assert!(is_so, "{n_params}: {}", rate_for_size(n_params));
        }
    }

    #[test]
    fn the_first_steps_are_smaller() {
        let rates: Vec<f64> = (1..5).map(|n| warmed_up(3.0, n, 3)).collect();
        assert_eq!(rates, [1.0, 2.0, 3.0, 3.0]);
        assert!((warmed_up(3.0, 1, 0) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn sizes_are_read_as_servers_write_them() {
        assert_eq!(n_params("328.60M / 3890.12M"), Some(3_890.12e6));
        assert_eq!(
            n_params("9.7M / 134.52M").map(f64::round),
            Some(134_520_000.0)
        );
        assert_eq!(n_params("1 / 1.5B"), Some(1.5e9));
        for bad in ["", "x", "1M / many", "0 / 0"] {
            assert_eq!(n_params(bad), None, "{bad:?}");
        }
    }

    fn close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{found} for {expected}");
        }
    }

    /// This is acceptance test 7 of OpenClaw-RL's specification.
    #[test]
    fn each_step_is_held_against_the_same_step_of_its_siblings() {
        let rewards = [
            (("task", 0), 1.0),
            (("task", 0), -1.0),
            (("task", 0), 1.0),
            (("task", 0), 1.0),
            // All rewards are equal.
            (("task", 1), 1.0),
            (("task", 1), 1.0),
            // This step is alone, because the others had ended.
            (("task", 2), -1.0),
            // The same step of another task is not a sibling.
            (("other", 0), 1.0),
        ];
        // The mean is 0.5, and the standard deviation sqrt(0.75).
        let (up, down) = (0.577_35, -1.732_05);
        let expected = [up, down, up, up, 0.0, 0.0, -1.0, 1.0];
        let found: Vec<f32> = by_bucket(&rewards).into_iter().map(single).collect();
        close(&found, &expected);
    }

    #[test]
    fn a_batch_is_centred_as_a_whole() {
        close(
            &by_batch(&[1.0, -1.0, 0.0, 0.0]),
            &[SQRT_2, -SQRT_2, 0.0, 0.0],
        );
        close(
            &by_batch(&[1.0, 1.0, 1.0, 0.0]),
            &[0.577_35, 0.577_35, 0.577_35, -1.732_05],
        );
        close(&by_batch(&[0.1, 0.1, 0.1]), &[0.0; 3]);
        close(&by_batch(&[-1.0]), &[0.0]);
        assert!(by_batch(&[]).is_empty());
    }

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
                let is_so = (slope + weight).abs() < 1e-5;
                assert!(is_so, "A {advantage}, l {l}: {slope}");
            }
        }
    }

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
        let is_so = less > 0.0 && less < expected;
        assert!(is_so, "bins hide what differs in them");
        let (same, weights) = reverse_kl(&ln(&p[..2]), &ln(&p[..2]));
        assert!(same.abs() < 1e-7 && weights.iter().all(|weight| weight.abs() < 1e-7));
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
            let is_so = (slope + weights[v]).abs() < 1e-3;
            assert!(is_so, "{v}: {slope} {weights:?}");
        }
    }

    #[test]
    fn nothing_left_for_the_rest_is_no_infinity() {
        let (kl, weights) = reverse_kl(&ln(&[0.7, 0.3]), &ln(&[0.5, 0.5]));
        let is_so = kl.is_finite() && weights.iter().all(|weight| weight.is_finite());
        assert!(is_so, "{kl} {weights:?}");
    }
}

#[cfg(test)]
mod top_k_tests {
    use super::*;

    fn close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
        }
    }

    fn ln(p: &[f32]) -> Vec<f32> {
        p.iter().map(|p| p.ln()).collect()
    }

    /// This is acceptance test 5 of OpenClaw-RL's specification.
    #[test]
    fn the_hint_is_taken_that_the_student_agrees_with_most() {
        let student = [vec![1, 2], vec![3, 4]];
        let one = vec![vec![1, 9], vec![8, 9]];
        let three = vec![vec![2, 1], vec![9, 4]];
        let none = vec![vec![7, 8], vec![7, 8]];
        let of = |teachers: &[Vec<Vec<u32>>]| most_agreeing(&student, teachers);
        assert_eq!(of(&[none.clone(), one.clone(), three.clone()]), Some(2));
        assert_eq!(of(&[three.clone(), one.clone()]), Some(0));
        assert_eq!(of(&[one.clone(), one]), Some(0), "the first of equals");
        assert_eq!(of(&[none]), Some(0), "the only one");
        assert_eq!(of(&[]), None);
    }

    /// This is the second part of the test: the difference is clipped at C, and the weights sum up to 1.
    #[test]
    fn differences_are_clipped_and_weighted_by_what_the_student_finds_likely() {
        let student = ln(&[0.6, 0.2]);
        // 0.6 -> 0.3 gives -ln 2; 0.2 -> 0.6 gives ln 3, clipped to 1.
        let found = advantages(&student, &ln(&[0.3, 0.6]), 1.0);
        close(&found, &[-0.75 * std::f32::consts::LN_2, 0.25]);
        // Every difference is beyond the clip, so A is w alone.
        let found = advantages(&student, &[0.0 + 5.0, 5.0], 1.0);
        close(&found, &[0.75, 0.25]);
        assert!((found.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let found = advantages(&student, &[-30.0, -30.0], 2.0);
        close(&found, &[-1.5, -0.5]);
    }

    /// This is acceptance test 1: without a hint, teacher and student are the same.
    #[test]
    fn a_teacher_that_was_told_nothing_teaches_nothing() {
        let same = ln(&[0.7, 0.2, 0.05, 0.01]);
        let found = advantages(&same, &same, 1.0);
        assert!(found.iter().all(|value| value.abs() < 1e-4), "{found:?}");
    }

    /// This is the second half of test 1: a hint that names an id.
    #[test]
    fn what_the_hint_names_is_pushed_up() {
        let found = advantages(&ln(&[0.5, 0.3, 0.1]), &ln(&[0.1, 0.05, 0.8]), 1.0);
        let is_so = found[2] > 0.0 && found[0] < 0.0 && found[1] < 0.0;
        assert!(is_so, "{found:?}");
    }
}
