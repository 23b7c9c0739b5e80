//! A turn on its way into the log.

use metaclaw_chat::{AgentId, ChainHash, Message, SessionId, count_words, without_thinking};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    counts::DailyCounts,
    text::JsonText,
    turn::{Request, Served, StreamEnd, Tokens, TurnKind, TurnMeta},
};

/// A message of a new turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The message in chat form.
    pub text: JsonText,
    /// Hash of the conversation up to and including the message.
    pub chain: ChainHash,
}

/// A turn as it is handed in when its reply has ended.
///
/// Its conversation is text, because a request has 40 KB and more, of which a turn adds a few hundred bytes. Only these
/// are parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTurn {
    /// Whose turn it is.
    pub agent: AgentId,
    /// Its conversation. The same name under another agent is another conversation.
    pub session: SessionId,
    /// Data about the turn besides its texts.
    pub meta: TurnMeta,
    /// The whole conversation, system messages included.
    pub messages: Vec<NewMessage>,
    /// The id of the reply that the request continues, if the request leaves out the conversation up to it (OpenAI's
    /// `previous_response_id`). If the session has that reply, the turn is read back with the whole conversation.
    pub continues: Option<String>,
    /// The `tools` field, if there was one.
    pub tools: Option<JsonText>,
    /// Other parameters that affect the reply: temperature, top_p, max_tokens and similar ones.
    pub params: Map<String, Value>,
    /// The reply, as far as it arrived.
    pub reply: Option<Message>,
    /// How it was served.
    pub served: Served,
    /// The token ids, if the upstream sent them with the reply. Only for a complete reply.
    pub tokens: Option<Tokens>,
}

// === impl NewMessage ===

impl NewMessage {
    /// Converts the messages of a conversation.
    ///
    /// # Errors
    /// Fails like [`JsonText::of`].
    pub fn all(agent: &AgentId, messages: &[Message]) -> Result<Vec<Self>, serde_json::Error> {
        let chains = ChainHash::chain(agent, messages);
        let message = |(message, chain): (&Message, ChainHash)| {
            let text = JsonText::of(message.as_map())?;
            Ok(Self { text, chain })
        };
        messages.iter().zip(chains).map(message).collect()
    }

    /// Returns whether the owner typed it. Most messages are results of tools, and are not parsed.
    fn is_owners(&self) -> bool {
        let may_be = self.text.as_str().contains("\"user\"");
        let message = may_be.then(|| self.text.read::<Message>().ok()).flatten();
        message.is_some_and(|message| message.utterance().is_some_and(|said| said.is_owners()))
    }
}

// === impl NewTurn ===

impl NewTurn {
    /// Parses the texts of the request.
    ///
    /// # Errors
    /// Fails if a part fits in no value.
    pub fn request(&self) -> Result<Request, serde_json::Error> {
        let messages = self.messages.iter().map(|message| message.text.read());
        Ok(Request {
            messages: messages.collect::<Result<_, _>>()?,
            tools: self.tools.as_ref().map(JsonText::read).transpose()?,
            params: self.params.clone(),
        })
    }

    /// Returns what the turn's day counts of it: that the owner's words follow a reply, or the length of a first reply.
    /// The last `n_new` messages are new.
    pub(crate) fn owners_counts(&self, parent: Option<u32>, n_new: usize) -> DailyCounts {
        let mut counts = DailyCounts::default();
        if self.meta.kind != TurnKind::Main {
            return counts;
        }
        if parent.is_some() {
            let mut new = self.messages.iter().rev().take(n_new);
            counts.followed = u64::from(new.any(NewMessage::is_owners));
        } else if let (StreamEnd::Complete, Some(reply)) = (self.meta.end, &self.reply) {
            let said = without_thinking(&reply.text());
            counts.first_words = said.map_or(0, |said| count_words(&said) as u64);
            counts.first_replies = u64::from(counts.first_words > 0);
        }
        counts
    }

    pub(crate) fn n_bytes(&self) -> usize {
        let (meta, served) = (&self.meta, &self.served);
        let parts = self
            .messages
            .iter()
            .map(|message| &message.text)
            .chain(&self.tools);
        let names = [
            &meta.reply_id,
            &meta.finish_reason,
            &self.continues,
            &served.system_block,
        ];
        let lengths = names.into_iter().flatten().map(String::len);
        let params = json_bytes(&self.params);
        let reply = json_bytes(&self.reply.as_ref().map(Message::as_map));
        let tokens = self.tokens.as_ref().map_or(0, Tokens::n_bytes);
        let texts = parts.map(|text| text.as_str().len());
        texts.chain(lengths).sum::<usize>() + params + reply + tokens
    }
}

/// Returns the bytes of a value as JSON, or 0 if JSON cannot express it.
fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}
