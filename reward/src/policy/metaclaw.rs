//! MetaClaw's rules: a reviewer sees the instruction and the response, and nothing that came later.

use std::{borrow::Cow, sync::LazyLock};

use metaclaw_chat::{Message, Vote, without_thinking};
use regex::Regex;

use super::openclaw_rl::last_score;
use crate::{evidence::Evidence, patterns::pattern, prompt::shorten};

/// Characters of either text. If it is longer, its middle is left out. The original has no limit, and loses the turn if
/// the judge's context is too small.
const MOST: usize = 24_000;

const INSTRUCTION: &str = include_str!("../../data/metaclaw_review.txt").trim_ascii_end();

static PATTERNS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [
        r"(?s)<tool_call>.*?</tool_call>",
        r"<(/?[A-Za-z][\w.:\-]*)(?:\s[^<>]*)?/?>",
        r"(?i)score:\s*([-+]?\d)",
    ]
    .map(pattern)
});

pub(super) fn messages(evidence: &Evidence) -> Vec<Message> {
    let instruction = evidence.request.as_deref().unwrap_or_default();
    let asked = format!(
        "Instruction:\n{}\n\nResponse:\n{}",
        shorten(&sanitised(instruction), MOST),
        shorten(&sanitised(&response(evidence)), MOST)
    );
    vec![Message::system(INSTRUCTION), Message::user(asked)]
}

/// Reads the last `Score:` if it is -1, 0 or 1, else the last box.
pub(super) fn read(answer: &str) -> Option<Vote> {
    let answer = &without_thinking(answer)?;
    let [_, _, score] = &*PATTERNS;
    let score = last_score(score, answer).or_else(|| super::openclaw_rl::last_box(answer))?;
    Some(Vote::new(score, None))
}

fn response(evidence: &Evidence) -> String {
    let text = evidence.reply.text();
    match evidence.reply.get("tool_calls") {
        Some(calls) if text.trim().is_empty() => calls.to_string(),
        Some(_) | None => text.into_owned(),
    }
}

/// Writes tool calls and tags in words that no content filter treats as markup.
fn sanitised(text: &str) -> Cow<'_, str> {
    let [calls, tags, _] = &*PATTERNS;
    match calls.replace_all(text, "[tool_call block]") {
        Cow::Borrowed(text) => tags.replace_all(text, "[$1]"),
        Cow::Owned(text) => Cow::Owned(tags.replace_all(&text, "[$1]").into_owned()),
    }
}
