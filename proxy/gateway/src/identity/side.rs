//! Recognises requests that an agent makes for itself: heartbeats, titles, compactions.

mod beginnings;

use metaclaw_chat::{Role, Speaker, Utterance};
use metaclaw_dialects::request::{ChatRequest, MessageRef};
use regex::{Regex, RegexSet};

use self::beginnings::{OF_SUB_AGENTS, OF_SYSTEMS, OF_USERS, begins_with};
use crate::config::ConfigError;

/// How much of a text is looked at, in bytes. Such requests say what they are in their first words.
const HEAD: usize = 1_000;
/// The same for each part of a system text.
const SYSTEM_HEAD: usize = 250;
/// How deep in a system text a sub-agent may be told that it is one. Hermes does so after its own text.
const SYSTEM_DEPTH: usize = 16_384;

/// Patterns for the last text in the user's role, for which a fixed phrase is not enough. Each is anchored at the
/// beginning and contains a whole phrase of a known client. A test reads OpenClaw's package and compares its phrases.
const USER_PATTERNS: [&str; 11] = [
    // OpenClaw's heartbeat, in its older and its present wording.
    r"(?i)^\s*(read HEARTBEAT\.md if it exists|follow the heartbeat monitor scratch context when provided)",
    // The event that woke it instead of the owner: its short form in the history, and the long ones.
    r"(?i)^\s*\[OpenClaw (heartbeat poll|exec completion|cron wake|session event|room event)\]",
    r"(?i)^\s*(run the following periodic tasks \(only those due|a scheduled (reminder has been|cron event was) triggered|an async command (you ran earlier|completion event was triggered)|a completed subagent task is ready for parent review|continue the OpenClaw runtime event\.)",
    // It continues after something other than an unusable reply ([`ASKS_AGAIN`]).
    r"(?i)^\s*(the previous attempt compacted the conversation context|before accepting the previous final answer, apply this revision request|continue from the recovered transcript and finish)",
    // Its titles, its diary, its probes.
    r"(?i)^\s*(generate a concise session title \(|generate a very short topic label \(|write a dream diary entry from these memory fragments|reply with (the single word )?OK\. do not use tools\.)",
    // Open WebUI: titles, tags, follow-ups, queries.
    r"(?i)^\s*#{3} Task:\s*(generate|suggest|analyze|determine|you are an autocompletion system)\b",
    // LibreChat.
    r"(?i)^\s*provide a concise, 5-word-or-less title for the conversation",
    // Claude Code and its kin: titles.
    r"(?i)^\s*(please )?write a \d+-\d+ word title for the following conversation",
    // OpenClaw, pi: compaction.
    r"(?i)^\s*<conversation>[\s\S]*",
    r"(?i)^\s*(create|update) a structured (context )?(checkpoint )?summary",
    r"(?i)^\s*the messages above are (a conversation to summarize|NEW conversation messages to incorporate)",
];

/// OpenClaw got an unusable reply, and asks again, perhaps after a time stamp. If that fails too, this text comes
/// before the owner's next message.
const ASKS_AGAIN: &str = r"(?i)^\s*(\[[^\]]{0,200}\]\s*)?the previous (attempt|assistant turn (recorded reasoning|completed its tool calls) but) did not produce a user-visible answer";

/// Distinguishes side turns from the owner's turns by their words.
#[derive(Debug, Clone)]
pub(crate) struct SidePatterns {
    user: RegexSet,
    asks_again: Regex,
}

// === impl SidePatterns ===

impl SidePatterns {
    /// Compiles the built-in patterns and `more`. They are matched against the last text in the user's role.
    pub(crate) fn new(more: &[String]) -> Result<Self, ConfigError> {
        let more = more.iter().map(String::as_str);
        let user = RegexSet::new(USER_PATTERNS.into_iter().chain(more));
        let user = user.map_err(|error| ConfigError::invalid("compat.side_patterns", &error))?;
        let asks_again = Regex::new(ASKS_AGAIN);
        let asks_again = asks_again.map_err(|error| ConfigError::invalid("built in", &error))?;
        Ok(Self { user, asks_again })
    }

    /// Returns whether the request is a side turn.
    pub(super) fn is_side(&self, chat: &ChatRequest) -> bool {
        let is_errand = |message: MessageRef<'_>| {
            let is_typed = |it: Utterance<'_>| it.speaker != Speaker::Client;
            let has_words = || message.utterance().is_some_and(is_typed);
            message
                .heads(HEAD)
                .iter()
                .any(|head| self.is_errand(head) || self.asks_again.is_match(head) && !has_words())
        };
        chat.last_said().is_some_and(is_errand) || is_of_system(chat)
    }

    /// Returns whether a text in the user's role is that of a side turn, even if the client writes the time or events
    /// of the system around it.
    fn is_errand(&self, said: &str) -> bool {
        let is_known = |said: &str| {
            self.user.is_match(said) || OF_USERS.iter().any(|phrase| begins_with(said, phrase))
        };
        is_known(said) || is_known(&Utterance::undecorated(said))
    }
}

/// Returns whether the system text is that of a side turn, or of a sub-agent.
fn is_of_system(chat: &ChatRequest) -> bool {
    let is_opening = |message: &MessageRef<'_>| message.role() == Role::System;
    let mut opening = chat.messages().take_while(is_opening);
    let is_errands = |head: &str| OF_SYSTEMS.iter().any(|phrase| begins_with(head, phrase));
    let is_sub_agents = |line: &str| OF_SUB_AGENTS.iter().any(|phrase| line.starts_with(phrase));
    opening.any(|message| {
        let heads = message.heads(SYSTEM_HEAD);
        heads.iter().any(|head| is_errands(head))
            // Most texts have no such line, and are long.
            || message.may_say("subagent")
                && message.head(SYSTEM_DEPTH).lines().any(is_sub_agents)
    })
}

#[cfg(test)]
mod openclaw;

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;

    use super::*;
    use crate::identity::testing::request;

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
        let again = "The previous attempt did not produce a user-visible answer. Continue from the current state and produce the visible answer now. Do not restart from scratch.";
        assert!(is_side_text(again));
        let stamp = "[Fri 2026-11-20 05:31 UTC]";
        assert!(is_side_text(&format!("{stamp} {again}")));
        assert!(!is_side_text(&format!("{again}\n\n{stamp} And now?")));
        assert!(!is_side_text(&format!(
            "{stamp} {again}\n\n{stamp} And now?"
        )));
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

    /// As captured, or as their packages have it.
    #[test]
    fn the_errands_of_known_clients_are_known() {
        let patterns = SidePatterns::new(&[]).unwrap();
        let is_side = |messages: &[Message]| patterns.is_side(&request(messages));
        for system in [
            "You are naming a coding session so the user can pick it out of a long list of sessions.",
            "You are a title generator. You output ONLY a thread title. Nothing else.",
            "You are a context summarization agent. You are given a conversation between a user and an agent.",
            "Generate a short, descriptive title (3-7 words) for a conversation that starts with the following exchange.",
            "# Subagent\n\nYou are a subagent spawned by the main agent to complete a specific task.",
            "You are running Dream. Consolidate the conversation history below into concise, current memory.",
            "You are a notification gate for a background agent. You will be given the original task",
            "You write short, neutral chat titles. Return only the title text.",
            "You are an expert software engineer that generates concise, one-line Git commit messages based on the provided diffs.",
            "*Briefly* summarize this partial conversation about programming.\nInclude less detail about older parts",
            "You generate short titles for chat sessions. Given the first user message, reply with a concise title",
            "You are judging one planned coding-agent action.\nAssess the exact action's intrinsic risk",
            "You are a Memory Writing Agent.",
        ] {
            let messages = [Message::system(system), Message::user("Look around.")];
            assert!(is_side(&messages), "{system}");
        }
        for user in [
            "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read.\n\nYour task is to create a detailed summary of the conversation so far",
            "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM",
            "Create a new anchored summary from the conversation history in the <conversation> tags above",
            "Review the conversation above and consider saving to memory if appropriate.",
            "Review the conversation above and update the skill library. Be ACTIVE",
            "You are a summarization agent creating a context checkpoint. Treat the conversation turns below",
            "Create a compact replacement checkpoint for this session.",
            "The scheduled time has arrived. Execute this scheduled cron job now and report the result",
            "[Fri 2026-11-20 05:31 UTC] Skill review. Distill new durable learning from the full retained conversation.",
            "[cron:0b3c digest] Say good morning.",
        ] {
            let messages = [
                Message::user("hi"),
                Message::assistant("hello"),
                Message::user(user),
            ];
            assert!(is_side(&messages), "{user}");
        }
        // Not the first words: Hermes tells a sub-agent 4 KB down, Claude Code puts reminders beside its prompt.
        let deep = format!(
            "You are Hermes.\n{}\n\nYou are a focused subagent working on a specific delegated task.",
            "Be kind to all that live.\n".repeat(200)
        );
        assert!(is_side(&[
            Message::system(deep),
            Message::user("Look around.")
        ]));
        let parts = serde_json::json!({"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>"},
            {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."},
        ]});
        assert!(is_side(&[parts.try_into().unwrap()]));
        let blocks = serde_json::json!({"role": "system", "content": [
            {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude."},
            {"type": "text", "text": "You are naming a coding session so the user can pick it out"},
        ]});
        assert!(is_side(&[blocks.try_into().unwrap(), Message::user("hi")]));
    }

    #[test]
    fn an_owner_who_speaks_of_errands_has_none() {
        let patterns = SidePatterns::new(&[]).unwrap();
        let is_side = |messages: &[Message]| patterns.is_side(&request(messages));
        for user in [
            "Review the conversation above and tell me what I forgot.",
            "What does \"You are performing a CONTEXT CHECKPOINT COMPACTION\" mean?",
            "Create a new summary of chapter two.",
            "Skill review: which of them are any good?",
            "Generate a title for this poem: ...",
        ] {
            let system = Message::system("You help.\nA prompt may say: You are a title generator.");
            assert!(!is_side(&[system, Message::user(user)]), "{user}");
        }
        // An errand that was answered is over.
        let talk = [
            Message::user("The scheduled time has arrived. Execute this scheduled cron job now"),
            Message::assistant("Good morning."),
            Message::user("Why so early?"),
        ];
        assert!(!is_side(&talk));
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
