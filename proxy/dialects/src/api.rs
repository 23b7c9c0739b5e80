//! The three chat APIs, read into one shape.
//!
//! Identity, evidence and training know OpenAI's chat shape alone; what each API says in its own way
//! is turned into it here. Only copies are read: the agent's bytes go their way untouched.

use metaclaw_chat::{Message, MessageError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    chat,
    error::{self, OwnError},
    messages,
    reply::{Reply, is_done, read_sse},
    responses,
};

/// A chat API: what a route takes, and what it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// OpenAI chat completions, `/v1/chat/completions`.
    Chat,
    /// OpenAI Responses, `/v1/responses`.
    Responses,
    /// Anthropic messages, `/v1/messages`.
    Messages,
}

// === impl Api ===

impl Api {
    /// The API whose turns a route takes; routes beside it (`/v1/messages/count_tokens`) have none.
    ///
    /// # Examples
    /// ```
    /// use metaclaw_dialects::Api;
    ///
    /// assert_eq!(Api::of_path("/v1/messages"), Some(Api::Messages));
    /// assert_eq!(Api::of_path("/v1/messages/count_tokens"), None);
    /// ```
    pub fn of_path(path: &str) -> Option<Self> {
        [Self::Chat, Self::Responses, Self::Messages]
            .into_iter()
            .find(|api| api.path() == path)
    }

    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// What it is called where turns are counted and listed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// The API whose shapes a route has: `/v1/messages`, `/v1/responses` and what is below them have their own,
    /// all else is like chat completions.
    pub fn nearest(path: &str) -> Self {
        let is_below = |api: &Self| {
            let rest = path.strip_prefix(api.path());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let below = [Self::Messages, Self::Responses].into_iter().find(is_below);
        below.unwrap_or(Self::Chat)
    }

    /// The error as a body of this API.
    pub fn error(self, error: &OwnError<'_>) -> Value {
        match self {
            Self::Chat | Self::Responses => error::openai(error),
            Self::Messages => error::anthropic(error),
        }
    }

    /// Reads a whole event stream, or as much of one as came.
    ///
    /// # Examples
    /// ```
    /// use metaclaw_dialects::Api;
    ///
    /// let stream = concat!(
    ///     "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\n",
    ///     "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\n",
    ///     "data: [DONE]\n\n",
    /// );
    /// let reply = Api::Chat.read_sse(stream.as_bytes());
    /// assert_eq!(reply.message.unwrap().text(), "Hello");
    /// assert!(reply.ended);
    /// ```
    pub fn read_sse(self, bytes: &[u8]) -> Reply {
        match self {
            Self::Chat => read_sse::<chat::ChatAccumulator>([bytes]),
            Self::Messages => read_sse::<messages::MessagesAccumulator>([bytes]),
            Self::Responses => read_sse::<responses::ResponsesAccumulator>([bytes]),
        }
    }

    /// Reads an unstreamed reply. What is no JSON, or no reply, gives an empty one.
    pub fn read_json(self, bytes: &[u8]) -> Reply {
        match self {
            Self::Chat => chat::read_json(bytes),
            Self::Messages => messages::read_json(bytes),
            Self::Responses => responses::read_json(bytes),
        }
    }

    /// Whether the stream's own end mark has come: `[DONE]`, `message_stop`, or one of
    /// `response.completed`, `response.incomplete` and `response.failed`.
    ///
    /// `tail` is the end of what came so far. Responses ends with an event that repeats the whole
    /// reply: give it all there is, the end is looked at once per event.
    pub fn is_done(self, tail: &[u8]) -> bool {
        match self {
            Self::Chat => is_done::<chat::ChatAccumulator>(tail),
            Self::Messages => is_done::<messages::MessagesAccumulator>(tail),
            Self::Responses => is_done::<responses::ResponsesAccumulator>(tail),
        }
    }

    /// Whether a reply, whole or in events, may call tools: quickly, and none that does is missed.
    pub fn may_call(self, reply: &[u8]) -> bool {
        let marks: &[&str] = match self {
            Self::Chat => &["tool_calls", "function_call"],
            Self::Messages => &["tool_use"],
            Self::Responses => &["_call"],
        };
        let has = |mark: &&str| memchr::memmem::find(reply, mark.as_bytes()).is_some();
        marks.iter().any(has)
    }

    /// One element of `messages` (or of Responses' `input`, or that itself where it is one text) as
    /// messages. Anthropic's user message that brings tool results is several: the results first.
    ///
    /// What a model says in one turn is several items with Responses: see [`Self::push`].
    ///
    /// # Errors
    /// It is no object, or has no role where it needs one.
    pub fn item(self, item: &Value) -> Result<Vec<Message>, MessageError> {
        match self {
            Self::Chat => Ok(vec![Message::try_from(item.clone())?]),
            Self::Responses => Ok(vec![responses::item(item)?]),
            Self::Messages => messages::item(item),
        }
    }

    /// Adds one element of `messages` or `input` to those before it. With Responses, items of the
    /// model that follow one another are one message, as the same turn in chat shape is.
    ///
    /// # Errors
    /// As [`Self::item`].
    pub fn push(self, messages: &mut Vec<Message>, item: &Value) -> Result<(), MessageError> {
        match self {
            Self::Responses => responses::join(messages, responses::item(item)?),
            Self::Chat | Self::Messages => messages.extend(self.item(item)?),
        }
        Ok(())
    }

    /// The system text that stands beside the messages: Anthropic's `system`, Responses'
    /// `instructions`. Chat completions have it among the messages.
    pub fn system(self, value: &Value) -> Option<Message> {
        match self {
            Self::Chat => None,
            Self::Responses => responses::system(value),
            Self::Messages => messages::system(value),
        }
    }

    /// What a chat completion calls a field of the request: whoever asks whether a `stop` was given need
    /// not know who calls it what.
    pub fn param(self, name: &str) -> &str {
        match (self, name) {
            (Self::Messages, "stop_sequences") => "stop",
            (Self::Responses, "max_output_tokens") => "max_completion_tokens",
            (Self::Chat | Self::Responses | Self::Messages, name) => name,
        }
    }

    /// The `tools` of a request as those of a chat completion.
    pub fn tools(self, tools: &Value) -> Value {
        match self {
            Self::Chat => tools.clone(),
            Self::Responses => responses::tools(tools),
            Self::Messages => messages::tools(tools),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{lines, rows};

    /// Each row has the API, what is read (`items` of a conversation, its `system` text, or its `tools`), the value,
    /// and what it is in the words of a chat completion.
    #[test]
    fn what_stands_in_a_request_is_read_in_chat_shape() {
        for (api, what, value, expected) in rows::<(Api, String, Value, Value)>("read") {
            let read = match &*what {
                "tools" => api.tools(&value).to_string(),
                "system" => {
                    let system = api.system(&value).map(|said| lines(&[said]));
                    system.unwrap_or_else(|| "null".to_owned())
                }
                _ => {
                    let mut messages = Vec::new();
                    for item in value.as_array().unwrap() {
                        api.push(&mut messages, item).unwrap();
                    }
                    let expected = expected.as_array().unwrap().iter();
                    let expected: Vec<String> = expected.map(Value::to_string).collect();
                    assert_eq!(lines(&messages), expected.join("\n"), "{api:?}");
                    continue;
                }
            };
            assert_eq!(read, expected.to_string(), "{api:?} {what}");
        }
    }

    #[test]
    fn the_text_of_a_message_is_what_stands_beside_its_images() {
        let image = json!({ "type": "input_image", "image_url": "https://example.com/a.png" });
        let text = json!({ "type": "input_text", "text": "What is this?" });
        let item = json!({ "role": "user", "content": [image, text] });
        assert_eq!(
            Api::Responses.item(&item).unwrap()[0].text(),
            "What is this?"
        );
        let source = json!({ "type": "url", "url": "https://example.com/a.png" });
        let image = json!({ "type": "image", "source": source });
        let text = json!({ "type": "text", "text": "What is this?" });
        let item = json!({ "role": "user", "content": [image, text] });
        assert_eq!(
            Api::Messages.item(&item).unwrap()[0].text(),
            "What is this?"
        );
    }

    #[test]
    fn a_path_names_its_api_and_nothing_beside_it_does() {
        for api in [Api::Chat, Api::Responses, Api::Messages] {
            assert_eq!(Api::of_path(api.path()), Some(api));
            assert_eq!(Api::nearest(api.path()), api);
        }
        for path in [
            "/v1/messages/count_tokens",
            "/v1/responses/resp_1",
            "/v1/chat",
        ] {
            assert_eq!(Api::of_path(path), None, "{path}");
        }
        assert_eq!(Api::nearest("/v1/messages/count_tokens"), Api::Messages);
        for path in ["/v1/messagesx", "/v1/models", "/"] {
            assert_eq!(Api::nearest(path), Api::Chat, "{path}");
        }
    }

    #[test]
    fn a_field_has_the_name_that_chat_gives_it() {
        assert_eq!(Api::Messages.param("stop_sequences"), "stop");
        let found = Api::Responses.param("max_output_tokens");
        assert_eq!(found, "max_completion_tokens");
        for api in [Api::Chat, Api::Responses, Api::Messages] {
            assert_eq!(
                (api.param("temperature"), api.param("stop")),
                ("temperature", "stop")
            );
        }
        assert_eq!(Api::Chat.param("stop_sequences"), "stop_sequences");
    }
}
