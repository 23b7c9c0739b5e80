//! Asking: one upstream, or the next where the first cannot answer.
//!
//! Nothing is asked twice unless the settings say so: agents retry by themselves, and a proxy that
//! does so too multiplies. Where they do, it is before the first byte, and by the class of failure.
//! A failure of a key tries the upstream's next key, then the next upstream; any other failure goes
//! to the next upstream at once. An upstream that refuses what only we asked for (token ids), or does not
//! know a route that it was guessed to know, is asked in another way first. One that speaks another API,
//! into which the request cannot be translated, is passed over. What the caller shows of its own is
//! meant for the first upstream, and for no other that is asked in its place.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use metaclaw_dialects::Api;

use super::{
    chat::Chat,
    select::{Candidates, Upstreams},
    translation::{TranslatedRequest, Translation},
};
use crate::{
    failure::Failure,
    metrics::RequestMetrics,
    upstream::{Credentials, Outgoing, Sent, Upstream, UpstreamBody, UpstreamError, Variant},
};

/// Who answered, and what.
#[derive(Debug)]
pub(crate) struct Answer {
    pub upstream: Arc<Upstream>,
    pub reply: Response<UpstreamBody>,
    /// The API that the reply is in as it comes from the upstream; the agent gets its own.
    pub api: Api,
    /// Token ids are beside, as they were asked for.
    pub has_ids: bool,
}

/// An answer as the upstream gave it.
struct Raw {
    upstream: Arc<Upstream>,
    reply: Response<UpstreamBody>,
    api: Api,
    translation: Translation,
}

/// One upstream asked once.
struct Outcome {
    answer: Result<Raw, UpstreamError>,
    failure: Option<Failure>,
    /// The request was refused for the token ids that only we asked for.
    refuses_ids: bool,
    /// Neither the model is missing nor anything else that the answer names.
    lacks_route: bool,
}

/// Asks one upstream after the other until one answers, or what it says is final.
pub(crate) async fn ask(
    upstreams: &Upstreams,
    candidates: Candidates,
    chat: &Chat<'_>,
    metrics: &RequestMetrics,
) -> Result<Answer, UpstreamError> {
    let Candidates {
        upstreams: listed,
        nobody,
    } = candidates;
    let ready = ready(&listed);
    let mut meant = listed.iter().find(|it| !it.is_policy());
    let mut best = Err(nobody);
    'upstreams: for (at, upstream) in ready.iter().enumerate() {
        let is_last = at + 1 == ready.len();
        let first = upstream.capabilities.variant();
        let (mut variant, mut key, mut tried) = (first, upstream.keys.first(), Vec::new());
        loop {
            let is_meant = is_meant(upstream, &mut meant);
            let request = match TranslatedRequest::of(upstream, chat, variant) {
                Ok(request) => request,
                Err(error) => {
                    meant = meant.filter(|_| !is_meant);
                    best = better(Err(error), best);
                    break;
                }
            };
            let shown = Credentials {
                key,
                passes_callers: is_meant && upstreams.passes_callers_keys(),
            };
            let asking = pin!(attempt(upstream, request, shown, is_last));
            let outcome = metrics.ask(&upstream.name, asking).await;
            if let Some(other) = outcome.other(variant) {
                if outcome.refuses_ids {
                    best = better(outcome.answer, best);
                }
                variant = other;
                continue;
            }
            outcome.teaches(upstream, first, variant);
            let failure = outcome.failure;
            best = better(outcome.answer, best);
            let Some(failure) = failure.filter(|it| upstream.fail_over.contains(it)) else {
                break 'upstreams;
            };
            tried.extend(key);
            let other = upstream.keys.next(&tried);
            let Some(other) = other.filter(|_| failure.is_of_the_key()) else {
                break;
            };
            key = Some(other);
        }
    }
    best?.translated().await
}

/// Asks one upstream, once, for what is not a chat: its body streams by and cannot be sent again.
pub(crate) async fn pass(
    upstreams: &Upstreams,
    upstream: &Upstream,
    outgoing: Outgoing<'_>,
) -> Result<Response<UpstreamBody>, UpstreamError> {
    let passes_callers = upstreams.passes_callers_keys() && !upstream.is_policy();
    let key = upstream.keys.first();
    let mut reply = upstream
        .send(
            outgoing,
            Credentials {
                key,
                passes_callers,
            },
        )
        .await?;
    classify(
        upstream,
        key,
        &mut reply,
        is_decided_by_the_body(upstream, true),
    )
    .await;
    Ok(reply)
}

/// Those to ask: who has no key that may be shown now is left out, unless nobody is left.
fn ready(upstreams: &[Arc<Upstream>]) -> Vec<&Arc<Upstream>> {
    let rests = |upstream: &Upstream| {
        let why = upstream.keys.all_rest();
        why.is_some_and(|why| upstream.fail_over.contains(&why))
    };
    let ready: Vec<_> = upstreams.iter().filter(|it| !rests(it)).collect();
    if ready.is_empty() {
        upstreams.iter().collect()
    } else {
        ready
    }
}

/// Whether what the caller shows is meant for it: for the first upstream of the order that can be
/// asked this, and at the same address for any. What another is asked when that one fails, it is
/// asked without.
fn is_meant<'a>(upstream: &'a Arc<Upstream>, meant: &mut Option<&'a Arc<Upstream>>) -> bool {
    !upstream.is_policy() && meant.get_or_insert(upstream).is_at(upstream)
}

/// The better of an answer and what came before: a refusal of ours says less than an upstream's own
/// answer, which may tell the agent when to come again or what to shorten.
fn better(
    answer: Result<Raw, UpstreamError>,
    before: Result<Raw, UpstreamError>,
) -> Result<Raw, UpstreamError> {
    match (answer, before) {
        (Err(_), Ok(before)) => Ok(before),
        (answer, _) => answer,
    }
}

async fn attempt(
    upstream: &Arc<Upstream>,
    request: TranslatedRequest<'_>,
    shown: Credentials,
    is_last: bool,
) -> Outcome {
    let TranslatedRequest {
        route,
        headers,
        body,
        api,
        is_guess,
        translation,
    } = request;
    let outgoing = Outgoing {
        method: Method::POST,
        route,
        headers,
        body: Sent::Chat(body),
    };
    let mut reply = match upstream.send(outgoing, shown).await {
        Ok(reply) => reply,
        Err(error) => return error.into(),
    };
    let status = reply.status();
    let is_refusal = matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
    );
    let ids = translation.ids.filter(|_| is_refusal);
    let is_read = is_guess || ids.is_some() || is_decided_by_the_body(upstream, is_last);
    let (failure, said) = classify(upstream, shown.key, &mut reply, is_read).await;
    let is_missing = matches!(
        status,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    );
    let answer = Ok(Raw {
        upstream: Arc::clone(upstream),
        reply,
        api,
        translation,
    });
    Outcome {
        answer,
        failure,
        refuses_ids: ids.is_some_and(|asked| asked.is_blamed(&said)),
        lacks_route: is_missing && failure.is_none(),
    }
}

/// The class of a reply, noted for the key that was shown; and the beginning of an error's body, if it is
/// to be read.
async fn classify(
    upstream: &Upstream,
    key: Option<usize>,
    reply: &mut Response<UpstreamBody>,
    is_read: bool,
) -> (Option<Failure>, Bytes) {
    let status = reply.status().as_u16();
    let said = if status >= 400 && is_read {
        reply.body_mut().peek().await
    } else {
        Bytes::new()
    };
    let failure = Failure::of(status, &said);
    upstream
        .keys
        .note(&upstream.name, key, failure, reply.headers());
    (failure, said)
}

/// Whether an error's body is worth keeping the agent waiting for: whom to ask next depends on it.
fn is_decided_by_the_body(upstream: &Upstream, is_last: bool) -> bool {
    let n_keys = upstream.keys.len();
    // A key that rests for the wrong reason is missed by agents who would go on from here.
    n_keys > 1 || (!is_last || n_keys > 0) && !upstream.fail_over.is_empty()
}

// === impl Outcome ===

impl Outcome {
    /// Another way to ask the same upstream, where this one was at fault.
    fn other(&self, variant: Variant) -> Option<Variant> {
        if self.refuses_ids && variant.ids {
            return Some(Variant {
                ids: false,
                ..variant
            });
        }
        let is_wrong_guess = self.lacks_route && variant.guess;
        is_wrong_guess.then_some(Variant {
            guess: false,
            ..variant
        })
    }

    /// What is known of the upstream now that it was asked in another way than at `first`.
    fn teaches(&self, upstream: &Upstream, first: Variant, variant: Variant) {
        let name = &upstream.name;
        let status = self.answer.as_ref().map(|raw| raw.reply.status());
        if first.ids && !variant.ids && status.is_ok_and(|status| status.is_success()) {
            tracing::info!(
                upstream = name,
                "it gives no token ids: asked without for an hour"
            );
            upstream.capabilities.lacks_ids();
        }
        // Where neither route is there, it was something else that was missing.
        if first.guess && !variant.guess && !self.lacks_route {
            tracing::info!(
                upstream = name,
                "it does not speak messages: asked in chat completions"
            );
            upstream.capabilities.lacks_messages();
        }
    }
}

impl From<UpstreamError> for Outcome {
    fn from(error: UpstreamError) -> Self {
        Self {
            failure: error.failure(),
            answer: Err(error),
            refuses_ids: false,
            lacks_route: false,
        }
    }
}

// === impl Raw ===

impl Raw {
    /// In the caller's API.
    async fn translated(self) -> Result<Answer, UpstreamError> {
        let has_ids = self.translation.ids.is_some();
        let reply = self.translation.reply(&self.upstream, self.reply).await?;
        Ok(Answer {
            upstream: self.upstream,
            reply,
            api: self.api,
            has_ids,
        })
    }
}
