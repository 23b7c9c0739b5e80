//! Chat requests: reads them in place, and edits their bytes.

mod chat;
mod content;
mod conversation;
mod error;
mod layout;
mod splice;
mod trim;
mod walk;

pub use self::{
    chat::{ChatRequest, MessageRef},
    error::RequestError,
    splice::{APPEND_FIELD, Absent, Changes, OWN_FIELDS, SHARED_FIELDS, splice},
    trim::{PromptLimit, TrimmedPrompt},
};
