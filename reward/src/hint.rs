//! Hints: what, said beforehand, would have prevented the problem.

use std::sync::LazyLock;

use metaclaw_chat::Vote;
use regex::Regex;

use crate::words::count_words;

/// A hint longer than this is an answer.
const MAX_WORDS: usize = 60;
/// A hint shorter than this says nothing.
const MIN_CHARS: usize = 10;

/// A line of its own, or OpenClaw-RL's block.
#[expect(
    clippy::expect_used,
    reason = "constant patterns; the tests below use each"
)]
static FORMS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let forms = [
        r"(?s)\[HINT_START\](.*?)\[HINT_END\]",
        r"(?im)^[\s*_>\-]*hint[\s*_]*:[\s*_]*(.+)$",
    ];
    forms
        .iter()
        .map(|form| Regex::new(form).expect("a constant pattern compiles"))
        .collect()
});

/// The last hint in a judge's answer, if it is one that can be used.
pub fn read(answer: &str) -> Option<String> {
    let last = |form: &Regex| {
        form.captures_iter(answer)
            .last()
            .map(|found| found[1].to_owned())
    };
    let hint = FORMS.iter().find_map(last)?;
    let hint = hint.split_whitespace().collect::<Vec<_>>().join(" ");
    let none = hint.trim_end_matches('.').eq_ignore_ascii_case("none");
    (!none && hint.chars().count() >= MIN_CHARS && count_words(&hint) <= MAX_WORDS).then_some(hint)
}

/// The hint to keep of several votes: the shortest, for the longest are answers in disguise. Of equal ones the first.
pub fn choose(votes: &[Vote]) -> Option<String> {
    let hints = votes.iter().filter_map(|vote| vote.hint.as_ref());
    hints.min_by_key(|hint| hint.chars().count()).cloned()
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Score;

    use super::*;

    #[test]
    fn hints_are_read_from_a_line_or_a_block() {
        let hint = |answer: &str| read(answer);
        assert_eq!(
            hint("x\nHint: Answer in one sentence.\nverdict: -1").as_deref(),
            Some("Answer in one sentence.")
        );
        assert_eq!(
            hint("- **hint:** Use metric units.").as_deref(),
            Some("Use metric units.")
        );
        assert_eq!(
            hint("[HINT_START] Use\n metric units. [HINT_END]").as_deref(),
            Some("Use metric units.")
        );
        assert_eq!(hint("hint: NONE."), None);
        assert_eq!(hint("hint: short"), None);
        assert_eq!(hint(&format!("hint: {}", "word ".repeat(61))), None);
        assert_eq!(hint("a hint would help"), None);
    }

    #[test]
    fn the_shortest_is_kept() {
        let vote = |hint: &str| Vote {
            score: Score::Bad,
            hint: Some(hint.to_owned()),
        };
        assert_eq!(
            choose(&[vote("Use metric units."), vote("Use km."), vote("Be nice")]).as_deref(),
            Some("Use km.")
        );
        assert_eq!(choose(&[]), None);
    }
}
