//! Promises: a long operation is requested, and its result is fetched later.
//!
//! A request that may have arrived is sent again only with the same number and the same bytes, and only to a server
//! that carries out each number once. If that does not settle it, the failure is ambiguous, and the caller finds out
//! from the checkpoints.

use std::{sync::Arc, time::Duration};

use prost::{DecodeError, Message};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::http::{Answer, Http, HttpRequest, PROTOBUF};
use crate::backend::Result;
use crate::{
    BackendError,
    tinker::json::{FailedPromise, FailureCategory, Promise, RetrieveFuture, TryAgain},
};

/// The pause before a request is sent again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The server holds a request for a result for about 30 s.
const HOLD: Duration = Duration::from_secs(45);
/// The pause before the next look if a server reports immediately that a result is not ready.
const SHORTEST_HOLD: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy)]
pub(super) struct PollLimits {
    pub(super) until: Instant,
    pub(super) timeout: Duration,
    pub(super) patience: Duration,
}

#[derive(Debug)]
pub(super) enum SendOutcome {
    Promised(Promise),
    /// The server will not carry it out, and its number is free.
    Refused(BackendError),
    InDoubt(BackendError),
}

#[derive(Debug)]
pub(super) enum PromiseResult {
    Protobuf(bytes::Bytes),
    Json(Value),
    /// The work failed at the server: category and message.
    Failed(FailedPromise),
}

// === impl PollLimits ===

impl PollLimits {
    pub(super) fn new(timeout: Duration, patience: Duration) -> Self {
        Self {
            until: Instant::now() + timeout,
            timeout,
            patience,
        }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

#[derive(Debug)]
struct Pause(Duration);

impl Pause {
    fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    async fn wait(&mut self, asked: Option<Duration>, most: Duration) {
        sleep(asked.unwrap_or(self.0).min(most)).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

fn is_busy(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 503)
}

/// Requests long work. `dedupes` says whether the server carries out a repeated request once.
pub(super) async fn submit(
    http: &Http,
    dedupes: bool,
    request: &HttpRequest,
    limits: PollLimits,
) -> SendOutcome {
    let whose = http.whose(request.call);
    let (mut in_doubt, mut pause) = (false, Pause::new());
    let patient_until = Instant::now() + limits.patience;
    loop {
        let may_repeat = |in_doubt: bool| !in_doubt || dedupes;
        let failed = match http.send(request).await {
            Ok(answer) if answer.is_success() => {
                return match answer.json(whose) {
                    Ok(promised) => SendOutcome::Promised(promised),
                    Err(error) => SendOutcome::InDoubt(error),
                };
            }
            Ok(answer) => {
                let refusal = whose.refusal(answer.status, &answer.body);
                // A server that fails inside may have accepted the request.
                in_doubt |= answer.status >= 500 && answer.status != 503;
                let is_known = !is_busy(answer.status) && answer.status < 500;
                let waits = Instant::now() < patient_until && may_repeat(in_doubt);
                if is_known || !waits {
                    return if in_doubt && !is_known {
                        SendOutcome::InDoubt(refusal)
                    } else {
                        SendOutcome::Refused(refusal)
                    };
                }
                pause.wait(answer.retry_after, limits.left()).await;
                continue;
            }
            Err(failed) => failed,
        };
        let was_sent = !matches!(
            failed,
            BackendError::Connect { .. } | BackendError::Request { .. }
        );
        in_doubt |= was_sent;
        if !in_doubt {
            // The server cannot be reached. The caller waits and shows it.
            return SendOutcome::Refused(failed);
        }
        if !dedupes || limits.left().is_zero() {
            // If connecting fails after something was sent, it may have been carried out.
            return SendOutcome::InDoubt(match failed {
                BackendError::Connect { .. } => timeout(http, request.call, limits),
                other => other,
            });
        }
        pause.wait(None, limits.left()).await;
    }
}

/// Waits for a result.
///
/// # Errors
/// Returns an ambiguous error if the result is not known.
pub(super) async fn result(
    http: &Http,
    call: &'static str,
    promised: &Promise,
    limits: PollLimits,
) -> Result<PromiseResult> {
    let asked = RetrieveFuture {
        request_id: promised.request_id.clone(),
        allow_metadata_only: false,
    };
    let mut request = HttpRequest::json(call, "retrieve_future", &asked)?;
    request.idempotency = None;
    let whose = http.whose(call);
    let mut pause = Pause::new();
    loop {
        let left = limits.left();
        if left.is_zero() {
            return Err(timeout(http, call, limits));
        }
        request.deadline = HOLD.min(left.max(SHORTEST_HOLD));
        let began = Instant::now();
        let Ok(answer) = http.send(&request).await else {
            pause.wait(None, left).await;
            continue;
        };
        match answer.status {
            200..300 => match fetched(http, call, &answer)? {
                Some(result) => return Ok(result),
                None => sleep(SHORTEST_HOLD.saturating_sub(began.elapsed())).await,
            },
            408 => sleep(SHORTEST_HOLD.saturating_sub(began.elapsed())).await,
            404 | 410 => {
                let (refusal, _) = super::words::read_refusal(&answer.body);
                let why = format!("it has no result of it any more ({refusal})");
                return Err(whose.lost(why));
            }
            // SkyRL answers so for failed work.
            400 | 422 => {
                let (error, _) = super::words::read_refusal(&answer.body);
                let category = FailureCategory::User;
                return Ok(PromiseResult::Failed(FailedPromise { error, category }));
            }
            429 | 500.. => pause.wait(answer.retry_after, left).await,
            status => return Err(whose.refusal(status, &answer.body)),
        }
    }
}

fn timeout(http: &Http, call: &'static str, limits: PollLimits) -> BackendError {
    BackendError::Timeout {
        call,
        url: http.url.clone(),
        after: limits.timeout,
    }
}

fn fetched(http: &Http, call: &'static str, answer: &Answer) -> Result<Option<PromiseResult>> {
    if answer.is_protobuf {
        return Ok(Some(PromiseResult::Protobuf(answer.body.clone())));
    }
    let body: Value = answer.json(http.whose(call))?;
    if body["type"] == "try_again" {
        if let Ok(waits) = serde_json::from_value::<TryAgain>(body) {
            tracing::debug!(call, ?waits, "the server lets it wait");
        }
        return Ok(None);
    }
    // A result never has an error field.
    let Some(error) = body["error"].as_str().map(str::to_owned) else {
        return Ok(Some(PromiseResult::Json(body)));
    };
    let category = FailureCategory::Unknown;
    let failed = serde_json::from_value(body).unwrap_or(FailedPromise { error, category });
    Ok(Some(PromiseResult::Failed(failed)))
}

// === impl PromiseResult ===

impl PromiseResult {
    /// Returns the result as JSON of this type.
    ///
    /// # Errors
    /// Returns an operation that failed at the server: as 400 if the caller caused it, as 500 if the server did.
    pub(super) fn json<T: DeserializeOwned>(self, http: &Http, call: &'static str) -> Result<T> {
        let whose = http.whose(call);
        match self {
            Self::Json(value) => {
                serde_json::from_value(value).map_err(|error| whose.unreadable(error.to_string()))
            }
            Self::Protobuf(_) => {
                Err(whose.unreadable(format!("it is {PROTOBUF}, and JSON was promised")))
            }
            Self::Failed(failed) => Err(broken(http, call, &failed)),
        }
    }

    /// Returns the result as one of two types.
    ///
    /// # Errors
    /// Returns the errors of [`PromiseResult::json`].
    pub(super) fn either<P: Message + Default, J: DeserializeOwned>(
        self,
        http: &Http,
        call: &'static str,
    ) -> Result<Either<P, J>> {
        match self {
            Self::Protobuf(bytes) => {
                let unread = |error: DecodeError| http.whose(call).unreadable(error.to_string());
                Ok(Either::Protobuf(P::decode(bytes).map_err(unread)?))
            }
            other => Ok(Either::Json(other.json(http, call)?)),
        }
    }
}

#[derive(Debug)]
pub(super) enum Either<P, J> {
    Protobuf(P),
    Json(J),
}

pub(super) fn broken(http: &Http, call: &'static str, failed: &FailedPromise) -> BackendError {
    if is_unloaded(&failed.error) {
        return http.whose(call).run_not_found(&failed.error);
    }
    let status = match failed.category {
        FailureCategory::User => 400,
        FailureCategory::Server | FailureCategory::Unknown => 500,
    };
    http.whose(call).status(status, None, failed.error.clone())
}

/// Returns whether an operation failed because the server does not have its model any more. SkyRL loses its models in a
/// restart, lists them as before, and reports the loss only when an operation is carried out.
fn is_unloaded(error: &str) -> bool {
    error.starts_with("Model ") && error.contains(" not loaded")
}

#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub(super) http: Arc<Http>,
    pub(super) timeout: Duration,
    pub(super) patience: Duration,
}

// === impl Asker ===

impl Asker {
    pub(super) fn limits(&self) -> PollLimits {
        PollLimits::new(self.timeout, self.patience)
    }
}
