//! Computes advantages from rewards, centred and scaled within a group.

use std::collections::BTreeMap;

/// Added to the standard deviation of a bucket, as in slime.
const BUCKET_EPS: f32 = 1e-6;
/// The same in double precision.
const BUCKET_EPS_DOUBLE: f64 = 1e-6;
/// Added to the standard deviation of a batch, as in the Python original.
const BATCH_EPS: f32 = 1e-8;

/// Returns (r - mean)/(std + 1e-6) within each bucket: replies to one prompt, or steps of one number in one task
/// (DeepSeekMath, <https://arxiv.org/abs/2402.03300>; population std). A reward alone in its bucket stays as it is, and
/// equal rewards have no advantage.
///
/// # Shapes
/// One entry for each reward: its bucket and the reward. Returns one advantage for each entry.
pub(crate) fn by_bucket<K: Ord>(rewards: &[(K, f32)]) -> Vec<f32> {
    let mut buckets: BTreeMap<&K, Vec<f32>> = BTreeMap::new();
    for (bucket, reward) in rewards {
        buckets.entry(bucket).or_default().push(*reward);
    }
    let advantage = |(bucket, reward): &(K, f32)| match buckets.get(bucket) {
        Some(of) if of.len() > 1 => scaled(*reward, of, BUCKET_EPS),
        Some(_) | None => *reward,
    };
    rewards.iter().map(advantage).collect()
}

/// Returns the same as [`by_bucket`], computed in double precision: a function of the owner's that computes the same in
/// any language then gives the same numbers in single precision.
pub(crate) fn by_bucket_double<K: Ord>(rewards: &[(K, f64)]) -> Vec<f64> {
    let mut buckets: BTreeMap<&K, Vec<f64>> = BTreeMap::new();
    for (bucket, reward) in rewards {
        buckets.entry(bucket).or_default().push(*reward);
    }
    let advantage = |(bucket, reward): &(K, f64)| match buckets.get(bucket) {
        Some(of) if of.len() > 1 => {
            let n = of.len() as f64;
            let mean = of.iter().sum::<f64>() / n;
            let square = of.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / n;
            let gap = reward - mean;
            // Equal rewards may differ from their mean by a rounding error.
            if gap.abs() < f64::from(f32::EPSILON) {
                0.0
            } else {
                gap / (square.sqrt() + BUCKET_EPS_DOUBLE)
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
    let square = of.iter().map(|it| (it - mean).powi(2)).sum::<f32>() / n;
    let gap = reward - mean;
    // Equal rewards may differ from their mean by a rounding error, which a small eps would magnify.
    if gap.abs() < f32::EPSILON {
        return 0.0;
    }
    gap / (square.sqrt() + eps)
}

#[cfg(test)]
mod tests {
    use std::f32::consts::SQRT_2;

    use super::*;

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
        close(&by_bucket(&rewards), &expected);
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
}
