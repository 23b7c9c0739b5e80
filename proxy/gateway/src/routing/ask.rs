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

/// How often one upstream is asked again that refuses a history and says why.
const REFUSALS: usize = 3;

/// Asks one upstream after the other until one answers, or what it says is final.
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
                // There is nothing to mend.
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

/// The request as this upstream takes it.
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

/// Says in the turn's line what was changed of the history that was answered.
fn note_mended(mended: Mended) {
    if !mended.is_nothing() {
        Span::current().record("mended", display(mended));
    }
}

/// Asks one upstream, once, for what is not a chat: its body streams by and cannot be sent again.
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

/// Whether the next key or upstream is asked after this failure.
fn is_passed_over(upstream: &Upstream, failure: Option<Failure>) -> bool {
    failure.is_some_and(|it| upstream.fail_over.contains(&it))
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
fn better(answer: Attempted, before: Attempted) -> Attempted {
    match (answer, before) {
        (Err(_), Ok(before)) => Ok(before),
        (answer, _) => answer,
    }
}
