//! What Tinker has no call for: texts as token ids, and what was sampled for a reply.

use std::fmt;

use crate::{
    BackendError, BackendFuture,
    wire::{Sampled, TokenizeReply, TokenizeRequest},
};

/// Answers from this process where Tinker has no call: it knows token ids only.
///
/// # Cancel safety
/// Nothing is changed by any of these calls.
pub trait LocalText: fmt::Debug + Send + Sync {
    /// Whether the others can be answered.
    ///
    /// # Errors
    /// Why not yet, in words.
    fn ready(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Ids that a reply ends with; none where they are not known.
    fn end_ids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Messages or text to ids, by the model's own template.
    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply>;

    /// The text of ids, without special tokens.
    fn decode(&self, ids: Vec<u32>) -> BackendFuture<'_, String>;

    /// What was sampled for a reply; `None` when it is not (or no longer) kept.
    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>>;
}
