//! The price of a wish: what is required of replies, by how much of the wish the adapter keeps.
//!
//! A reply that does what is wished may be less relevant than a plain one, as the base model's own reply is when it is told
//! the wish. Such a loss has to be paid for. An adapter that keeps nothing of the wish must be as good as the base model; one
//! that keeps all of it, nearly as good as the reference; between them the requirement is on the straight line.

use std::fmt::Write as _;

use super::{
    obedience::Obedience,
    reference::ReplyFigures,
    report::{Bound, GateLimit, GateTest},
};

/// One-sided 95 %: how far the mean of a set of questions may lie from what the base model would come to on other draws.
const NOISE: f64 = 1.645;
/// Baseline that are read back from a file may be a rounding off.
const ROUNDING: f64 = 1e-6;
/// The surprise that passes beside the reference's own, so many times.
const MAX_FLUENCY: f64 = 1.6;

/// What is required of one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RequirementLine {
    name: &'static str,
    unit: &'static str,
    bound: Bound,
    /// The plain base model's figure, and what is required where nothing of the wish is kept.
    base: (f64, f64),
    /// The reference's figure, and what is required where all of it is kept.
    reference: (f64, f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RequirementLines {
    pub(super) relevance: RequirementLine,
    pub(super) fluency: RequirementLine,
}

// === impl RequirementLine ===

impl RequirementLine {
    /// What is required at this share of the wish, from 0 to 1.
    pub(super) fn at(&self, share: f64) -> f64 {
        let share = share.clamp(0.0, 1.0);
        self.base.1 * (1.0 - share) + self.reference.1 * share
    }

    /// What is required at the end of the line that asks more, and at the other one.
    fn ends(&self) -> (f64, f64) {
        let (base, reference) = (self.base.1, self.reference.1);
        let (low, high) = (base.min(reference), base.max(reference));
        match self.bound {
            Bound::AtLeast => (high, low),
            Bound::AtMost => (low, high),
        }
    }

    /// Whether a value passes, however much of the wish is kept.
    fn always_passes(&self, value: f64) -> bool {
        self.bound.holds(value, self.ends().0)
    }

    /// Whether a value passes at some share of the wish.
    fn may_pass(&self, value: f64) -> bool {
        self.bound.holds(value, self.ends().1)
    }

    /// The test of a value; `kept` is none where it decides nothing.
    pub(super) fn test(&self, value: f64, kept: Option<&Obedience>) -> GateTest {
        let (limit, why) = match kept {
            Some(kept) => (self.at(kept.share), kept.why.as_str()),
            None if self.always_passes(value) => (self.ends().0, "the more of both is asked"),
            None => (self.ends().1, "the less of both is asked"),
        };
        let mut test = GateTest::of(
            self.name,
            value,
            GateLimit {
                bound: self.bound,
                value: limit,
            },
            self.unit,
        );
        let (base, reference) = (self.base, self.reference);
        // A text takes whatever is written to it.
        let _ = write!(
            test.why,
            " (between {:.2}, for nothing of the wish, where the base model has {:.2}, and {:.2}, for all of it, where the reference has {:.2}: {why})",
            base.1, base.0, reference.1, reference.0
        );
        test
    }
}

// === impl RequirementLines ===

impl RequirementLines {
    /// Between the plain base model and the reference, of whose relevance this share is enough.
    pub(super) fn between(plain: ReplyFigures, reference: ReplyFigures, share: f64) -> Self {
        // Of a reference that is not relevant a share says nothing.
        let relevant = if reference.relevance > 0.0 {
            reference.relevance * share
        } else {
            reference.relevance
        };
        Self {
            relevance: RequirementLine {
                name: "relevance",
                unit: "nat a token",
                bound: Bound::AtLeast,
                base: (
                    plain.relevance,
                    plain.relevance - noise(plain.relevance_error),
                ),
                reference: (reference.relevance, relevant),
            },
            fluency: RequirementLine {
                name: "fluency",
                unit: "nat a token of surprise",
                bound: Bound::AtMost,
                base: (plain.surprise, plain.surprise + noise(plain.surprise_error)),
                reference: (reference.surprise, reference.surprise * MAX_FLUENCY),
            },
        }
    }

    /// Whether replies pass both, however much of the wish they keep.
    pub(super) fn always_pass(&self, own: ReplyFigures) -> bool {
        self.relevance.always_passes(own.relevance) && self.fluency.always_passes(own.surprise)
    }

    /// Whether it depends on how much of the wish they keep.
    pub(super) fn depend_on_obedience(&self, own: ReplyFigures) -> bool {
        let may_pass =
            self.relevance.may_pass(own.relevance) && self.fluency.may_pass(own.surprise);
        may_pass && !self.always_pass(own)
    }
}

/// By how much a mean may differ that is as good.
fn noise(standard_error: f64) -> f64 {
    (NOISE * standard_error).max(ROUNDING)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Replies with these means, each with its error.
    fn replies(relevance: [f64; 2], surprise: [f64; 2]) -> ReplyFigures {
        ReplyFigures {
            relevance: relevance[0],
            relevance_error: relevance[1],
            surprise: surprise[0],
            surprise_error: surprise[1],
            ..ReplyFigures::default()
        }
    }

    /// As an owner had it who wished for "Hello!": an adapter of which no reply obeyed.
    fn hello() -> (RequirementLines, ReplyFigures) {
        let plain = replies([1.5, 0.17], [1.1, 0.06]);
        let reference = replies([0.63, 0.15], [1.3, 0.1]);
        let own = replies([0.87, 0.15], [1.15, 0.06]);
        (RequirementLines::between(plain, reference, 0.8), own)
    }

    fn kept(share: f64) -> Obedience {
        Obedience {
            share,
            why: format!("it keeps {share:.2}"),
        }
    }

    #[test]
    fn a_loss_that_bought_nothing_is_declined() {
        let (lines, own) = hello();
        assert!(lines.depend_on_obedience(own));
        let test = lines.relevance.test(own.relevance, Some(&kept(0.0)));
        let why = "relevance 0.87 nat a token, at least 1.22 (between 1.22, for nothing of the wish, where the base model has 1.50, and 0.50, for all of it, where the reference has 0.63: it keeps 0.00)";
        assert_eq!((test.passed, test.why.as_str()), (Some(false), why));
        assert_eq!(test.limit.map(|it| (it * 1e3).round()), Some(1220.0));
    }

    #[test]
    fn a_loss_that_bought_the_wish_passes() {
        let (lines, own) = hello();
        let test = |relevance, share| lines.relevance.test(relevance, Some(&kept(share))).passed;
        assert_eq!(test(own.relevance, 1.0), Some(true));
        assert_eq!(test(0.505, 1.0), Some(true), "0.8 of the reference's");
        assert_eq!(test(0.5, 1.0), Some(false));
        assert_eq!(test(own.relevance, 0.5), Some(true), "0.86 is asked");
        assert_eq!(test(own.relevance, 0.45), Some(false));
        assert_eq!(test(f64::NAN, 1.0), Some(false));
    }

    #[test]
    fn what_says_what_the_base_says_needs_to_keep_nothing() {
        let (lines, _) = hello();
        let own = replies([1.5, 0.1], [1.1, 0.1]);
        assert!(lines.always_pass(own) && !lines.depend_on_obedience(own));
        let noisy = replies([1.25, 0.1], [1.15, 0.1]);
        assert!(lines.always_pass(noisy), "sixteen replies waver");
        let test = lines.relevance.test(1.5, None);
        assert_eq!(test.passed, Some(true));
        assert!(
            test.why.contains("at least 1.22 (")
                && test.why.ends_with("the more of both is asked)"),
            "{}",
            test.why
        );
    }

    #[test]
    fn surprise_has_its_price_as_well() {
        let plain = replies([1.0, 0.1], [1.0, 0.1]);
        let reference = replies([1.0, 0.1], [1.5, 0.1]);
        let lines = RequirementLines::between(plain, reference, 0.8);
        let test = |share| lines.fluency.test(1.7, Some(&kept(share))).passed;
        assert_eq!((test(0.0), test(0.5)), (Some(false), Some(true)));
        assert!(lines.depend_on_obedience(replies([1.0, 0.1], [1.7, 0.1])));
        assert!(
            !lines.depend_on_obedience(replies([1.0, 0.1], [2.5, 0.1])),
            "too much for any"
        );
        let test = lines.fluency.test(2.5, None);
        assert!(
            test.passed == Some(false) && test.why.contains("at most 2.40 ("),
            "{}",
            test.why
        );
    }

    proptest! {
        /// The limit lies between the limits of both ends. As more of the wish is kept, it moves in one direction only.
        #[test]
        fn what_is_asked_is_on_the_line(
            plain in (-1.0..3.0, 0.0..0.5, 0.1..4.0, 0.0..0.5),
            reference in (-1.0..3.0, 0.1..4.0),
            share in 0.0..=1.0,
            more in 0.0..=1.0,
            least in 0.0..=1.0,
        ) {
            let base = replies([plain.0, plain.1], [plain.2, plain.3]);
            let told = replies([reference.0, 0.1], [reference.1, 0.1]);
            let lines = RequirementLines::between(base, told, least);
            for line in [lines.relevance, lines.fluency] {
                let (none, all) = (line.at(0.0), line.at(1.0));
                let (low, high) = (none.min(all) - 1e-9, none.max(all) + 1e-9);
                let (here, there) = (line.at(f64::min(share, more)), line.at(f64::max(share, more)));
                prop_assert!(low <= here && here <= high);
                // In the direction from one end to the other.
                prop_assert!((there - here) * (all - none) >= -1e-9);
                // What passes at every share passes at both, and what may pass at none fails at both.
                for value in [plain.0, plain.2, reference.0, reference.1] {
                    let passes = |share: f64| line.bound.holds(value, line.at(share));
                    prop_assert!(!line.always_passes(value) || (passes(0.0) && passes(1.0)));
                    prop_assert!(line.may_pass(value) || !(passes(0.0) || passes(1.0)));
                }
            }
        }
    }
}
