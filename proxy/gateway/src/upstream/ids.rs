//! Token ids, asked of vLLM beside a chat: for training, which needs what was sampled and not only its
//! text.
//!
//! The fields that ask go into the request by bytes, like our other changes, and what only we asked for
//! is taken out of the reply again ([`metaclaw_dialects::vllm`]). A server that refuses a request for
//! these fields is asked again without them, and is spared them for a while.

use http::StatusCode;
use metaclaw_dialects::{Api, vllm};
use serde_json::Value;

use super::{
    Outgoing, Target, Upstreams,
    ask::{Attempt, Outcome},
    lack::Lack,
};
use crate::config::UpstreamDialect;

// === impl Upstreams ===

impl Upstreams {
    /// Asks for token ids beside, where the target gives them, and without if it turns out not to.
    pub(super) async fn attempt<'a>(
        &self,
        attempt: Attempt<'_>,
        outgoing: impl Fn() -> Outgoing<'a>,
    ) -> Outcome {
        let first = self.attempt_words(attempt, &outgoing).await;
        let lacks_ids = attempt.target.lacks_ids();
        let Some(lacks_ids) = lacks_ids.filter(|_| first.refuses_ids) else {
            return first;
        };
        lacks_ids.set(true);
        let second = self.attempt_words(attempt, &outgoing).await;
        if second.is_success() {
            let upstream = attempt.target.name();
            tracing::info!(upstream, "it gives no token ids: asked without for an hour");
        } else {
            // It was something else, or nobody knows.
            lacks_ids.set(false);
        }
        second.after(first)
    }
}

// === impl Outcome ===

impl Outcome {
    fn is_success(&self) -> bool {
        let status = self.answer.as_ref().map(|raw| raw.reply.status());
        status.is_ok_and(|status| status.is_success())
    }
}

// === impl Target ===

impl Target {
    /// What a caller asked for itself, where the target is asked for the ids of what it samples: a chat
    /// that reaches vLLM as a chat completion. `field` gives the fields of the caller's request. Nothing
    /// where our fields would make right what vLLM refuses.
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
        match api {
            Api::Chat => {
                let asked = vllm::Asked::of(&field);
                // Refused without `logprobs: true`, which would come from us alone.
                let is_refused =
                    !asked.logprobs && field("top_logprobs").is_some_and(|it| !it.is_null());
                (!is_refused).then_some(asked)
            }
            // Neither has a field for it.
            Api::Messages | Api::Responses => Some(vllm::Asked::default()),
        }
    }

    /// Whether it turned out to give no ids.
    pub(super) fn lacks_ids(&self) -> Option<&Lack> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => Some(&upstream.lacks_ids),
        }
    }
}

/// Whether a server says that it does not like the request.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
    )
}
