//! The answer of a chat model.

use metaclaw_chat::{Message, StopReason, Usage};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text, which may be empty.
    pub text: String,
    /// The server's `finish_reason`, in its own words.
    pub finish_reason: Option<String>,
    /// Its tokens, if the server reports them.
    pub usage: Option<Usage>,
}

impl Answer {
    /// Returns whether the server says that the text is not whole.
    pub fn is_cut(&self) -> bool {
        let reason = self.finish_reason.as_deref().and_then(StopReason::of);
        reason.is_some_and(StopReason::is_cut)
    }
}

/// Reads the first choice of a chat completion.
pub(super) fn read(body: &[u8]) -> Result<Answer, String> {
    let json: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let choice = &json["choices"][0];
    let message: Message = serde_json::from_value(choice["message"].clone())
        .map_err(|error| format!("choices[0].message: {error}"))?;
    Ok(Answer {
        text: message.text().into_owned(),
        finish_reason: choice["finish_reason"].as_str().map(str::to_owned),
        usage: Usage::read(&json["usage"]).filter(|usage| usage.prompt_tokens > 0),
    })
}
