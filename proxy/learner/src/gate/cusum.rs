//! Whether an agent's verdicts got worse: Page's cumulative sum (E. S. Page, Continuous inspection schemes, 1954) over good and
//! bad ones.
//!
//! The sum is that of log-likelihood ratios of *worse* to *as before*, never below 0; where it last left 0 the change is
//! supposed to lie. How it was before is not known in advance, so it is taken from the verdicts behind that point, and a little
//! on the bad side of what they say: an owner who happened to be content for a while is no level to fall from.

/// Verdicts with which one false alarm is to be expected.
const FALSE_ALARM: f64 = 2_000.0;
/// What counts as worse: the odds of a bad verdict, so many times.
const WORSE: f64 = 4.0;
/// Verdicts behind a point from which it is taken how it was before.
const MEMORY: usize = 100;
/// The least of that: nobody is content always.
const LEAST: f64 = 0.02;
/// The most: who complains oftener than this cannot complain much more, and of whom nothing is known neither.
const MOST: f64 = 0.7;
/// The mean overshoot over a bound at both ends, in standard deviations of a step (D. Siegmund, Sequential Analysis, 1985).
const OVERSHOOT: f64 = 1.166;
/// Rounds of the bound's equation, which comes nearer by a factor of its own size each.
const ROUNDS: usize = 30;

/// Where verdicts (`true` is bad), in the order of time, got worse; none where that is not to be said of them.
pub(crate) fn change_point(are_bad: &[bool]) -> Option<usize> {
    alarm(are_bad).map(|(start, _)| start)
}

/// Where they got worse, and after how many verdicts that is seen.
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
    /// What a bad one adds, and a good one, which is below 0.
    bad: f64,
    good: f64,
    /// At which it is enough.
    limit: f64,
}

// === impl Chart ===

impl Chart {
    /// Behind these verdicts; none where they could not get worse.
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
        // Siegmund: with nothing changed an alarm comes after (e^b - b - 1) / |mean| on average.
        let mut b = 1.0;
        for _ in 0..ROUNDS {
            b = (FALSE_ALARM * mean.abs() + b + 1.0_f64).ln();
        }
        let limit = b - OVERSHOOT * variance.sqrt();
        Some(Self { bad, good, limit })
    }
}

/// The share of bad ones to be expected after these: theirs and a standard deviation, as if one of each had been before.
fn level(before: &[bool]) -> f64 {
    let n = before.len() as f64 + 2.0;
    let n_bad = before.iter().filter(|is_bad| **is_bad).count() as f64 + 1.0;
    let share = n_bad / n;
    (share + (share * (1.0 - share) / n).sqrt()).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verdicts of which this share is bad.
    fn verdicts(seed: u64, share: f64, n: usize) -> Vec<bool> {
        // Knuth's MMIX generator; its upper bits.
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
                // What got worse just when it had been good for a while may pass for how it was.
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
