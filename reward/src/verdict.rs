//! Reads a judge's answer as a vote, and counts votes.
//!
//! Our own prompt asks for `verdict: +1`. `Score: -1` and `\boxed{0}` are accepted too, because judges that were tuned for
//! the original or for OpenClaw-RL answer so. Of each kind the last one counts, because a judge thinks aloud before it
//! decides.

use std::sync::LazyLock;

use metaclaw_chat::{JudgedBy, Score, Verdict, Vote, without_thinking};
use regex::Regex;

use crate::{hint, patterns::pattern};

/// The number of votes for each score: -1, 0, +1.
#[derive(Debug, Clone, Copy, Default)]
struct Count([usize; 3]);

/// Returns the majority's verdict, or `None` if no answer was a vote.
///
/// A `None` in `votes` is an unreadable answer. It is neither a vote nor a 0. A tie for the most votes is
/// [`Score::Unclear`], and so is a share of the votes below `consensus`.
pub fn tally(votes: &[Option<Vote>], consensus: f64) -> Option<Verdict> {
    let score = Count::new(votes).winner(consensus)?;
    let votes: Vec<Vote> = votes.iter().flatten().cloned().collect();
    let agreeing = votes.iter().filter(|vote| vote.score == score);
    let judge_hints = hint::best(agreeing.filter_map(|vote| vote.hint.as_ref()));
    Some(Verdict {
        hint: judge_hints.first().cloned(),
        judge_hints,
        votes,
        ..Verdict::new(score, JudgedBy::Llm)
    })
}

/// Returns whether the result is certain, whatever the rest of `m` votes are.
pub fn decided(votes: &[Option<Vote>], m: usize, consensus: f64) -> bool {
    let count = Count::new(votes);
    let left = m.saturating_sub(votes.len());
    let outcomes = (0..=left).flat_map(|bad| {
        (0..=left - bad).flat_map(move |unclear| {
            (0..=left - bad - unclear)
                .map(move |good| count.plus([bad, unclear, good]).winner(consensus))
        })
    });
    let now = count.winner(consensus);
    left == 0 || (now.is_some() && outcomes.into_iter().all(|outcome| outcome == now))
}

// === impl Count ===

impl Count {
    fn new(votes: &[Option<Vote>]) -> Self {
        let mut count = Self::default();
        for vote in votes.iter().flatten() {
            count.0[match vote.score {
                Score::Bad => 0,
                Score::Unclear => 1,
                Score::Good => 2,
            }] += 1;
        }
        count
    }

    fn plus(self, more: [usize; 3]) -> Self {
        Self([
            self.0[0] + more[0],
            self.0[1] + more[1],
            self.0[2] + more[2],
        ])
    }

    fn winner(self, consensus: f64) -> Option<Score> {
        let [bad, unclear, good] = self.0;
        let most = bad.max(unclear).max(good);
        let share = most as f64 / (bad + unclear + good) as f64;
        match (bad == most, unclear == most, good == most) {
            _ if most == 0 => None,
            _ if share < consensus => Some(Score::Unclear),
            (true, false, false) => Some(Score::Bad),
            (false, false, true) => Some(Score::Good),
            _ => Some(Score::Unclear),
        }
    }
}

/// The forms of an answer, the most reliable first. Bold marks and a typographic minus are common.
static FORMS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [
        r#"(?i)\bverdict[\s*_`"']*[:=][\s*_`"']*([+\-−]?\d+)"#,
        r#"(?i)\bscore[\s*_`"']*[:=][\s*_`"']*([+\-−]?\d+)"#,
        r"\\boxed\s*\{\s*([+\-−]?\d+)\s*\}",
    ]
    .map(pattern)
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

    fn votes(scores: &[Option<i8>]) -> Vec<Option<Vote>> {
        let vote = |score: i8| Vote::new(Score::try_from(score).unwrap(), None);
        scores.iter().map(|score| score.map(vote)).collect()
    }

    #[test]
    fn the_majority_wins_ties_are_unclear_and_what_is_no_vote_does_not_count() {
        for (scores, expected) in [
            (&[Some(1), Some(1), Some(-1)][..], Some(1)),
            (&[Some(1), Some(-1)], Some(0)),
            (&[Some(1), Some(-1), Some(0)], Some(0)),
            (&[None, None], None),
            (&[Some(1), None], Some(1)),
            (&[Some(-1), Some(-1), Some(0), None], Some(-1)),
            (&[], None),
        ] {
            let verdict = tally(&votes(scores), 0.0);
            assert_eq!(
                verdict.as_ref().map(|verdict| i8::from(verdict.score)),
                expected,
                "{scores:?}"
            );
            assert_eq!(
                verdict.map_or(0, |verdict| verdict.votes.len()),
                scores.iter().flatten().count()
            );
        }
    }

    #[test]
    fn asking_stops_when_no_vote_could_change_the_outcome() {
        for (scores, m, expected) in [
            (&[][..], 3, false),
            (&[Some(1)], 3, false),
            (&[Some(1), Some(1)], 3, true),
            (&[Some(1), Some(1)], 4, false),
            (&[Some(1), Some(1), Some(1)], 5, true),
            (&[Some(1), Some(-1)], 3, false),
            (&[Some(0), Some(0)], 3, true),
            (&[None, Some(1)], 3, false),
            (&[None, None, None], 3, true),
            (&[Some(1)], 1, true),
        ] {
            assert_eq!(
                decided(&votes(scores), m, 0.0),
                expected,
                "{scores:?} of {m}"
            );
        }
    }

    #[test]
    fn where_too_few_agree_the_verdict_is_unclear() {
        for (scores, consensus, expected) in [
            (&[1, 1, -1][..], 0.6, 1),
            (&[1, 1, -1], 0.7, 0),
            (&[1, 1, 1, -1, -1], 0.6, 1),
            (&[1, 1, 0, -1, -1, 1], 0.6, 0),
            (&[-1, -1], 1.0, -1),
        ] {
            let scores: Vec<_> = scores.iter().copied().map(Some).collect();
            let verdict = tally(&votes(&scores), consensus).unwrap();
            assert_eq!(i8::from(verdict.score), expected, "{scores:?}, {consensus}");
        }
        for (scores, consensus, expected) in [
            (&[1, 1][..], 0.6, true),
            (&[1, 1], 0.7, false),
            (&[1, -1], 0.7, true),
            (&[1, -1], 0.6, false),
        ] {
            let scores: Vec<_> = scores.iter().copied().map(Some).collect();
            assert_eq!(
                decided(&votes(&scores), 3, consensus),
                expected,
                "{scores:?}, {consensus}"
            );
        }
    }

    #[test]
    fn the_hint_comes_from_those_who_won() {
        let vote = |score, hint: &str| Some(Vote::new(score, Some(hint.to_owned())));
        let votes = [
            vote(Score::Bad, "Use metric units."),
            vote(Score::Bad, "Use kilometres, not miles."),
            vote(Score::Good, "Fine"),
        ];
        let verdict = tally(&votes, 0.0).unwrap();
        let hints = ["Use metric units.", "Use kilometres, not miles."];
        assert_eq!(verdict.hint.as_deref(), Some(hints[0]));
        assert_eq!(verdict.judge_hints, hints);
    }

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
