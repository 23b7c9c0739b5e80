//! Why a conversation cannot be rendered.

use std::path::PathBuf;

/// Why a conversation cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The model is a base model without a chat template.
    #[error("the model has no chat template beside {file}; use an instruct model", file = file.display())]
    NoTemplate { file: PathBuf },
    /// The template refused the conversation (`raise_exception`).
    #[error("the model's chat template refuses this conversation: {message}")]
    Refused {
        /// The template's message.
        message: String,
    },
    /// A text model cannot get this message.
    #[error("messages[{index}].{field} is {value}, allowed: {allowed}")]
    Message {
        index: usize,
        /// The field of the message.
        field: String,
        value: String,
        allowed: &'static str,
    },
    /// A switch has the name of a value that comes from the request or the model.
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
