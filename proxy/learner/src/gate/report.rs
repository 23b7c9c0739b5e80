//! What the tests of one adapter came to.

use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};

/// What the gate found of one adapter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// Each test, in the order they were made. After the first kind that fails no further kind is tried.
    pub tests: Vec<GateTest>,
    pub seconds: f64,
    /// The ids of the standing wishes that it does without being told; found where it passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<String>,
    /// The ids of the standing wishes at that time; none in reports of before, and where nothing was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wishes: Option<Vec<String>>,
    /// What a person sees of it; none in reports of before, and where it could not be drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<ReplyPair>,
}

/// The replies to one of the gate's questions without and with an adapter, with the same seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyPair {
    pub question: String,
    pub before: String,
    pub after: String,
}

/// One test of one adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateTest {
    /// `answers`, `relevance`, `fluency`, `short`, `distinct`, `length`, `questions`, `calls`, `capability`, `margin`, `tools`,
    /// `broken_calls`, `preference` or `tasks`; or `replies`, where that was skipped as a whole.
    pub name: String,
    /// What was measured; none where the test was skipped.
    pub value: Option<f64>,
    /// What it is held against.
    pub limit: Option<f64>,
    /// Whether that is within the limit; none where the test was skipped.
    pub passed: Option<bool>,
    /// The same in words, with units; of a skipped test, why.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    AtLeast,
    AtMost,
}

// === impl Bound ===

impl Bound {
    /// Whether a value is good. What is no number never is.
    pub(super) fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
        }
    }
}

// === impl GateReport ===

impl GateReport {
    pub(crate) fn unfit(why: String) -> Self {
        let test = GateTest {
            name: "answers".to_owned(),
            value: None,
            limit: None,
            passed: Some(false),
            why,
        };
        Self {
            tests: vec![test],
            ..Self::default()
        }
    }

    /// Whether no test failed.
    pub fn passed(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The tests that failed.
    pub fn failed(&self) -> impl Iterator<Item = &GateTest> {
        self.tests.iter().filter(|test| test.passed == Some(false))
    }

    /// What failed, in words: `relevance 0.31 of the reference's, at least 0.50`.
    pub fn why(&self) -> String {
        let failed: Vec<&str> = self.failed().map(|test| test.why.as_str()).collect();
        failed.join("; ")
    }
}

// === impl GateTest ===

impl GateTest {
    pub(super) fn measured(name: &str, value: f64, bound: Bound, limit: f64, unit: &str) -> Self {
        let side = match bound {
            Bound::AtLeast => "at least",
            Bound::AtMost => "at most",
        };
        let gap = if unit.is_empty() { "" } else { " " };
        Self {
            name: name.to_owned(),
            value: Some(value),
            limit: Some(limit),
            passed: Some(bound.holds(value, limit)),
            why: format!("{name} {value:.2}{gap}{unit}, {side} {limit:.2}"),
        }
    }

    pub(super) fn not_made(name: &str, error: &BackendError) -> Self {
        Self::skipped(name, &format!("it could not be made: {error}"))
    }

    pub(super) fn skipped(name: &str, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: None,
            limit: None,
            passed: None,
            why: format!("{name} skipped: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_says_its_numbers_and_a_report_what_failed() {
        let low = GateTest::measured("relevance", 0.31, Bound::AtLeast, 0.5, "of the reference's");
        assert_eq!(low.why, "relevance 0.31 of the reference's, at least 0.50");
        let high = GateTest::measured("fluency", 1.6, Bound::AtMost, 1.6, "");
        assert_eq!(high.passed, Some(true));
        // What is no number passes nothing.
        for bound in [Bound::AtLeast, Bound::AtMost] {
            let test = GateTest::measured("fluency", f64::NAN, bound, 1.0, "");
            assert_eq!(test.passed, Some(false));
        }
        let skipped = GateTest::skipped("preference", "no pairs yet");
        let mut report = GateReport {
            tests: vec![high, skipped],
            seconds: 1.0,
            ..GateReport::default()
        };
        assert!(report.passed());
        report.tests.push(low.clone());
        assert!(!report.passed());
        assert_eq!(report.why(), low.why);
    }
}
