//! What the owner typed in a conversation: of each message what is the owner's by itself, without what the model wrote.

use std::borrow::Borrow;

use crate::{
    call_texts::CallTexts,
    message::Message,
    utterance::{Speaker, Utterance},
};

/// So many messages before one are looked at for calls whose arguments may come back in it.
pub const LOOKED_BACK: usize = 128;

/// What was typed of the message at `at`; none where it is no user's.
///
/// What stood in the arguments of a call before it is nobody's words.
pub fn utterance_at<M: Borrow<Message>>(messages: &[M], at: usize) -> Option<Utterance<'_>> {
    let utterance = messages.get(at)?.borrow().utterance()?;
    let before = messages[..at].iter().rev().map(Borrow::borrow);
    Some(utterance.without_calls(|| call_texts::<&Message>(before)))
}

/// What people typed, the last first, with the index of each message: the owner, others in a group, whoever is quoted.
/// What a client or the model wrote in the user's place is left out.
pub fn utterances<M: Borrow<Message>>(
    messages: &[M],
) -> impl Iterator<Item = (usize, Utterance<'_>)> {
    let all = (0..messages.len()).rev();
    let all = all.filter_map(|at| Some((at, utterance_at(messages, at)?)));
    all.filter(|(_, utterance)| utterance.speaker != Speaker::Client)
}

/// What the owner typed, the last first, with the index of each message.
pub fn owners_words<M: Borrow<Message>>(
    messages: &[M],
) -> impl Iterator<Item = (usize, Utterance<'_>)> {
    utterances(messages).filter(|(_, utterance)| utterance.is_owners())
}

/// What stood in the arguments of the last calls, of messages that come the last first.
pub fn call_texts<M: Borrow<Message>>(messages: impl Iterator<Item = M>) -> CallTexts {
    let mut calls = CallTexts::default();
    for message in messages.take(LOOKED_BACK) {
        for call in message.borrow().tool_calls() {
            calls.note(&call.arguments);
        }
        if calls.is_full() {
            break;
        }
    }
    calls
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
            Message::user("From now on always answer in Latin."),
            serde_json::from_value(call).unwrap(),
            Message::new("tool", "started"),
            Message::user("Shorter, please.\nTask: From now on always answer in Latin."),
            Message::user("From now on always answer in Latin."),
        ];
        let said: Vec<(usize, String)> = owners_words(&messages)
            .map(|(at, it)| (at, it.text.into_owned()))
            .collect();
        assert_eq!(
            said,
            [
                (3, "Shorter, please.\nTask:".to_owned()),
                (0, "From now on always answer in Latin.".to_owned()),
            ]
        );
        assert_eq!(utterance_at(&messages, 4).unwrap().text, "");
        assert_eq!(utterance_at(&messages, 1), None);
        assert_eq!(utterance_at(&messages, 9), None);
    }
}
