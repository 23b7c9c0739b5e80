//! Recognises the phrases by which an owner puts a session off the record.

use metaclaw_chat::{Role, Utterance, work::looks_at};
use metaclaw_dialects::request::ChatRequest;
use metaclaw_turns::TurnKind;
use regex::Regex;

use crate::config::ConfigError;

#[derive(Debug)]
pub(super) struct Phrases(Option<Regex>);

// === impl Phrases ===

impl Phrases {
    /// # Errors
    /// [`ConfigError::Invalid`] if one is blank, because every message contains it.
    pub(super) fn new(phrases: &[String]) -> Result<Self, ConfigError> {
        let invalid = |reason: String| ConfigError::invalid("privacy.phrases", &reason);
        if phrases.is_empty() {
            return Ok(Self(None));
        }
        if phrases.iter().any(|phrase| phrase.trim().is_empty()) {
            let reason = "a blank phrase is not allowed, because every message contains it";
            return Err(invalid(reason.to_owned()));
        }
        let patterns: Vec<String> = phrases.iter().map(|phrase| pattern(phrase)).collect();
        let pattern = format!("(?i)(?:{})", patterns.join("|"));
        let regex = Regex::new(&pattern).map_err(|error| invalid(error.to_string()))?;
        Ok(Self(Some(regex)))
    }

    /// Returns whether the owner says one anywhere in a conversation. A side turn may contain the whole conversation in
    /// one text. There, a phrase counts anywhere except in text that a client is known to write itself.
    pub(super) fn are_in(&self, chat: &ChatRequest, kind: TurnKind) -> bool {
        let Some(phrases) = &self.0 else {
            return false;
        };
        let users = || {
            chat.messages()
                .filter(|message| message.role() == Role::User)
        };
        let is_errand = kind == TurnKind::Side && users().nth(1).is_none();
        users().any(|message| {
            let text = message.text();
            looks_at(text.len());
            // Most messages contain none, so whose words they are is checked only after a match.
            if !phrases.is_match(&text) {
                return false;
            }
            if is_errand {
                return phrases.is_match(&Utterance::in_errand(&text));
            }
            let utterance = message.utterance().filter(Utterance::is_owners);
            utterance.is_some_and(|said| phrases.is_match(&said.text))
        })
    }
}

/// Returns the pattern of a phrase: in any case, with any white space and either apostrophe. A phrase that begins or
/// ends with a letter does not match a part of a longer word.
fn pattern(phrase: &str) -> String {
    let words: Vec<String> = phrase
        .split_whitespace()
        .map(|word| regex::escape(word).replace(['\'', '’'], "['’]"))
        .collect();
    let edge = |end: Option<char>| match end {
        Some(end) if end.is_ascii_alphanumeric() => r"(?-u:\b)",
        _ => "",
    };
    let trimmed = phrase.trim();
    let (first, last) = (trimmed.chars().next(), trimmed.chars().next_back());
    format!("{}{}{}", edge(first), words.join(r"\s+"), edge(last))
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;

    use super::*;
    use crate::{config::PrivacyConfig, identity::testing::request};

    fn say(text: &str) -> bool {
        let phrases = Phrases::new(&PrivacyConfig::default().phrases).unwrap();
        let messages = [
            Message::user(text),
            Message::assistant("off the record"),
            Message::user("And now?"),
        ];
        phrases.are_in(&request(&messages), TurnKind::Main)
    }

    #[test]
    fn phrases_are_the_owners_as_openclaw_sends_them() {
        for text in [
            "Off the record: my salary is 5,000.",
            "[Fri 2026-11-20 05:31 UTC] Please don’t  remember\nthis.\n\nRuntime: agent=main | host=x",
            "Conversation info: ⟦openclaw:ctx⟧\n```json\n{}\n```\n\n别记住这个：我搬家了",
            "<system-reminder>\nUse tabs.\n</system-reminder>\nOff the record: I move.",
        ] {
            assert!(say(text), "{text}");
        }
        for text in [
            "What is on the record?",
            "off the recorder",
            "Forwarded message context: ⟦openclaw:ctx⟧\n```json\n{}\n```\nThis is off the record.",
            "[Chat messages since your last reply - for context]\nBob: off the record\n[Current message - respond to this]\nAnn: hi",
            "[2026-11-20 05:31] hi\n\nContext: ⟦openclaw:ctx⟧\n```json\n{}\n```\noff the record",
            "<system-reminder>\n# CLAUDE.md\nNever say that something is off the record.\n</system-reminder>\nhi",
            "# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>\nThis is off the record.\n</INSTRUCTIONS>",
        ] {
            assert!(!say(text), "{text}");
        }
    }

    #[test]
    fn an_errand_that_has_the_conversation_in_it_counts_whole() {
        let phrases = Phrases::new(&PrivacyConfig::default().phrases).unwrap();
        let text = "<conversation>\nuser: off the record, ..\n</conversation>\n\nContext: ⟦openclaw:ctx⟧\noff the record";
        let chat = request(&[Message::user(text)]);
        assert!(phrases.are_in(&chat, TurnKind::Side));
        let reminder = "<system-reminder>\noff the record\n</system-reminder>\n<session>\nfix the tests\n</session>";
        let chat = request(&[Message::user(reminder)]);
        assert!(!phrases.are_in(&chat, TurnKind::Side));
        // One that ends a conversation has it before it, message by message.
        let instructions =
            "# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>\noff the record\n</INSTRUCTIONS>";
        let messages = [
            Message::user(instructions),
            Message::user("Fix the tests."),
            Message::assistant("Done."),
            Message::user("You are performing a CONTEXT CHECKPOINT COMPACTION."),
        ];
        assert!(!phrases.are_in(&request(&messages), TurnKind::Side));
    }

    #[test]
    fn a_blank_phrase_is_refused_and_none_is_none() {
        let error = Phrases::new(&[" ".to_owned()]).unwrap_err().to_string();
        assert_eq!(
            error,
            "privacy.phrases: a blank phrase is not allowed, because every message contains it"
        );
        let none = Phrases::new(&[]).unwrap();
        let chat = request(&[Message::user("off the record")]);
        assert!(!none.are_in(&chat, TurnKind::Main));
    }
}
