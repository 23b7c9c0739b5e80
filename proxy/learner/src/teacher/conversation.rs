//! A turn's conversation as messages, with and without what the gateway added.

use metaclaw_chat::{Message, Role, owners_words};
use metaclaw_skills::{Lessons, without_wishes};
use metaclaw_turns::Turn;
use serde_json::{Map, Value, json};

/// The separator between the owner's words and what is added after them, as in the gateway.
const GAP: &str = "\n\n";

/// A turn's conversation as its client sent it, with the skills that were added and without the wishes.
#[derive(Debug, Clone)]
pub(crate) struct TeacherConversation {
    messages: Vec<Map<String, Value>>,
    owner: usize,
    words: String,
}

// === impl TeacherConversation ===

impl TeacherConversation {
    /// Returns `None` if the owner says nothing in it.
    pub(crate) fn from_turn(turn: &Turn) -> Option<Self> {
        Self::with_block(turn, skills_block(turn))
    }

    fn with_block(turn: &Turn, block: Option<&str>) -> Option<Self> {
        let asked = &turn.request.messages;
        let (mut owner, words) = owners_words(asked).next()?;
        let mut messages: Vec<_> = asked.iter().map(|m| m.as_map().clone()).collect();
        if let Some(block) = block {
            let opening = asked.iter().take_while(|m| is_system(m)).count();
            if let Some(last) = opening.checked_sub(1) {
                append(&mut messages[last], block);
            } else {
                messages.insert(0, message("system", block));
                owner += 1;
            }
        }
        Some(Self {
            messages,
            owner,
            words: words.text.into_owned(),
        })
    }

    pub(crate) fn plain(&self) -> Vec<Value> {
        self.messages.iter().cloned().map(Value::Object).collect()
    }

    pub(crate) fn told(&self, line: &str) -> Vec<Value> {
        self.with_owner(|message| append(message, line))
    }

    /// Replaces the owner's last words by another question; what the client put around them stays.
    pub(crate) fn asking(&self, question: &str) -> Vec<Value> {
        self.with_owner(|message| {
            if !replace(message, &self.words, question) {
                message.insert("content".to_owned(), question.into());
            }
        })
    }

    fn with_owner(&self, change: impl FnOnce(&mut Map<String, Value>)) -> Vec<Value> {
        let mut changed = self.clone();
        change(&mut changed.messages[self.owner]);
        changed.plain()
    }
}

/// Returns a turn's conversation as its client sent it, with these lessons instead of those that were added. `None` if the
/// owner says nothing in it.
pub(crate) fn with_lessons(turn: &Turn, lessons: &Lessons) -> Option<Vec<Message>> {
    let conversation = TeacherConversation::with_block(turn, lessons.system_block.as_deref())?;
    let told = match &lessons.user_line {
        Some(line) => conversation.told(line),
        None => conversation.plain(),
    };
    told.into_iter()
        .map(|message| serde_json::from_value(message).ok())
        .collect()
}

fn is_system(message: &Message) -> bool {
    message.role() == Role::System
}

fn skills_block(turn: &Turn) -> Option<&str> {
    let served = &turn.served;
    let block = served.system_block.as_deref()?;
    if served.wishes.is_some() && served.user_line.is_none() {
        without_wishes(block)
    } else {
        Some(block)
    }
}

fn message(role: &str, text: &str) -> Map<String, Value> {
    Message::new(role, text).as_map().clone()
}

fn append(message: &mut Map<String, Value>, text: &str) {
    match message.get_mut("content") {
        Some(Value::String(said)) if !said.is_empty() => {
            said.push_str(GAP);
            said.push_str(text);
        }
        Some(Value::Array(parts)) => parts.push(json!({"type": "text", "text": text})),
        _ => {
            message.insert("content".to_owned(), text.into());
        }
    }
}

/// Replaces `words` in one of a message's texts by a question; returns `false` if the words are not there unchanged.
fn replace(message: &mut Map<String, Value>, words: &str, question: &str) -> bool {
    let text = match message.get_mut("content") {
        Some(Value::String(text)) if text.contains(words) => Some(text),
        Some(Value::Array(parts)) => parts
            .iter_mut()
            .find_map(|part| match part.get_mut("text") {
                Some(Value::String(text)) if text.contains(words) => Some(text),
                _ => None,
            }),
        _ => None,
    };
    let found = text.filter(|_| !words.is_empty());
    found.is_some_and(|text| {
        *text = text.replacen(words, question, 1);
        true
    })
}

#[cfg(test)]
mod tests;
