//! Extracts from system texts which agent and session OpenClaw names, and what tells an agent's own requests from a
//! person's.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    num::NonZeroUsize,
    sync::Arc,
};

use metaclaw_chat::Role;
use metaclaw_dialects::request::{ChatRequest, MessageRef};

use super::{
    clients::{CLIENTS, begins_with, runtime_line},
    remembered::Remembered,
};

/// The number of system texts whose facts the cache remembers, at most 1 KB each.
pub(super) const KNOWN: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
/// How much of each part of a text is looked at for the words of an errand, in bytes.
const HEAD: usize = 250;
/// How deep in a text a sub-agent may be told that it is one. Hermes does so after its own text.
const DEPTH: usize = 16_384;
/// The part that is compared with other texts, in bytes and lines.
const SHAPE_HEAD: usize = 4_096;
pub(super) const SHAPE_LINES: usize = 24;
/// A line with fewer letters is ignored, such as a mark or a heading.
const LEAST_OF_LINE: usize = 12;

pub(super) type KnownTexts = Remembered<Arc<SystemText>>;

/// The facts that one system text gives about the client and the request.
#[derive(Debug, Default)]
pub(super) struct SystemText {
    /// OpenClaw's line about itself.
    pub(super) runtime: Option<String>,
    /// A hash of the letters of each of the text's first lines.
    pub(super) shape: Vec<u64>,
    /// Whether it has the words of a known client's errand or sub-agent.
    pub(super) is_errands: bool,
}

/// The system texts of a request in order.
#[derive(Debug, Clone, Default)]
pub(super) struct SystemTexts {
    all: Vec<Arc<SystemText>>,
    /// How many of them come before any other message.
    n_opening: usize,
}

// === impl SystemTexts ===

impl SystemTexts {
    pub(super) fn read(chat: &ChatRequest, known: &KnownTexts) -> Self {
        let is_system = |message: &MessageRef<'_>| message.role() == Role::System;
        let read = |message: MessageRef<'_>| {
            known.of((chat.api(), message.key()), || {
                Arc::new(SystemText::read(&message))
            })
        };
        Self {
            all: chat.messages().filter(is_system).map(read).collect(),
            n_opening: chat.messages().take_while(is_system).count(),
        }
    }

    #[cfg(test)]
    pub(super) fn unknown(chat: &ChatRequest) -> Self {
        Self::read(chat, &KnownTexts::new(KNOWN))
    }

    pub(super) fn runtime(&self) -> Option<&str> {
        self.all.iter().find_map(|text| text.runtime.as_deref())
    }

    pub(super) fn opening(&self) -> impl Iterator<Item = &SystemText> {
        self.all[..self.n_opening].iter().map(Arc::as_ref)
    }
}

// === impl SystemText ===

impl SystemText {
    fn read(message: &MessageRef<'_>) -> Self {
        let heads = message.heads(SHAPE_HEAD);
        let lines = heads.iter().flat_map(|head| head.lines());
        Self {
            runtime: runtime_line(message),
            shape: lines.filter_map(line_hash).take(SHAPE_LINES).collect(),
            is_errands: is_errands(message),
        }
    }
}

fn is_errands(message: &MessageRef<'_>) -> bool {
    let phrases = CLIENTS.systems.iter();
    let begins = |head: &str| phrases.clone().any(|phrase| begins_with(head, phrase));
    let lines = CLIENTS.sub_agent_lines.iter();
    let is_sub_agents = |line: &str| lines.clone().any(|phrase| line.starts_with(phrase));
    message.heads(HEAD).iter().any(|head| begins(head))
        // Most texts have no such line, and are long.
        || message.may_say("subagent")
            && message.head(DEPTH).lines().any(is_sub_agents)
}

/// Returns the hash of a line without digits, because times and versions change.
fn line_hash(line: &str) -> Option<u64> {
    let letters = || line.chars().filter(|c| c.is_alphabetic());
    letters().nth(LEAST_OF_LINE - 1)?;
    let mut hasher = DefaultHasher::new();
    letters().for_each(|c| c.hash(&mut hasher));
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;

    use super::*;
    use crate::identity::testing::request;

    #[test]
    fn texts_are_read_once_and_only_those_of_the_system() {
        const LINE: &str = "Runtime: agent=main | sessionId=0b3c9a52 | host=x";
        let text = Message::system(format!("You are kind to all that live.\n{LINE}"));
        let late = Message::system("Be brief, and give the amounts in euros.");
        let messages = [text, Message::user(LINE), late];
        let known = KnownTexts::new(KNOWN);
        let [first, again] = [(); 2].map(|()| SystemTexts::read(&request(&messages), &known));
        assert_eq!(first.runtime(), Some(LINE));
        assert_eq!(
            first.opening().map(|text| text.shape.len()).sum::<usize>(),
            2
        );
        assert!(Arc::ptr_eq(&first.all[1], &again.all[1]));
        let users = SystemTexts::unknown(&request(&messages[1..2]));
        assert_eq!((users.runtime(), users.all.len()), (None, 0));
    }
}
