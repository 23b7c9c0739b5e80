//! Figures over time and over training steps, as series of points that can be drawn or listed.

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

mod days;
mod steps;

pub(crate) use self::{days::by_day, steps::by_step};

const MOST_POINTS: usize = 500;
/// The 0.975 quantile of the standard normal distribution.
const Z: f64 = 1.96;

/// Asks for the curves of some days, and of all training steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CurvesWanted {
    /// The agent, or none for all agents together. Curves of steps then have a line for each agent.
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// How many days, today included. At most [`MAX_DAYS`](Self::MAX_DAYS) are given.
    pub days: u32,
}

/// One figure over time or over steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// A name for addresses and identifiers, of small letters and `_`: `pass_rate`.
    pub id: String,
    /// The figure, in a few words.
    pub title: String,
    /// What is measured, in a sentence or two.
    pub about: String,
    /// What to say while there is no point.
    pub empty: String,
    pub unit: CurveUnit,
    pub axis: CurveAxis,
    pub lines: Vec<CurveLine>,
}

/// A line of a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurveLine {
    /// An agent's name, a figure's, or both.
    pub name: String,
    /// In the order of their position, or of time where several have the same.
    pub points: Vec<CurvePoint>,
}

/// A measured value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The position: the beginning of a day in Unix milliseconds, or a number of optimiser steps.
    pub at: u64,
    /// The value in the curve's unit, always finite.
    pub value: f64,
    /// The 95 % interval of the value, if one can be computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<ValueInterval>,
    /// The number of turns or tokens that the value was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// What the gate demanded of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

/// The unit of a curve's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveUnit {
    /// A part of a whole, from 0 to 1.
    Share,
    /// A mean score, from -1 to 1.
    Score,
    /// Natural units of information.
    Nat,
    Tokens,
    /// A number without a unit.
    Plain,
}

/// What the points of a curve are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveAxis {
    /// Days of UTC.
    Days,
    /// Optimiser steps in an agent's weights.
    Steps,
}

// === impl CurvesWanted ===

impl CurvesWanted {
    /// The most days of a curve.
    pub const MAX_DAYS: u32 = 366;

    fn has(&self, agent: &AgentId) -> bool {
        self.agent.as_ref().is_none_or(|wanted| wanted == agent)
    }
}

// === impl Curve ===

impl Curve {
    /// Returns whether there is no point to draw.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }
}

// === impl CurveLine ===

impl CurveLine {
    fn new(name: String, mut points: Vec<CurvePoint>) -> Self {
        points.drain(..points.len().saturating_sub(MOST_POINTS));
        Self { name, points }
    }
}

/// The range in which a value lies with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ValueInterval {
    pub low: f64,
    pub high: f64,
}

// === impl ValueInterval ===

impl ValueInterval {
    /// Returns the interval of a mean of `n` values by the normal approximation. `std` is their standard deviation.
    /// `None` for fewer than two values.
    fn of_mean(mean: f64, std: f64, n: f64) -> Option<Self> {
        let half = Z * std / (n - 1.0).sqrt();
        (n >= 2.0 && half.is_finite()).then_some(Self {
            low: mean - half,
            high: mean + half,
        })
    }
}

/// Returns Wilson's interval of the share that `n` is of `of`. If `of` is 0, every share is possible.
pub fn wilson(n: u64, of: u64) -> ValueInterval {
    if of == 0 {
        let (low, high) = (0.0, 1.0);
        return ValueInterval { low, high };
    }
    let of = of as f64;
    let share = n as f64 / of;
    let middle = share + Z * Z / (2.0 * of);
    let half = Z * (share * (1.0 - share) / of + Z * Z / (4.0 * of * of)).sqrt();
    let scale = 1.0 + Z * Z / of;
    ValueInterval {
        low: ((middle - half) / scale).max(0.0),
        high: ((middle + half) / scale).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_nothing_of_none_and_of_all_stay_within_0_and_1() {
        let rounded = |n, of| {
            let ValueInterval { low, high } = wilson(n, of);
            format!("{low:.3} {high:.3}")
        };
        assert_eq!(rounded(0, 0), "0.000 1.000");
        assert_eq!(rounded(51, 60), "0.739 0.919");
        assert_eq!(rounded(0, 60), "0.000 0.060");
        assert_eq!(rounded(60, 60), "0.940 1.000");
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(ValueInterval::of_mean(0.5, 0.0, 1.0), None);
        assert_eq!(ValueInterval::of_mean(0.5, f64::NAN, 9.0), None);
        let four = ValueInterval::of_mean(0.0, 1.0, 5.0).unwrap();
        assert!((four.high - 0.98).abs() < 1e-9 && (four.low + 0.98).abs() < 1e-9);
    }
}
