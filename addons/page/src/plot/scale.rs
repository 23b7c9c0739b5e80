//! The ranges of the two axes, and readable ticks in them.

use metaclaw_control::curves::{Curve, CurveAxis, CurvePoint, CurveUnit};

use super::words::{day_label, value_label};

const PARTS: f64 = 4.0;
/// The most ticks of an axis, also where numbers are so large that a step does not change them.
const MOST_TICKS: u32 = 12;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// The part of an axis that is drawn. `low` is less than `high`, or both are the same single position.
#[derive(Debug)]
pub(super) struct AxisRange {
    low: f64,
    high: f64,
    pub(super) ticks: Vec<AxisTick>,
}

#[derive(Debug, PartialEq)]
pub(super) struct AxisTick {
    pub(super) at: f64,
    pub(super) label: String,
}

// === impl AxisRange ===

impl AxisRange {
    pub(super) fn share(&self, at: f64) -> f64 {
        // Halves, because the difference of two large numbers may be infinite.
        let span = self.high / 2.0 - self.low / 2.0;
        if span <= 0.0 {
            return 0.5;
        }
        ((at / 2.0 - self.low / 2.0) / span).clamp(0.0, 1.0)
    }
}

/// Returns the ranges of both axes, or `None` without a point. Values are finite numbers.
pub(super) fn ranges<'a>(
    curve: &Curve,
    points: impl Iterator<Item = &'a CurvePoint>,
) -> Option<(AxisRange, AxisRange)> {
    let (mut first, mut last) = (u64::MAX, 0);
    let mut values = Vec::new();
    for point in points {
        (first, last) = (first.min(point.at), last.max(point.at));
        values.push(point.value);
        values.extend(point.limit);
        values.extend(point.interval.map(|it| it.low));
        values.extend(point.interval.map(|it| it.high));
    }
    if values.is_empty() {
        return None;
    }
    let (first, last) = curve.range.unwrap_or((first, last));
    let x = match curve.axis {
        CurveAxis::Days => days(first, last),
        CurveAxis::Steps => steps(first, last),
    };
    Some((x, of_values(curve.unit, values)))
}

fn of_values(unit: CurveUnit, values: Vec<f64>) -> AxisRange {
    let finite = values.into_iter().filter(|it| it.is_finite());
    let (mut low, mut high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
        (low.min(it), high.max(it))
    });
    match unit {
        CurveUnit::Share => (low, high) = (0.0, 1.0),
        CurveUnit::Tokens | CurveUnit::Amount => (low, high) = (0.0, high.max(1.0)),
        CurveUnit::Plain => {}
    }
    if low >= high {
        // A single value is drawn in the middle of the axis.
        let around = (low.abs() / 2.0).max(0.5);
        (low, high) = ((low - around).max(f64::MIN), (high + around).min(f64::MAX));
    }
    let step = match unit {
        CurveUnit::Share => 0.25,
        _ => nice(high / PARTS - low / PARTS),
    };
    // The ends are ticks, so that no point lies beyond the last one.
    let (from, to) = ((low / step).floor(), (high / step).ceil());
    let ticks = (0..=MOST_TICKS).map(|n| (from + f64::from(n)) * step);
    let is_first = |at: f64| at.is_finite() && at <= (to * step).min(f64::MAX);
    let mut ticks: Vec<f64> = ticks.take_while(|at| is_first(*at)).collect();
    ticks.dedup();
    let within = |at: f64, other: f64| if at.is_finite() { at } else { other };
    AxisRange {
        low: within(from * step, low),
        high: within(to * step, high),
        ticks: ticks
            .into_iter()
            .map(|at| AxisTick {
                at,
                label: value_label(unit, at, step),
            })
            .collect(),
    }
}

/// Returns the first of 1, 2, 5 and their tens, hundreds, tenths that is not less than `least`.
fn nice(least: f64) -> f64 {
    let least = least.clamp(f64::MIN_POSITIVE, f64::MAX / 10.0);
    let power = 10_f64.powf(least.log10().floor()).max(f64::MIN_POSITIVE);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|it| it * power);
    // Rounding may leave the largest a little below.
    steps
        .into_iter()
        .find(|it| *it >= least * (1.0 - 1e-9))
        .unwrap_or(least)
}

/// Returns the same for whole numbers; at least 1.
fn nice_whole(least: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        let steps = [1, 2, 5].map(|it| power.saturating_mul(it));
        if let Some(step) = steps.into_iter().find(|it| *it >= least) {
            return step;
        }
        power = power.saturating_mul(10);
    }
}

fn days(first: u64, last: u64) -> AxisRange {
    let n_days = (last - first) / DAY_MS;
    let every = (n_days / 4).max(1);
    let at = (0..=n_days).step_by(usize::try_from(every).unwrap_or(usize::MAX));
    whole(first, last, at.map(|n| first + n * DAY_MS), day_label)
}

fn steps(first: u64, last: u64) -> AxisRange {
    let every = nice_whole((last - first).div_ceil(4));
    let begin = first.div_ceil(every);
    let at = (0..=u64::from(MOST_TICKS)).map_while(|n| begin.checked_add(n)?.checked_mul(every));
    let within = at.take_while(|it| *it <= last);
    whole(first, last, within, |it| it.to_string())
}

fn whole(
    first: u64,
    last: u64,
    ticks: impl Iterator<Item = u64>,
    label: impl Fn(u64) -> String,
) -> AxisRange {
    let tick = |at: u64| AxisTick {
        at: at as f64,
        label: label(at),
    };
    AxisRange {
        low: first as f64,
        high: last as f64,
        ticks: ticks.map(tick).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(unit: CurveUnit, values: &[f64]) -> Vec<String> {
        let range = of_values(unit, values.to_vec());
        assert!(range.ticks.len() <= 13, "{range:?}");
        for value in values {
            assert!((0.0..=1.0).contains(&range.share(*value)), "{range:?}");
        }
        range.ticks.into_iter().map(|it| it.label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_and_enclose_the_values() {
        assert_eq!(
            labels(CurveUnit::Share, &[0.3]),
            ["0 %", "25 %", "50 %", "75 %", "100 %"]
        );
        assert_eq!(labels(CurveUnit::Amount, &[3.6]), ["0", "1", "2", "3", "4"]);
        assert_eq!(
            labels(CurveUnit::Plain, &[1.48, 1.71]),
            ["1.4", "1.5", "1.6", "1.7", "1.8"]
        );
        assert_eq!(
            labels(CurveUnit::Tokens, &[12_000.0, 1_800_000.0]),
            ["0", "500k", "1M", "1.5M", "2M"]
        );
        assert_eq!(
            labels(CurveUnit::Plain, &[2.0]),
            ["1.0", "1.5", "2.0", "2.5", "3.0"]
        );
        assert_eq!(labels(CurveUnit::Plain, &[0.0]), ["-0.5", "0.0", "0.5"]);
    }

    #[test]
    fn no_range_is_too_large_or_too_small() {
        for values in [
            [f64::MIN, f64::MAX],
            [1e300, 1e300_f64.next_up()],
            [0.0, f64::MIN_POSITIVE],
            [f64::MAX, f64::MAX],
            [-0.0, 0.0],
        ] {
            for unit in [CurveUnit::Plain, CurveUnit::Plain, CurveUnit::Tokens] {
                let range = of_values(unit, values.to_vec());
                assert!(
                    range.low.is_finite() && range.high.is_finite(),
                    "{values:?}: {range:?}"
                );
                assert!(range.ticks.len() <= 13, "{values:?}: {range:?}");
                for value in values {
                    let share = range.share(value);
                    assert!((0.0..=1.0).contains(&share), "{values:?}: {range:?}");
                }
            }
        }
    }

    #[test]
    fn steps_have_whole_ticks() {
        let labels = |first, last| {
            let ticks = steps(first, last).ticks.into_iter();
            ticks.map(|it| it.label).collect::<Vec<_>>()
        };
        assert_eq!(labels(1, 3), ["1", "2", "3"]);
        assert_eq!(labels(7, 7), ["7"]);
        assert_eq!(labels(3, 100), ["50", "100"]);
        assert_eq!(labels(u64::MAX - 1, u64::MAX).len(), 2);
        assert!(!labels(0, u64::MAX).is_empty());
    }

    #[test]
    fn a_year_of_days_has_few_ticks() {
        assert_eq!(days(0, 0).ticks.len(), 1);
        assert_eq!(days(0, 2 * DAY_MS).ticks.len(), 3);
        assert_eq!(days(0, 365 * DAY_MS).ticks.len(), 5);
    }
}
