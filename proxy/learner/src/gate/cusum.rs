//! Detects whether an agent's verdicts got worse, by Page's cumulative sum (E. S. Page, Continuous inspection schemes,
//! 1954) over good and bad verdicts.
//!
//! The sum adds the log-likelihood ratios of *worse* to *as before*, and never falls below 0; the change is assumed to
//! be where the sum last left 0. The earlier share of bad verdicts is not known in advance, so it is estimated from the
//! verdicts before that point, and a little higher than they show, because a short run of good verdicts is no reliable
//! level.

/// The mean number of verdicts between two false alarms.
const FALSE_ALARM: f64 = 2_000.0;
/// A change is *worse* if the odds of a bad verdict grow by this factor.
const WORSE: f64 = 4.0;
/// The number of verdicts before a point from which the earlier level is estimated.
const MEMORY: usize = 100;
/// The lowest level that is assumed, because no owner is always content.
const LEAST: f64 = 0.02;
/// The highest level that is assumed, because an owner who complains more often can hardly complain much more.
const MOST: f64 = 0.7;
/// The mean overshoot over a bound at both ends, in standard deviations of a step (D. Siegmund, Sequential Analysis,
/// 1985).
const OVERSHOOT: f64 = 1.166;
/// Rounds of the fixed-point iteration for the bound.
const ROUNDS: usize = 30;

/// Returns where verdicts (`true` is bad, in the order of time) got worse, or `None` if there is no such sign.
pub(crate) fn change_point(are_bad: &[bool]) -> Option<usize> {
    alarm(are_bad).map(|(start, _)| start)
}

/// Returns where they got worse, and after how many verdicts that is detected.
fn alarm(are_bad: &[bool]) -> Option<(usize, usize)> {
    let (mut start, mut sum) = (0, 0.0);
    let mut chart = Chart::after(&[]);
    for (at, is_bad) in are_bad.iter().enumerate() {
        if let Some(Chart { bad, good, limit }) = chart {
            sum += if *is_bad { bad } else { good };
            if sum >= limit {
                return Some((start, at + 1));
            }
        }
        if sum <= 0.0 {
            (start, sum) = (at + 1, 0.0);
            chart = Chart::after(&are_bad[..start]);
        }
    }
    None
}

#[derive(Debug, Clone, Copy)]
struct Chart {
    /// What a bad verdict adds, and what a good one adds (below 0).
    bad: f64,
    good: f64,
    /// The sum at which the alarm is raised.
    limit: f64,
}

// === impl Chart ===

impl Chart {
    /// Builds the test after these verdicts, or returns `None` if they could not get worse.
    fn after(before: &[bool]) -> Option<Self> {
        let usual = level(&before[before.len().saturating_sub(MEMORY)..]);
        if usual > MOST {
            return None;
        }
        let odds = WORSE * usual / (1.0 - usual);
        let worse = odds / (1.0 + odds);
        let bad = (worse / usual).ln();
        let good = ((1.0 - worse) / (1.0 - usual)).ln();
        let mean = usual * bad + (1.0 - usual) * good;
        let variance = usual * bad * bad + (1.0 - usual) * good * good - mean * mean;
        // Siegmund: without a change, an alarm comes after (e^b - b - 1) / |mean| verdicts on average.
        let mut b = 1.0;
        for _ in 0..ROUNDS {
            b = (FALSE_ALARM * mean.abs() + b + 1.0_f64).ln();
        }
        let limit = b - OVERSHOOT * variance.sqrt();
        Some(Self { bad, good, limit })
    }
}

/// Returns the expected share of bad verdicts after these: their share and one standard deviation, as if there had been
/// one good and one bad verdict before.
fn level(before: &[bool]) -> f64 {
    let n = before.len() as f64 + 2.0;
    let n_bad = before.iter().filter(|is_bad| **is_bad).count() as f64 + 1.0;
    let share = n_bad / n;
    (share + (share * (1.0 - share) / n).sqrt()).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns verdicts of which this share is bad.
    fn verdicts(seed: u64, share: f64, n: usize) -> Vec<bool> {
        // Knuth's MMIX generator is used, with its upper bits.
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1 << 24)
        };
        (0..n).map(|_| next() < share).collect()
    }

    #[test]
    fn where_nothing_changes_it_is_silent_for_two_thousand_verdicts_on_average() {
        for share in [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95] {
            let (mut n, mut alarms) = (0, 0);
            for seed in 0..40 {
                let mut rest = &verdicts(seed, share, 4_000)[..];
                while let Some((_, at)) = alarm(rest) {
                    (n, alarms) = (n + at, alarms + 1);
                    rest = &rest[at..];
                }
                n += rest.len();
            }
            assert!(alarms * 1_500 <= n, "{share}: {alarms} in {n}");
        }
    }

    #[test]
    fn what_got_worse_is_seen_within_some_twenty_verdicts_and_where_it_began() {
        for (before, after) in [(0.05, 0.4), (0.1, 0.5), (0.2, 0.6), (0.3, 0.8)] {
            let mut delays = Vec::new();
            for seed in 0..99 {
                let mut all = verdicts(seed, before, 40);
                all.extend(verdicts(seed + 1_000, after, 300));
                // A change just after a run of good verdicts may be taken for the earlier level.
                delays.push(alarm(&all).map_or((usize::MAX, 0), |(at, seen)| (seen, at)));
            }
            delays.sort_unstable();
            assert!(delays[94].0 < usize::MAX, "{before} to {after}");
            let (seen, began) = delays[49];
            assert!((41..=60).contains(&seen), "{before} to {after}: {seen}");
            assert!((30..=50).contains(&began), "{before} to {after}: {began}");
        }
    }

    #[test]
    fn a_handful_of_bad_verdicts_is_no_change() {
        assert_eq!(change_point(&[]), None);
        assert_eq!(change_point(&[true; 6]), None, "nothing is known of before");
        assert_eq!(change_point(&[false, true, false, true, true]), None);
        let mut all = vec![false; 50];
        all.extend([true; 2]);
        assert_eq!(change_point(&all), None);
        all.extend([true; 2]);
        assert_eq!(change_point(&all), Some(50));
    }
}
