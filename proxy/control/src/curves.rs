//! Figures over time and over training steps, as series of points that can be drawn or listed.

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

mod days;
mod steps;

pub use crate::shares::ValueInterval;

pub(crate) use self::{days::by_day, steps::by_step};

/// The words of curves.
const WORDS: &str = include_str!("../data/curves.tsv");
const MOST_POINTS: usize = 500;

/// Asks for the curves of some days, and of all training steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CurvesWanted {
    /// The agent, or none for all agents together. Curves of steps then have a line for each agent.
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
    /// The first and the last position of the axis, or `None` for those of the points.
    pub range: Option<(u64, u64)>,
    /// What happened on the way: the lessons of these days.
    pub marks: Vec<CurveMark>,
}

/// Something that happened at a position of a curve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurveMark {
    pub at: u64,
    /// A lesson in its own words.
    pub name: String,
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The position: the beginning of a day in Unix milliseconds, or the number of an agent's training step.
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
    /// The adapter that a step made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Whether the gate declined that adapter, so that the next step did not begin with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_declined: bool,
}

/// The unit of a curve's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveUnit {
    /// A part of a whole, from 0 to 1.
    Share,
    Tokens,
    /// A number from 0 on.
    Amount,
    /// Any number.
    Plain,
}

/// What the points of a curve are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveAxis {
    /// Days of UTC.
    Days,
    /// An agent's training steps in the order in which they were made, from 1.
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
    fn new(id: &str, unit: CurveUnit, axis: CurveAxis, lines: Vec<CurveLine>) -> Self {
        let mut rows = WORDS.lines().map(|row| row.split('\t'));
        let mut words = rows.find_map(|mut row| (row.next() == Some(id)).then_some(row));
        let mut word = || {
            words
                .as_mut()
                .and_then(Iterator::next)
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            id: id.to_owned(),
            title: word(),
            about: word(),
            empty: word(),
            unit,
            axis,
            lines,
            range: None,
            marks: Vec::new(),
        }
    }

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
