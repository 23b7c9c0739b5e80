//! A chat request in parsed form.

use std::{borrow::Cow, iter, ops::Range, sync::OnceLock};

use bytes::Bytes;
use bytestring::ByteString;
use metaclaw_chat::{
    CallTexts, Chain, ChainHash, LOOKED_BACK, Message, Role, Said, SaidBefore, Speaker, Utterance,
    work::looks_at,
};
use serde_json::Value;

use super::{
    conversation::{self, Conversation},
    error::RequestError,
    known::KnownValues,
    layout::Layout,
    spans::ValueMark,
    walk::ByteSpan,
};
use crate::{api::Api, json};

/// A chat request: its original bytes, the positions of its parts, and the roles of its messages.
///
/// No value is built. A text is read in place when a caller needs it.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    api: Api,
    text: ByteString,
    pub(super) layout: Layout,
    pub(super) conversation: Conversation,
    said: OnceLock<Vec<Said>>,
}

/// What distinguishes a message's content from others of the same role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKey<'a> {
    /// A part of a long value, which begins at this byte of it.
    Long(ValueMark, usize),
    /// The content as JSON text.
    Short(&'a str),
}

/// One message of a request, with its role in chat completions.
#[derive(Debug, Clone, Copy)]
pub struct MessageRef<'a> {
    request: &'a ChatRequest,
    message: &'a conversation::MessageSpan,
}

// === impl ChatRequest ===

impl ChatRequest {
    /// Parses the body of a request of `api`.
    ///
    /// # Errors
    /// Fails if the body is not a JSON object, or has no conversation of messages. A Responses request may have no
    /// conversation, because it may continue one that the upstream stores. The upstream decides about that.
    pub fn parse(api: Api, raw: Bytes) -> Result<Self, RequestError> {
        Self::parse_with(api, raw, &KnownValues::default())
    }

    /// Like [`Self::parse`]. Does not walk over long values that are known.
    ///
    /// # Errors
    /// The same.
    pub fn parse_with(api: Api, raw: Bytes, known: &KnownValues) -> Result<Self, RequestError> {
        let text = ByteString::try_from(raw).map_err(|error| RequestError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        let layout = Layout::parse(api, &text, known)?;
        let conversation = Conversation::parse(api, &text, &layout)?;
        Ok(Self {
            api,
            text,
            layout,
            conversation,
            said: OnceLock::new(),
        })
    }

    /// Copies the request into its own memory, so that the original buffer is freed.
    #[must_use]
    pub fn detached(self) -> Self {
        let text = ByteString::from(&*self.text);
        Self { text, ..self }
    }

    /// Returns the API of the request.
    pub fn api(&self) -> Api {
        self.api
    }

    /// Returns the original body.
    pub fn raw(&self) -> &Bytes {
        self.text.as_bytes()
    }

    /// Returns the fields of the body in order, with unescaped names and values as JSON text, including duplicates.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let members = self.layout.members.iter();
        members.map(|member| (member.name.as_str(), self.text(&member.value)))
    }

    /// Returns a field of the body as JSON text. Of several with the same name, the last counts.
    pub fn field_json(&self, name: &str) -> Option<&str> {
        self.marked_field(name).map(|(json, _)| json)
    }

    /// Returns a field with its mark, if it is long.
    pub fn marked_field(&self, name: &str) -> Option<(&str, Option<ValueMark>)> {
        let member = self.layout.member(name)?;
        Some((self.text(&member.value), member.mark))
    }

    /// Returns a field of the body as a value, or `None` if it is missing or no value can hold it.
    pub fn field(&self, name: &str) -> Option<Value> {
        json::value(self.field_json(name)?.as_bytes())
    }

    /// Returns the elements of the conversation as JSON texts: of `messages`, or of Responses' `input`.
    pub fn items(&self) -> impl Iterator<Item = &str> {
        self.marked_items().map(|(item, _)| item)
    }

    /// Returns the elements with the marks of the long ones.
    pub fn marked_items(&self) -> impl Iterator<Item = (&str, Option<ValueMark>)> {
        let items = self.conversation.items.iter();
        items.map(|item| (self.text(&item.whole), item.mark))
    }

    /// Returns those elements of the conversation that the model wrote, as JSON texts.
    pub fn replies(&self) -> impl Iterator<Item = &str> {
        let items = self.conversation.items.iter();
        // In Responses, a call or a thought has no role, and neither has the result of a call.
        let replies = items.filter(|item| matches!(item.role, None | Some(Role::Assistant)));
        replies.map(|item| self.text(&item.whole))
    }

    /// Returns the messages in order. A system prompt beside the conversation is the first one.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = MessageRef<'_>> {
        let messages = self.conversation.messages.iter();
        messages.map(|message| MessageRef {
            request: self,
            message,
        })
    }

    /// Returns the last user message, whoever wrote it.
    pub fn last_said(&self) -> Option<MessageRef<'_>> {
        self.messages()
            .rev()
            .find(|message| message.message.is_said)
    }

    /// Returns what people typed, the latest first: the owner, others in a group, quoted people. Text that clients and
    /// the model wrote in the user's role is left out.
    pub fn utterances(&self) -> impl Iterator<Item = Utterance<'_>> {
        let utterances = self.messages().rev().filter_map(|it| it.utterance());
        utterances.filter(|said| said.speaker != Speaker::Client)
    }

    /// Returns whether the model has answered before.
    pub fn has_reply(&self) -> bool {
        self.messages().any(|it| it.role() == Role::Assistant)
    }

    /// Returns whether a message to the model contains more than text: an image, a file, a sound.
    pub fn has_media(&self) -> bool {
        self.messages().any(|message| message.has_media())
    }

    /// Returns the hash of the conversation before its first message, which is `start`, and after each one, like
    /// [`ChainHash::then`].
    pub fn chains(&self, start: ChainHash) -> Vec<ChainHash> {
        let mut chain = Chain::new(start);
        let after = self.said(MessageRef::said).iter();
        let after = after.map(|said| chain.push(*said));
        iter::once(start).chain(after).collect()
    }

    /// Returns each message's contribution to the conversation's hash. The result is cached, so `said` runs once for
    /// each message.
    pub fn said<'a>(&'a self, said: impl Fn(MessageRef<'a>) -> Said) -> &'a [Said] {
        let read = || self.messages().map(said).collect();
        self.said.get_or_init(read)
    }

    /// Returns the messages in chat form with all their fields, as many as [`Self::messages`]. Returns `None` if no
    /// value can hold a part of one: a number beyond f64, or nesting deeper than 127 levels.
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

    /// Returns the texts in the arguments of the tool calls before a message. [`metaclaw_chat::typed_at`] does the
    /// same.
    fn calls_before(&self, message: &conversation::MessageSpan) -> CallTexts {
        let mut before = SaidBefore::default();
        let all = &self.conversation.messages;
        let n_before = all.iter().take_while(|it| it.item < message.item).count();
        for at in n_before.saturating_sub(LOOKED_BACK)..n_before {
            match (all[at].role, &all[at].content) {
                (Role::User, Some(content)) => {
                    before.note_typed(content.utterance(self.text(&content.span)));
                }
                (Role::Assistant, _) => {
                    let next = all.get(at + 1).and_then(|element| element.item);
                    let items = all[at].item.zip(next).map(|(from, to)| from..to);
                    self.models(items.unwrap_or_default())
                        .for_each(|output| before.note_calls(&output));
                }
                _ => {}
            }
        }
        before.into_calls()
    }

    fn models(&self, items: Range<usize>) -> impl Iterator<Item = Message> {
        let items = self.conversation.items.get(items).unwrap_or_default();
        items.iter().filter_map(|item| {
            let value = json::value(self.text(&item.whole).as_bytes())?;
            self.api.item(&value).ok()?.pop()
        })
    }

    pub(super) fn text(&self, span: &ByteSpan) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

// === impl MessageRef ===

impl<'a> MessageRef<'a> {
    pub fn role(&self) -> Role {
        self.message.role
    }

    /// Returns what was typed in a user message, without text from the model's earlier calls, as
    /// [`metaclaw_chat::typed_at`] does. Returns `None` for other roles.
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

    /// Returns its content, or the texts of its parts joined by newlines. For an assistant, returns nothing.
    pub fn text(&self) -> Cow<'a, str> {
        self.content()
            .map_or_else(Cow::default, |(content, json)| content.text(json))
    }

    /// Returns the first `limit` bytes of that text, cut between characters.
    pub fn head(&self, limit: usize) -> Cow<'a, str> {
        self.content()
            .map_or_else(Cow::default, |(content, json)| content.head(json, limit))
    }

    /// Returns the first `limit` bytes of each of its texts, in order, because clients put their own texts beside the
    /// owner's.
    pub fn heads(&self, limit: usize) -> Vec<Cow<'a, str>> {
        self.content()
            .map(|(content, json)| content.heads(json, limit))
            .unwrap_or_default()
    }

    /// Returns whether its content, as JSON text, may contain `needle`. If not, the text need not be read.
    pub fn may_say(&self, needle: &str) -> bool {
        let json = self.content().map(|(_, json)| json.as_bytes());
        json.is_some_and(|json| {
            looks_at(json.len());
            memchr::memmem::find(json, needle.as_bytes()).is_some()
        })
    }

    pub fn key(&self) -> MessageKey<'a> {
        let Some((content, json)) = self.content() else {
            return MessageKey::Short("");
        };
        let ChatRequest {
            layout,
            conversation,
            ..
        } = self.request;
        let start = content.span.start;
        let (whole, mark) = if let Some(item) = self.message.item {
            let item = &conversation.items[item];
            (&item.whole, item.mark)
        } else {
            let mut members = layout.members.iter();
            let member = members.find(|member| member.value.start == start);
            (&content.span, member.and_then(|member| member.mark))
        };
        match mark {
            Some(mark) => MessageKey::Long(mark, start - whole.start),
            None => MessageKey::Short(json),
        }
    }

    /// Returns whether its text is a part of the hash of the conversation.
    pub fn counts(&self) -> bool {
        matches!(self.role(), Role::User | Role::Tool)
    }

    /// Returns its contribution to the hash of the conversation.
    pub fn said(self) -> Said {
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
