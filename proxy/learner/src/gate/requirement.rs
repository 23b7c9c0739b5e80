//! What is required of the replies of an adapter.
//!
//! A wish has a price. A reply that does what is wished may be less relevant than a plain one, as the base model's own reply
//! is when it is told the wish. Such a loss has to be paid for: an adapter that keeps nothing of the wish must be as good as
//! the base model; one that keeps all of it, nearly as good as the reference; between them the requirement is on the
//! straight line. How much it keeps is measured on a scale from the base model without the wishes (0) to the reference (1).

use std::fmt::Write as _;

use super::{
    replies::ReplyFigures,
    report::{
        Bound::{self, AtLeast, AtMost},
        GateTest,
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// By the share of the replies that rules or the judge rate as good.
    Judged,
    /// By how much more probable the base model finds the replies with the wishes in its prompt than without, in nats
    /// per token.
    Likelihood,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OnScale {
    pub(super) own: f64,
    pub(super) plain: f64,
    pub(super) reference: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Obedience {
    pub(super) share: f64,
    pub(super) why: String,
}

// === impl Scale ===

impl Scale {
    /// Returns the least distance between reference and plain base model at which the scale can be used: four of
    /// sixteen replies, or twice the standard error of sixteen replies.
    fn least_span(self) -> f64 {
        match self {
            Self::Judged => 0.25,
            Self::Likelihood => 0.05,
        }
    }

    /// Returns the share, or `None` if the scale does not separate the reference from the plain base model.
    pub(super) fn read(self, of: OnScale) -> Option<Obedience> {
        let span = of.reference - of.plain;
        // A NaN gives no result either.
        if !(span >= self.least_span() && of.own.is_finite()) {
            return None;
        }
        let share = ((of.own - of.plain) / span).clamp(0.0, 1.0);
        let OnScale {
            own,
            plain,
            reference,
        } = of;
        let how = match self {
            Self::Judged => format!(
                "{own:.2} of its replies do what is wished, of the base model's {plain:.2}, of the reference's {reference:.2}"
            ),
            Self::Likelihood => format!(
                "told the wish the base model finds its replies likelier by {own:.2} nat a token, its own by {plain:.2}, the reference's by {reference:.2}"
            ),
        };
        Some(Obedience {
            share,
            why: format!("it keeps {share:.2} of the wish: {how}"),
        })
    }
}

// === impl Obedience ===

impl Obedience {
    /// Returns no obedience, because there is no wish, or none that changes the base model's replies, so that nothing
    /// could outweigh a loss.
    pub(super) fn none(why: &str) -> Self {
        Self {
            share: 0.0,
            why: why.to_owned(),
        }
    }
}

/// One-sided 95 %: how far the mean of a set of questions may lie from what the base model would come to on other draws.
const NOISE: f64 = 1.645;
/// Baseline that are read back from a file may be a rounding off.
const ROUNDING: f64 = 1e-6;
/// The surprise that passes beside the reference's own, so many times.
const MAX_FLUENCY: f64 = 1.6;

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
    pub(super) fn at(&self, share: f64) -> f64 {
        let share = share.clamp(0.0, 1.0);
        self.base.1 * (1.0 - share) + self.reference.1 * share
    }

    fn ends(&self) -> (f64, f64) {
        let (base, reference) = (self.base.1, self.reference.1);
        let (low, high) = (base.min(reference), base.max(reference));
        match self.bound {
            AtLeast => (high, low),
            AtMost => (low, high),
        }
    }

    fn always_passes(&self, value: f64) -> bool {
        self.bound.holds(value, self.ends().0)
    }

    fn may_pass(&self, value: f64) -> bool {
        self.bound.holds(value, self.ends().1)
    }

    pub(super) fn test(&self, value: f64, kept: Option<&Obedience>) -> GateTest {
        let (limit, why) = match kept {
            Some(kept) => (self.at(kept.share), kept.why.as_str()),
            None if self.always_passes(value) => (self.ends().0, "the more of both is asked"),
            None => (self.ends().1, "the less of both is asked"),
        };
        let mut test = GateTest::measured(self.name, value, self.bound, limit, self.unit);
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
                bound: AtLeast,
                base: (
                    plain.relevance,
                    plain.relevance - noise(plain.relevance_error),
                ),
                reference: (reference.relevance, relevant),
            },
            fluency: RequirementLine {
                name: "fluency",
                unit: "nat a token of surprise",
                bound: AtMost,
                base: (plain.surprise, plain.surprise + noise(plain.surprise_error)),
                reference: (reference.surprise, reference.surprise * MAX_FLUENCY),
            },
        }
    }

    pub(super) fn always_pass(&self, own: ReplyFigures) -> bool {
        self.relevance.always_passes(own.relevance) && self.fluency.always_passes(own.surprise)
    }

    pub(super) fn depend_on_obedience(&self, own: ReplyFigures) -> bool {
        let may_pass =
            self.relevance.may_pass(own.relevance) && self.fluency.may_pass(own.surprise);
        may_pass && !self.always_pass(own)
    }
}

fn noise(standard_error: f64) -> f64 {
    (NOISE * standard_error).max(ROUNDING)
}

/// The share of replies under 3 words, unless the reference has more: the wish may be one word.
const MAX_SHORT: f64 = 0.02;
/// Of the reference's distinct 4-grams.
const MIN_DISTINCT: f64 = 0.8;
/// How many times longer, or shorter, the median reply may be.
const LENGTH: f64 = 2.5;
/// The share of replies that ask back where neither base model nor reference does: one of sixteen, which chance may bring.
const MAX_ASKING: f64 = 1.0 / 16.0;

/// What replies are like against what the reference's, and the plain base's, are like. `kept` says how much of the wish they
/// keep; none where that decides nothing.
pub(super) fn compare(
    own: ReplyFigures,
    reference: ReplyFigures,
    plain: ReplyFigures,
    lines: RequirementLines,
    kept: Option<&Obedience>,
) -> Vec<GateTest> {
    let shortest = reference.words.min(plain.words) / LENGTH;
    let longest = reference.words.max(plain.words) * LENGTH;
    // On one side or the other, whichever is nearer.
    let (bound, length) = if own.words < shortest {
        (AtLeast, shortest)
    } else {
        (AtMost, longest)
    };
    let short = reference.short.max(MAX_SHORT);
    let distinct = reference.distinct * MIN_DISTINCT;
    let asking = reference.asking.max(plain.asking) + MAX_ASKING;
    let calling = reference.calling.max(plain.calling);
    let few_words = "of the replies have under 3 words";
    let questions = "of the replies ask back in place of an answer";
    let calls = "of the replies call a tool where none was offered";
    let of_grams = "of the 4-grams are distinct";
    vec![
        lines.relevance.test(own.relevance, kept),
        lines.fluency.test(own.surprise, kept),
        GateTest::measured("short", own.short, AtMost, short, few_words),
        GateTest::measured("distinct", own.distinct, AtLeast, distinct, of_grams),
        GateTest::measured("length", own.words, bound, length, "words at the median"),
        GateTest::measured("questions", own.asking, AtMost, asking, questions),
        GateTest::measured("calls", own.calling, AtMost, calling, calls),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(scale: Scale, own: f64, plain: f64, reference: f64) -> Option<f64> {
        Some(
            scale
                .read(OnScale {
                    own,
                    plain,
                    reference,
                })?
                .share,
        )
    }

    #[test]
    fn a_share_is_the_place_between_base_and_reference() {
        let by_judge = |own, plain, reference| share(Scale::Judged, own, plain, reference);
        assert_eq!(by_judge(0.0, 0.0, 0.75), Some(0.0));
        assert_eq!(by_judge(0.375, 0.0, 0.75), Some(0.5));
        assert_eq!(
            by_judge(1.0, 0.0, 0.75),
            Some(1.0),
            "more than the reference"
        );
        assert_eq!(by_judge(0.0, 0.25, 0.75), Some(0.0), "less than the base");
        let by_likelihood = |own, plain, reference| share(Scale::Likelihood, own, plain, reference);
        assert_eq!(by_likelihood(0.125, -0.25, 0.5), Some(0.5));
    }

    #[test]
    fn what_does_not_tell_them_apart_tells_nothing() {
        assert_eq!(share(Scale::Judged, 1.0, 0.75, 0.875), None);
        assert_eq!(share(Scale::Likelihood, 1.0, 0.0, 0.01), None);
        assert_eq!(share(Scale::Likelihood, 1.0, 0.5, -0.5), None);
        assert_eq!(share(Scale::Likelihood, f64::NAN, 0.0, 1.0), None);
        assert_eq!(share(Scale::Likelihood, 1.0, f64::NAN, 1.0), None);
    }

    #[test]
    fn it_says_how_much_and_how_that_is_known() {
        let judged = Scale::Judged.read(OnScale {
            own: 0.375,
            plain: 0.0,
            reference: 0.75,
        });
        let why = "it keeps 0.50 of the wish: 0.38 of its replies do what is wished, of the base model's 0.00, of the reference's 0.75";
        assert_eq!(judged.unwrap().why, why);
    }

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
        assert_eq!(test.limit.map(|limit| (limit * 1e3).round()), Some(1220.0));
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
        let is_so = !lines.depend_on_obedience(replies([1.0, 0.1], [2.5, 0.1]));
        assert!(is_so, "too much for any");
        let test = lines.fluency.test(2.5, None);
        let is_so = test.passed == Some(false) && test.why.contains("at most 2.40 (");
        assert!(is_so, "{}", test.why);
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

    const REFERENCE: ReplyFigures = ReplyFigures {
        relevance: 1.48,
        relevance_error: 0.1,
        surprise: 1.0,
        surprise_error: 0.1,
        gain: Some(0.5),
        asking: 0.0,
        calling: 0.0,
        short: 0.0,
        distinct: 0.9,
        words: 19.0,
    };
    const PLAIN: ReplyFigures = ReplyFigures {
        relevance: 0.8,
        words: 47.0,
        ..REFERENCE
    };

    fn tests(
        own: ReplyFigures,
        reference: ReplyFigures,
        plain: ReplyFigures,
        share: f64,
    ) -> Vec<GateTest> {
        let lines = RequirementLines::between(plain, reference, 0.8);
        let kept = Obedience {
            share,
            why: "so it is".to_owned(),
        };
        compare(own, reference, plain, lines, Some(&kept))
    }

    fn failed(own: ReplyFigures, share: f64) -> Vec<String> {
        let tests = tests(own, REFERENCE, PLAIN, share);
        let failed = tests.into_iter().filter(|test| test.passed == Some(false));
        failed.map(|test| test.why).collect()
    }

    #[test]
    fn what_the_base_says_with_the_wish_or_without_passes() {
        assert_eq!(failed(REFERENCE, 1.0), Vec::<String>::new());
        assert_eq!(failed(PLAIN, 0.0), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_ruin_fails_its_own_test() {
        type Ruin = fn(&mut ReplyFigures);
        let ruins: [(Ruin, &str); 8] = [
            (
                |own| own.relevance = 0.1,
                "relevance 0.10 nat a token, at least 1.18 (",
            ),
            (
                |own| own.surprise = 1.7,
                "fluency 1.70 nat a token of surprise, at most 1.60 (",
            ),
            (
                |own| own.short = 0.0625,
                "short 0.06 of the replies have under 3 words, at most 0.02",
            ),
            (
                |own| own.distinct = 0.6,
                "distinct 0.60 of the 4-grams are distinct, at least 0.72",
            ),
            (
                |own| own.words = 6.0,
                "length 6.00 words at the median, at least 7.60",
            ),
            (
                |own| own.words = 130.0,
                "length 130.00 words at the median, at most 117.50",
            ),
            (
                |own| own.asking = 0.125,
                "questions 0.12 of the replies ask back in place of an answer, at most 0.06",
            ),
            (
                |own| own.calling = 0.0625,
                "calls 0.06 of the replies call a tool where none was offered, at most 0.00",
            ),
        ];
        for (ruin, why) in ruins {
            let mut own = REFERENCE;
            ruin(&mut own);
            let failed = failed(own, 1.0);
            let is_alone = failed.len() == 1 && failed[0].starts_with(why);
            assert!(is_alone, "{failed:?}");
        }
        let no_number = ReplyFigures {
            relevance: f64::NAN,
            ..REFERENCE
        };
        assert_eq!(failed(no_number, 1.0).len(), 1);
    }

    #[test]
    fn a_wish_for_one_word_or_for_questions_may_have_them() {
        let one_word = ReplyFigures {
            short: 0.9,
            words: 1.0,
            distinct: 1.0,
            ..REFERENCE
        };
        let asks = ReplyFigures {
            asking: 0.5,
            ..REFERENCE
        };
        for figures in [one_word, asks] {
            let tests = tests(figures, figures, PLAIN, 1.0);
            let all_pass = tests.iter().all(|test| test.passed == Some(true));
            assert!(all_pass, "{tests:?}");
        }
    }

    #[test]
    fn where_the_reference_says_nothing_relevant_no_less_is_asked() {
        let none = ReplyFigures {
            relevance: -0.1,
            ..REFERENCE
        };
        let of = |relevance: f64| {
            let own = ReplyFigures { relevance, ..none };
            tests(own, none, PLAIN, 1.0).remove(0).passed
        };
        assert_eq!((of(-0.2), of(-0.1)), (Some(false), Some(true)));
    }
}
