//! Reads a chat completion, whole or as a stream of server-sent events.

use serde_json::{Value, json};

/// A reply of the model.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyReply {
    pub(super) text: String,
    pub(super) calls: Vec<PolicyCall>,
}

/// A tool call of the model.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct PolicyCall {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, as the model wrote it.
    pub(super) arguments: String,
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

    /// Returns the message as the conversation repeats it.
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

    /// Adds a message, or a piece of one.
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
                self.calls.push(PolicyCall::default());
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

#[cfg(test)]
mod tests {
    use super::{PolicyCall, PolicyReply};

    fn call() -> PolicyCall {
        PolicyCall {
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
