//! What prompts and answers of models have in common.

use std::fmt::Write as _;

/// Returns sentences with their numbers, one on each line.
pub(crate) fn numbered<'s>(sentences: impl Iterator<Item = &'s str>) -> String {
    let mut numbered = String::new();
    for (n, sentence) in (1..).zip(sentences) {
        let _ = writeln!(numbered, "{n}. {sentence}");
    }
    numbered
}

/// Returns an answer after the model's thinking.
pub(crate) fn after_thinking(answer: &str) -> &str {
    let thought = answer.rsplit_once("</think>");
    thought.map_or(answer, |(_, answer)| answer)
}

/// Returns whether a line of an answer says that there is nothing.
pub(crate) fn is_none(line: &str) -> bool {
    let line = line.trim_matches(|c: char| !c.is_alphabetic());
    line.eq_ignore_ascii_case("none")
}
