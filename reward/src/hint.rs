//! Hints: sentences that, said before the turn, would have prevented the problem.

use std::{collections::HashSet, sync::LazyLock};

use metaclaw_chat::{count_words, one_line};
use regex::Regex;

use crate::patterns::pattern;

/// A longer hint is an answer, not a hint.
const MAX_WORDS: usize = 60;
/// A shorter hint of a judge says nothing.
const MIN_CHARS: usize = 10;
/// The owner's own words may be fewer: "too long" is meaningful, "no" is not.
const MIN_OWNER_WORDS: usize = 2;
const MOST: usize = 3;

/// The hint is on a line of its own, or in OpenClaw-RL's block.
static FORMS: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    [
        r"(?s)\[HINT_START\](.*?)\[HINT_END\]",
        r"(?im)^[\s*_>\-]*hint[\s*_]*:[\s*_]*(.+)$",
    ]
    .map(pattern)
});

/// Returns the last hint in a judge's answer, if it is usable.
pub fn read(answer: &str) -> Option<String> {
    let last = |form: &Regex| {
        form.captures_iter(answer)
            .last()
            .map(|found| found[1].to_owned())
    };
    let hint = FORMS.iter().find_map(last)?;
    let hint = one_line(&hint);
    let none = hint.trim_end_matches('.').eq_ignore_ascii_case("none");
    (!none && hint.chars().count() >= MIN_CHARS && count_words(&hint) <= MAX_WORDS).then_some(hint)
}

/// Selects hints to keep: each once, the shortest first, at most three. The longest ones tend to be answers. Of equally
/// long ones, the first is kept.
pub fn best<'h>(hints: impl IntoIterator<Item = &'h String>) -> Vec<String> {
    let mut known = HashSet::new();
    let mut best: Vec<String> = hints.into_iter().cloned().collect();
    best.retain(|hint| known.insert(hint.clone()));
    best.sort_by_key(|hint| hint.chars().count());
    best.truncate(MOST);
    best
}

/// Makes a hint from the owner's own words about a reply, on one line. Returns `None` if the text is too short to say
/// something, or so long that it is an answer or material and not a complaint.
pub fn of_owner(said: &str) -> Option<String> {
    let hint = one_line(said);
    (MIN_OWNER_WORDS..=MAX_WORDS)
        .contains(&count_words(&hint))
        .then_some(hint)
}

#[cfg(test)]
mod tests {
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
    fn the_shortest_are_kept_each_once() {
        let hints = [
            "Use metric units.",
            "Use km.",
            "Be nice",
            "Use km.",
            "Be a good deal kinder.",
        ]
        .map(str::to_owned);
        assert_eq!(best(&hints), ["Use km.", "Be nice", "Use metric units."]);
        assert!(best(&[]).is_empty());
    }

    #[test]
    fn the_owners_own_words_are_a_hint_unless_they_say_nothing_or_too_much() {
        let hint = |said: &str| of_owner(said);
        assert_eq!(hint(" Too\n long. ").as_deref(), Some("Too long."));
        assert_eq!(hint("太长了").as_deref(), Some("太长了"));
        assert_eq!(hint("No."), None);
        assert_eq!(hint(&"word ".repeat(61)), None);
    }
}
