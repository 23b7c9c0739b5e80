//! Tests of what follows from the figures of a trial.

use super::*;

/// Makes figures from what was good with the skill and without it: first requests that had been answered well, then
/// others.
fn figures(good: &[[usize; 2]], failed: &[[usize; 2]]) -> TrialFigures {
    let of = |was_good, [good_with, good_without]: [usize; 2]| TriedRequest {
        was_good,
        good_with,
        good_without,
    };
    let good = good.iter().map(|n| of(true, *n));
    let failed = failed.iter().map(|n| of(false, *n));
    TrialFigures {
        requests: good.chain(failed).collect(),
    }
}

#[test]
fn a_skill_passes_where_it_is_better_somewhere_and_worse_nowhere() {
    use TrialVerdict::{Declined, Passed, TooFew};
    for (good, failed, expected) in [
        (&[[3, 3], [3, 3]][..], &[[3, 0], [3, 0]][..], Passed),
        // One draw more or less is noise.
        (&[[3, 3], [2, 3]], &[[3, 0], [2, 0]], Passed),
        // Small gains add up, and so do small losses.
        (&[[3, 3]], &[[2, 0], [2, 1], [3, 0]], Passed),
        (&[[2, 3], [2, 3], [2, 3]], &[[3, 0]], Declined),
        // A gain does not make up for a loss elsewhere.
        (&[[0, 3], [3, 3]], &[[3, 0], [3, 0]], Declined),
        (&[[3, 3], [3, 3]], &[[1, 1], [0, 0]], Declined),
        // A loss needs no further requests.
        (&[[0, 3]], &[], Declined),
        (&[], &[[3, 0], [3, 0]], TooFew),
        // There is nothing to gain.
        (&[[3, 3], [3, 3], [3, 3], [3, 3]], &[], TooFew),
        (&[], &[], TooFew),
    ] {
        let figures = figures(good, failed);
        assert_eq!(figures.verdict(), expected, "{figures:?}");
    }
}

#[test]
fn the_figures_are_told_in_words() {
    let shown = figures(&[[3, 3]], &[[3, 0], [2, 0]]).to_string();
    assert_eq!(
        shown,
        "its trial found it better: 8 of 9 replies were good with it and 3 of 9 without it, at 3 earlier requests"
    );
    let none = TrialFigures::default().to_string();
    let is_so = none.ends_with("no earlier request of its kind can be tried");
    assert!(is_so, "{none}");
}

/// The values are those of R's `fisher.test(.., alternative = "greater")`.
#[test]
fn chance_is_as_fishers_exact_test_says() {
    for (n, more, less, expected) in [
        (3, 3, 0, 0.05),
        (3, 2, 0, 0.2),
        (12, 12, 8, 495.0 / 10_626.0),
        (3, 2, 2, 0.8),
        (0, 0, 0, 1.0),
    ] {
        let found = by_chance(n, more, less);
        let is_so = (found - expected).abs() < 1e-9;
        assert!(is_so, "{n} {more} {less}: {found}");
    }
}

/// A skill without effect, and a judge that errs in one verdict of ten.
#[test]
fn noise_of_the_judge_seldom_decides() {
    let mut seed = 7_u64;
    let mut is_error = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33).is_multiple_of(10)
    };
    let (mut n_passed, mut n_worse) = (0, 0);
    for _ in 0..2_000 {
        let mut drawn = |is_good: bool| (0..TRIAL_DRAWS).filter(|_| is_error() != is_good).count();
        let mut arms = |is_good| [drawn(is_good), drawn(is_good)];
        let good = [arms(true), arms(true), arms(true)];
        let figures = figures(&good, &[arms(false), arms(false), arms(false)]);
        n_passed += usize::from(figures.verdict() == TrialVerdict::Passed);
        n_worse += usize::from(figures.is_worse());
    }
    assert!(n_passed < 2_000 * 3 / 100, "{n_passed}");
    assert!(n_worse < 2_000 / 10, "{n_worse}");
}
