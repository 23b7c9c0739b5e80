//! Asking: one upstream, or the next where the first cannot answer.
//!
//! Nothing is asked twice unless the settings say so: agents retry by themselves, and a proxy that
//! does so too multiplies. Where they do, it is before the first byte, and by the class of failure.
//! A failure of a key tries the upstream's next key, then the next upstream; any other failure goes
//! to the next upstream at once. Our own policy model stands apart: where it is away, or a prompt is
//! too long for it, the next one answers without being told to. And whoever cannot be asked at all, as
//! it speaks another API that cannot say the same, is passed over. What the caller shows of its own is
//! meant for the first upstream, and for no other that is asked in its place.

use std::{pin::pin, sync::Arc};

use http::{HeaderValue, Request, Response, StatusCode, header, uri::PathAndQuery};
use metaclaw_dialects::Api;
use serde::Deserialize;

use super::{
    Outgoing, Sent, Target, Upstream, Upstreams,
    body::UpstreamBody,
    failure::Failure,
    ids,
    speech::Speech,
    wording::{Raw, Worded},
};
use crate::{
    config::UpstreamDialect,
    headers::{self, Credentials},
    metrics::Visit,
    refusal::Refusal,
};

/// Who is asked.
#[derive(Debug)]
pub(crate) struct AnyOf {
    /// In this order.
    pub targets: Vec<Target>,
    /// What to say where there is nobody.
    pub nobody: Refusal,
}

/// Who answered, and what.
#[derive(Debug)]
pub(crate) struct Answer {
    pub target: Target,
    pub reply: Response<UpstreamBody>,
    /// The API that the reply is in as it comes from the upstream; the agent gets its own.
    pub api: Option<Api>,
    /// Token ids are beside, as they were asked for.
    pub has_ids: bool,
}

/// What is read of a chat whose model stands in the upstream's route.
#[derive(Deserialize)]
struct Named {
    model: String,
}

/// What comes after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It is the answer.
    Nothing,
    /// Another key of this upstream, else the next upstream.
    Key,
    Upstream,
}

/// Who is to be asked once, and how.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub target: &'a Target,
    /// The key to show.
    key: Option<usize>,
    /// Where it has no keys, it is shown the caller's own.
    is_meant: bool,
    is_last: bool,
}

/// One upstream asked once.
pub(super) struct Outcome {
    pub answer: Result<Raw, Refusal>,
    failure: Option<Failure>,
    /// The request was refused for the token ids that only we asked for.
    pub refuses_ids: bool,
}

// === impl Upstreams ===

impl Upstreams {
    /// Asks the targets in turn until one answers, or what it says is final. `outgoing` makes the
    /// request as a target gets it.
    pub(crate) async fn ask_any<'a>(
        &self,
        asked: AnyOf,
        outgoing: impl Fn(&Target) -> Outgoing<'a>,
        visit: &mut Visit,
    ) -> Result<Answer, Refusal> {
        let mut last = Err(asked.nobody);
        let mut meant = asked.targets.iter().find_map(Target::named).cloned();
        let targets = self.in_turn(asked.targets);
        'targets: for (at, target) in targets.iter().enumerate() {
            let is_meant = target.is_meant(&mut meant);
            let mut tried = Vec::new();
            let mut key = target.first_key();
            loop {
                let attempt = Attempt {
                    target,
                    key,
                    is_meant,
                    is_last: at + 1 == targets.len(),
                };
                let asking = pin!(self.attempt(attempt, || outgoing(target)));
                let outcome = visit.ask(target.name(), asking).await;
                let next = self.after(target, &outcome);
                if is_meant && outcome.is_of_words() {
                    meant = None;
                }
                last = outcome.over(last);
                if next == Next::Nothing {
                    break 'targets;
                }
                tried.extend(key);
                key = target.next_key(&tried);
                if next == Next::Upstream || key.is_none() {
                    break;
                }
            }
        }
        last?.worded().await
    }

    /// Asks one target, once, for what is not a chat: its body streams by and cannot be sent again.
    pub(crate) async fn ask(
        &self,
        target: &Target,
        outgoing: Outgoing<'_>,
    ) -> Result<Response<UpstreamBody>, Refusal> {
        let attempt = Attempt {
            target,
            key: target.first_key(),
            is_meant: true,
            is_last: true,
        };
        let worded = Worded::of(target, outgoing)?;
        let outcome = self.attempt_once(attempt, worded).await;
        outcome.answer.map(|raw| raw.reply)
    }

    /// Those whose keys all rest for a reason to fail over are left out, unless nobody is left.
    fn in_turn(&self, mut targets: Vec<Target>) -> Vec<Target> {
        let rests = |target: &Target| target.all_rest().is_some_and(|why| self.may_pass(why));
        if targets.len() > 1 && !targets.iter().all(rests) {
            targets.retain(|target| !rests(target));
        }
        targets
    }

    fn may_pass(&self, failure: Failure) -> bool {
        self.fail_over.contains(&failure)
    }

    fn after(&self, target: &Target, outcome: &Outcome) -> Next {
        if outcome.is_of_words() {
            return Next::Upstream;
        }
        match (target, outcome.failure) {
            (_, None) => Next::Nothing,
            (Target::Policy(_), Some(Failure::Unreachable | Failure::ContextLength)) => {
                Next::Upstream
            }
            (_, Some(failure)) if !self.may_pass(failure) => Next::Nothing,
            (_, Some(failure)) if failure.is_of_the_key() => Next::Key,
            (..) => Next::Upstream,
        }
    }

    /// Asks in the caller's own words, and in others if the target turns out not to know these.
    pub(super) async fn attempt_words<'a>(
        &self,
        attempt: Attempt<'_>,
        outgoing: impl Fn() -> Outgoing<'a>,
    ) -> Outcome {
        let target = attempt.target;
        let worded = match Worded::of(target, outgoing()) {
            Ok(worded) => worded,
            Err(refusal) => return refusal.into(),
        };
        let guess = worded.api.and_then(|api| target.guessed(api));
        let outcome = self.attempt_once(attempt, worded).await;
        let Some(speech) = guess.filter(|_| outcome.knows_no_such_route()) else {
            return outcome;
        };
        speech.set_lacks_messages(true);
        tracing::info!(
            upstream = target.name(),
            "it does not speak messages: asked in chat completions"
        );
        let worded = match Worded::of(target, outgoing()) {
            Ok(worded) => worded,
            Err(refusal) => return refusal.into(),
        };
        let second = self.attempt_once(attempt, worded).await;
        // Neither is there: it was something else that was missing.
        speech.set_lacks_messages(!second.knows_no_such_route());
        second
    }

    async fn attempt_once(&self, attempt: Attempt<'_>, worded: Worded<'_>) -> Outcome {
        let Attempt {
            target,
            key,
            is_last,
            ..
        } = attempt;
        let Worded {
            outgoing,
            api,
            wording,
        } = worded;
        let is_guess = api.is_some_and(|api| target.guessed(api).is_some());
        let sent = self.send(attempt, outgoing).await;
        let mut reply = match sent {
            Ok(reply) => reply,
            Err(refusal) => return refusal.into(),
        };
        let status = reply.status().as_u16();
        let mut failure = Failure::of(status, b"");
        let ids = wording.ids.filter(|_| ids::is_refusal(reply.status()));
        let mut refuses_ids = false;
        let is_read = is_guess || ids.is_some() || self.is_decided_by_the_body(target, is_last);
        if status >= 400 && is_read {
            let said = reply.body_mut().peek().await;
            failure = Failure::of(status, &said);
            refuses_ids = ids.is_some_and(|asked| asked.is_blamed(&said));
        }
        target.note(key, failure, reply.headers());
        let answer = Ok(Raw {
            target: target.clone(),
            reply,
            api,
            wording,
        });
        Outcome {
            answer,
            failure,
            refuses_ids,
        }
    }

    /// Whether an error's body is worth keeping the agent waiting for: whom to ask next depends on it.
    fn is_decided_by_the_body(&self, target: &Target, is_last: bool) -> bool {
        match target {
            Target::Policy(_) => !is_last,
            Target::Named(_) => {
                // A key that rests for the wrong reason is missed by agents who would go on from here.
                let is_noted = !is_last || target.n_keys() > 0;
                target.n_keys() > 1 || is_noted && !self.fail_over.is_empty()
            }
        }
    }

    /// Sends a request. The reply's body is still to come.
    async fn send(
        &self,
        attempt: Attempt<'_>,
        outgoing: Outgoing<'_>,
    ) -> Result<Response<UpstreamBody>, Refusal> {
        let target = attempt.target;
        let address = target.address();
        let model = match &outgoing.body {
            Sent::Chat(body) if address.is_by_model() => model_of(&body.joined()),
            Sent::Chat(_) | Sent::Stream(_) => None,
        };
        let Some(uri) = address.uri(outgoing.route, model.as_deref()) else {
            return Err(Refusal::NotFound {
                method: outgoing.method.to_string(),
                path: outgoing.route.path().to_owned(),
            });
        };
        let credentials = self.credentials(attempt, outgoing.route);
        let mut headers = headers::upwards(outgoing.headers, credentials);
        if let Some(shown) = target.forwarding_proxy() {
            headers.insert(header::PROXY_AUTHORIZATION, shown);
        }
        if let Sent::Chat(body) = &outgoing.body {
            headers.insert(header::CONTENT_LENGTH, body.len().into());
        }
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (outgoing.method, uri, headers);
        let client = match target {
            Target::Policy(_) => &self.policy,
            Target::Named(upstream) => &upstream.client,
        };
        let reply = client.send(head, outgoing.body).await;
        reply.map_err(|error| target.failed(error))
    }

    fn credentials<'a>(&self, attempt: Attempt<'a>, route: &PathAndQuery) -> Credentials<'a> {
        match attempt.target {
            Target::Policy(endpoint) => match &endpoint.key {
                Some(key) => Credentials::Key(key, UpstreamDialect::Openai),
                None => Credentials::Nobodys,
            },
            Target::Named(upstream) => match attempt.key.and_then(|key| upstream.keys.key(key)) {
                Some(key) => Credentials::Key(key, upstream.key_dialect(route)),
                None if self.door.is_locked() || !attempt.is_meant => Credentials::Nobodys,
                None => Credentials::Callers,
            },
        }
    }
}

fn model_of(body: &[u8]) -> Option<String> {
    let named: Named = serde_json::from_slice(body).ok()?;
    Some(named.model)
}

// === impl Outcome ===

impl Outcome {
    /// The better of this and what came `before`: a refusal of ours says less than an upstream's own
    /// answer, which may tell the agent when to come again or what to shorten.
    fn over(self, before: Result<Raw, Refusal>) -> Result<Raw, Refusal> {
        match (self.answer, before) {
            (Err(_), Ok(before)) => Ok(before),
            (answer, _) => answer,
        }
    }

    /// The outcome of asking again after `first`: how that failed says whom to ask next, and its answer is
    /// the agent's, unless there is none.
    pub(super) fn after(self, first: Self) -> Self {
        Self {
            failure: self.failure,
            refuses_ids: self.refuses_ids,
            answer: self.over(first.answer),
        }
    }

    /// The upstream could not be asked in words that it knows.
    fn is_of_words(&self) -> bool {
        matches!(&self.answer, Err(refusal) if refusal.is_of_words())
    }

    /// Neither the model is missing nor anything else that the answer names.
    fn knows_no_such_route(&self) -> bool {
        let status = self.answer.as_ref().map(|raw| raw.reply.status());
        let is_missing = |status| {
            matches!(
                status,
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
            )
        };
        self.failure.is_none() && status.is_ok_and(is_missing)
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        let failure = match refusal {
            Refusal::TooSlow { .. } => Some(Failure::Timeout),
            Refusal::Unreachable { .. }
            | Refusal::NoReply { .. }
            | Refusal::NotHttp { .. }
            | Refusal::PolicyDown => Some(Failure::Unreachable),
            _ => None,
        };
        Self {
            answer: Err(refusal),
            failure,
            refuses_ids: false,
        }
    }
}

// === impl Target ===

impl Target {
    fn named(&self) -> Option<&Arc<Upstream>> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => Some(upstream),
        }
    }

    /// Whether what the caller shows is meant for it: for the first upstream of the order that can be
    /// asked this, and at the same address for any. What another is asked when that one fails, it is
    /// asked without.
    fn is_meant(&self, meant: &mut Option<Arc<Upstream>>) -> bool {
        self.named().is_some_and(|upstream| {
            let first = meant.get_or_insert_with(|| Arc::clone(upstream));
            first.address.is_at(&upstream.address)
        })
    }

    /// What is known of the API, where it is a guess that the target speaks it.
    fn guessed(&self, api: Api) -> Option<&Speech> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => Some(&upstream.speech).filter(|it| it.is_guess(api)),
        }
    }

    /// What a proxy on the way wants to be shown with a request that it forwards as it is.
    fn forwarding_proxy(&self) -> Option<HeaderValue> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) if upstream.address.is_https() => None,
            Self::Named(upstream) => upstream.proxy.as_ref()?.authorization().cloned(),
        }
    }
}
