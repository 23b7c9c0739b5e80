//! Asks one upstream, or the next one if the first cannot answer.
//!
//! Without `routing.fail_over`, nothing is asked twice: agents retry by themselves, and retries of the proxy would
//! multiply the requests. With it, the class of a failure decides what follows, before the first byte of a reply is
//! passed on. After a failure of a key, the upstream's next key is tried, and then the next upstream. After any other
//! failure, the next upstream is tried at once.
//!
//! An upstream is skipped if the request cannot be translated into its API. Only the first upstream gets the caller's
//! own credentials.

use std::{pin::pin, sync::Arc};

use http::Response;
use metaclaw_dialects::mend::Mended;
use tracing::{Span, field::display};

use super::{
    attempt::{Answer, Attempt, Attempted, Next, classify, is_decided_by_the_body},
    chat::RoutedChat,
    select::{Candidates, Upstreams},
};
use crate::{
    metrics::RequestMetrics,
    upstream::{Credentials, Outgoing, Upstream, UpstreamBody, UpstreamError},
};

pub(crate) async fn ask(
    upstreams: &Upstreams,
    candidates: Candidates,
    chat: &RoutedChat<'_>,
    metrics: &RequestMetrics,
) -> Result<Answer, UpstreamError> {
    let listed = &candidates.upstreams;
    let ready = ready(listed);
    let mut meant = listed.iter().find(|upstream| !upstream.is_policy());
    let mut best = Err(candidates.nobody);
    let mut mended = Mended::default();
    for (at, upstream) in ready.iter().enumerate() {
        let is_meant = is_meant(upstream, &mut meant);
        let passes_callers = is_meant && upstreams.passes_callers_keys();
        let mut attempt = Attempt::new(upstream, chat, passes_callers, at + 1 == ready.len());
        let next = loop {
            let request = match attempt.request().await {
                Ok(request) => request,
                Err(error) => {
                    meant = meant.filter(|_| !is_meant);
                    best = better(Err(error), best);
                    break Next::Upstream;
                }
            };
            if let Some(next) = attempt.after_refusal_of(&request) {
                break next;
            }
            mended = request.mended;
            let attempted = {
                let asking = pin!(attempt.send(request));
                metrics.ask(&upstream.name, asking).await
            };
            let next = attempt.after(&attempted, metrics);
            best = better(attempted, best);
            if next != Next::Again {
                break next;
            }
        };
        if next == Next::Done {
            break;
        }
    }
    if !mended.is_nothing() {
        Span::current().record("mended", display(mended));
    }
    best?.translated().await
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

/// Returns the upstreams to ask. Those whose keys all pause are left out, unless no other is left.
fn ready(upstreams: &[Arc<Upstream>]) -> Vec<&Arc<Upstream>> {
    let rests = |upstream: &Upstream| {
        let why = upstream.keys.all_rest();
        why.is_some_and(|why| upstream.fail_over.contains(&why))
    };
    let ready: Vec<_> = upstreams
        .iter()
        .filter(|upstream| !rests(upstream))
        .collect();
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

/// Returns the more helpful of two results. An upstream's own answer may tell the agent when to try again or what to
/// shorten, so it is preferred to an error of the proxy. An answer that only refutes a guess of the proxy is not
/// helpful.
fn better(answer: Attempted, before: Attempted) -> Attempted {
    match (answer, before) {
        (Ok(answer), before) if answer.is_wrong_guess() => before,
        (Err(_), Ok(before)) => Ok(before),
        (answer, _) => answer,
    }
}
