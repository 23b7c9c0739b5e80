//! Chat completions and Anthropic messages, each said in the other's words.
//!
//! For a client that speaks one of the two to an upstream that speaks only the other. A request is
//! translated whole; a reply whole or event by event as it comes, never held to its end.
//!
//! What the other API has no word for is refused by name ([`TranslateError`]), unless leaving it out
//! changes nothing that the caller could notice in the reply. Left out in silence are: all fields that
//! are not named in this crate; towards messages `seed`, `store`, `metadata`, `service_tier`,
//! `prediction`, `prompt_cache_*`, `reasoning_effort`, `verbosity`, `top_logprobs`, `name` of a message,
//! a `user` that is an e-mail address, texts of blanks alone, and reasoning that no signature vouches for
//! (Anthropic refuses all three); towards chat `cache_control`, `citations`, `container`,
//! `service_tier`, `thinking` (the request's), `output_config.effort`, `is_error`, `redacted_thinking`,
//! the signature of a thinking block, and a `metadata.user_id` over 64 characters (OpenAI's limit).
//!
//! What is changed on the way, for want of the same thing on the other side:
//! - system and developer messages, wherever they stand, become the `system` field;
//! - `max_tokens`, which Anthropic requires, is [`DEFAULT_MAX_TOKENS`] where the caller names none;
//! - `temperature` above 1 becomes 1, Anthropic's highest;
//! - images in a tool's result follow it in a user message, as chat has none in tool messages;
//! - arguments that are no JSON object become `{"INVALID_JSON": ".."}`, as Anthropic's docs advise, and
//!   such an object becomes the arguments again;
//! - a tool's schema that names no type is an object's, which Anthropic wants said;
//! - a call that its upstream gave no id gets one with a part of the reply's in it;
//! - characters of tool-call ids that Anthropic refuses become `_`.

mod chat_reply;
mod chat_stream;
mod content;
mod error;
mod messages_calls;
mod messages_reply;
mod messages_stream;
mod params;
mod to_chat;
mod to_messages;
mod tools;
mod usage;
mod wire;

use serde_json::Value;

use crate::{
    Api, json,
    rewrite::{Events, Rewrite},
};

/// `max_tokens` of a request to Anthropic whose caller set no limit: what every current model allows.
pub const DEFAULT_MAX_TOKENS: u64 = 8192;

/// What a *request* becomes. Its reply goes the other way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client speaks chat completions, the upstream messages.
    ChatToMessages,
    /// The client speaks messages, the upstream chat completions.
    MessagesToChat,
}

/// What a reply needs to know of the request that it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// When the request was made, in seconds since 1970: `created` of a chat reply, which Anthropic has not.
    pub created: u64,
    /// The caller asked for a chunk with the usage (`stream_options.include_usage`).
    pub include_usage: bool,
    /// The caller's `stop_sequences`, one of which the reply may say to have ended at.
    pub stop_sequences: Vec<String>,
}

/// Why something cannot be said in the other API.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The body is no JSON.
    #[error("the body is not JSON: {source}")]
    NotJson {
        /// Where it stops being JSON.
        #[from]
        source: serde_json::Error,
    },
    /// A field, or a value of it, that the other API has not.
    #[error("{field} is {given}, which cannot be said in {api}; allowed: {allowed}")]
    Unsayable {
        /// Where it stands, as in `messages[2].content[0].type`.
        field: String,
        /// The value, shortened.
        given: String,
        /// Whose words are wanting.
        api: &'static str,
        /// What could stand there instead.
        allowed: &'static str,
    },
    /// A field whose value is not what its own API says.
    #[error("{field} is {given}, but must be {allowed}")]
    Invalid {
        /// Where it stands.
        field: String,
        /// The value, shortened.
        given: String,
        /// What must stand there.
        allowed: &'static str,
    },
}

/// The request in the other API's words.
///
/// # Errors
/// [`TranslateError`] names the field that the other API cannot say, or that is not as its own API has it.
pub fn request(direction: Direction, body: &Value) -> Result<Value, TranslateError> {
    match direction {
        Direction::ChatToMessages => to_messages::request(body),
        Direction::MessagesToChat => to_chat::request(body),
    }
}

/// A whole reply in the words of the request's API. An error that came with status 200 stays an error.
///
/// # Errors
/// [`TranslateError`] where `body` is no reply of the upstream's API.
pub fn reply(direction: Direction, asked: &Asked, body: &[u8]) -> Result<Vec<u8>, TranslateError> {
    let body = json::read_bytes(body)?;
    let translated = match direction {
        Direction::ChatToMessages => chat_reply::reply(asked, &body)?,
        Direction::MessagesToChat => messages_reply::reply(asked, &body)?,
    };
    Ok(translated.to_string().into_bytes())
}

/// Translates a streamed reply event by event.
///
/// Where upstream sends what cannot be read or said, an error of the caller's API goes out and nothing
/// after it. The end is only ever what upstream gave: a cut stream stays one.
pub fn stream(direction: Direction, asked: &Asked) -> Box<dyn Rewrite> {
    match direction {
        Direction::ChatToMessages => Box::new(Events::new(chat_stream::ChatStream::new(asked))),
        Direction::MessagesToChat => {
            Box::new(Events::new(messages_stream::MessagesStream::new(asked)))
        }
    }
}

/// The body of an error reply (any status but 2xx), in the words of the request's API.
///
/// What is none of the upstream's API, as a page of some proxy on the way, becomes the message.
pub fn error(direction: Direction, status: u16, body: &[u8]) -> Vec<u8> {
    error::body(direction, status, body)
        .to_string()
        .into_bytes()
}

// === impl Direction ===

impl Direction {
    /// The direction from what the client speaks to what the upstream speaks, where it can be translated.
    pub fn between(client: Api, upstream: Api) -> Option<Self> {
        match (client, upstream) {
            (Api::Chat, Api::Messages) => Some(Self::ChatToMessages),
            (Api::Messages, Api::Chat) => Some(Self::MessagesToChat),
            (Api::Chat, Api::Chat | Api::Responses)
            | (Api::Messages, Api::Messages | Api::Responses)
            | (Api::Responses, Api::Chat | Api::Messages | Api::Responses) => None,
        }
    }
}

// === impl Asked ===

impl Asked {
    /// Reads what the reply needs from the request as the client sent it.
    pub fn of(body: &Value, created: u64) -> Self {
        let include_usage = body["stream_options"]["include_usage"].as_bool() == Some(true);
        let stops = body["stop_sequences"].as_array().into_iter().flatten();
        let stop_sequences = stops.filter_map(Value::as_str).map(str::to_owned);
        Self {
            created,
            include_usage,
            stop_sequences: stop_sequences.collect(),
        }
    }
}

// === impl TranslateError ===

impl TranslateError {
    /// The field at fault, for the `param` of an error body.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::NotJson { .. } => None,
            Self::Unsayable { field, .. } | Self::Invalid { field, .. } => Some(field),
        }
    }
}

#[cfg(test)]
mod tests;
