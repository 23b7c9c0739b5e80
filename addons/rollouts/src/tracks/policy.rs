//! Requests chat completions from the model that is trained, whole or as streams of server-sent events.

use std::time::Duration;

use metaclaw_chat::{ToolCall, excerpt, head, now_ms, retry_after};
use reqwest::{StatusCode, header::RETRY_AFTER};
use serde_json::{Value, json};

use super::task::EpisodeStart;
use crate::http::patiently;

/// How long requests are repeated: a proxy that is restarted answers again within this time.
const PATIENCE: Duration = Duration::from_secs(120);
const MAX_WORDS: usize = 500;
const MAX_REPLY: usize = 16 << 20;

pub(super) struct PolicyClient<'a> {
    url: String,
    start: &'a EpisodeStart<'a>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyReply {
    pub(super) text: String,
    pub(super) calls: Vec<ToolCall>,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum PolicyRequestError {
    #[error("the conversation is longer than the model's context: {words}")]
    ContextFull { words: String },
    #[error("{url} refuses the request with status {status}: {words}")]
    Refused {
        url: String,
        status: StatusCode,
        words: String,
    },
    #[error("{url} is not reached: {source}")]
    Unreachable { url: String, source: reqwest::Error },
    #[error("{url} answers with something else than a chat completion: {words}")]
    NoCompletion { url: String, words: String },
}

// === impl PolicyClient ===

impl<'a> PolicyClient<'a> {
    pub(super) fn new(start: &'a EpisodeStart<'a>) -> Self {
        let base = start.settings.base_url.trim_end_matches('/');
        Self {
            url: format!("{base}/chat/completions"),
            start,
        }
    }

    /// Asks for the next message of a conversation. Requests that fail for a reason that may pass are repeated.
    ///
    /// # Errors
    /// The last attempt's.
    pub(super) async fn ask(
        &self,
        messages: &[Value],
        tools: &[Value],
    ) -> Result<PolicyReply, PolicyRequestError> {
        let body = self.body(messages, tools);
        patiently(PATIENCE, async || self.ask_once(&body).await).await
    }

    fn body(&self, messages: &[Value], tools: &[Value]) -> Value {
        let (settings, options) = (self.start.settings, &self.start.options);
        let mut body = json!({
            "model": settings.model,
            "messages": messages,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
        });
        if !tools.is_empty() && !options.tools_in_prompt {
            body["tools"] = json!(tools);
        }
        if options.stream {
            body["stream"] = json!(true);
        }
        body
    }

    // pair: an error that may pass comes with the wait that the server asks for
    async fn ask_once(
        &self,
        body: &Value,
    ) -> Result<PolicyReply, (PolicyRequestError, Option<Duration>)> {
        let url = self.url.clone();
        let unreachable = |source| {
            let url = url.clone();
            let error = PolicyRequestError::Unreachable { url, source };
            (error, Some(Duration::ZERO))
        };
        let (settings, options) = (self.start.settings, &self.start.options);
        let request = self.start.http.post(&url).json(body);
        let request = request.bearer_auth(settings.api_key.expose());
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER);
        let header = header.and_then(|value| value.to_str().ok());
        let wait = header.and_then(|text| retry_after(text, now_ms()));
        let bytes = read(response).await.map_err(unreachable)?;
        let text = String::from_utf8_lossy(&bytes);
        if !status.is_success() {
            let may_pass = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            let error = refusal(&url, status, &text);
            return Err((error, may_pass.then(|| wait.unwrap_or_default())));
        }
        let reply = if options.stream {
            PolicyReply::from_stream(&text)
        } else {
            PolicyReply::from_body(&text)
        };
        reply.map_err(|words| {
            let words = format!("{words}: {}", excerpt(&text));
            (PolicyRequestError::NoCompletion { url, words }, None)
        })
    }
}

// === impl PolicyReply ===

impl PolicyReply {
    /// Reads a completion that was sent whole.
    ///
    /// # Errors
    /// Says in words what is missing.
    pub(super) fn from_body(text: &str) -> Result<Self, String> {
        let body: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let message = &body["choices"][0]["message"];
        if !message.is_object() {
            return Err("choices[0].message is missing".to_owned());
        }
        let mut parts = Self::default();
        parts.add(message);
        Ok(parts)
    }

    /// Reads the events of a completion.
    ///
    /// # Errors
    /// If the stream reports an error, or ended before the reply did.
    pub(super) fn from_stream(text: &str) -> Result<Self, String> {
        let mut parts = Self::default();
        let mut has_ended = false;
        for line in text.lines() {
            let Some(data) = line.strip_prefix("data:").map(str::trim) else {
                continue;
            };
            if data == "[DONE]" {
                break;
            }
            let event: Value = serde_json::from_str(data).map_err(|error| error.to_string())?;
            if let Some(error) = event.get("error") {
                return Err(format!("the stream reports an error: {error}"));
            }
            let choice = &event["choices"][0];
            parts.add(&choice["delta"]);
            has_ended |= choice["finish_reason"].is_string();
        }
        if has_ended {
            Ok(parts)
        } else {
            Err("the stream ended before the reply".to_owned())
        }
    }

    pub(super) fn message(&self) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.text });
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(|call| {
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": { "name": call.name, "arguments": call.arguments },
                })
            });
            message["tool_calls"] = calls.collect();
        }
        message
    }

    fn add(&mut self, piece: &Value) {
        self.text
            .push_str(piece["content"].as_str().unwrap_or_default());
        let calls = piece["tool_calls"].as_array().into_iter().flatten();
        for (place, call) in calls.enumerate() {
            // A piece of a stream says to which call it belongs.
            let index = call["index"]
                .as_u64()
                .and_then(|it| usize::try_from(it).ok());
            let index = index.unwrap_or(place);
            // A gap would be a mistake of the server; its calls are put one after the other.
            if index >= self.calls.len() {
                let (id, name, arguments) = Default::default();
                self.calls.push(ToolCall {
                    id,
                    name,
                    arguments,
                });
            }
            let last = self.calls.len() - 1;
            let known = &mut self.calls[index.min(last)];
            let function = &call["function"];
            for (field, value) in [
                (&mut known.id, &call["id"]),
                (&mut known.name, &function["name"]),
                (&mut known.arguments, &function["arguments"]),
            ] {
                field.push_str(value.as_str().unwrap_or_default());
            }
        }
    }
}

// === functions ===

/// Reads a body up to its limit. What is beyond is no longer a completion.
async fn read(mut response: reqwest::Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_REPLY {
            break;
        }
    }
    Ok(bytes)
}

fn refusal(url: &str, status: StatusCode, text: &str) -> PolicyRequestError {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let said = value["error"]["message"].as_str();
    let words = head(said.unwrap_or(text), MAX_WORDS).to_owned();
    if value["error"]["code"] == "context_length_exceeded" {
        return PolicyRequestError::ContextFull { words };
    }
    PolicyRequestError::Refused {
        url: url.to_owned(),
        status,
        words,
    }
}

#[cfg(test)]
mod tests {
    use super::{PolicyReply, ToolCall};

    fn call() -> ToolCall {
        ToolCall {
            id: "c1".to_owned(),
            name: "bash".to_owned(),
            arguments: "{\"command\": \"ls\"}".to_owned(),
        }
    }

    #[test]
    fn a_stream_and_a_whole_body_give_the_same_reply() {
        let body = r#"{"choices":[{"message":{"role":"assistant","content":"Hm.","tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"command\": \"ls\"}"}}]},"finish_reason":"tool_calls"}]}"#;
        let stream = concat!(
            ": ping\n\n",
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"H\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"m.\"}}]}\r\n\r\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"bash\",\"arguments\":\"{\\\"comm\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"and\\\": \\\"ls\\\"}\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
            "data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n",
        );
        let expected = PolicyReply {
            text: "Hm.".to_owned(),
            calls: vec![call()],
        };
        assert_eq!(PolicyReply::from_body(body).unwrap(), expected);
        assert_eq!(PolicyReply::from_stream(stream).unwrap(), expected);
    }

    #[test]
    fn a_stream_that_breaks_off_is_no_reply() {
        let cut = "data: {\"choices\":[{\"delta\":{\"content\":\"H\"}}]}\n\n";
        assert_eq!(
            PolicyReply::from_stream(cut).unwrap_err(),
            "the stream ended before the reply"
        );
        let failed = "data: {\"error\":{\"message\":\"overloaded\"}}\n\n";
        assert!(
            PolicyReply::from_stream(failed)
                .unwrap_err()
                .contains("overloaded")
        );
        assert!(PolicyReply::from_body("{}").is_err());
    }
}
