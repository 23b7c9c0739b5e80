//! Texts that clients write in the user's role without an element around them: complete texts, and texts before or
//! after what was typed.
//!
//! Their marks are in `data/wrappers.tsv`. Each is anchored and is a complete phrase from a known client's package. So an
//! owner who says something similar is not mistaken for the client.

use std::borrow::Cow;

use super::{
    tables::{Mark, first_inside, mark_at_start},
    work::looks_at,
};
use crate::excerpt::head;

const PREAMBLE_END: &str = "\n---\n";
/// Hermes inserts a skill that a command invokes, and below it the text that was typed after the command.
const SKILL: &str = "[IMPORTANT: The user has invoked the ";
const SKILL_INSTRUCTIONS: [&str; 2] = [
    "The user has provided the following instruction alongside the skill invocation: ",
    "\nUser instruction: ",
];
const SKILL_ENDS: [&str; 2] = ["\n\n[Runtime note:", "\n\n[Loaded as part of the "];
/// Claude Code writes this before text that was typed while it worked.
const QUEUED: &str = "The user sent a new message while you were working:\n";
/// Cline and Roo Code write the name of a tool in brackets and this word above the tool's result.
const RESULT: &str = "] Result:";
/// Results that hold what was typed, in an element.
const ANSWERS: [&str; 2] = ["[attempt_completion", "[ask_followup_question"];
const LONGEST_MARK: usize = 256;
/// The line that Cline and Roo Code write between the two.
const FEEDBACK: &str = "The user has provided feedback on the results.";

/// Returns whether a part says that the client called a tool, as opencode does for named files. The next part has the
/// tool's result.
pub(super) fn is_call(part: &str) -> bool {
    let first = part.trim_start().lines().next().unwrap_or_default();
    first.starts_with("Called the ") && first.contains(" tool with the following input:")
}

pub(super) fn is_by_itself(text: &str) -> bool {
    let text = text.trim_start();
    let mark = mark_at_start(text);
    matches!(mark, Some(Mark::Alone | Mark::Context | Mark::Summary)) || is_call(text)
}

pub(super) fn is_summary(text: &str) -> bool {
    mark_at_start(text.trim_start()) == Some(Mark::Summary)
}

/// Returns whether a text shows files that are at another place in the next request.
pub(crate) fn is_context(text: &str) -> bool {
    mark_at_start(text.trim_start()) == Some(Mark::Context)
}

pub(super) fn is_note(text: &str) -> bool {
    mark_at_start(text) == Some(Mark::Note)
}

/// Returns whether the last paragraph of a reply calls a tool in words. The application answers such a call.
pub(crate) fn calls_in_words(reply: &str) -> bool {
    let last = reply.trim_end().rsplit("\n\n").next().unwrap_or_default();
    let mut lines = last.split_inclusive('\n');
    lines.any(|line| mark_at_start(line.trim_start()) == Some(Mark::Call))
}

pub(super) fn is_result(text: &str) -> bool {
    let text = text.trim_start();
    let is_answer =
        || ANSWERS.iter().any(|tool| text.starts_with(tool)) || text.starts_with(FEEDBACK);
    let head = head(text, LONGEST_MARK);
    results_begin(head) == Some(0) && !is_answer()
}

pub(super) fn results_begin(text: &str) -> Option<usize> {
    let before = |at: usize| text[..at].trim_end_matches([' ', '\t', '*', '#']);
    let opens_line = |at: usize| {
        let before = before(at);
        looks_at(at - before.len());
        before.is_empty() || before.ends_with(['\n', '\r'])
    };
    let mark = first_inside(text, |kind, at| kind == Mark::Result && opens_line(at));
    let marked = mark.map(|at| before(at).len());
    let named = memchr::memmem::find_iter(text.as_bytes(), RESULT).find_map(|at| {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        looks_at(at - line);
        let is_one = text[line..].trim_start().starts_with('[');
        is_one.then_some(line)
    });
    marked.into_iter().chain(named).min()
}

pub(super) fn trim(text: &str) -> &str {
    let text = queued(text).unwrap_or(text);
    without_rules(without_preamble(behind_skill(text)))
}

fn behind_skill(text: &str) -> &str {
    if !text.trim_start().starts_with(SKILL) {
        return text;
    }
    let behind = SKILL_INSTRUCTIONS
        .iter()
        .find_map(|mark| text.rsplit_once(mark));
    let typed = behind.map_or("", |(_, typed)| typed);
    SKILL_ENDS.iter().fold(typed, |typed, end| {
        typed.split(end).next().unwrap_or_default()
    })
}

fn without_preamble(text: &str) -> &str {
    let trimmed = text.trim_start();
    if mark_at_start(trimmed) != Some(Mark::Preamble) {
        return text;
    }
    // A truncated one is the client's too.
    let typed = trimmed.split_once(PREAMBLE_END);
    typed.map_or("", |(_, typed)| typed)
}

/// Removes the rules after what was typed, which are missing in the next request.
pub(crate) fn without_rules(text: &str) -> &str {
    let is_tail = |kind, at: usize| kind == Mark::Tail && is_behind_a_gap(&text[..at]);
    first_inside(text, is_tail).map_or(text, |at| &text[..at])
}

/// Removes aider's line about the machine's language after what was typed: `Reply in English.` Its line end never
/// occurs in a person's text.
pub(super) fn without_language(text: &str) -> &str {
    let Some(body) = text.strip_suffix(".\n") else {
        return text;
    };
    let Some((before, line)) = body.rsplit_once("\n\n") else {
        return text;
    };
    let language = line.trim_start_matches('\n').strip_prefix("Reply in ");
    let is_name = |it: &str| it.len() < 40 && !it.contains(['\n', '.', ',']);
    if language.is_some_and(is_name) {
        before
    } else {
        text
    }
}

pub(super) fn queued(reminder: &str) -> Option<&str> {
    let typed = reminder.trim_start().strip_prefix(QUEUED)?;
    typed.split("\n\nIMPORTANT: ").next()
}

fn is_behind_a_gap(before: &str) -> bool {
    let trimmed = before.trim_end_matches([' ', '\n', '\r']);
    let gap = &before[trimmed.len()..];
    looks_at(gap.len());
    trimmed.is_empty() || gap.bytes().filter(|c| *c == b'\n').count() >= 2
}

pub(super) fn without_headings(text: Cow<'_, str>) -> Cow<'_, str> {
    let is_heading =
        |line: &str| line.starts_with('#') && mark_at_start(line) == Some(Mark::Heading);
    if !text.lines().any(is_heading) {
        return text;
    }
    let lines: Vec<&str> = text.lines().filter(|line| !is_heading(line)).collect();
    Cow::Owned(lines.join("\n"))
}

/// Returns whether the text around an element with what was typed is the client's: it is empty, or the name of the tool
/// by which the model asked for it.
pub(super) fn is_frame(outside: &str) -> bool {
    let outside = outside.trim();
    let is_answer = || ANSWERS.iter().any(|tool| outside.starts_with(tool));
    let behind = match outside.split_once(RESULT) {
        Some((tool, behind)) if is_answer() && !tool.contains('\n') => behind.trim(),
        _ => outside,
    };
    behind.is_empty() || behind.starts_with(FEEDBACK) && !behind.contains('\n')
}
