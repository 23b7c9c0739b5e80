//! Token ids, asked of vLLM beside a chat: for training, which needs what was sampled and not only its
//! text.
//!
//! The fields that ask go into the request by bytes, like our other changes, and what only we asked for
//! is taken out of the reply again ([`metaclaw_dialects::vllm`]). A server that refuses a request for
//! these fields is asked again without them, and is spared them for a while.

use metaclaw_dialects::{Api, vllm};
use serde_json::Value;

use super::{Target, lack::Lack};
use crate::config::UpstreamDialect;

// === impl Target ===

impl Target {
    /// What a caller asked for itself, where the target is asked for the ids of what it samples: a chat
    /// that reaches vLLM as a chat completion. `field` gives the fields of the caller's request.
    pub(crate) fn asked_for_ids(
        &self,
        api: Api,
        field: impl Fn(&str) -> Option<Value>,
    ) -> Option<vllm::Asked> {
        let Self::Named(upstream) = self else {
            return None;
        };
        let is_vllm = upstream.config.dialect == UpstreamDialect::Vllm;
        if !is_vllm || upstream.lacks_ids.is_known() || self.spoken(api) != Some(Api::Chat) {
            return None;
        }
        Some(match api {
            Api::Chat => vllm::Asked::of(field),
            // Neither has a field for it.
            Api::Messages | Api::Responses => vllm::Asked::default(),
        })
    }

    /// Whether it turned out to give no ids.
    pub(super) fn lacks_ids(&self) -> Option<&Lack> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => Some(&upstream.lacks_ids),
        }
    }
}
