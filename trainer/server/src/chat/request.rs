//! A chat request, read and checked.

use metaclaw_trainer_api::wire::Stop;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::messages;
use crate::{
    error::ApiError,
    host::{Conversation, Sampling},
};

/// What a reply is drawn at when the request does not say: a training decision (`learning.md` 4).
/// At T = 0.7 replies are good to read and still vary enough to learn from; without top-p every
/// log-probability is that of the whole distribution.
pub(crate) const DEFAULT_TEMPERATURE: f64 = 0.7;
/// Off.
pub(crate) const DEFAULT_TOP_P: f64 = 1.0;
/// The most stop strings: each is looked for at every token.
const MAX_STOPS: usize = 16;
/// The hottest temperature, as OpenAI has it.
const MAX_TEMPERATURE: f64 = 2.0;

/// The body as clients send it. Fields not named here are about billing, storage and the like, and
/// change nothing in the reply.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatBody {
    messages: Vec<Value>,
    model: Option<String>,
    tools: Option<Value>,
    #[serde(default)]
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    seed: Option<i64>,
    stop: Option<Stop>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    n: Option<u64>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    logit_bias: Option<Map<String, Value>>,
    response_format: Option<Value>,
    /// Ours: lessons, added at the end of the system text, be it the client's or the template's own.
    metaclaw_system_append: Option<String>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// The request, checked.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    /// What `model` named.
    pub(crate) model: Option<String>,
    /// For the template.
    pub(crate) conversation: Conversation,
    /// How to draw.
    pub(crate) sampling: Sampling,
    /// At most this many new tokens; `None` for what the context leaves.
    pub(crate) max_tokens: Option<u64>,
    /// How to answer.
    pub(crate) form: Form,
}

/// How to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// As an event stream.
    pub(crate) stream: bool,
    /// With a last event that has the usage.
    pub(crate) include_usage: bool,
    /// With the log-probability of each token.
    pub(crate) logprobs: bool,
}

// === impl ChatBody ===

impl ChatBody {
    /// Checks every field.
    ///
    /// # Errors
    /// Names the field, what was given and what is allowed.
    pub(crate) fn check(self) -> Result<ChatRequest, ApiError> {
        self.refuse_what_is_not_there()?;
        let max_tokens = match (self.max_completion_tokens, self.max_tokens) {
            (Some(0), _) => return Err(at_least_one("max_completion_tokens")),
            (None, Some(0)) => return Err(at_least_one("max_tokens")),
            (newer, older) => newer.or(older),
        };
        messages::check(&self.messages)?;
        let form = Form {
            stream: self.stream.unwrap_or(false),
            include_usage: self
                .stream_options
                .and_then(|options| options.include_usage)
                .unwrap_or(false),
            logprobs: self.logprobs.unwrap_or(false),
        };
        Ok(ChatRequest {
            model: self.model,
            conversation: Conversation {
                messages: self.messages,
                tools: tools(self.tools)?,
                system_append: self.metaclaw_system_append,
            },
            sampling: Sampling {
                temperature: temperature(self.temperature.unwrap_or(DEFAULT_TEMPERATURE))?,
                top_p: top_p(self.top_p.unwrap_or(DEFAULT_TOP_P))?,
                top_k: top_k(self.top_k.unwrap_or(0))?,
                seed: self.seed.map(i64::cast_unsigned),
                stop: stops(self.stop)?,
            },
            max_tokens,
            form,
        })
    }

    /// What would change the reply and is not built: refused, because leaving it out in silence
    /// would be another reply than the one asked for.
    fn refuse_what_is_not_there(&self) -> Result<(), ApiError> {
        let refuse = |field: &str, given: String, allowed: &str| {
            Err(ApiError::field(
                field,
                format!("{field} is {given}: {allowed}"),
            ))
        };
        if let Some(n) = self.n.filter(|n| *n != 1) {
            return refuse("n", n.to_string(), "this engine gives one choice, 1");
        }
        if let Some(n) = self.top_logprobs.filter(|n| *n != 0) {
            return refuse(
                "top_logprobs",
                n.to_string(),
                "only the drawn token's log-probability is given, 0",
            );
        }
        let penalties = [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ];
        for (field, value) in penalties {
            if let Some(value) = value.filter(|value| *value != 0.0) {
                return refuse(field, value.to_string(), "this engine has no penalties, 0");
            }
        }
        if let Some(bias) = self.logit_bias.as_ref().filter(|bias| !bias.is_empty()) {
            return refuse(
                "logit_bias",
                format!("{} entries", bias.len()),
                "this engine has no bias, {}",
            );
        }
        let format = self
            .response_format
            .as_ref()
            .and_then(|format| format.get("type")?.as_str());
        match format {
            None | Some("text") => Ok(()),
            Some(other) => refuse(
                "response_format.type",
                format!("{other:?}"),
                "this engine writes \"text\"",
            ),
        }
    }
}

fn at_least_one(field: &str) -> ApiError {
    ApiError::field(field, format!("{field} is 0: at least 1"))
}

fn tools(tools: Option<Value>) -> Result<Option<Value>, ApiError> {
    match tools {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(tools)) if tools.is_empty() => Ok(None),
        Some(tools @ Value::Array(_)) => Ok(Some(tools)),
        Some(_) => Err(ApiError::field(
            "tools",
            "tools is no list: a list of tools",
        )),
    }
}

/// Checks a temperature.
pub(crate) fn temperature(value: f64) -> Result<f64, ApiError> {
    if (0.0..=MAX_TEMPERATURE).contains(&value) {
        return Ok(value);
    }
    let text = format!("temperature is {value}: from 0 to {MAX_TEMPERATURE}");
    Err(ApiError::field("temperature", text))
}

/// Checks a `top_p`.
pub(crate) fn top_p(value: f64) -> Result<f64, ApiError> {
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    let text = format!("top_p is {value}: above 0, at most 1");
    Err(ApiError::field("top_p", text))
}

/// Checks a `top_k`; 0 and -1 are off, as clients of other servers write it.
pub(crate) fn top_k(value: i64) -> Result<Option<u32>, ApiError> {
    match value {
        0 | -1 => Ok(None),
        _ => u32::try_from(value).map(Some).map_err(|_| {
            let text = format!("top_k is {value}: at least 1, or 0 for all");
            ApiError::field("top_k", text)
        }),
    }
}

/// Checks stop strings.
pub(crate) fn stops(stop: Option<Stop>) -> Result<Vec<String>, ApiError> {
    let stops = stop.map(Stop::into_strings).unwrap_or_default();
    if stops.len() <= MAX_STOPS {
        return Ok(stops);
    }
    let text = format!("stop has {} strings: at most {MAX_STOPS}", stops.len());
    Err(ApiError::field("stop", text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(more: &Value) -> Result<ChatRequest, ApiError> {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        let into = body.as_object_mut().unwrap();
        into.extend(more.as_object().unwrap().clone());
        crate::json::parse::<ChatBody>(body.to_string().as_bytes())?.check()
    }

    #[test]
    fn what_is_not_said_has_the_policys_defaults() {
        let request = check(&json!({"stream": null, "stop": null, "tools": []})).unwrap();
        assert_eq!(
            request.sampling,
            Sampling {
                temperature: 0.7,
                top_p: 1.0,
                top_k: None,
                seed: None,
                stop: vec![]
            }
        );
        assert_eq!(
            (request.max_tokens, request.conversation.tools),
            (None, None)
        );
        assert!(!request.form.stream);
    }

    #[test]
    fn the_newer_name_of_a_limit_wins() {
        let request = check(&json!({"max_tokens": 5, "max_completion_tokens": 7})).unwrap();
        assert_eq!(request.max_tokens, Some(7));
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_field() {
        let bad = [
            json!({"n": 2}),
            json!({"temperature": 2.5}),
            json!({"temperature": "hot"}),
            json!({"top_p": 0}),
            json!({"top_k": -2}),
            json!({"max_tokens": 0}),
            json!({"max_completion_tokens": -1}),
            json!({"stop": 7}),
            json!({"stop": vec!["x"; 17]}),
            json!({"top_logprobs": 3}),
            json!({"frequency_penalty": 0.5}),
            json!({"logit_bias": {"5": 1}}),
            json!({"response_format": {"type": "json_object"}}),
            json!({"tools": "all"}),
            json!({"messages": "hi"}),
        ];
        let messages: Vec<String> = bad
            .iter()
            .map(|more| check(more).unwrap_err().to_string())
            .collect();
        insta::assert_snapshot!(messages.join("\n"));
    }
}
