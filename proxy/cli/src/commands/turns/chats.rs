//! `metaclaw turns export --chats`: good turns as chats for supervised fine-tuning.
//!
//! A line is a chat of OpenAI's fine-tuning format, which `metaclaw train` and managed fine-tuning services read:
//! <https://platform.openai.com/docs/api-reference/fine-tuning/chat-input>.

use std::fmt::Write as _;

use metaclaw_chat::{AgentId, Message, Role, Score};
use metaclaw_turns::{StreamEnd, Turn, TurnKind, TurnState};
use serde_json::{Map, Value, json};

const FIELDS: [&str; 3] = ["tool_calls", "tool_call_id", "name"];

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChatCounts {
    pub(super) n_chats: u64,
    pub(super) n_without_text: u64,
}

impl ChatCounts {
    /// Returns a turn as a chat, if it is a good turn of this agent, and counts it.
    pub(super) fn chat(&mut self, turn: &Turn, agent: Option<&AgentId>) -> Option<Value> {
        if agent.is_some_and(|agent| *agent != turn.agent) || !is_good(turn) {
            return None;
        }
        let chat = chat(turn);
        match chat {
            Some(_) => self.n_chats += 1,
            None => self.n_without_text += 1,
        }
        chat
    }

    pub(super) fn text(&self) -> String {
        let mut told = format!("good turns exported as chats: {}", self.n_chats);
        if self.n_without_text > 0 {
            let left = self.n_without_text;
            // Writing to a String cannot fail.
            let _ = write!(
                told,
                "; left out, because they have content that is no text: {left}"
            );
        }
        told
    }
}

/// A whole turn of the owner's with the verdict +1. Held-out turns measure and are never trained on.
fn is_good(turn: &Turn) -> bool {
    let verdict = turn.verdict.as_ref();
    turn.meta.kind == TurnKind::Main
        && turn.meta.end == StreamEnd::Complete
        && !matches!(turn.state, TurnState::HeldOut)
        && verdict.is_some_and(|verdict| verdict.score == Score::Good)
}

/// The conversation with the reply. Only the reply is trained: earlier ones have weight 0, because each has a verdict of
/// its own. All instructions stand in one system message at the beginning, as services require.
fn chat(turn: &Turn) -> Option<Value> {
    let mut instructions = Vec::new();
    let mut messages = Vec::new();
    for message in &turn.request.messages {
        if message.role() == Role::System {
            instructions.push(text(message)?);
            continue;
        }
        let mut message = plain(message)?;
        if message["role"] == "assistant" {
            message.insert("weight".to_owned(), json!(0));
        }
        messages.push(Value::Object(message));
    }
    if !instructions.is_empty() {
        let system = json!({"role": "system", "content": instructions.join("\n\n")});
        messages.insert(0, system);
    }
    messages.push(Value::Object(plain(turn.reply.as_ref()?)?));
    let mut chat = json!({"messages": messages});
    if let Some(tools) = &turn.request.tools {
        chat["tools"] = Value::clone(tools);
    }
    Some(chat)
}

/// A message with the format's fields alone, or none if it has content that is no text.
fn plain(message: &Message) -> Option<Map<String, Value>> {
    let role = match message.role() {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Other => return None,
    };
    let mut plain = Map::new();
    plain.insert("role".to_owned(), json!(role));
    plain.insert("content".to_owned(), json!(text(message)?));
    for field in FIELDS {
        if let Some(value) = message.get(field) {
            plain.insert(field.to_owned(), value.clone());
        }
    }
    Some(plain)
}

fn text(message: &Message) -> Option<String> {
    let parts = message.get("content").and_then(Value::as_array);
    let is_text = |part: &Value| part["text"].is_string();
    parts
        .is_none_or(|parts| parts.iter().all(is_text))
        .then(|| message.text().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(change: &Value) -> Turn {
        let mut turn = json!({
            "id": "1-0", "agent": "main", "session": "s", "kind": "main", "chain": "01".repeat(32),
            "end": {"how": "complete"}, "started_ms": 1, "ended_ms": 2, "new_from": 0,
            "request": {"messages": [
                {"role": "developer", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "What is rain?"}]},
                {"role": "assistant", "content": null, "reasoning_content": "I look.",
                 "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "c", "content": "wet"},
                {"role": "system", "content": "Be brief."},
            ], "tools": [{"type": "function", "function": {"name": "look"}}]},
            "reply": {"role": "assistant", "content": "Water.", "refusal": null},
            "served": {}, "state": {"is": "judged"},
            "verdict": {"score": 1, "by": "llm", "votes": [], "weight": 1.0},
        });
        for (key, value) in change.as_object().unwrap() {
            turn[key] = value.clone();
        }
        serde_json::from_value(turn).unwrap()
    }

    #[test]
    fn a_good_turn_is_a_chat_in_which_only_the_reply_is_trained() {
        let mut counts = ChatCounts::default();
        let chat = counts.chat(&turn(&json!({})), None).unwrap();
        let call =
            json!({"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}});
        let expected = json!({"messages": [
            {"role": "system", "content": "Be kind.\n\nBe brief."},
            {"role": "user", "content": "What is rain?"},
            {"role": "assistant", "content": "", "tool_calls": [call], "weight": 0},
            {"role": "tool", "content": "wet", "tool_call_id": "c"},
            {"role": "assistant", "content": "Water."},
        ], "tools": [{"type": "function", "function": {"name": "look"}}]});
        assert_eq!(chat, expected);
        assert_eq!(counts.text(), "good turns exported as chats: 1");
    }

    #[test]
    fn turns_that_are_not_good_are_left_out() {
        let mut counts = ChatCounts::default();
        for change in [
            json!({"kind": "side"}),
            json!({"kind": "rollout"}),
            json!({"end": {"how": "cut"}}),
            json!({"verdict": null}),
            json!({"verdict": {"score": 0, "by": "llm", "votes": [], "weight": 1.0}}),
            json!({"verdict": {"score": -1, "by": "llm", "votes": [], "weight": 1.0}}),
            json!({"state": {"is": "held_out"}}),
        ] {
            assert_eq!(counts.chat(&turn(&change), None), None, "{change}");
        }
        let [work, main] = ["work", "main"].map(|name| name.parse::<AgentId>().unwrap());
        assert_eq!(counts.chat(&turn(&json!({})), Some(&work)), None);
        assert_eq!(counts, ChatCounts::default());
        assert!(counts.chat(&turn(&json!({})), Some(&main)).is_some());
    }

    #[test]
    fn a_turn_with_an_image_is_left_out_and_counted() {
        let image = json!({"type": "image_url", "image_url": {"url": "data:,"}});
        let message = json!({"role": "user", "content": [image]});
        let mut counts = ChatCounts::default();
        let turn = turn(&json!({"request": {"messages": [message]}}));
        assert_eq!(counts.chat(&turn, None), None);
        let told = "good turns exported as chats: 0; left out, because they have content that is no text: 1";
        assert_eq!(counts.text(), told);
    }
}
