//! What a judge may see: the request, the reply, and everything after it.

use std::borrow::Cow;

use metaclaw_chat::{Message, Role, Speaker, utterance_at, utterances};
use metaclaw_skills::{Remark, remark};

const THINKING: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// The role of forwarded text. The user says nothing by it.
const APPLICATION: &str = "application";
/// The role of text that the user sends and that is, or may be, somebody else's.
pub(crate) const PASSED_ON: &str = "passed_on";
/// The role of a message in a group, whose author may be anybody.
pub(crate) const GROUP: &str = "group";

/// One turn and the messages after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The typed text that the reply answers.
    pub request: Option<String>,
    /// The text that was typed before that, because "shorter, please" refers to something.
    pub earlier: Option<String>,
    pub reply: Message,
    /// Every message after the reply up to the next assistant message: all parallel tool results, and the typed text of
    /// user messages.
    pub next: Vec<Message>,
}

// === impl Evidence ===

impl Evidence {
    /// Collects the evidence for `reply` after `messages`, with the messages `following` it.
    ///
    /// `messages` are those of the turn's request. `following` begins right after the reply.
    pub fn new(messages: &[Message], reply: Message, following: &[Message]) -> Self {
        let mut typed = utterances(messages).map(|(_, said)| said.text.into_owned());
        let next = following
            .iter()
            .take_while(|message| message.role() != Role::Assistant);
        let before = messages.iter().chain([&reply]);
        let all: Vec<&Message> = before.chain(next).collect();
        let next = (messages.len() + 1..all.len()).flat_map(|at| next_state(&all, at));
        let next = next.collect();
        Self {
            request: typed.next(),
            earlier: typed.next(),
            reply,
            next,
        }
    }

    /// Returns the reply's text without its thinking.
    pub fn said(&self) -> String {
        let text = self.reply.text();
        split_thinking(&text).1.trim().to_owned()
    }

    /// Returns the reply's thinking: its own field, or the part between think tags.
    pub fn thought(&self) -> Option<String> {
        let field = |name| self.reply.get(name).and_then(|value| value.as_str());
        let in_field = field("reasoning_content").or_else(|| field("reasoning"));
        let text = self.reply.text();
        let in_text = split_thinking(&text).0;
        let found = in_field.map_or_else(|| in_text, Cow::Borrowed);
        let thought = found.trim();
        (!thought.is_empty()).then(|| thought.to_owned())
    }
}

/// Returns what a message says about the reply before it: a tool's result unchanged, or the typed text of a user
/// message. In a user's message, the user's own remark and what the user passes on are apart. Text that the application
/// adds or a client writes by itself says nothing about the reply.
fn next_state(messages: &[&Message], at: usize) -> Vec<Message> {
    let Some(said) = utterance_at(messages, at) else {
        let message = messages[at];
        return match message.role() {
            Role::System => Vec::new(),
            _ => vec![message.clone()],
        };
    };
    match said.speaker {
        Speaker::Owner => match remark(&said.text) {
            Remark::Whole => vec![Message::user(said.text)],
            Remark::Part(own) if own.is_empty() => vec![Message::new(PASSED_ON, said.text)],
            Remark::Part(own) => vec![Message::user(own), Message::new(PASSED_ON, said.text)],
            Remark::Unknown => vec![Message::new(PASSED_ON, said.text)],
        },
        Speaker::Group => vec![Message::new(GROUP, said.text)],
        Speaker::Forwarded => vec![Message::new(APPLICATION, said.text)],
        Speaker::Client => Vec::new(),
    }
}

/// Returns the thinking in a text, and the text without it. A tag that is never closed extends to the end. If a tag is
/// only closed, the prompt had opened it.
fn split_thinking(text: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    for (open, close) in THINKING {
        let opened = text.find(open);
        let closed = text.find(close);
        match (opened, closed) {
            (Some(from), Some(to)) if from < to => {
                let said = format!("{}{}", &text[..from], &text[to + close.len()..]);
                return (
                    Cow::Borrowed(&text[from + open.len()..to]),
                    Cow::Owned(said),
                );
            }
            (Some(from), None) => {
                return (
                    Cow::Borrowed(&text[from + open.len()..]),
                    Cow::Borrowed(&text[..from]),
                );
            }
            (_, Some(to)) => {
                return (
                    Cow::Borrowed(&text[..to]),
                    Cow::Borrowed(&text[to + close.len()..]),
                );
            }
            (None, None) => {}
        }
    }
    (Cow::Borrowed(""), Cow::Borrowed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(text: &str) -> Message {
        Message::new("tool", text)
    }

    #[test]
    fn everything_up_to_the_next_reply_is_evidence() {
        let messages = [
            Message::user("first"),
            Message::assistant("x"),
            Message::user("second"),
            tool("t"),
        ];
        let following = [
            tool("a"),
            tool("b"),
            Message::user("more"),
            Message::assistant("later"),
            Message::user("no"),
        ];
        let evidence = Evidence::new(&messages, Message::assistant("reply"), &following);
        assert_eq!(evidence.request.as_deref(), Some("second"));
        assert_eq!(evidence.earlier.as_deref(), Some("first"));
        assert_eq!(evidence.next, following[..3]);
    }

    #[test]
    fn only_a_users_own_remark_is_the_users() {
        let roles = |next: Message| {
            let evidence = Evidence::new(&[], Message::assistant("x"), &[next]);
            let said = evidence.next.iter();
            let said = said.map(|it| (it.get("role").cloned().unwrap(), it.text().into_owned()));
            let said = said.map(|(role, text)| format!("{}: {text}", role.as_str().unwrap()));
            said.collect::<Vec<_>>().join(" | ")
        };
        for (text, expected) in [
            ("No, wrong.", "user: No, wrong."),
            ("No.\n> wrong", "user: No. | passed_on: No.\n> wrong"),
            ("Fwd: a\nwrong", "passed_on: Fwd: a\nwrong"),
            ("a\n\nwrong", "passed_on: a\n\nwrong"),
            ("Observation: wrong", "application: Observation: wrong"),
            ("<system-reminder>wrong</system-reminder>", ""),
        ] {
            assert_eq!(roles(Message::user(text)), expected, "{text}");
        }
        let named = r#"{"role":"user","name":"bob","content":"wrong"}"#;
        let named = serde_json::from_str(named).unwrap();
        assert_eq!(roles(named), "application: wrong");
    }

    #[test]
    fn thinking_is_told_apart_from_what_is_said() {
        let split = |text: &str| {
            let evidence = Evidence::new(&[], Message::assistant(text), &[]);
            (evidence.thought(), evidence.said())
        };
        let thought = |text: &str| Some(text.to_owned());
        assert_eq!(
            split("<think>hm</think>\nYes."),
            (thought("hm"), "Yes.".to_owned())
        );
        assert_eq!(split("hm</think> Yes."), (thought("hm"), "Yes.".to_owned()));
        assert_eq!(split("Yes. <think>hm"), (thought("hm"), "Yes.".to_owned()));
        assert_eq!(split("Yes."), (None, "Yes.".to_owned()));
        let json = r#"{"role":"assistant","content":"Yes.","reasoning_content":"hm"}"#;
        let evidence = Evidence::new(&[], serde_json::from_str(json).unwrap(), &[]);
        assert_eq!(evidence.thought(), thought("hm"));
    }
}
