//! Why a conversation cannot be rendered.

use std::path::PathBuf;

/// Why a conversation cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A base model without a chat template.
    #[error("the model has no chat template beside {file}; use an instruct model", file = file.display())]
    NoTemplate { file: PathBuf },
    /// The template refused the conversation (`raise_exception`).
    #[error("the model's chat template refuses this conversation: {message}")]
    Refused {
        /// In the template's words.
        message: String,
    },
    /// A message cannot be given to a text model.
    #[error("messages[{index}].{field} is {value}, allowed: {allowed}")]
    Message {
        index: usize,
        /// Which field of it.
        field: String,
        value: String,
        allowed: &'static str,
    },
    /// A switch of the template with the name of something that the request or the model says.
    #[error("chat_template_kwargs.{name} is not allowed: the request and the model say it already")]
    Reserved { name: String },
    /// No character is left to break control tokens with.
    #[error(
        "the conversation spells control tokens and holds every private-use character from U+F0000 to U+FFFFD: leave one out"
    )]
    NoMark,
    #[error("the model's chat template failed: {0}")]
    Failed(String),
}
