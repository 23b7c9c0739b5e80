//! Asking: one upstream, or the next where the first cannot answer.
//!
//! Nothing is asked twice unless the settings say so: agents retry by themselves, and a proxy that
//! does so too multiplies. Where they do, it is before the first byte, and by the class of failure.
//! A failure of a key tries the upstream's next key, then the next upstream; any other failure goes
//! to the next upstream at once. Our own policy model stands apart: where it is away, or a prompt is
//! too long for it, the next one answers without being told to.

use http::{Request, Response};
use tokio::time::timeout;

use super::{
    Outgoing, Target, Upstreams,
    body::UpstreamBody,
    failure::{Failure, retry_after},
};
use crate::{
    clock,
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

/// One upstream asked once.
struct Outcome {
    answer: Result<Response<UpstreamBody>, Refusal>,
    failure: Option<Failure>,
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
        let targets = self.in_turn(asked.targets);
        for (at, target) in targets.iter().enumerate() {
            let is_last = at + 1 == targets.len();
            let mut tried = Vec::new();
            let mut key = target.first_key();
            loop {
                let attempt = self.attempt(target, key, outgoing(target), is_last);
                let outcome = visit.ask(target.name(), attempt).await;
                let next = outcome
                    .failure
                    .map_or(Next::Nothing, |it| self.after(target, it));
                last = outcome.over(target, last);
                if next == Next::Nothing {
                    return last;
                }
                tried.extend(key);
                key = target.next_key(&tried);
                if next == Next::Upstream || key.is_none() {
                    break;
                }
            }
        }
        last
    }

    /// Asks one target, once, for what is not a chat: its body streams by and cannot be sent again.
    pub(crate) async fn ask(
        &self,
        target: &Target,
        outgoing: Outgoing<'_>,
    ) -> Result<Response<UpstreamBody>, Refusal> {
        let key = target.first_key();
        self.attempt(target, key, outgoing, true).await.answer
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

    fn after(&self, target: &Target, failure: Failure) -> Next {
        match (target, failure) {
            (Target::Policy(_), Failure::Unreachable | Failure::ContextLength) => Next::Upstream,
            (_, failure) if !self.may_pass(failure) => Next::Nothing,
            (_, failure) if failure.is_of_the_key() => Next::Key,
            (..) => Next::Upstream,
        }
    }

    async fn attempt(
        &self,
        target: &Target,
        key: Option<usize>,
        outgoing: Outgoing<'_>,
        is_last: bool,
    ) -> Outcome {
        let sent = self.send(target, key, outgoing).await;
        let mut reply = match sent {
            Ok(reply) => reply,
            Err(refusal) => {
                let failure = match refusal {
                    Refusal::TooSlow { .. } => Some(Failure::Timeout),
                    Refusal::Unreachable { .. } | Refusal::PolicyDown => Some(Failure::Unreachable),
                    _ => None,
                };
                let answer = Err(refusal);
                return Outcome { answer, failure };
            }
        };
        let status = reply.status().as_u16();
        let mut failure = Failure::of(status, b"");
        if status >= 400 && self.is_decided_by_the_body(target, is_last) {
            let said = reply.body_mut().peek().await;
            failure = Failure::of(status, &said);
        }
        if let (Target::Named(upstream), Some(key)) = (target, key) {
            match failure.filter(|failure| failure.is_of_the_key()) {
                Some(failure) => {
                    let wait = retry_after(reply.headers(), clock::now_ms());
                    tracing::warn!(
                        upstream = upstream.name,
                        key,
                        ?failure,
                        ?wait,
                        "a key rests"
                    );
                    upstream.keys.failed(key, failure, wait);
                }
                None => upstream.keys.accepted(key),
            }
        }
        let answer = Ok(reply);
        Outcome { answer, failure }
    }

    /// Whether an error's body is worth keeping the agent waiting for: whom to ask next depends on it.
    fn is_decided_by_the_body(&self, target: &Target, is_last: bool) -> bool {
        match target {
            Target::Policy(_) => !is_last,
            Target::Named(_) => target.n_keys() > 1 || !is_last && !self.fail_over.is_empty(),
        }
    }

    /// Sends a request. The reply's body is still to come.
    async fn send(
        &self,
        target: &Target,
        key: Option<usize>,
        outgoing: Outgoing<'_>,
    ) -> Result<Response<UpstreamBody>, Refusal> {
        let Some(uri) = target.address().uri(outgoing.route) else {
            return Err(Refusal::NotFound {
                method: outgoing.method.to_string(),
                path: outgoing.route.path().to_owned(),
            });
        };
        let mut request = Request::new(outgoing.body);
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = uri;
        let credentials = self.credentials(target, key);
        *request.headers_mut() = headers::upwards(outgoing.headers, credentials);
        let connections = match target {
            Target::Policy(_) => &self.policy,
            Target::Named(upstream) => &upstream.connections,
        };
        let reply = connections.request(request);
        let reply = match target.first_byte() {
            Some(after) => match timeout(after.0, reply).await {
                Ok(reply) => reply,
                Err(_) => return Err(target.too_slow(after)),
            },
            None => reply.await,
        };
        let reply = reply.map_err(|error| target.unreachable(&error))?;
        Ok(reply.map(UpstreamBody::from))
    }

    fn credentials<'a>(&self, target: &'a Target, key: Option<usize>) -> Credentials<'a> {
        match target {
            Target::Policy(endpoint) => match &endpoint.key {
                Some(key) => Credentials::Key(key, UpstreamDialect::Openai),
                None => Credentials::Nobodys,
            },
            Target::Named(upstream) => match key.and_then(|key| upstream.keys.key(key)) {
                Some(key) => Credentials::Key(key, upstream.config.dialect),
                None if self.door.is_locked() => Credentials::Nobodys,
                None => Credentials::Callers,
            },
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// The better of this and what came `before`: a refusal of ours says less than an upstream's own
    /// answer, which may tell the agent when to come again or what to shorten.
    fn over(self, target: &Target, before: Result<Answer, Refusal>) -> Result<Answer, Refusal> {
        match (self.answer, before) {
            (Ok(reply), _) => Ok(Answer {
                target: target.clone(),
                reply,
            }),
            (Err(_), Ok(before)) => Ok(before),
            (Err(refusal), Err(_)) => Err(refusal),
        }
    }
}

// === impl Target ===

impl Target {
    fn first_key(&self) -> Option<usize> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => upstream.keys.first(),
        }
    }

    fn next_key(&self, tried: &[usize]) -> Option<usize> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => upstream.keys.next(tried),
        }
    }

    fn n_keys(&self) -> usize {
        match self {
            Self::Policy(_) => 0,
            Self::Named(upstream) => upstream.keys.len(),
        }
    }

    fn all_rest(&self) -> Option<Failure> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => upstream.keys.all_rest(),
        }
    }
}
