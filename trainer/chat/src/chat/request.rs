//! A chat request, parsed and checked.

use metaclaw_trainer_terms::SamplerRequest;
use serde::Deserialize;
use serde_json::{Number, Value};

use super::{messages, thinking::ThinkingBody};
use crate::{
    error::ApiError,
    fields,
    json::{self, ReadBody},
    model::Conversation,
    sampling::SamplingBody,
};

/// The largest number of choices of one request: as many as our engine computes at once.
const MAX_CHOICES: u32 = 16;

/// The body as clients send it. `data/fields.md` describes the fields that are not read here.
#[derive(Debug)]
pub(crate) struct ChatBody {
    own: OwnFields,
    sampling: SamplingBody,
    thinking: ThinkingBody,
}

#[derive(Debug, Deserialize)]
struct OwnFields {
    messages: Vec<Value>,
    model: Option<String>,
    tools: Option<Value>,
    tool_choice: Option<Value>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<Number>,
    max_completion_tokens: Option<Number>,
    n: Option<u32>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    response_format: Option<ResponseFormat>,
    /// Our own field: lessons that are added at the end of the system prompt, whether it is the client's or the
    /// template's own.
    metaclaw_system_append: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    include_usage: Option<bool>,
    /// OpenAI's padding against eavesdroppers. It has no effect on the reply.
    #[serde(rename = "include_obfuscation")]
    _include_obfuscation: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug)]
pub(crate) struct CompletionRequest {
    pub(crate) model: Option<String>,
    pub(crate) conversation: Conversation,
    pub(crate) draw: SamplerRequest,
    pub(crate) form: ReplyForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyForm {
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) logprobs: bool,
}

// === impl ChatBody ===

impl ReadBody for ChatBody {
    const ROUTE: &'static str = "POST /v1/chat/completions";

    fn read(body: &[u8]) -> Result<Self, ApiError> {
        Ok(Self {
            own: json::parse(body)?,
            sampling: json::parse(body)?,
            thinking: json::parse(body)?,
        })
    }
}

impl ChatBody {
    /// Checks every field.
    ///
    /// # Errors
    /// Names the field, the given value and the allowed ones.
    pub(crate) fn check(self) -> Result<CompletionRequest, ApiError> {
        let own = self.own;
        messages::check(&own.messages)?;
        check_format(own.response_format)?;
        let n = own.n.unwrap_or(1);
        if !(1..=MAX_CHOICES).contains(&n) {
            let text = format!("n is {n}: from 1 to {MAX_CHOICES}");
            return Err(match n {
                0 => ApiError::field("n", text),
                _ => ApiError::unsupported("n", text),
            });
        }
        let logprobs = own.logprobs.unwrap_or(false);
        let options = own.stream_options;
        let max_tokens = max_tokens(own.max_completion_tokens.as_ref(), own.max_tokens.as_ref())?;
        let top_logprobs = top_logprobs(own.top_logprobs.unwrap_or(0), logprobs)?;
        let mut draw = self.sampling.request()?;
        draw.n = n;
        draw.max_tokens = max_tokens;
        draw.sampling.top_logprobs = top_logprobs;
        Ok(CompletionRequest {
            model: own.model,
            draw,
            conversation: Conversation {
                messages: own.messages,
                tools: tools(own.tools, own.tool_choice.as_ref())?,
                variables: self.thinking.variables()?,
                system_append: own.metaclaw_system_append,
            },
            form: ReplyForm {
                stream: own.stream.unwrap_or(false),
                include_usage: options
                    .and_then(|options| options.include_usage)
                    .unwrap_or(false),
                logprobs,
            },
        })
    }
}

/// Without a limit, the rest of the context is used.
fn max_tokens(newer: Option<&Number>, older: Option<&Number>) -> Result<usize, ApiError> {
    let (field, given) = match (newer, older) {
        (Some(given), _) => ("max_completion_tokens", given),
        (None, Some(given)) => ("max_tokens", given),
        (None, None) => return Ok(usize::MAX),
    };
    let read = given
        .as_u64()
        .and_then(|number| usize::try_from(number).ok());
    read.filter(|tokens| *tokens > 0).ok_or_else(|| {
        let text = format!(
            "{field} is {given}, allowed: a whole number of at least 1 (leave it out for what the context leaves)"
        );
        ApiError::field(field, text)
    })
}

/// The sampler checks the upper limit.
fn top_logprobs(given: usize, logprobs: bool) -> Result<usize, ApiError> {
    if given == 0 || logprobs {
        return Ok(given);
    }
    let text = format!("top_logprobs is {given}, allowed: 0 (without logprobs true)");
    Err(ApiError::field("top_logprobs", text))
}

fn check_format(format: Option<ResponseFormat>) -> Result<(), ApiError> {
    match format {
        Some(format) if format.kind != "text" => {
            let field = "response_format.type";
            let kind = fields::cut(&format.kind);
            let text = format!(
                "{field} is {kind:?}, allowed: \"text\" (no grammar is put on replies: say in a message what form you want)"
            );
            Err(ApiError::unsupported(field, text))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the tools for the template, or `None` if no tool may be called.
fn tools(tools: Option<Value>, choice: Option<&Value>) -> Result<Option<Value>, ApiError> {
    let is_off = match choice {
        None | Some(Value::Null) => false,
        Some(Value::String(choice)) if choice == "auto" => false,
        Some(Value::String(choice)) if choice == "none" => true,
        Some(other) => {
            let given = fields::cut(&other.to_string());
            let text = format!(
                "tool_choice is {given}, allowed: \"auto\" or \"none\" (a call cannot be forced)"
            );
            return Err(ApiError::unsupported("tool_choice", text));
        }
    };
    match tools {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(tools)) if tools.is_empty() || is_off => Ok(None),
        Some(tools @ Value::Array(_)) => Ok(Some(tools)),
        Some(_) => Err(ApiError::field(
            "tools",
            "tools is no list: a list of tools",
        )),
    }
}

#[cfg(test)]
mod tests;
