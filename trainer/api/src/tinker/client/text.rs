//! The calls that Tinker does not have: tokenisation, and the samples of a reply.

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
    /// Whether the other calls can be answered.
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

    /// The sampled ids and log-probabilities of a reply; `None` if they are not kept, or no longer.
    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>>;
}
