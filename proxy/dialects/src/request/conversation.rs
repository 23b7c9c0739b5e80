//! Finds the messages of a chat request, in the order and with the roles of a chat completion.

use metaclaw_chat::{MessageError, OF_ANOTHER, Role};
use serde_json::value::RawValue;

use super::{
    content::{Content, is_result},
    error::RequestError,
    layout::{self, ByteSpan, Layout},
};
use crate::{
    api::Api,
    fields::{JsonFields, elements, text},
    json,
};

/// Bytes of a text that are enough to decide whether it belongs to the conversation.
const OPENING: usize = 128;

#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    pub items: Vec<ConversationItem>,
    pub messages: Vec<MessageSpan>,
}

#[derive(Debug, Clone)]
pub(super) struct ConversationItem {
    pub whole: ByteSpan,
    /// `None` if it has no `role`, like a tool's result in Responses.
    pub role: Option<Role>,
    /// Its `content`, which may be `null`.
    pub content: Option<ByteSpan>,
}

/// One message. A user message of Anthropic's API with tool results is several, the results first. In Responses, one
/// turn of a model is several elements, and one message here.
#[derive(Debug, Clone)]
pub(super) struct MessageSpan {
    pub role: Role,
    /// Whether it belongs to the conversation, according to [`Role::is_said`].
    pub is_said: bool,
    /// Its content, or `None` for assistants, whose words clients rewrite.
    pub content: Option<Content>,
    /// The element that it comes from, or `None` if it is beside the conversation, or is all of it.
    pub item: Option<usize>,
}

// === impl Conversation ===

impl Conversation {
    /// # Errors
    /// Fails if there is no conversation, or an element of it is not a message.
    pub(super) fn parse(api: Api, text: &str, layout: &Layout) -> Result<Self, RequestError> {
        let items = layout.items.as_deref().unwrap_or_default();
        if api != Api::Responses && items.is_empty() {
            let found = match (&layout.items, layout.member(layout::conversation(api))) {
                (Some(_), _) => "is empty",
                (None, Some(_)) => "is no array",
                (None, None) => "is missing",
            };
            return Err(RequestError::NoMessages { found });
        }
        let mut reader = ConversationReader {
            api,
            text,
            read: Self::default(),
        };
        let value = |name| layout.member(name).map(|member| &member.value);
        match api {
            Api::Chat => {}
            Api::Messages => reader.beside(value("system")),
            Api::Responses => reader.beside(value("instructions")),
        }
        for (index, item) in items.iter().enumerate() {
            let bad = |source| RequestError::BadMessage {
                field: layout::conversation(api),
                index,
                source,
            };
            reader.item(index, item).map_err(bad)?;
        }
        if api == Api::Responses
            && let Some(input) = value("input").filter(|span| text[span.start..].starts_with('"'))
        {
            reader.push(Role::User, Some(Content::new(input.clone())), None);
        }
        Ok(reader.read)
    }
}

struct ConversationReader<'a> {
    api: Api,
    text: &'a str,
    read: Conversation,
}

// === impl Reader ===

impl<'a> ConversationReader<'a> {
    fn beside(&mut self, value: Option<&ByteSpan>) {
        let Some(value) = value else {
            return;
        };
        let json = &self.text[value.clone()];
        if json.starts_with('"') || !elements(json).is_empty() {
            self.push(Role::System, Some(Content::new(value.clone())), None);
        }
    }

    fn item(&mut self, index: usize, whole: &ByteSpan) -> Result<(), MessageError> {
        let json = &self.text[whole.clone()];
        let Some(fields) = JsonFields::parse(json) else {
            let found = layout::kind(json).unwrap_or_default();
            return Err(MessageError::NotAnObject { found });
        };
        let role = fields.last("role");
        let name = role.and_then(text);
        if self.api != Api::Responses && name.is_none() {
            return Err(MessageError::NoRole);
        }
        let name = name.map(|name| Role::named(&name));
        let role = role.map(|_| name.unwrap_or(Role::Other));
        let content = fields.last("content");
        self.read.items.push(ConversationItem {
            whole: whole.clone(),
            role,
            content: content.map(|content| self.span(content)),
        });
        let n_before = self.read.messages.len();
        match (self.api, role) {
            (Api::Responses, _) => self.response_item(index, role, &fields),
            (Api::Messages, Some(role)) if role != Role::Assistant => {
                self.anthropic(index, role, content);
            }
            (_, role) => self.message(index, role.unwrap_or(Role::Other), content),
        }
        let is_of_another = OF_ANOTHER.iter().any(|field| fields.last(field).is_some());
        let read = self.read.messages[n_before..].iter_mut();
        for content in read.filter_map(|message| message.content.as_mut()) {
            content.is_of_another = is_of_another;
        }
        Ok(())
    }

    fn message(&mut self, index: usize, role: Role, content: Option<&'a RawValue>) {
        let content = content.filter(|_| role != Role::Assistant);
        self.push(role, content.map(|it| self.content(it)), Some(index));
    }

    /// Adds a message of Anthropic's API, in which tool results are parts of user messages.
    fn anthropic(&mut self, index: usize, role: Role, content: Option<&'a RawValue>) {
        let list = content.filter(|content| content.get().starts_with('['));
        let parts = list.map(|list| elements(list.get())).unwrap_or_default();
        let n_parts = parts.len();
        let mut n_results = 0;
        for part in parts.into_iter().filter(|part| is_result(part)) {
            let content = JsonFields::parse(part.get()).and_then(|part| part.last("content"));
            let content = content.map(|content| self.content(content));
            self.push(Role::Tool, content, Some(index));
            n_results += 1;
        }
        if n_results == 0 {
            self.message(index, role, content);
        } else if n_results < n_parts {
            let content = content.map(|content| Content {
                has_results: true,
                ..self.content(content)
            });
            self.push(role, content, Some(index));
        }
    }

    fn response_item(&mut self, index: usize, role: Option<Role>, item: &JsonFields<'a>) {
        let kind = item.last("type");
        let is_output = || {
            kind.and_then(text)
                .is_some_and(|kind| kind.ends_with("_output"))
        };
        match role {
            Some(Role::Assistant) => self.assistant(index),
            Some(role) => self.message(index, role, item.last("content")),
            None if is_output() => {
                let output = item.last("output").map(|content| self.content(content));
                self.push(Role::Tool, output, Some(index));
            }
            None if kind.is_some() => self.assistant(index),
            None => {}
        }
    }

    fn assistant(&mut self, index: usize) {
        let last = self.read.messages.last().map(|message| message.role);
        if last != Some(Role::Assistant) {
            self.push(Role::Assistant, None, Some(index));
        }
    }

    fn push(&mut self, role: Role, content: Option<Content>, item: Option<usize>) {
        let is_said = role == Role::User && content.as_ref().is_none_or(|it| self.is_said(it));
        self.read.messages.push(MessageSpan {
            role,
            is_said,
            content,
            item,
        });
    }

    /// Returns whether this user text belongs to the conversation. Its first words decide, after any white space.
    fn is_said(&self, content: &Content) -> bool {
        let json = &self.text[content.span.clone()];
        let head = content.head(json, OPENING);
        if head.len() < OPENING - 3 || head.trim_start().len() >= OPENING / 2 {
            Role::User.is_said(&head)
        } else {
            Role::User.is_said(&content.text(json))
        }
    }

    fn content(&self, value: &RawValue) -> Content {
        Content::new(self.span(value))
    }

    fn span(&self, value: &RawValue) -> ByteSpan {
        json::span(self.text, value.get())
    }
}
