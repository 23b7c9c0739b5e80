//! What was asked, as the log has it: in chat shape, as text.

use metaclaw_chat::{ChainHash, Message};
use metaclaw_dialects::Api;
use metaclaw_turns::{JsonText, RawMessage};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Asked;
use crate::{
    request::value,
    scan::{self, Form, Item, Span},
    splice::OWN_FIELDS,
};

/// A part of a request that no value can hold: a number beyond f64. Upstreams may take it; it is not
/// learned from.
pub(super) struct Unread;

/// The request in chat shape.
#[derive(Default)]
pub(super) struct Said {
    pub messages: Vec<RawMessage>,
    pub tools: Option<JsonText>,
    /// What else steers the answer.
    pub params: Map<String, Value>,
    /// Bytes that no other request shares.
    pub n_own: u64,
}

/// Reads a request. Of what came before the texts are there.
struct Reader<'a> {
    asked: &'a Asked,
    said: Said,
}

// === impl Asked ===

impl Asked {
    /// The request in chat shape.
    pub(super) fn read(&self) -> Result<Said, Unread> {
        let mut reader = Reader {
            asked: self,
            said: Said::default(),
        };
        match self.api {
            Api::Chat => reader.chat_messages()?,
            Api::Messages | Api::Responses => reader.other_messages()?,
        }
        reader.members()?;
        let mut said = reader.said;
        said.n_own += size_of_val(said.messages.as_slice()) as u64;
        Ok(said)
    }

    /// Bytes of what it was given, of which each turn has a copy.
    pub(super) fn n_given(&self) -> u64 {
        let given = [&self.served.system_block, &self.served.user_line];
        let given = given.into_iter().flatten();
        given.map(|text| text.len() as u64).sum()
    }

    /// The reply whose conversation the request leaves out.
    pub(super) fn goes_on_from(&self) -> Option<String> {
        let member = self.layout.member("previous_response_id");
        let member = member.filter(|_| self.api == Api::Responses)?;
        let id = &self.raw[member.value.clone()];
        (id.first() == Some(&b'"')).then(|| scan::text::read(id).into_owned())
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// Everything but the conversation.
    fn members(&mut self) -> Result<(), Unread> {
        let (asked, api) = (self.asked, self.asked.api);
        for member in &asked.layout.members {
            let key = member.key.as_str();
            match (key, api) {
                ("tools", _) => {
                    self.said.tools = Some(self.tools(&member.value)?);
                }
                ("system", Api::Messages) | ("instructions", Api::Responses) => {}
                (key, _) if OWN_FIELDS.contains(&key) || key == scan::conversation(api) => {}
                (key, _) => {
                    // A number that no f64 holds is all that can fail: nothing that steers an answer.
                    let value = value(&asked.raw[member.value.clone()]);
                    self.said.n_own += member.whole.len() as u64;
                    let params = &mut self.said.params;
                    params.insert(api.param(key).to_owned(), value.unwrap_or(Value::Null));
                }
            }
        }
        Ok(())
    }

    /// The messages of a chat completion, as they stand there.
    fn chat_messages(&mut self) -> Result<(), Unread> {
        let each = self.asked.layout.each().iter();
        for (item, chain) in each.zip(self.asked.chains.iter().skip(1)) {
            let text = self.text(Form::Plain, &item.whole, plain)?;
            let chain = *chain;
            self.said.messages.push(RawMessage { text, chain });
        }
        Ok(())
    }

    /// The messages of another API, in chat shape.
    fn other_messages(&mut self) -> Result<(), Unread> {
        let (asked, api) = (self.asked, self.asked.api);
        let first = asked.chains.first();
        let mut chain = first.copied().unwrap_or(asked.who.chain);
        self.system(chain)?;
        let mut messages = Vec::with_capacity(asked.layout.each().len());
        for Item { whole, .. } in asked.layout.each() {
            let item = value(&asked.raw[whole.clone()]).ok_or(Unread)?;
            api.push(&mut messages, &item).map_err(|_| Unread)?;
        }
        let input = asked.layout.member("input");
        let input = input.filter(|_| api == Api::Responses);
        let input = input.and_then(|member| value(&asked.raw[member.value.clone()]));
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
        let api = self.asked.api;
        let name = match api {
            Api::Messages => "system",
            Api::Chat | Api::Responses => "instructions",
        };
        let Some(member) = self.asked.layout.member(name) else {
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
        let api = self.asked.api;
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
        let (text, is_shared) = match self.asked.layout.long(span.start) {
            Some(long) => long.text(form, make)?,
            None => (make(&self.asked.raw[span.clone()])?, false),
        };
        if !is_shared {
            self.said.n_own += text.as_str().len() as u64;
        }
        Ok(text)
    }
}

/// A part as it stands. Half a surrogate pair in it is read as what it shows.
fn plain(raw: &[u8]) -> Result<JsonText, Unread> {
    JsonText::new(raw).or_else(|_| written(&value(raw).ok_or(Unread)?))
}

fn written(value: &impl Serialize) -> Result<JsonText, Unread> {
    JsonText::of(value).map_err(|_| Unread)
}
