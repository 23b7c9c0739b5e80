//! Who answers JSON with JSON: a reward function, an external teacher.

use futures_util::future::BoxFuture;
use metaclaw_chat::{Secret, Span};
use metaclaw_learner::{Post, PostFailed};
use metaclaw_llm::{PostClient, http_client, loopback_client};
use metaclaw_settings::address::is_here;
use serde_json::Value;

use super::plan::Plan;

/// An address that JSON is put to.
#[derive(Debug)]
pub(super) struct Function(PostClient);

// === impl Function ===

impl Function {
    pub(super) fn new(
        plan: &Plan,
        url: &str,
        key: Option<&Secret>,
        timeout: Span,
    ) -> anyhow::Result<Self> {
        // No proxy stands before what runs beside us.
        let http = if url.starts_with("http://") && is_here(url) {
            loopback_client()?
        } else {
            http_client(&plan.roots)?
        };
        Ok(Self(PostClient::new(http, url, key, timeout)?))
    }
}

impl Post for Function {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        Box::pin(async move {
            self.0.post(body).await.map_err(|error| PostFailed {
                was_asked: error.was_asked(),
                why: error.to_string(),
            })
        })
    }
}
