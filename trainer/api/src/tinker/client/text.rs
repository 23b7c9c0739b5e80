//! The calls that Tinker does not have: tokenisation, and the samples of a reply.

use std::fmt;

use crate::{
    BackendError, BackendFuture,
    wire::{Sampled, TokenizeReply, TokenizeRequest},
};

/// Answers in this process what Tinker has no call for, because Tinker knows token ids only.
///
/// # Cancel safety
/// None of these calls changes anything.
pub trait LocalText: fmt::Debug + Send + Sync {
    /// Whether the other calls can be answered.
    ///
    /// # Errors
    /// Returns why not yet, in words.
    fn ready(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Returns the ids that end a reply; empty if they are not known.
    fn end_ids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Converts messages or text to ids, by the model's own template.
    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply>;

    /// Returns the text of ids, without special tokens.
    fn decode(&self, ids: Vec<u32>) -> BackendFuture<'_, String>;

    /// The sampled ids and log-probabilities of a reply; `None` if they are not kept, or no longer.
    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>>;
}
