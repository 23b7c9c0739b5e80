//! Chat requests: read where they stand, and edited by their bytes.

mod chat;
mod content;
mod conversation;
mod error;
mod layout;
mod splice;

pub use self::{
    chat::{ChatRequest, MessageRef},
    error::RequestError,
    splice::{APPEND_FIELD, Absent, Changes, OWN_FIELDS, SHARED_FIELDS, splice},
};
