//! Chat requests: reads them in place, and edits their bytes.

mod chat;
mod content;
mod conversation;
mod error;
mod known;
mod layout;
mod spans;
mod splice;
mod trim;
mod walk;

pub use self::{
    chat::{ChatRequest, MessageKey, MessageRef},
    error::RequestError,
    known::KnownValues,
    spans::ValueMark,
    splice::{APPEND_FIELD, Absent, Changes, OWN_FIELDS, SHARED_FIELDS, splice},
    trim::{PromptLimit, TrimmedPrompt},
};
