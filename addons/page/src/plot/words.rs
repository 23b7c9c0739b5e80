//! Numbers, positions and names as text.

use jiff::{Timestamp, tz::TimeZone};
use metaclaw_control::{
    curves::{CurveAxis, CurveUnit},
    figures::grouped,
};

/// Returns a name in which everything but letters, digits and `_` of ASCII is `-`.
pub(super) fn identifier(name: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars()
        .map(|c| if kept(c) { c } else { '-' })
        .collect()
}

pub(super) fn unit(unit: CurveUnit) -> &'static str {
    match unit {
        CurveUnit::Share | CurveUnit::Amount | CurveUnit::Plain => "",
        CurveUnit::Tokens => "tokens",
    }
}

pub(super) fn caption(of_values: CurveUnit, axis: CurveAxis) -> String {
    let by = match axis {
        CurveAxis::Days => "by day",
        CurveAxis::Steps => "by training step",
    };
    match unit(of_values) {
        "" => by.to_owned(),
        unit => format!("{unit}, {by}"),
    }
}

pub(super) fn axis(axis: CurveAxis) -> &'static str {
    match axis {
        CurveAxis::Days => "day",
        CurveAxis::Steps => "step",
    }
}

/// Returns a value for a table or a sentence: with three digits, tokens whole.
pub(super) fn value(unit: CurveUnit, value: f64) -> String {
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    match unit {
        CurveUnit::Share if value.abs() < 1e6 => format!("{:.0} %", value * 100.0),
        CurveUnit::Tokens if (0.0..1e15).contains(&value) => grouped(&format!("{value:.0}"), ','),
        _ => plain(value),
    }
}

fn plain(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e5).contains(&size) => {
            format!("{value:.*}", decimals(size, 100.0))
        }
        _ => format!("{value:.2e}"),
    }
}

/// Returns how many decimals a number needs so that it has as many digits as `least` has; at most 5.
fn decimals(number: f64, least: f64) -> usize {
    let mut power = 1.0;
    let is_shown = |_: &usize| {
        let is_shown = number * power >= least * (1.0 - 1e-9);
        power *= 10.0;
        is_shown
    };
    (0..5).find(is_shown).unwrap_or(5)
}

/// Returns a short label of a tick. Ticks that are `step` apart have different labels.
pub(super) fn value_label(unit: CurveUnit, value: f64, step: f64) -> String {
    match unit {
        CurveUnit::Share => format!("{:.0} %", value * 100.0),
        CurveUnit::Tokens | CurveUnit::Amount => thousands(value),
        _ if !(1e-4..1e6).contains(&step) || value.abs() >= 1e6 => format!("{value:.1e}"),
        CurveUnit::Plain => {
            format!(
                "{:.*}",
                decimals(step, 1.0),
                if value == 0.0 { 0.0 } else { value }
            )
        }
    }
}

fn thousands(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(size, _)| value >= *size) {
        _ if value >= 1e15 => format!("{value:.1e}"),
        Some((size, letter)) => format!("{}{letter}", value / size),
        None => format!("{value}"),
    }
}

/// Returns a position for a table: `2026-11-22`, or `12`.
pub(super) fn position(axis: CurveAxis, at: u64) -> String {
    match axis {
        CurveAxis::Days => day(at, "%Y-%m-%d"),
        CurveAxis::Steps => at.to_string(),
    }
}

/// Returns a position for a sentence: `2026-11-22`, or `step 12`.
pub(super) fn position_named(axis: CurveAxis, at: u64) -> String {
    let position = position(axis, at);
    match axis {
        CurveAxis::Days => position,
        CurveAxis::Steps => format!("step {position}"),
    }
}

pub(super) fn day_label(at_ms: u64) -> String {
    day(at_ms, "%-d %b")
}

fn day(at_ms: u64, form: &str) -> String {
    let at_ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::MAX);
    at.to_zoned(TimeZone::UTC).strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_are_read() {
        let plain =
            [0.0, 1.234_5, 12.345, -0.05, 1e-9, 1e300].map(|it| value(CurveUnit::Plain, it));
        assert_eq!(
            plain,
            ["0", "1.23", "12.3", "-0.0500", "1.00e-9", "1.00e300"]
        );
        let tokens = [0.0, 999.0, 1_234_567.0, 1e18].map(|it| value(CurveUnit::Tokens, it));
        assert_eq!(tokens, ["0", "999", "1,234,567", "1.00e18"]);
        assert_eq!(value(CurveUnit::Share, 0.756), "76 %");
        assert_eq!(value(CurveUnit::Amount, 3.636), "3.64");
        assert_eq!(value(CurveUnit::Plain, f64::NAN), "not a number");
        assert_eq!(
            [0.0, 1_500.0, 2e6, 1e16].map(thousands),
            ["0", "1.5k", "2M", "1.0e16"]
        );
    }

    #[test]
    fn a_position_is_a_date_or_a_step() {
        assert_eq!(position(CurveAxis::Days, 1_795_348_800_000), "2026-11-22");
        assert_eq!(day_label(1_795_348_800_000), "22 Nov");
        assert_eq!(position(CurveAxis::Steps, 12), "12");
        assert_eq!(position(CurveAxis::Days, u64::MAX), "9999-12-30");
    }

    #[test]
    fn an_identifier_has_no_character_with_a_meaning() {
        assert_eq!(identifier("a b\"><svg onload=x>"), "a-b---svg-onload-x-");
    }
}
