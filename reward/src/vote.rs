//! Reads one judge's answer.
//!
//! Our own prompt asks for `verdict: +1`. `Score: -1` and `\boxed{0}` are accepted too, because judges that were tuned
//! for the original or for OpenClaw-RL answer so. Of each kind the last one counts, because a judge thinks aloud before
//! it decides.

use std::sync::LazyLock;

use metaclaw_chat::{Score, Vote, without_thinking};
use regex::Regex;

use crate::hint;

/// The forms of an answer, the most reliable first. Bold marks and a typographic minus are common.
#[expect(
    clippy::expect_used,
    reason = "constant patterns; the tests below use each"
)]
static FORMS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let forms = [
        r#"(?i)\bverdict[\s*_`"']*[:=][\s*_`"']*([+\-−]?\d+)"#,
        r#"(?i)\bscore[\s*_`"']*[:=][\s*_`"']*([+\-−]?\d+)"#,
        r"\\boxed\s*\{\s*([+\-−]?\d+)\s*\}",
    ];
    forms
        .iter()
        .map(|form| Regex::new(form).expect("a constant pattern compiles"))
        .collect()
});

/// Returns the vote in a judge's answer.
///
/// Returns `None` if it has no score, or if its last one is none of -1, 0 and +1, or if it ends within the judge's
/// thinking. Such an answer is no vote, which differs from 0.
pub fn read(answer: &str) -> Option<Vote> {
    let answer = &without_thinking(answer)?;
    let last = |form: &Regex| {
        form.captures_iter(answer)
            .last()
            .map(|found| found[1].replace('−', "-"))
    };
    let number = FORMS.iter().find_map(last)?;
    let score = number
        .parse::<i8>()
        .ok()
        .and_then(|number| Score::try_from(number).ok())?;
    Some(Vote::new(score, hint::read(answer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(answer: &str) -> Option<i8> {
        read(answer).map(|vote| vote.score.into())
    }

    #[test]
    fn the_last_score_counts_in_each_form() {
        for (answer, expected) in [
            ("It helped.\nverdict: +1", Some(1)),
            ("verdict: +1 at first, but then\n**Verdict:** −1", Some(-1)),
            ("VERDICT = 0.", Some(0)),
            ("thinking\nScore: -1", Some(-1)),
            (r"\boxed{1} hm \boxed{-1}", Some(-1)),
            (r"Score: 1, or \boxed{-1}", Some(1)),
            ("score: 1\nverdict: `-1`", Some(-1)),
            ("verdict: 5", None),
            ("verdict: 10", None),
            ("verdict: +1\nverdict: 999999", None),
            ("verdict: +1|-1|0", Some(1)),
            ("<think>verdict: -1? No.</think>\nverdict: 1", Some(1)),
            (
                "At first verdict: -1.\n</think>\nFine.\nverdict: 1",
                Some(1),
            ),
            ("verdict: 1\n<think>or verdict: -1, or", None),
            ("<think>perhaps verdict: -1, or", None),
            ("<think>verdict: -1</think>It cannot be told.", None),
            ("{\"reason\": \"fine\", \"verdict\": 1}", Some(1)),
            ("{'verdict': '-1'}", Some(-1)),
            ("```json\n{\"score\": \"+1\"}\n```", Some(1)),
            ("I cannot tell.", None),
            ("", None),
        ] {
            assert_eq!(score(answer), expected, "{answer:?}");
        }
        assert_eq!(FORMS.len(), 3);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_harm(answer in "\\PC*") {
            let _ = read(&answer);
        }

        #[test]
        fn a_judge_that_ends_as_asked_is_always_understood(thought in "\\PC*", score in -1i8..=1) {
            let vote = read(&format!("{thought}\nverdict: {score:+}"));
            proptest::prop_assert_eq!(vote.map(|vote| i8::from(vote.score)), Some(score));
        }
    }
}
