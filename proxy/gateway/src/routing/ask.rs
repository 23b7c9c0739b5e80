//! Asks one upstream, or the next one if the first cannot answer.
//!
//! Without a setting (`routing.fail_over`), nothing is asked twice, because agents retry by themselves and a proxy that
//! retries too would multiply the requests. With it, the class of the failure decides, before the first byte of a
//! reply: after a failure of a key, the upstream's next key is tried, and then the next upstream; after any other
//! failure, the next upstream at once.
//!
//! If an upstream refuses what only the proxy asked for (token ids), or lacks a route that it was guessed to have, it
//! is first asked in another way. An upstream is skipped if the request cannot be translated into its API. The caller's
//! own credentials go to the first upstream, and to no other that is asked instead.

use std::{pin::pin, sync::Arc};

use http::Response;
use metaclaw_dialects::mend::{Demands, Mended};
use tracing::{Span, field::display};

use super::{
    attempt::{
        Answer, Attempted, Unsupported, attempt, classify, failure, is_decided_by_the_body, learn,
        note, unsupported,
    },
    chat::RoutedChat,
    select::{Candidates, Upstreams},
    translation::TranslatedRequest,
};
use crate::{
    failure::Failure,
    metrics::RequestMetrics,
    upstream::{Credentials, Outgoing, Upstream, UpstreamBody, UpstreamError, Variant},
};

/// How often an upstream is asked again that refuses a history and says why.
const REFUSALS: usize = 3;

/// Asks one upstream after the other, until one answers or a failure is final.
pub(crate) async fn ask(
    upstreams: &Upstreams,
    candidates: Candidates,
    chat: &RoutedChat<'_>,
    metrics: &RequestMetrics,
) -> Result<Answer, UpstreamError> {
    let Candidates {
        upstreams: listed,
        nobody,
    } = candidates;
    let ready = ready(&listed);
    let mut meant = listed.iter().find(|it| !it.is_policy());
    let (mut best, mut mended) = (Err(nobody), Mended::default());
    'upstreams: for (at, upstream) in ready.iter().enumerate() {
        let is_last = at + 1 == ready.len();
        let first = upstream.capabilities.variant(chat.api);
        let (mut variant, mut key, mut tried) = (first, upstream.keys.first(), Vec::new());
        let known = chat.demands(upstream);
        let (mut demands, mut refused, mut why_refused) = (known, Vec::new(), None);
        loop {
            let is_meant = is_meant(upstream, &mut meant);
            let request = match translated(upstream, chat, variant, demands).await {
                Ok(request) => request,
                Err(error) => {
                    meant = meant.filter(|_| !is_meant);
                    best = better(Err(error), best);
                    break;
                }
            };
            if refused.contains(&request.body) {
                // The same request was refused before, so there is nothing to mend.
                if is_passed_over(upstream, why_refused) {
                    break;
                }
                break 'upstreams;
            }
            let body = request.body.clone();
            let shown = Credentials {
                key,
                passes_callers: is_meant && upstreams.passes_callers_keys(),
            };
            mended = request.mended;
            let asking = pin!(attempt(upstream, request, shown, is_last));
            let attempted = metrics.ask(&upstream.name, asking).await;
            note(&attempted, upstream, metrics);
            let failed = failure(&attempted);
            match unsupported(&attempted) {
                Some(Unsupported::TokenIds) => {
                    variant.ids = false;
                    best = better(attempted, best);
                    continue;
                }
                Some(Unsupported::Api) => {
                    variant.guess = false;
                    continue;
                }
                Some(Unsupported::History(more)) if refused.len() < REFUSALS => {
                    refused.push(body);
                    why_refused = failed;
                    demands = more;
                    best = better(attempted, best);
                    continue;
                }
                Some(Unsupported::History(_)) => {}
                None => {
                    if demands != known && attempted.as_ref().is_ok_and(Answer::is_good) {
                        chat.remember(upstream, demands);
                    }
                    learn(&attempted, upstream, chat.api, first, variant);
                }
            }
            best = better(attempted, best);
            let Some(failure) = failed.filter(|_| is_passed_over(upstream, failed)) else {
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
    note_mended(mended);
    best?.translated().await
}

/// Returns the request in the form that this upstream takes.
async fn translated(
    upstream: &Upstream,
    chat: &RoutedChat<'_>,
    variant: Variant,
    demands: Demands,
) -> Result<TranslatedRequest, UpstreamError> {
    let before = chat.said_before(upstream, variant).await?;
    let mending = chat.mending(upstream, demands).await;
    TranslatedRequest::new(upstream, chat, variant, before, mending)
}

/// Records in the request's span what was changed in the history.
fn note_mended(mended: Mended) {
    if !mended.is_nothing() {
        Span::current().record("mended", display(mended));
    }
}

/// Sends a request that is not a chat to one upstream, once, because its body passes unread and cannot be sent again.
pub(crate) async fn pass(
    upstreams: &Upstreams,
    upstream: &Upstream,
    outgoing: Outgoing,
) -> Result<Response<UpstreamBody>, UpstreamError> {
    let shown = Credentials {
        key: upstream.keys.first(),
        passes_callers: upstreams.passes_callers_keys() && !upstream.is_policy(),
    };
    let mut reply = upstream.send(outgoing, shown).await?;
    let is_read = is_decided_by_the_body(upstream, true);
    classify(upstream, shown.key, &mut reply, is_read).await;
    Ok(reply)
}

/// Returns whether the next key or upstream is asked after this failure.
fn is_passed_over(upstream: &Upstream, failure: Option<Failure>) -> bool {
    failure.is_some_and(|it| upstream.fail_over.contains(&it))
}

/// Returns the upstreams to ask. Those whose keys all pause are left out, unless no other is left.
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

/// Returns whether the caller's credentials are meant for this upstream. They are meant for the first upstream of the
/// order that can be asked this, and for any at the same address.
fn is_meant<'a>(upstream: &'a Arc<Upstream>, meant: &mut Option<&'a Arc<Upstream>>) -> bool {
    !upstream.is_policy() && meant.get_or_insert(upstream).is_at(upstream)
}

/// Returns the more helpful of a result and an earlier one. An upstream's own answer may tell the agent when to try
/// again or what to shorten, so it is preferred to an error of the proxy.
fn better(answer: Attempted, before: Attempted) -> Attempted {
    match (answer, before) {
        (Err(_), Ok(before)) => Ok(before),
        (answer, _) => answer,
    }
}
