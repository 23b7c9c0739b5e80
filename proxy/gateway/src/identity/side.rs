//! Requests that an agent makes for itself: heartbeats, titles, compactions.

use metaclaw_chat::{Role, Utterance};
use metaclaw_dialects::request::{ChatRequest, MessageRef};
use regex::RegexSet;

use crate::config::ConfigError;

/// What is looked at of what was said; such requests say what they are in their first words.
const HEAD: usize = 1_000;
/// The same of a system text, where no pattern takes more.
const SYSTEM_HEAD: usize = 250;

/// Patterns for the last thing that a user said. Each is anchored at the beginning and takes a whole
/// phrase of a known client: an owner who asks for a title or a summary must not be taken for one.
/// OpenClaw's are shown to be its own by a test that reads its package.
const USER_PATTERNS: [&str; 12] = [
    // OpenClaw's heartbeat, as it was and as it is.
    r"(?i)^\s*(read HEARTBEAT\.md if it exists|follow the heartbeat monitor scratch context when provided)",
    // What woke it instead of the owner: its short form in the history, and the long ones.
    r"(?i)^\s*\[OpenClaw (heartbeat poll|exec completion|cron wake|session event|room event)\]",
    r"(?i)^\s*(run the following periodic tasks \(only those due|a scheduled (reminder has been|cron event was) triggered|an async command (you ran earlier|completion event was triggered)|a completed subagent task is ready for parent review|continue the OpenClaw runtime event\.)",
    // It did not get a reply that it can use, and asks once more.
    r"(?i)^\s*(the previous attempt (compacted the conversation context|did not produce a user-visible answer)|the previous assistant turn (recorded reasoning|completed its tool calls) but did not produce|before accepting the previous final answer, apply this revision request|continue from the recovered transcript and finish)",
    // Its titles, its diary, its probes.
    r"(?i)^\s*(generate a concise session title \(|generate a very short topic label \(|write a dream diary entry from these memory fragments|reply with (the single word )?OK\. do not use tools\.)",
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
    r"(?i)^\s*the messages above are (a conversation to summarize|NEW conversation messages to incorporate)",
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
        let said = chat.last_said().map(|message| message.head(HEAD));
        // Also below what the client writes around it: the time, and what happened in the system.
        let is_errand = |said: &str| {
            self.user.is_match(said) || self.user.is_match(&Utterance::parse(said).text)
        };
        let is_of_system =
            |message: MessageRef<'_>| self.system.is_match(&message.head(SYSTEM_HEAD));
        said.is_some_and(|said| is_errand(&said)) || system.is_some_and(is_of_system)
    }
}

#[cfg(test)]
mod openclaw;

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
            "System: [2026-11-20 05:31] WhatsApp connected.\n\n[Fri 2026-11-20 05:31 UTC] A scheduled reminder has been triggered. The reminder content is:\n\nTea"
        ));
        assert!(!is_side_text("A scheduled reminder would be nice"));
        assert!(!is_side_text("Reply with OK."));
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
