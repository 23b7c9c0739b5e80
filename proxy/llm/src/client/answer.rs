//! The answer of a chat model.

use metaclaw_chat::{Message, Usage};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text, which may be empty.
    pub text: String,
    /// The server's `finish_reason`. `length` means that the text was cut.
    pub finish_reason: Option<String>,
    /// Its tokens, if the server reports them.
    pub usage: Option<Usage>,
}

/// Servers' words for a cut answer: OpenAI's; Gemini's, Cohere's and watsonx's; Mistral's; Anthropic's. Their letters
/// alone are compared.
const CUT: [&str; 8] = [
    "length",
    "maxtokens",
    "modellength",
    "maxlength",
    "maxoutputtokens",
    "tokenlimit",
    "finishreasonmaxtokens",
    "modelcontextwindowexceeded",
];

impl Answer {
    /// Returns whether the server says that the text was cut at a limit.
    pub fn is_cut(&self) -> bool {
        let letters = self.finish_reason.iter().flat_map(|reason| reason.chars());
        let letters = letters.filter(char::is_ascii_alphabetic);
        let reason: String = letters.map(|c| c.to_ascii_lowercase()).collect();
        CUT.contains(&reason.as_str())
    }
}

/// Reads the first choice of a chat completion.
pub(super) fn read(body: &[u8]) -> Result<Answer, String> {
    let json: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let choice = &json["choices"][0];
    let message: Message = serde_json::from_value(choice["message"].clone())
        .map_err(|error| format!("choices[0].message: {error}"))?;
    let usage = &json["usage"];
    Ok(Answer {
        text: message.text().into_owned(),
        finish_reason: choice["finish_reason"].as_str().map(str::to_owned),
        usage: usage["prompt_tokens"].is_u64().then(|| Usage {
            prompt_tokens: Usage::count(&usage["prompt_tokens"]),
            completion_tokens: Usage::count(&usage["completion_tokens"]),
            cached_tokens: Usage::count(&usage["prompt_tokens_details"]["cached_tokens"]),
        }),
    })
}
