//! Sends a request to one upstream, and decides by its answer whether to ask the same upstream again, the next one, or
//! none.
//!
//! An upstream is asked again in another way in three cases: it refuses token ids, which only the proxy asked for; it
//! lacks a route that it was guessed to have; or it requires the history in another form. After a failure of its key,
//! it is asked with its next key.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use metaclaw_capture::Encoding;
use metaclaw_dialects::{Api, mend::Demands};

use super::{
    chat::RoutedChat,
    translation::{TranslatedRequest, Translation},
};
use crate::{
    failure::Failure,
    headers,
    metrics::RequestMetrics,
    upstream::{Credentials, Outgoing, Sent, Upstream, UpstreamBody, UpstreamError, Variant},
};

/// How often an upstream is asked again that refuses a history and says why.
const REFUSALS: usize = 3;
const MAX_OPENED: u64 = 64 << 10;

/// The attempt to get an answer from one upstream. Its answers determine the form and the key of the next request.
pub(super) struct Attempt<'a> {
    upstream: &'a Arc<Upstream>,
    chat: &'a RoutedChat<'a>,
    shown: Credentials,
    is_last: bool,
    variant: Variant,
    /// The form of the first request.
    first: Variant,
    demands: Demands,
    /// The requirements that were known before the first request.
    known: Demands,
    tried_keys: Vec<usize>,
    sent: Vec<Bytes>,
    refused: Vec<Vec<Bytes>>,
    why_refused: Option<Failure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Ask the same upstream again, in another form or with another key.
    Again,
    Upstream,
    Done,
}

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
    translation: Option<Translation>,
    failure: Option<Failure>,
    unsupported: Option<Unsupported>,
    /// Whether the route itself is missing, and not a model or anything else that the answer names.
    lacks_route: bool,
}

pub(super) type Attempted = Result<Answer, UpstreamError>;

#[derive(Debug, Clone, Copy)]
pub(super) enum Unsupported {
    /// The token ids that only the proxy asked for.
    TokenIds,
    /// An API that it was guessed to have.
    Api,
    /// The history in its present form. The value has all known requirements, with the new ones.
    History(Demands),
}

// === impl Attempt ===

impl<'a> Attempt<'a> {
    /// Creates the attempt. `is_last` says that no other upstream can be asked after this one.
    pub(super) fn new(
        upstream: &'a Arc<Upstream>,
        chat: &'a RoutedChat<'a>,
        passes_callers: bool,
        is_last: bool,
    ) -> Self {
        let first = upstream.capabilities.variant(chat.api);
        let known = chat.demands(upstream);
        let shown = Credentials {
            key: upstream.keys.first(),
            passes_callers,
        };
        Self {
            upstream,
            chat,
            shown,
            is_last,
            variant: first,
            first,
            demands: known,
            known,
            tried_keys: Vec::new(),
            sent: Vec::new(),
            refused: Vec::new(),
            why_refused: None,
        }
    }

    pub(super) async fn request(&mut self) -> Result<TranslatedRequest, UpstreamError> {
        let (upstream, chat) = (self.upstream, self.chat);
        let before = chat.said_before(upstream, self.variant).await?;
        let mending = chat.mending(upstream, self.demands).await;
        let request = TranslatedRequest::new(upstream, chat, self.variant, before, mending)?;
        self.sent.clone_from(&request.body);
        Ok(request)
    }

    /// Returns the next action if exactly this request was refused before, so that sending it again is useless.
    pub(super) fn after_refusal_of(&self, request: &TranslatedRequest) -> Option<Next> {
        let is_repeated = self.refused.contains(&request.body);
        is_repeated.then(|| match self.passed_over(self.why_refused) {
            Some(_) => Next::Upstream,
            None => Next::Done,
        })
    }

    pub(super) async fn send(&self, request: TranslatedRequest) -> Attempted {
        let upstream = self.upstream;
        let outgoing = Outgoing {
            method: Method::POST,
            route: request.route,
            headers: request.headers,
            body: Sent::Chat(request.body),
        };
        let (is_guess, translation) = (request.is_guess, request.translation);
        let (demands, api) = (request.demands, request.api);
        let mut reply = upstream.send(outgoing, self.shown).await?;
        translation.decode(upstream, &mut reply).await?;
        translation.read_ahead(upstream, &mut reply).await?;
        let status = reply.status();
        let is_refusal = matches!(
            status,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
        );
        let is_missing = matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        );
        let ids = translation.ids.filter(|_| is_refusal);
        // OpenAI answers that another provider's items do not exist.
        let lacks_item = is_missing && api == Api::Responses;
        let demands = demands.filter(|_| is_refusal || lacks_item);
        let is_read = is_guess
            || ids.is_some()
            || demands.is_some()
            || is_decided_by_the_body(upstream, self.is_last);
        let (failure, text) = classify(upstream, self.shown.key, &mut reply, is_read).await;
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
            api,
            translation: Some(translation),
            failure,
            unsupported,
            lacks_route,
        })
    }

    /// Counts the request, records what the answer shows about the upstream, and returns the next action.
    pub(super) fn after(&mut self, attempted: &Attempted, metrics: &RequestMetrics) -> Next {
        let answer = attempted.as_ref().ok();
        let failure = match attempted {
            Ok(answer) => answer.failure,
            Err(error) => error.failure(),
        };
        self.count(attempted, failure, metrics);
        match answer.and_then(|answer| answer.unsupported) {
            Some(Unsupported::TokenIds) => {
                self.variant.ids = false;
                return Next::Again;
            }
            Some(Unsupported::Api) => {
                self.variant.guess = false;
                return Next::Again;
            }
            Some(Unsupported::History(demands)) if self.refused.len() < REFUSALS => {
                self.refused.push(std::mem::take(&mut self.sent));
                self.why_refused = failure;
                self.demands = demands;
                return Next::Again;
            }
            Some(Unsupported::History(_)) => {}
            None => self.learn(answer),
        }
        let Some(failure) = self.passed_over(failure) else {
            return Next::Done;
        };
        self.tried_keys.extend(self.shown.key);
        let other = self.upstream.keys.next(&self.tried_keys);
        match other.filter(|_| failure.is_of_the_key()) {
            Some(other) => {
                self.shown.key = Some(other);
                Next::Again
            }
            None => Next::Upstream,
        }
    }

    /// Returns the failure if the settings allow another key or upstream after it.
    fn passed_over(&self, failure: Option<Failure>) -> Option<Failure> {
        failure.filter(|failure| self.upstream.fail_over.contains(failure))
    }

    /// Counts the request, unless the upstream refused something that only the proxy asked for.
    fn count(&self, attempted: &Attempted, failure: Option<Failure>, metrics: &RequestMetrics) {
        let name = &self.upstream.name;
        let is_unable = failure.is_some_and(|failure| self.upstream.is_unable(failure));
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

    /// Records what the upstream requires or lacks, if the last request differed from the first.
    fn learn(&self, answer: Option<&Answer>) {
        let (name, api) = (&self.upstream.name, self.chat.api);
        let is_good = answer.is_some_and(|answer| answer.reply.status().is_success());
        if is_good && self.demands != self.known {
            self.chat.remember(self.upstream, self.demands);
        }
        if is_good && self.first.ids && !self.variant.ids {
            tracing::info!(
                upstream = name,
                "this upstream returns no token ids: they are not requested for an hour"
            );
            self.upstream.capabilities.lacks_ids();
        }
        // If the second route is missing too, something else was wrong.
        let lacks_route = answer.is_some_and(|answer| answer.lacks_route);
        if self.first.guess && !self.variant.guess && !lacks_route {
            let lacked = api.name();
            tracing::info!(
                upstream = name,
                "this upstream does not have {lacked}: it gets chat completions for an hour"
            );
            self.upstream.capabilities.lacks_api(api);
        }
    }
}

// === impl Answer ===

impl Answer {
    /// Returns whether the answer only says that the upstream lacks an API that it was guessed to have.
    pub(super) fn is_wrong_guess(&self) -> bool {
        matches!(self.unsupported, Some(Unsupported::Api))
    }

    pub(super) async fn translated(mut self) -> Attempted {
        if let Some(translation) = self.translation.take() {
            self.reply = translation.reply(&self.upstream, self.reply).await?;
        }
        Ok(self)
    }
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
