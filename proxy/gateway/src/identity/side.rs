//! Requests that an agent makes for itself: heartbeats, titles, compactions.

use metaclaw_chat::Role;
use metaclaw_dialects::request::{ChatRequest, MessageRef};
use regex::RegexSet;

use crate::config::ConfigError;

/// What is looked at of what was said; such requests say what they are in their first words.
const HEAD: usize = 1_000;
/// The same of a system text, where no pattern takes more.
const SYSTEM_HEAD: usize = 250;

/// Patterns for the last thing that a user said. Each is anchored at the beginning and takes a whole
/// phrase of a known client: an owner who asks for a title or a summary must not be taken for one.
const USER_PATTERNS: [&str; 8] = [
    // OpenClaw's heartbeat, as it was and as it is; it puts the time in front of what users say.
    r"(?i)^\s*(\[[^\]]*\]\s*)?read HEARTBEAT\.md if it exists",
    r"(?i)^\s*(\[[^\]]*\]\s*)?follow the heartbeat monitor scratch context when provided",
    // Open WebUI: titles, tags, follow-ups, queries.
    r"(?i)^\s*#{3} Task:\s*(generate|suggest|analyze|determine)\b",
    // LibreChat.
    r"(?i)^\s*provide a concise, 5-word-or-less title for the conversation",
    // Claude Code and its kin: titles and compaction.
    r"(?i)^\s*(please )?write a \d+-\d+ word title for the following conversation",
    r"(?i)^\s*your task is to create a detailed summary of the conversation so far",
    // OpenClaw, pi: compaction.
    r"(?i)^\s*<conversation>[\s\S]*",
    r"(?i)^\s*(create|update) a structured (context )?(checkpoint )?summary",
];

/// Patterns for the system text.
const SYSTEM_PATTERNS: [&str; 3] = [
    r"(?i)^\s*you are a context summarization assistant",
    r"(?i)^\s*you are a title generator",
    r"(?i)^\s*(analyze if this message indicates a new conversation topic|summarize this coding conversation in under)",
];

/// Tells errands from turns.
#[derive(Debug, Clone)]
pub(crate) struct SidePatterns {
    user: RegexSet,
    system: RegexSet,
}

// === impl SidePatterns ===

impl SidePatterns {
    /// The built-in patterns and `more`, which are matched against what a user said last.
    pub(crate) fn new(more: &[String]) -> Result<Self, ConfigError> {
        let compile = |patterns: Vec<&str>| {
            let compiled = RegexSet::new(patterns);
            compiled.map_err(|error| ConfigError::invalid("compat.side_patterns", &error))
        };
        let more = more.iter().map(String::as_str);
        Ok(Self {
            user: compile(USER_PATTERNS.into_iter().chain(more).collect())?,
            system: compile(SYSTEM_PATTERNS.to_vec())?,
        })
    }

    /// Whether the request is an errand of the agent.
    pub(super) fn is_side(&self, chat: &ChatRequest) -> bool {
        let system = chat.messages().find(|it| it.role() == Role::System);
        let matches = |set: &RegexSet, message: Option<MessageRef<'_>>, limit| {
            message.is_some_and(|message| set.is_match(&message.head(limit)))
        };
        matches(&self.user, chat.last_owners(), HEAD) || matches(&self.system, system, SYSTEM_HEAD)
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;

    use super::*;
    use crate::identity::tests::request;

    #[test]
    fn errands_are_told_from_what_an_owner_asks() {
        let patterns = SidePatterns::new(&["^ping$".into()]).unwrap();
        let is_side = |messages: &[Message]| patterns.is_side(&request(messages));
        let is_side_text = |text: &str| is_side(&[Message::user(text)]);
        assert!(is_side_text(
            "[Fri 2026-11-20 05:31 UTC] Read HEARTBEAT.md if it exists (workspace context)."
        ));
        assert!(is_side_text(
            "[Fri 2026-11-20 05:31 UTC] Follow the heartbeat monitor scratch context when provided. Recurring tasks are automations; create or change their schedules with the automations tool"
        ));
        assert!(is_side_text(
            "### Task:\nGenerate a concise, 3-5 word title"
        ));
        assert!(is_side_text("ping"));
        assert!(!is_side_text("Generate a title for my essay"));
        assert!(!is_side_text("Summarize the conversation so far, please"));
        assert!(!is_side_text(
            "What does HEARTBEAT.md say? Read HEARTBEAT.md if it exists."
        ));
        let system = Message::system("You are a context summarization assistant. …");
        assert!(is_side(&[system, Message::user("x")]));
    }

    #[test]
    fn a_pattern_that_is_none_is_refused_in_words() {
        let error = SidePatterns::new(&["(".into()]).unwrap_err().to_string();
        assert!(
            error.starts_with("compat.side_patterns: ") && error.contains("unclosed group"),
            "{error}"
        );
    }
}
