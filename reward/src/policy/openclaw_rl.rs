//! OpenClaw-RL's rules: one judge scores a reply by what followed it. Another one looks there for a hint that would
//! have made the reply better. Neither of them sees the request.
//!
//! The original shows only the last message. With several tool results this loses all others, so all are shown here.

use std::{fmt::Write as _, sync::LazyLock};

use metaclaw_chat::{Message, Score, Vote, without_thinking};
use regex::Regex;

use crate::{evidence::Evidence, patterns::pattern, prompt::shorten};

/// A hint must have more characters than this.
const SAYS_NOTHING: usize = 10;
/// Characters of one text. If it is longer, its middle is left out.
const MOST: usize = 24_000;

const ROLES: &str = include_str!("../../data/openclaw_rl_roles.txt").trim_ascii_end();

const SCORE: &str = include_str!("../../data/openclaw_rl_score.txt").trim_ascii_end();

const HINT: &str = include_str!("../../data/openclaw_rl_hint.txt").trim_ascii_end();

static PATTERNS: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    [
        r"\\boxed\{([-+]?\d)\}",
        r"(?s)\[HINT_START\](.*?)\[HINT_END\]",
    ]
    .map(pattern)
});

pub(super) fn score_messages(evidence: &Evidence) -> Vec<Message> {
    let mut asked = texts(evidence);
    asked.push_str(
        "First say which it is: positive, a correction, or ambiguous. Then give the score in \\boxed{}.",
    );
    vec![
        Message::system(format!("{SCORE}\n\n{ROLES}")),
        Message::user(asked),
    ]
}

pub(super) fn hint_messages(evidence: &Evidence) -> Vec<Message> {
    let mut asked = texts(evidence);
    asked.push_str("Is there a hint in it?");
    vec![
        Message::system(format!("{HINT}\n\n{ROLES}")),
        Message::user(asked),
    ]
}

/// Reads the last box, if it is -1, 0 or 1.
pub(super) fn read_score(answer: &str) -> Option<Vote> {
    let score = last_box(&without_thinking(answer)?)?;
    Some(Vote::new(score, None))
}

/// Reads the last hint, if the last box is 1 and the hint is long enough.
pub(super) fn read_hint(answer: &str) -> Option<String> {
    let [_, hints] = &*PATTERNS;
    let answer = &without_thinking(answer)?;
    if last_box(answer) != Some(Score::Good) {
        return None;
    }
    let hint = hints.captures_iter(answer).last()?[1].trim().to_owned();
    (hint.chars().count() > SAYS_NOTHING).then_some(hint)
}

pub(super) fn last_box(answer: &str) -> Option<Score> {
    let [boxes, _] = &*PATTERNS;
    last_score(boxes, answer)
}

pub(super) fn last_score(pattern: &Regex, answer: &str) -> Option<Score> {
    let last = pattern.captures_iter(answer).last()?;
    last[1].parse::<i8>().ok()?.try_into().ok()
}

fn texts(evidence: &Evidence) -> String {
    let mut output = evidence.reply.text().into_owned();
    for call in evidence.reply.tool_calls() {
        let _ = write!(output, "\n[calls {} with {}]", call.name, call.arguments);
    }
    let mut texts = format!("## Assistant's output\n\n{}\n\n", shorten(&output, MOST));
    for message in &evidence.next {
        let role = message.get("role").and_then(|role| role.as_str());
        let _ = write!(
            texts,
            "## What followed (role: {})\n\n{}\n\n",
            role.unwrap_or("other"),
            shorten(&message.text(), MOST)
        );
    }
    texts
}
