//! A turn on its way into the log.

use metaclaw_chat::{AgentId, ChainHash, Message, SessionId};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    text::JsonText,
    turn::{Request, Served, Tokens, TurnMeta},
};

/// A message of a new turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The message in chat shape.
    pub text: JsonText,
    /// The hash of the conversation up to and including it.
    pub chain: ChainHash,
}

/// One turn, as it is handed over when its reply has ended.
///
/// Its conversation is text: a request is 40 KB and more, of which a turn adds a few hundred bytes, and
/// only those are read.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTurn {
    /// Whose turn it is.
    pub agent: AgentId,
    /// Its conversation; the same name under another agent is another conversation.
    pub session: SessionId,
    /// What is known beside its texts.
    pub meta: TurnMeta,
    /// The whole conversation, system messages included.
    pub messages: Vec<NewMessage>,
    /// The id of the reply that the request continues, where it does not repeat what was said up to there
    /// (OpenAI's `previous_response_id`). If the session has that reply, the turn reads back with the whole
    /// conversation.
    pub continues: Option<String>,
    /// The `tools` field, if there was one.
    pub tools: Option<JsonText>,
    /// What else steers the answer: temperature, top_p, max_tokens and their like.
    pub params: Map<String, Value>,
    /// What was answered, as far as it came.
    pub reply: Option<Message>,
    /// Under what it was served.
    pub served: Served,
    /// The token ids, where the upstream said them with the reply; only of a reply that came whole.
    pub tokens: Option<Tokens>,
}

// === impl NewMessage ===

impl NewMessage {
    /// A conversation's messages.
    ///
    /// # Errors
    /// As [`JsonText::of`].
    pub fn all(agent: &AgentId, messages: &[Message]) -> Result<Vec<Self>, serde_json::Error> {
        let chains = ChainHash::chain(agent, messages);
        let message = |(message, chain): (&Message, ChainHash)| {
            let text = JsonText::of(message.as_map())?;
            Ok(Self { text, chain })
        };
        messages.iter().zip(chains).map(message).collect()
    }
}

// === impl NewTurn ===

impl NewTurn {
    /// Reads the texts of the request.
    ///
    /// # Errors
    /// What fits in no value.
    pub fn request(&self) -> Result<Request, serde_json::Error> {
        let messages = self.messages.iter().map(|message| message.text.read());
        Ok(Request {
            messages: messages.collect::<Result<_, _>>()?,
            tools: self.tools.as_ref().map(JsonText::read).transpose()?,
            params: self.params.clone(),
        })
    }

    /// Bytes of its texts and ids: what it takes while it waits.
    pub(crate) fn n_bytes(&self) -> usize {
        let texts = self.messages.iter().map(|message| &message.text);
        let texts = texts.chain(&self.tools).map(|text| text.as_str().len());
        let names = [
            &self.meta.reply_id,
            &self.meta.finish_reason,
            &self.continues,
        ];
        let names = names.into_iter().chain([&self.served.system_block]);
        let names = names.flatten().map(String::len);
        let params = json_bytes(&self.params);
        let reply = json_bytes(&self.reply.as_ref().map(Message::as_map));
        let tokens = self.tokens.as_ref().map_or(0, Tokens::n_bytes);
        texts.chain(names).sum::<usize>() + params + reply + tokens
    }
}

/// Bytes of a value as JSON; none of one that JSON cannot say.
fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}
