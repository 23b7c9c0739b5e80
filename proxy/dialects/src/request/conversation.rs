//! Finds the messages of a chat request, in the order and with the roles of a chat completion.

use std::borrow::Cow;

use metaclaw_chat::{MessageError, Role};

use super::{
    content::{Content, is_result},
    error::RequestError,
    layout::{self, Layout},
    spans::{ItemSpans, ValueMark},
    walk::ByteSpan,
};
use crate::{
    api::Api,
    fields::{JsonFields, elements},
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
    pub mark: Option<ValueMark>,
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

    fn item(&mut self, index: usize, item: &ItemSpans) -> Result<(), MessageError> {
        let json = &self.text[item.whole.clone()];
        if !json.starts_with('{') {
            let found = layout::kind(json).unwrap_or_default();
            return Err(MessageError::NotAnObject { found });
        }
        let name = item.role.as_ref().and_then(|role| self.string(role));
        if self.api != Api::Responses && name.is_none() {
            return Err(MessageError::NoRole);
        }
        let name = name.map(|name| Role::named(&name));
        let role = item.role.as_ref().map(|_| name.unwrap_or(Role::Other));
        self.read.items.push(ConversationItem {
            whole: item.whole.clone(),
            role,
            content: item.content.clone(),
            mark: item.mark,
        });
        let n_before = self.read.messages.len();
        let content = item.content.as_ref();
        match (self.api, role) {
            (Api::Responses, _) => self.response_item(index, role, item),
            (Api::Messages, Some(role)) if role != Role::Assistant => {
                self.anthropic(index, role, content);
            }
            (_, role) => self.message(index, role.unwrap_or(Role::Other), content),
        }
        let read = self.read.messages[n_before..].iter_mut();
        for content in read.filter_map(|message| message.content.as_mut()) {
            content.is_of_another = item.is_of_another;
        }
        Ok(())
    }

    fn message(&mut self, index: usize, role: Role, content: Option<&ByteSpan>) {
        let content = content.filter(|_| role != Role::Assistant);
        self.push(role, content.cloned().map(Content::new), Some(index));
    }

    /// Adds a message of Anthropic's API, in which tool results are parts of user messages.
    fn anthropic(&mut self, index: usize, role: Role, content: Option<&ByteSpan>) {
        let list = content.map(|content| &self.text[content.clone()]);
        let list = list.filter(|list| list.starts_with('['));
        let parts = list.map(elements).unwrap_or_default();
        let n_parts = parts.len();
        let mut n_results = 0;
        for part in parts.into_iter().filter(|part| is_result(part)) {
            let content = JsonFields::parse(part.get()).and_then(|part| part.last("content"));
            let content = content.map(|content| Content::new(json::span(self.text, content.get())));
            self.push(Role::Tool, content, Some(index));
            n_results += 1;
        }
        if n_results == 0 {
            self.message(index, role, content);
        } else if n_results < n_parts {
            let content = content.map(|content| Content {
                has_results: true,
                ..Content::new(content.clone())
            });
            self.push(role, content, Some(index));
        }
    }

    fn response_item(&mut self, index: usize, role: Option<Role>, item: &ItemSpans) {
        let kind = item.kind.as_ref();
        let is_output = || {
            kind.and_then(|kind| self.string(kind))
                .is_some_and(|kind| kind.ends_with("_output"))
        };
        match role {
            Some(Role::Assistant) => self.assistant(index),
            Some(role) => self.message(index, role, item.content.as_ref()),
            None if is_output() => {
                let output = item.output.clone().map(Content::new);
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

    fn string(&self, span: &ByteSpan) -> Option<Cow<'a, str>> {
        json::string(&self.text[span.clone()])
    }
}
