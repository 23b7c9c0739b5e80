//! A turn on its way into the log.

use metaclaw_chat::{AgentId, ChainHash, Message, SessionId, TurnId, Usage};
use serde_json::{Map, Value};

use crate::{
    text::JsonText,
    turn::{Request, Served, StreamEnd, Tokens, Turn, TurnKind, TurnState},
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
    /// What it is for.
    pub kind: TurnKind,
    /// The hash of the whole request's conversation.
    pub chain: ChainHash,
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
    /// The upstream's id of the reply. The same id in the same session is the same turn.
    pub reply_id: Option<String>,
    /// The upstream's `finish_reason`.
    pub finish_reason: Option<String>,
    /// The upstream's count of tokens.
    pub usage: Option<Usage>,
    /// How the stream ended.
    pub end: StreamEnd,
    /// Under what it was served.
    pub served: Served,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// When the first byte of the reply came.
    pub first_byte_ms: Option<u64>,
    /// When the stream ended.
    pub ended_ms: u64,
    /// The client said that its session ends with this turn.
    pub is_last: bool,
    /// Some of its text was masked before it came here: no token ids are kept, which would tell it.
    pub masked: bool,
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
    /// Whether the reply came as the upstream meant it to.
    pub fn is_complete(&self) -> bool {
        self.end == StreamEnd::Complete
    }

    /// A turn of a log, on its way into another.
    ///
    /// # Errors
    /// As [`JsonText::of`].
    pub fn again(turn: Turn) -> Result<Self, serde_json::Error> {
        let Request {
            messages,
            tools,
            params,
        } = turn.request;
        Ok(Self {
            messages: NewMessage::all(&turn.agent, &messages)?,
            tools: tools.as_ref().map(JsonText::of).transpose()?,
            agent: turn.agent,
            session: turn.session,
            kind: turn.kind,
            chain: turn.chain,
            continues: None,
            params,
            reply: turn.reply,
            reply_id: turn.reply_id,
            finish_reason: turn.finish_reason,
            usage: turn.usage,
            end: turn.end,
            served: turn.served,
            started_ms: turn.started_ms,
            first_byte_ms: turn.first_byte_ms,
            ended_ms: turn.ended_ms,
            is_last: turn.is_last,
            masked: turn.masked,
            tokens: turn.tokens,
        })
    }

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

    /// The turn as a log would give it back that knows no other: for those who take turns in a log's place.
    ///
    /// # Errors
    /// What fits in no value.
    pub fn read(self, id: TurnId) -> Result<Turn, serde_json::Error> {
        Ok(Turn {
            id,
            request: self.request()?,
            agent: self.agent,
            session: self.session,
            kind: self.kind,
            chain: self.chain,
            parent: None,
            new_from: 0,
            reply: self.reply,
            reply_id: self.reply_id,
            finish_reason: self.finish_reason,
            usage: self.usage,
            end: self.end,
            served: self.served,
            started_ms: self.started_ms,
            first_byte_ms: self.first_byte_ms,
            ended_ms: self.ended_ms,
            is_last: self.is_last,
            masked: self.masked,
            state: TurnState::Captured,
            verdict: None,
            overruled: Vec::new(),
            uses: Vec::new(),
            tokens: self.tokens,
        })
    }

    /// Bytes of its texts and ids: what it takes while it waits.
    pub(crate) fn n_bytes(&self) -> usize {
        let texts = self.messages.iter().map(|message| &message.text);
        let texts = texts.chain(&self.tools).map(|text| text.as_str().len());
        let names = [&self.reply_id, &self.finish_reason, &self.continues];
        let names = names.into_iter().chain([&self.served.system_block]);
        let names = names.flatten().map(String::len);
        let params = self.params.values().map(text_bytes);
        let reply = self.reply.iter().flat_map(|reply| reply.as_map().values());
        let reply = reply.map(text_bytes);
        let tokens = self.tokens.as_ref().map_or(0, Tokens::n_bytes);
        texts.chain(names).chain(params).chain(reply).sum::<usize>() + tokens
    }
}

/// Bytes of a value's texts, about.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes).sum(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .map(|(key, value)| key.len() + text_bytes(value))
                .sum()
        }
    }
}
