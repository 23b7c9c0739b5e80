//! A chat request, read.

use std::{borrow::Cow, iter, ops::Range, ptr};

use bytes::Bytes;
use bytestring::ByteString;
use metaclaw_chat::{
    CallTexts, Chain, ChainHash, LOOKED_BACK, Message, Role, Said, SaidBefore, Speaker, Utterance,
};
use serde_json::Value;

use super::{
    conversation::{self, Conversation},
    error::RequestError,
    layout::{self, Layout},
};
use crate::{api::Api, json};

/// A chat request: its bytes as they came, where its parts stand, and who speaks.
///
/// No value is built: a text is read where it stands when somebody asks for it.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    api: Api,
    text: ByteString,
    pub(super) layout: Layout,
    pub(super) conversation: Conversation,
}

/// One message of a request, in the role that a chat completion gives it.
#[derive(Debug, Clone, Copy)]
pub struct MessageRef<'a> {
    request: &'a ChatRequest,
    message: &'a conversation::Message,
}

// === impl ChatRequest ===

impl ChatRequest {
    /// Reads the body of a request of `api`.
    ///
    /// # Errors
    /// The body is no JSON object, or has no conversation of messages. What upstreams of the Responses API
    /// make of a request without one is for them to say: it may go on from what they keep.
    pub fn parse(api: Api, raw: Bytes) -> Result<Self, RequestError> {
        let text = ByteString::try_from(raw);
        let text = text.map_err(|error| RequestError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        let layout = Layout::parse(api, &text)?;
        let conversation = Conversation::parse(api, &text, &layout)?;
        Ok(Self {
            api,
            text,
            layout,
            conversation,
        })
    }

    /// The same with bytes of its own: those that it was read from are free.
    #[must_use]
    pub fn detached(self) -> Self {
        let text = ByteString::from(&*self.text);
        Self { text, ..self }
    }

    /// The API that it is a request of.
    pub fn api(&self) -> Api {
        self.api
    }

    /// The body as it came.
    pub fn raw(&self) -> &Bytes {
        self.text.as_bytes()
    }

    /// The fields of the body in order, names unescaped, values as JSON text; duplicates included.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let members = self.layout.members.iter();
        members.map(|member| (member.name.as_str(), self.text(&member.value)))
    }

    /// A field of the body as JSON text; of several of one name the last counts.
    pub fn field_json(&self, name: &str) -> Option<&str> {
        let member = self.layout.member(name)?;
        Some(self.text(&member.value))
    }

    /// A field of the body as a value; `None` as well where no value can hold it.
    pub fn field(&self, name: &str) -> Option<Value> {
        json::value(self.field_json(name)?.as_bytes())
    }

    /// A text; a part of the body, as the JSON text of a field, shares its memory.
    pub fn part(&self, part: &str) -> ByteString {
        match self.text.get(json::span(&*self.text, part)) {
            Some(own) if ptr::eq(own, part) => self.text.slice_ref(part),
            _ => part.into(),
        }
    }

    /// The elements of the conversation as JSON texts: of `messages`, or of Responses' `input`.
    pub fn items(&self) -> impl Iterator<Item = &str> {
        let items = self.conversation.items.iter();
        items.map(|item| self.text(&item.whole))
    }

    /// The messages, in order; a system text that stands beside the conversation is the first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = MessageRef<'_>> {
        let messages = self.conversation.messages.iter();
        messages.map(|message| MessageRef {
            request: self,
            message,
        })
    }

    /// The last user's message, whoever wrote it.
    pub fn last_said(&self) -> Option<MessageRef<'_>> {
        self.messages()
            .rev()
            .find(|message| message.message.is_said)
    }

    /// What people typed, the last first: the owner, others in a group, whoever is quoted. What clients and the model
    /// wrote in the user's place is left out.
    pub fn utterances(&self) -> impl Iterator<Item = Utterance<'_>> {
        let utterances = self.messages().rev().filter_map(|it| it.utterance());
        utterances.filter(|it| it.speaker != Speaker::Client)
    }

    /// Whether the model has answered before.
    pub fn has_reply(&self) -> bool {
        self.messages().any(|it| it.role() == Role::Assistant)
    }

    /// Whether a message to the model holds more than text: an image, a file, a sound.
    pub fn has_media(&self) -> bool {
        self.messages().any(|message| message.has_media())
    }

    /// The hash of the conversation before its first message, which is `start`, and after each, as
    /// [`ChainHash::then`] has it.
    pub fn chains(&self, start: ChainHash) -> Vec<ChainHash> {
        let mut chain = Chain::new(start);
        let after = self.messages().map(|message| chain.push(message.said()));
        iter::once(start).chain(after).collect()
    }

    /// The messages in chat shape, with all their fields, as many as [`Self::messages`] has; `None` where no
    /// value can hold a part of one: a number beyond f64, or a nesting deeper than 127 levels.
    pub fn to_messages(&self) -> Option<Vec<Message>> {
        let beside = match self.api {
            Api::Chat => None,
            Api::Messages => self.field_json("system"),
            Api::Responses => self.field_json("instructions"),
        };
        let mut messages = Vec::with_capacity(self.conversation.messages.len());
        if let Some(system) = beside {
            messages.extend(self.api.system(&json::value(system.as_bytes())?));
        }
        for item in self.items() {
            let item = json::value(item.as_bytes())?;
            self.api.push(&mut messages, &item).ok()?;
        }
        let input = self.field_json("input").and_then(json::string);
        let input = input.filter(|_| self.api == Api::Responses);
        messages.extend(input.map(Message::user));
        Some(messages)
    }

    /// What stood in the arguments of the calls before a message, as [`metaclaw_chat::utterance_at`] has it.
    fn calls_before(&self, message: &conversation::Message) -> CallTexts {
        let mut before = SaidBefore::default();
        let all = &self.conversation.messages;
        let n_before = all.iter().take_while(|it| it.item < message.item).count();
        for at in n_before.saturating_sub(LOOKED_BACK)..n_before {
            match (all[at].role, &all[at].content) {
                (Role::User, Some(content)) => {
                    before.note_typed(content.utterance(self.text(&content.span)));
                }
                (Role::Assistant, _) => {
                    let next = all.get(at + 1).and_then(|it| it.item);
                    let items = all[at].item.zip(next).map(|(from, to)| from..to);
                    self.models(items.unwrap_or_default())
                        .for_each(|it| before.note_calls(&it));
                }
                _ => {}
            }
        }
        before.into_calls()
    }

    /// What the model said in some elements of the conversation.
    fn models(&self, items: Range<usize>) -> impl Iterator<Item = Message> {
        let items = self.conversation.items.get(items).unwrap_or_default();
        items.iter().filter_map(|item| {
            let value = json::value(self.text(&item.whole).as_bytes())?;
            self.api.item(&value).ok()?.pop()
        })
    }

    pub(super) fn text(&self, span: &layout::Span) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

// === impl MessageRef ===

impl<'a> MessageRef<'a> {
    pub fn role(&self) -> Role {
        self.message.role
    }

    /// What was typed of a user's message, without what stood in the model's calls before it, as
    /// [`metaclaw_chat::utterance_at`] has it; none of another's.
    pub fn utterance(&self) -> Option<Utterance<'a>> {
        if self.role() != Role::User {
            return None;
        }
        let utterance = match self.content() {
            Some((content, json)) => content.utterance(json),
            None => Utterance::parse(""),
        };
        let Self { request, message } = self;
        Some(utterance.without_calls(|| request.calls_before(message)))
    }

    /// Its content, or the texts of its parts, joined by newlines; nothing of an assistant's.
    pub fn text(&self) -> Cow<'a, str> {
        self.content()
            .map_or_else(Cow::default, |(content, json)| content.text(json))
    }

    /// The first `limit` bytes of that text, cut between characters.
    pub fn head(&self, limit: usize) -> Cow<'a, str> {
        self.content()
            .map_or_else(Cow::default, |(content, json)| content.head(json, limit))
    }

    /// The first `limit` bytes of each of its texts, in order: clients put texts of their own beside the owner's.
    pub fn heads(&self, limit: usize) -> Vec<Cow<'a, str>> {
        self.content()
            .map(|(content, json)| content.heads(json, limit))
            .unwrap_or_default()
    }

    /// Whether its content, as JSON text, holds `needle`: without reading the text, to know that it is not
    /// there.
    pub fn may_say(&self, needle: &str) -> bool {
        let json = self.content().map(|(_, json)| json.as_bytes());
        json.is_some_and(|json| memchr::memmem::find(json, needle.as_bytes()).is_some())
    }

    /// What it is to the hash of the conversation.
    pub fn said(&self) -> Said {
        match self.role() {
            Role::User if !self.message.is_said => Said::Nothing,
            role @ (Role::User | Role::Tool) => Said::of(role, &self.text()),
            role => Said::of(role, ""),
        }
    }

    fn has_media(&self) -> bool {
        self.content()
            .is_some_and(|(content, json)| content.has_media(json))
    }

    fn content(&self) -> Option<(&'a super::content::Content, &'a str)> {
        let content = self.message.content.as_ref()?;
        Some((content, self.request.text(&content.span)))
    }
}

#[cfg(test)]
mod clients;
#[cfg(test)]
mod tests;
