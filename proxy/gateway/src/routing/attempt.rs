//! One upstream asked once, and what its answer says.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use metaclaw_dialects::{Api, mend::Demands};

use super::translation::{TranslatedRequest, Translation};
use crate::{
    failure::Failure,
    headers,
    metrics::RequestMetrics,
    upstream::{Credentials, Outgoing, Sent, Upstream, UpstreamBody, UpstreamError, Variant},
};

/// Who answered, and what.
pub(crate) struct Answer {
    pub upstream: Arc<Upstream>,
    pub reply: Response<UpstreamBody>,
    /// The API that the reply is in as it comes from the upstream; the agent gets its own.
    pub api: Api,
    /// It comes from the upstream as an event stream.
    pub is_events: bool,
    /// Token ids are beside, as they were asked for.
    pub has_ids: bool,
}

/// An answer as the upstream gave it.
pub(super) struct Raw {
    upstream: Arc<Upstream>,
    reply: Response<UpstreamBody>,
    api: Api,
    translation: Translation,
}

/// One upstream asked once.
pub(super) struct AttemptResult {
    pub answer: Result<Raw, UpstreamError>,
    pub failure: Option<Failure>,
    /// What it does not know of the way it was asked, if that was it.
    pub unsupported: Option<Unsupported>,
    /// Neither the model is missing nor anything else that the answer names.
    lacks_route: bool,
}

/// What an upstream turned out not to know.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unsupported {
    /// The token ids that only we asked for.
    TokenIds,
    /// An API that it was guessed to speak.
    Api,
    /// The history as it is: what it wants, with what was known of that before.
    History(Demands),
}

/// Asks `upstream`, the last one or not.
pub(super) async fn attempt(
    upstream: &Arc<Upstream>,
    request: TranslatedRequest,
    shown: Credentials,
    is_last: bool,
) -> AttemptResult {
    let outgoing = Outgoing {
        method: Method::POST,
        route: request.route,
        headers: request.headers,
        body: Sent::Chat(request.body),
    };
    let (is_guess, translation) = (request.is_guess, request.translation);
    let (demands, api) = (request.demands, request.api);
    let mut reply = match upstream.send(outgoing, shown).await {
        Ok(reply) => reply,
        Err(error) => return error.into(),
    };
    if let Err(why) = translation.read_ahead(upstream, &mut reply).await {
        return why.into();
    }
    let status = reply.status();
    let is = |statuses: [StatusCode; 2]| statuses.contains(&status);
    let is_refusal = is([StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY]);
    let is_missing = is([StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED]);
    let ids = translation.ids.filter(|_| is_refusal);
    // OpenAI does not find what another made.
    let lacks_item = is_missing && api == Api::Responses;
    let demands = demands.filter(|_| is_refusal || lacks_item);
    let is_read =
        is_guess || ids.is_some() || demands.is_some() || is_decided_by_the_body(upstream, is_last);
    let (failure, text) = classify(upstream, shown.key, &mut reply, is_read).await;
    let lacks_route = is_missing && failure.is_none();
    let wanted = demands.and_then(|known| {
        let all = known.and(Demands::of_refusal(status.as_u16(), &text));
        (all != known).then_some(all)
    });
    let unsupported = if ids.is_some_and(|asked| asked.is_blamed(&text)) {
        Some(Unsupported::TokenIds)
    } else if let Some(wanted) = wanted {
        Some(Unsupported::History(wanted))
    } else {
        (is_guess && lacks_route).then_some(Unsupported::Api)
    };
    let answer = Ok(Raw {
        upstream: Arc::clone(upstream),
        reply,
        api: request.api,
        translation,
    });
    AttemptResult {
        answer,
        failure,
        unsupported,
        lacks_route,
    }
}

/// The class of a reply, noted for the key that was shown; and the beginning of an error's body, if it is
/// to be read.
pub(super) async fn classify(
    upstream: &Upstream,
    key: Option<usize>,
    reply: &mut Response<UpstreamBody>,
    is_read: bool,
) -> (Option<Failure>, Bytes) {
    let status = reply.status().as_u16();
    let text = if status >= 400 && is_read {
        reply.body_mut().peek().await
    } else {
        Bytes::new()
    };
    let failure = Failure::classify(status, &text);
    let (name, headers) = (&upstream.name, reply.headers());
    upstream.keys.note(name, key, failure, headers);
    (failure, text)
}

/// Whether an error's body is worth keeping the agent waiting for: whom to ask next depends on it.
pub(super) fn is_decided_by_the_body(upstream: &Upstream, is_last: bool) -> bool {
    let n_keys = upstream.keys.len();
    // A key that rests for the wrong reason is missed by agents who would go on from here.
    n_keys > 1 || (!is_last || n_keys > 0) && !upstream.fail_over.is_empty()
}

// === impl Outcome ===

impl AttemptResult {
    pub(super) fn is_good(&self) -> bool {
        self.answer
            .as_ref()
            .is_ok_and(|raw| raw.reply.status().is_success())
    }

    /// Counts it, where it is the upstream's answer to what the caller asked.
    pub(super) fn note(&self, upstream: &Upstream, metrics: &RequestMetrics) {
        if self.unsupported.is_some() {
            return;
        }
        let name = &upstream.name;
        let is_unable = self
            .failure
            .is_some_and(|failure| upstream.is_unable(failure));
        match &self.answer {
            Ok(raw) if raw.reply.status().as_u16() < 400 => metrics.good(name),
            Ok(raw) => metrics.failed(name, raw.reply.status().to_string(), is_unable),
            Err(error) if self.failure.is_some() => {
                let why = error.to_string();
                // Its name is told beside it.
                let host = why.strip_prefix(&format!("upstream {name} ("));
                let why = match host.and_then(|rest| rest.split_once(") ")) {
                    Some((host, what)) => format!("{host} {what}"),
                    None => why,
                };
                metrics.failed(name, why, is_unable);
            }
            // The caller's own.
            Err(_) => {}
        }
    }

    /// What is known of the upstream now that it was asked in another way than at `first`, for a caller of `api`.
    pub(super) fn teaches(&self, upstream: &Upstream, api: Api, first: Variant, variant: Variant) {
        let name = &upstream.name;
        let status = self.answer.as_ref().map(|raw| raw.reply.status());
        if first.ids && !variant.ids && status.is_ok_and(|status| status.is_success()) {
            tracing::info!(upstream = name, "no token ids: asked without for an hour");
            upstream.capabilities.lacks_ids();
        }
        // Where neither route is there, it was something else that was missing.
        if first.guess && !variant.guess && !self.lacks_route {
            let lacked = api.name();
            tracing::info!(
                upstream = name,
                "no {lacked}: asked in chat completions for an hour"
            );
            upstream.capabilities.lacks_api(api);
        }
    }
}

impl From<UpstreamError> for AttemptResult {
    fn from(error: UpstreamError) -> Self {
        Self {
            failure: error.failure(),
            answer: Err(error),
            unsupported: None,
            lacks_route: false,
        }
    }
}

// === impl Raw ===

impl Raw {
    /// In the caller's API.
    pub(super) async fn translated(self) -> Result<Answer, UpstreamError> {
        let has_ids = self.translation.ids.is_some();
        let is_events = headers::is_events(self.reply.headers());
        let reply = self.translation.reply(&self.upstream, self.reply).await?;
        Ok(Answer {
            upstream: self.upstream,
            reply,
            api: self.api,
            is_events,
            has_ids,
        })
    }
}
