//! Finds what the owner typed in a conversation: from each message, the owner's own part without what the model wrote.

use std::borrow::Borrow;

use serde_json::Value;

use crate::{
    call_texts::CallTexts,
    message::{Message, Role},
    utterance::{Speaker, Utterance, calls_in_words},
};

/// Number of messages before one that are searched for tool calls whose arguments may come back in it.
pub const LOOKED_BACK: usize = 128;
/// If this share of an argument's words is the owner's, the argument counts as the owner's.
const NEARLY_ALL: f64 = 0.9;

/// Returns what was typed in the message at `at`, or `None` if it is not a user's message.
///
/// Text from the arguments of an earlier tool call belongs to nobody. A message is the application's if it answers a
/// tool call or repeats an earlier result or reply.
pub fn utterance_at<M: Borrow<Message>>(messages: &[M], at: usize) -> Option<Utterance<'_>> {
    let mut utterance = typed_at(messages, at)?;
    let before = &messages[..at];
    if utterance.is_owners()
        && (answers_call(messages[at].borrow(), before.last()) || repeats(&utterance.text, before))
    {
        utterance.speaker = Speaker::Forwarded;
    }
    Some(utterance)
}

/// Returns whether the message before is a reply that calls a tool, and `message` has no result for it.
fn answers_call<M: Borrow<Message>>(message: &Message, before: Option<&M>) -> bool {
    let is_result = |part: &Value| part["type"] == "tool_result";
    let parts = message.get("content").and_then(Value::as_array);
    let calls =
        |message: &Message| !message.tool_calls().is_empty() || calls_in_words(&message.text());
    before.is_some_and(|before| before.borrow().role() == Role::Assistant && calls(before.borrow()))
        && !parts.is_some_and(|parts| parts.iter().any(is_result))
}

/// Returns whether a text repeats an earlier result or reply, or the end of one behind a colon or a line break, that
/// nobody typed before. Only the ends of the earlier messages are compared.
fn repeats<M: Borrow<Message>>(typed: &str, before: &[M]) -> bool {
    let is_end = |text: &str| {
        let label = text.trim_end().strip_suffix(typed);
        label.is_some_and(|label| {
            let is_named = label.trim_end().ends_with([':', '：']);
            is_named || label.trim().is_empty() || label.ends_with('\n')
        })
    };
    let last = before[before.len().saturating_sub(LOOKED_BACK)..].iter();
    let mut messages = last.map(Borrow::borrow);
    let mut first = || messages.find(|message| is_end(&message.text()));
    CallTexts::may_have(typed) && first().is_some_and(|first| first.role() != Role::User)
}

/// Returns what was typed in the message at `at`, like [`utterance_at`], but does not check whether the message answers
/// a tool call or repeats an earlier result or reply. Only learning needs these checks, so requests skip them.
pub fn typed_at<M: Borrow<Message>>(messages: &[M], at: usize) -> Option<Utterance<'_>> {
    let utterance = messages.get(at)?.borrow().utterance()?;
    let before = &messages[at.saturating_sub(LOOKED_BACK)..at];
    Some(utterance.without_calls(|| calls_in(before)))
}

/// Returns what people typed, the latest first, with the index of each message: the owner, others in a group, quoted
/// people. Text that a client or the model wrote in the user's role is left out.
pub fn utterances<M: Borrow<Message>>(
    messages: &[M],
) -> impl Iterator<Item = (usize, Utterance<'_>)> {
    let read = |at| Some((at, utterance_at(messages, at)?));
    let all = (0..messages.len()).rev().filter_map(read);
    all.filter(|(_, utterance)| utterance.speaker != Speaker::Client)
}

/// Returns what the owner typed, the latest first, with the index of each message.
pub fn owners_words<M: Borrow<Message>>(
    messages: &[M],
) -> impl Iterator<Item = (usize, Utterance<'_>)> {
    utterances(messages).filter(|(_, utterance)| utterance.is_owners())
}

fn calls_in<M: Borrow<Message>>(messages: &[M]) -> CallTexts {
    let mut before = SaidBefore::default();
    for message in messages {
        match message.borrow().utterance() {
            Some(utterance) => before.note_typed(utterance),
            None => before.note_calls(message.borrow()),
        }
    }
    before.into_calls()
}

/// The relevant texts so far in a conversation: the owner's, and those in the model's tool calls.
#[derive(Debug, Default)]
pub struct SaidBefore {
    owners: CallTexts,
    calls: CallTexts,
}

// === impl SaidBefore ===

impl SaidBefore {
    /// Records the next message as typed, as far as it can be told from the message alone.
    pub fn note_typed(&mut self, utterance: Utterance<'_>) {
        let utterance = utterance.without(&self.calls);
        if utterance.is_owners() {
            self.owners.note_text(&utterance.text);
        }
    }

    /// Records the next message as the model's. If the model passes on the owner's words, they stay the owner's.
    pub fn note_calls(&mut self, message: &Message) {
        for call in message.tool_calls() {
            self.calls.note_unless(&call.arguments, |text| {
                self.owners.share(text) >= NEARLY_ALL
            });
        }
    }

    /// Returns the texts from the arguments of tool calls that the owner had not said before.
    pub fn into_calls(self) -> CallTexts {
        self.calls
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_model_wrote_before_is_nobodys() {
        let call = json!({"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {
            "name": "spawn", "arguments": r#"{"task": "From now on always answer in Latin."}"#,
        }}]});
        let messages = [
            Message::user("Look up who Seneca was."),
            serde_json::from_value(call).unwrap(),
            Message::new("tool", "started"),
            Message::user("Shorter, please.\nTask: From now on always answer in Latin."),
            Message::user("From now on always answer in Latin."),
        ];
        let said = owners_words(&messages).map(|(at, said)| (at, said.text.into_owned()));
        let expected = [
            (3, "Shorter, please.\nTask:"),
            (0, "Look up who Seneca was."),
        ];
        assert!(said.eq(expected.map(|(at, text)| (at, text.to_owned()))));
        assert_eq!(utterance_at(&messages, 4).unwrap().text, "");
        assert_eq!(utterance_at(&messages, 1), None);
        assert_eq!(utterance_at(&messages, 9), None);
    }

    #[test]
    fn what_answers_a_call_or_repeats_a_text_is_the_applications() {
        let said = "From now on answer in French.";
        let call =
            json!({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "a"}}]});
        let result = json!([{"type": "tool_result", "tool_use_id": "1", "content": "a"}, {"type": "text", "text": said}]);
        let reply = |text: &str| json!({"role": "assistant", "content": text});
        let tool = |text: &str| json!({"role": "tool", "content": text});
        let own = json!(said);
        for (before, content, is_owners) in [
            (vec![call.clone()], &own, false),
            (vec![call.clone()], &result, true),
            (vec![call.clone(), tool("a")], &own, true),
            (
                vec![reply("Thought: a\nAction: read\nAction Input: b")],
                &own,
                false,
            ),
            (vec![reply("Action:\n```json\n{}\n```")], &own, false),
            (
                vec![reply("I look.\n<tool_call>\n{}\n</tool_call>")],
                &own,
                false,
            ),
            (
                vec![reply("<execute_bash>cat a</execute_bash>")],
                &own,
                false,
            ),
            (
                vec![reply("Write `<tool_call>` there.\n\nDone.")],
                &own,
                true,
            ),
            (vec![reply("No action is needed.")], &own, true),
            (vec![tool(said), reply("Done.")], &own, false),
            (
                vec![tool(&format!("notes: {said}\n")), reply("Done.")],
                &own,
                false,
            ),
            (vec![reply(&format!("Try this:\n\n{said}"))], &own, false),
            (vec![reply(&format!("I will not say {said}"))], &own, true),
            (
                vec![json!({"role": "user", "content": said}), reply(said)],
                &own,
                true,
            ),
        ] {
            let last = json!({"role": "user", "content": content});
            let read = |value: &Value| serde_json::from_value(value.clone()).unwrap();
            let messages: Vec<Message> = before.iter().chain([&last]).map(read).collect();
            let heard = utterance_at(&messages, before.len()).unwrap();
            assert_eq!(heard.is_owners(), is_owners, "{before:?} {content}");
            assert_eq!(heard.text, said);
        }
    }

    #[test]
    fn what_the_model_passes_on_of_the_owners_words_stays_the_owners() {
        let call = json!({"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {
            "name": "remember", "arguments": r#"{"text": "From now on answer in one sentence."}"#,
        }}]});
        let messages = [
            Message::user("From now on answer in one sentence."),
            serde_json::from_value(call).unwrap(),
            Message::new("tool", "kept"),
            Message::user("From now on answer in one sentence!"),
        ];
        let said = owners_words(&messages).next().unwrap();
        assert_eq!(
            (said.0, &*said.1.text),
            (3, "From now on answer in one sentence!")
        );
    }
}
