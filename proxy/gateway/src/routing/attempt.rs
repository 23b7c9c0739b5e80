//! Asks one upstream once, and reads what its answer means.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use metaclaw_capture::Encoding;
use metaclaw_dialects::{Api, mend::Demands};

use super::translation::{TranslatedRequest, Translation};
use crate::{
    failure::Failure,
    headers,
    metrics::RequestMetrics,
    upstream::{Credentials, Outgoing, Sent, Upstream, UpstreamBody, UpstreamError, Variant},
};

/// An upstream's answer, in the upstream's API until [`Answer::translated`] has translated it.
pub(crate) struct Answer {
    pub upstream: Arc<Upstream>,
    pub reply: Response<UpstreamBody>,
    /// The API of the upstream's reply. The agent gets its own.
    pub api: Api,
    /// Whether the upstream's reply is an event stream.
    pub is_events: bool,
    /// Whether token ids were requested with it.
    pub has_ids: bool,
    /// How it is translated to the caller's API, until that is done.
    translation: Option<Translation>,
    failure: Option<Failure>,
    unsupported: Option<Unsupported>,
    /// Whether the route itself is missing, and not a model or anything else that the answer names.
    lacks_route: bool,
}

/// The largest part of a compressed error that is read.
const MAX_OPENED: u64 = 64 << 10;

/// The result of asking one upstream once.
pub(super) type Attempted = Result<Answer, UpstreamError>;

/// What an upstream turned out not to know.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unsupported {
    /// The token ids that only the proxy asked for.
    TokenIds,
    /// An API that it was guessed to have.
    Api,
    /// The history in its present form. The value has all known requirements, with the new ones.
    History(Demands),
}

/// Sends the request to `upstream`. `is_last` says that no other can be asked after it.
pub(super) async fn attempt(
    upstream: &Arc<Upstream>,
    request: TranslatedRequest,
    shown: Credentials,
    is_last: bool,
) -> Attempted {
    let outgoing = Outgoing {
        method: Method::POST,
        route: request.route,
        headers: request.headers,
        body: Sent::Chat(request.body),
    };
    let (is_guess, translation) = (request.is_guess, request.translation);
    let (demands, api) = (request.demands, request.api);
    let mut reply = upstream.send(outgoing, shown).await?;
    translation.decode(upstream, &mut reply).await?;
    translation.read_ahead(upstream, &mut reply).await?;
    let status = reply.status();
    let is = |statuses: [StatusCode; 2]| statuses.contains(&status);
    let is_refusal = is([StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY]);
    let is_missing = is([StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED]);
    let ids = translation.ids.filter(|_| is_refusal);
    // OpenAI answers that another provider's items do not exist.
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
    Ok(Answer {
        upstream: Arc::clone(upstream),
        is_events: headers::is_events(reply.headers()),
        has_ids: translation.ids.is_some(),
        reply,
        api: request.api,
        translation: Some(translation),
        failure,
        unsupported,
        lacks_route,
    })
}

/// Returns the class of a reply, which is also recorded for the key, and the beginning of an error's body if `is_read`.
pub(super) async fn classify(
    upstream: &Upstream,
    key: Option<usize>,
    reply: &mut Response<UpstreamBody>,
    is_read: bool,
) -> (Option<Failure>, Bytes) {
    let status = reply.status().as_u16();
    let text = if status >= 400 && is_read {
        let peeked = reply.body_mut().peek().await;
        let encoding = Encoding::from_headers(reply.headers());
        let opened = encoding.open_to(MAX_OPENED, &peeked).unwrap_or_default();
        Bytes::copy_from_slice(&opened)
    } else {
        Bytes::new()
    };
    let failure = Failure::classify(status, &text);
    let (name, headers) = (&upstream.name, reply.headers());
    upstream.keys.note(name, key, failure, headers);
    (failure, text)
}

/// Returns whether an error's body is read before it is passed on, because it decides who is asked next.
pub(super) fn is_decided_by_the_body(upstream: &Upstream, is_last: bool) -> bool {
    let n_keys = upstream.keys.len();
    // A key that paused for the wrong reason would be missing for other requests.
    n_keys > 1 || (!is_last || n_keys > 0) && !upstream.fail_over.is_empty()
}

/// Returns the class of the failure, if the upstream did not answer well.
pub(super) fn failure(attempted: &Attempted) -> Option<Failure> {
    match attempted {
        Ok(answer) => answer.failure,
        Err(error) => error.failure(),
    }
}

/// Returns what the upstream does not support, if that is why it refused.
pub(super) fn unsupported(attempted: &Attempted) -> Option<Unsupported> {
    attempted.as_ref().ok()?.unsupported
}

/// Counts an attempt, unless the upstream refused something that only the proxy asked for.
pub(super) fn note(attempted: &Attempted, upstream: &Upstream, metrics: &RequestMetrics) {
    let name = &upstream.name;
    let failure = failure(attempted);
    let is_unable = failure.is_some_and(|failure| upstream.is_unable(failure));
    match attempted {
        Ok(answer) if answer.unsupported.is_some() => {}
        Ok(answer) if answer.reply.status().as_u16() < 400 => metrics.good(name),
        Ok(answer) => metrics.failed(name, answer.reply.status().to_string(), is_unable),
        Err(error) if failure.is_some() => {
            let why = error.to_string();
            // The name is recorded beside the text.
            let host = why.strip_prefix(&format!("upstream {name} ("));
            let why = match host.and_then(|rest| rest.split_once(") ")) {
                Some((host, what)) => format!("{host} {what}"),
                None => why,
            };
            metrics.failed(name, why, is_unable);
        }
        // The caller's own failure.
        Err(_) => {}
    }
}

/// Records what the upstream lacks, if it was asked in another way than at `first`, for a caller of `api`.
pub(super) fn learn(
    attempted: &Attempted,
    upstream: &Upstream,
    api: Api,
    first: Variant,
    variant: Variant,
) {
    let name = &upstream.name;
    let answer = attempted.as_ref().ok();
    if first.ids && !variant.ids && answer.is_some_and(Answer::is_good) {
        tracing::info!(
            upstream = name,
            "this upstream returns no token ids: they are not requested for an hour"
        );
        upstream.capabilities.lacks_ids();
    }
    // If the second route is missing too, something else was wrong.
    let lacks_route = answer.is_some_and(|answer| answer.lacks_route);
    if first.guess && !variant.guess && !lacks_route {
        let lacked = api.name();
        tracing::info!(
            upstream = name,
            "this upstream does not have {lacked}: it gets chat completions for an hour"
        );
        upstream.capabilities.lacks_api(api);
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn is_good(&self) -> bool {
        self.reply.status().is_success()
    }

    /// Translates the reply to the caller's API.
    pub(super) async fn translated(mut self) -> Attempted {
        if let Some(translation) = self.translation.take() {
            self.reply = translation.reply(&self.upstream, self.reply).await?;
        }
        Ok(self)
    }
}
