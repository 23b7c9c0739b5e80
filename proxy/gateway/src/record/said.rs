//! What was said, as the log has it: in chat shape, as text.

use metaclaw_chat::{ChainHash, Message, SaidHash};
use metaclaw_dialects::Api;
use metaclaw_turns::{JsonText, RawMessage};
use serde::Serialize;
use serde_json::Value;

use super::shorts::{Known, Short, Shorts};
use crate::{
    identity::Chains,
    request::{self, ChatRequest, value},
    scan::{self, Form, Item, Span},
};

/// A part of a request that no value can hold: a number beyond f64. Upstreams may take it; it is not
/// learned from.
pub(super) struct Unread;

/// The conversation in chat shape.
#[derive(Debug)]
pub(crate) struct Said {
    pub messages: Vec<RawMessage>,
    /// The reply whose conversation the request leaves out.
    pub goes_on_from: Option<String>,
    /// The hash of the conversation.
    pub chain: ChainHash,
    /// Bytes that no other request shares.
    pub n_own: u64,
}

/// Reads a request. Of what came before the texts are there.
struct Reader<'a> {
    chat: &'a ChatRequest,
    said: Said,
}

// === impl Said ===

impl Said {
    /// Reads a request with the hashes of its conversation, and its tools.
    pub(super) fn read(
        chat: &ChatRequest,
        chains: &Chains,
        shorts: &Shorts,
    ) -> Result<(Self, Option<JsonText>), Unread> {
        let mut reader = Reader {
            chat,
            said: Self {
                messages: Vec::with_capacity(chat.layout.each().len() + 1),
                goes_on_from: goes_on_from(chat),
                chain: chains.start(),
                n_own: 0,
            },
        };
        match chat.api {
            Api::Chat => reader.chat_messages(chains, &mut shorts.known())?,
            Api::Messages | Api::Responses => reader.other_messages(chains)?,
        }
        let tools = chat.layout.member("tools");
        let tools = tools
            .map(|member| reader.tools(&member.value))
            .transpose()?;
        let mut said = reader.said;
        said.n_own += size_of_val(said.messages.as_slice()) as u64;
        Ok((said, tools))
    }
}

fn goes_on_from(chat: &ChatRequest) -> Option<String> {
    let member = chat.layout.member("previous_response_id");
    let member = member.filter(|_| chat.api == Api::Responses)?;
    let id = &chat.raw[member.value.clone()];
    (id.first() == Some(&b'"')).then(|| scan::text::read(id).into_owned())
}

// === impl Reader ===

impl Reader<'_> {
    /// The messages of a chat completion, as they stand there.
    fn chat_messages(&mut self, chains: &Chains, shorts: &mut Known<'_>) -> Result<(), Unread> {
        let chat = self.chat;
        let each = chat.layout.each().iter().zip(chat.conversation.each());
        for (at, (item, message)) in each.enumerate() {
            let (text, said) = self.message(item, message, shorts)?;
            let chain = match (chains.after(at), said) {
                (Some(chain), _) => chain,
                (None, Some(said)) => self.said.chain.then_said(said),
                (None, None) => self.said.chain,
            };
            self.said.chain = chain;
            self.said.messages.push(RawMessage { text, chain });
        }
        Ok(())
    }

    /// One of them, and what it adds to the hash of the conversation.
    fn message(
        &mut self,
        item: &Item,
        message: &request::Said,
        shorts: &mut Known<'_>,
    ) -> Result<(JsonText, Option<SaidHash>), Unread> {
        let chat = self.chat;
        let said = || chat.conversation.said_hash(message);
        if chat.layout.long(item.whole.start).is_some() {
            return Ok((self.text(Form::Plain, &item.whole, plain)?, said()));
        }
        let raw = &chat.raw[item.whole.clone()];
        let make = || {
            let (text, said) = (plain(raw)?, said());
            Ok(Short { text, said })
        };
        let (Short { text, said }, is_shared) = shorts.of(raw, make)?;
        self.count(&text, is_shared);
        Ok((text, said))
    }

    /// The messages of another API, in chat shape.
    fn other_messages(&mut self, chains: &Chains) -> Result<(), Unread> {
        let (chat, api) = (self.chat, self.chat.api);
        let mut chain = chains.start();
        self.said.chain = chains.last(&chat.conversation);
        self.system(chain)?;
        let mut messages = Vec::with_capacity(chat.layout.each().len());
        for Item { whole, .. } in chat.layout.each() {
            let item = value(&chat.raw[whole.clone()]).ok_or(Unread)?;
            api.push(&mut messages, &item).map_err(|_| Unread)?;
        }
        let input = chat.layout.member("input");
        let input = input.filter(|_| api == Api::Responses);
        let input = input.and_then(|member| value(&chat.raw[member.value.clone()]));
        messages.extend(input.as_ref().and_then(Value::as_str).map(Message::user));
        for message in &messages {
            chain = chain.then(message);
            let text = written(message.as_map())?;
            self.said.n_own += text.as_str().len() as u64;
            self.said.messages.push(RawMessage { text, chain });
        }
        Ok(())
    }

    /// The system text beside the conversation, which leaves the hash as it is.
    fn system(&mut self, chain: ChainHash) -> Result<(), Unread> {
        let api = self.chat.api;
        let name = match api {
            Api::Messages => "system",
            Api::Chat | Api::Responses => "instructions",
        };
        let Some(member) = self.chat.layout.member(name) else {
            return Ok(());
        };
        let make = |raw: &[u8]| {
            let system = value(raw).and_then(|value| api.system(&value));
            written(&system.as_ref().map(Message::as_map))
        };
        let text = self.text(Form::System(api), &member.value, make)?;
        if text.as_str() != "null" {
            self.said.messages.push(RawMessage { text, chain });
        }
        Ok(())
    }

    fn tools(&mut self, span: &Span) -> Result<JsonText, Unread> {
        let api = self.chat.api;
        if api == Api::Chat {
            return self.text(Form::Plain, span, plain);
        }
        self.text(Form::Tools(api), span, |raw| {
            written(&api.tools(&value(raw).ok_or(Unread)?))
        })
    }

    /// What `make` makes of a part of the request, now or before.
    fn text(
        &mut self,
        form: Form,
        span: &Span,
        make: impl FnOnce(&[u8]) -> Result<JsonText, Unread>,
    ) -> Result<JsonText, Unread> {
        let (text, is_shared) = match self.chat.layout.long(span.start) {
            Some(long) => long.text(form, make)?,
            None => (make(&self.chat.raw[span.clone()])?, false),
        };
        self.count(&text, is_shared);
        Ok(text)
    }

    fn count(&mut self, text: &JsonText, is_shared: bool) {
        if !is_shared {
            self.said.n_own += text.as_str().len() as u64;
        }
    }
}

/// A part as it stands. Half a surrogate pair in it is read as what it shows.
fn plain(raw: &[u8]) -> Result<JsonText, Unread> {
    JsonText::new(raw).or_else(|_| written(&value(raw).ok_or(Unread)?))
}

fn written(value: &impl Serialize) -> Result<JsonText, Unread> {
    JsonText::of(value).map_err(|_| Unread)
}
