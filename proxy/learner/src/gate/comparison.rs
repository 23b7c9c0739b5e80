//! What replies are like, held against what the reference's are like.

use super::{
    line::RequirementLines,
    obedience::Obedience,
    reference::ReplyFigures,
    report::{GateLimit, GateTest},
};

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
    let length = if own.words < shortest {
        GateLimit::at_least(shortest)
    } else {
        GateLimit::at_most(longest)
    };
    let short = reference.short.max(MAX_SHORT);
    let distinct = reference.distinct * MIN_DISTINCT;
    let asking = reference.asking.max(plain.asking) + MAX_ASKING;
    let calling = reference.calling.max(plain.calling);
    vec![
        lines.relevance.test(own.relevance, kept),
        lines.fluency.test(own.surprise, kept),
        GateTest::of(
            "short",
            own.short,
            GateLimit::at_most(short),
            "of the replies have under 3 words",
        ),
        GateTest::of(
            "distinct",
            own.distinct,
            GateLimit::at_least(distinct),
            "of the 4-grams are distinct",
        ),
        GateTest::of("length", own.words, length, "words at the median"),
        GateTest::of(
            "questions",
            own.asking,
            GateLimit::at_most(asking),
            "of the replies ask back in place of an answer",
        ),
        GateTest::of(
            "calls",
            own.calling,
            GateLimit::at_most(calling),
            "of the replies call a tool where none was offered",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Each test of replies that keep this much of the wish.
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
        let ruins = [
            (
                ReplyFigures {
                    relevance: 0.1,
                    ..REFERENCE
                },
                "relevance 0.10 nat a token, at least 1.18 (",
            ),
            (
                ReplyFigures {
                    surprise: 1.7,
                    ..REFERENCE
                },
                "fluency 1.70 nat a token of surprise, at most 1.60 (",
            ),
            (
                ReplyFigures {
                    short: 1.0 / 16.0,
                    ..REFERENCE
                },
                "short 0.06 of the replies have under 3 words, at most 0.02",
            ),
            (
                ReplyFigures {
                    distinct: 0.6,
                    ..REFERENCE
                },
                "distinct 0.60 of the 4-grams are distinct, at least 0.72",
            ),
            (
                ReplyFigures {
                    words: 6.0,
                    ..REFERENCE
                },
                "length 6.00 words at the median, at least 7.60",
            ),
            (
                ReplyFigures {
                    words: 130.0,
                    ..REFERENCE
                },
                "length 130.00 words at the median, at most 117.50",
            ),
            (
                ReplyFigures {
                    asking: 0.125,
                    ..REFERENCE
                },
                "questions 0.12 of the replies ask back in place of an answer, at most 0.06",
            ),
            (
                ReplyFigures {
                    calling: 1.0 / 16.0,
                    ..REFERENCE
                },
                "calls 0.06 of the replies call a tool where none was offered, at most 0.00",
            ),
        ];
        for (own, why) in ruins {
            let failed = failed(own, 1.0);
            assert!(
                failed.len() == 1 && failed[0].starts_with(why),
                "{failed:?}"
            );
        }
        let no_number = ReplyFigures {
            relevance: f64::NAN,
            ..REFERENCE
        };
        assert_eq!(failed(no_number, 1.0).len(), 1);
    }

    #[test]
    fn a_wish_for_one_word_may_have_it() {
        let one_word = ReplyFigures {
            short: 0.9,
            words: 1.0,
            distinct: 1.0,
            ..REFERENCE
        };
        let tests = tests(one_word, one_word, PLAIN, 1.0);
        assert!(
            tests.iter().all(|test| test.passed == Some(true)),
            "{tests:?}"
        );
    }

    #[test]
    fn a_wish_for_questions_may_have_them() {
        let asks = ReplyFigures {
            asking: 0.5,
            ..REFERENCE
        };
        let tests = tests(asks, asks, PLAIN, 1.0);
        assert!(
            tests.iter().all(|test| test.passed == Some(true)),
            "{tests:?}"
        );
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
