//! What replies are like, held against what the reference's are like.

use super::{
    reference::Replies,
    report::{Bound, GateTest},
};
use crate::config::GateConfig;

/// Of the plain base model's relevance. A reply of one sentence is more relevant, token by token, than one at length (1.5 to 0.8
/// nat where it was measured): an adapter that says what the base says is not to fail because the wish makes the
/// reference dense.
const MIN_OF_PLAIN: f64 = 0.75;
/// The reference's own surprise, so many times.
const MAX_FLUENCY: f64 = 1.6;
/// The share of replies under 3 words, unless the reference has more: the wish may be one word.
const MAX_SHORT: f64 = 0.02;
/// Of the reference's distinct 4-grams.
const MIN_DISTINCT: f64 = 0.8;
/// How many times longer, or shorter, the median reply may be.
const LENGTH: f64 = 2.5;

/// What replies are like against what the reference's, and the plain base's, are like.
pub(super) fn compare(
    own: Replies,
    (reference, plain): (Replies, Replies),
    config: &GateConfig,
) -> Vec<GateTest> {
    let shortest = reference.words.min(plain.words) / LENGTH;
    let longest = reference.words.max(plain.words) * LENGTH;
    // On one side or the other, whichever is nearer.
    let length = if own.words < shortest {
        (Bound::AtLeast, shortest)
    } else {
        (Bound::AtMost, longest)
    };
    let short = reference.short.max(MAX_SHORT);
    let distinct = reference.distinct * MIN_DISTINCT;
    vec![
        relevant(own, (reference, plain), config.min_relevance),
        ratio_test("fluency", own.surprise, reference.surprise),
        GateTest::of(
            "short",
            own.short,
            (Bound::AtMost, short),
            "of the replies have under 3 words",
        ),
        GateTest::of(
            "distinct",
            own.distinct,
            (Bound::AtLeast, distinct),
            "of the 4-grams are distinct",
        ),
        GateTest::of("length", own.words, length, "words at the median"),
    ]
}

fn relevant(own: Replies, (reference, plain): (Replies, Replies), share: f64) -> GateTest {
    let name = "relevance";
    let limit = (reference.relevance * share).min(plain.relevance * MIN_OF_PLAIN);
    if reference.relevance > 0.0 {
        let of = |value: f64| value / reference.relevance;
        let limit = (Bound::AtLeast, of(limit));
        return GateTest::of(name, of(own.relevance), limit, "of the reference's");
    }
    // Of a reference that is none a share says nothing.
    let limit = (Bound::AtLeast, reference.relevance.min(plain.relevance));
    GateTest::of(name, own.relevance, limit, "nat a token")
}

/// The surprise that passes beside this reference.
pub(super) fn most_surprise(reference: Replies) -> f64 {
    MAX_FLUENCY * reference.surprise.max(f64::EPSILON)
}

fn ratio_test(name: &str, own: f64, reference: f64) -> GateTest {
    // A model that is certain of everything it says has no surprise to compare with.
    let ratio = own / reference.max(f64::EPSILON);
    let unit = "times the reference's surprise";
    GateTest::of(name, ratio, (Bound::AtMost, MAX_FLUENCY), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: Replies = Replies {
        relevance: 1.48,
        surprise: 1.0,
        short: 0.0,
        distinct: 0.9,
        words: 19.0,
    };
    const PLAIN: Replies = Replies {
        relevance: 0.8,
        words: 47.0,
        ..REFERENCE
    };

    fn failed(own: Replies) -> Vec<String> {
        let config = GateConfig::default();
        let tests = compare(own, (REFERENCE, PLAIN), &config);
        let failed = tests.into_iter().filter(|test| test.passed == Some(false));
        failed.map(|test| test.why).collect()
    }

    #[test]
    fn what_the_base_says_with_the_wish_or_without_passes() {
        assert_eq!(failed(REFERENCE), Vec::<String>::new());
        assert_eq!(failed(PLAIN), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_ruin_fails_its_own_test() {
        let ruins = [
            (
                Replies {
                    relevance: 0.1,
                    ..REFERENCE
                },
                "relevance 0.07 of the reference's, at least 0.41",
            ),
            (
                Replies {
                    surprise: 1.7,
                    ..REFERENCE
                },
                "fluency 1.70 times the reference's surprise, at most 1.60",
            ),
            (
                Replies {
                    short: 1.0 / 16.0,
                    ..REFERENCE
                },
                "short 0.06 of the replies have under 3 words, at most 0.02",
            ),
            (
                Replies {
                    distinct: 0.6,
                    ..REFERENCE
                },
                "distinct 0.60 of the 4-grams are distinct, at least 0.72",
            ),
            (
                Replies {
                    words: 6.0,
                    ..REFERENCE
                },
                "length 6.00 words at the median, at least 7.60",
            ),
            (
                Replies {
                    words: 130.0,
                    ..REFERENCE
                },
                "length 130.00 words at the median, at most 117.50",
            ),
        ];
        for (own, why) in ruins {
            assert_eq!(failed(own), [why]);
        }
        let no_number = Replies {
            relevance: f64::NAN,
            ..REFERENCE
        };
        assert_eq!(failed(no_number).len(), 1);
    }

    #[test]
    fn a_wish_for_one_word_may_have_it() {
        let one_word = Replies {
            short: 0.9,
            words: 1.0,
            distinct: 1.0,
            ..REFERENCE
        };
        let config = GateConfig::default();
        let tests = compare(one_word, (one_word, PLAIN), &config);
        assert!(
            tests.iter().all(|test| test.passed == Some(true)),
            "{tests:?}"
        );
    }

    #[test]
    fn where_the_reference_says_nothing_relevant_no_less_is_asked() {
        let none = Replies {
            relevance: -0.1,
            ..REFERENCE
        };
        let config = GateConfig::default();
        let of = |relevance: f64| {
            compare(Replies { relevance, ..none }, (none, PLAIN), &config)
                .remove(0)
                .passed
        };
        assert_eq!((of(-0.2), of(-0.1)), (Some(false), Some(true)));
    }
}
