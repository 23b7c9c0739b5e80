//! The ids that a reply was sampled as, where its upstream said them beside.

use metaclaw_dialects::vllm::{self, Sampled};
use metaclaw_turns::{Served, Tokens};

use super::{Began, Format};

// === impl Began ===

impl Began {
    /// What the reply says was sampled, where it was asked; `None` where not all of it is there.
    pub(super) fn sampled(self, bytes: &[u8]) -> Option<Sampled> {
        if !self.has_ids {
            return None;
        }
        match self.format {
            Format::Sse => vllm::sampled_sse(bytes),
            Format::Json => vllm::sampled_json(bytes),
        }
    }
}

/// What the log is told of it. As drawn, after temperature and top-p, vLLM does not say.
pub(super) fn tokens(sampled: Sampled, served: &Served) -> Tokens {
    Tokens {
        prompt_ids: sampled.prompt_ids,
        ids: sampled.ids,
        logprobs: sampled.logprobs,
        sampling_logprobs: Vec::new(),
        adapter: served.adapter.clone(),
        version: None,
        base: served.model.clone(),
    }
}
