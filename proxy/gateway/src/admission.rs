//! How many requests are under way at once: `proxy.max_streams`, and one too many is refused at once.
//! tower's limit would give a place back with a reply's head; here it is taken until its body has ended.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Layer, Service};

use crate::{
    body::{Body, guarded},
    metrics::Metrics,
};

/// The places there are.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    limit: usize,
    metrics: Arc<Metrics>,
}

/// A request under way; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    metrics: Arc<Metrics>,
    _place: OwnedSemaphorePermit,
}

/// No place is free.
#[derive(Debug, thiserror::Error)]
#[error("{limit} requests are under way already, the most that proxy.max_streams allows")]
pub(crate) struct AdmissionError {
    limit: usize,
}

/// Gives each request a place until its reply has ended.
#[derive(Debug, Clone)]
pub(crate) struct Admit<S> {
    inner: S,
    admission: Admission,
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new(limit: usize, metrics: &Arc<Metrics>) -> Self {
        Self {
            // Beyond tokio's bound there would be a panic; nobody has as many.
            places: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            limit,
            metrics: Arc::clone(metrics),
        }
    }

    fn try_admit(&self) -> Result<InFlightPermit, AdmissionError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| AdmissionError { limit: self.limit })?;
        self.metrics.active_streams.inc();
        Ok(InFlightPermit {
            metrics: Arc::clone(&self.metrics),
            _place: place,
        })
    }
}

impl<S> Layer<S> for Admission {
    type Service = Admit<S>;

    fn layer(&self, inner: S) -> Admit<S> {
        let admission = self.clone();
        Admit { inner, admission }
    }
}

// === impl InFlightPermit ===

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.metrics.active_streams.sub(1);
    }
}

// === impl Admit ===

impl<S, B> Service<Request<B>> for Admit<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error: From<AdmissionError>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let permit = match self.admission.try_admit() {
            Ok(permit) => permit,
            Err(error) => return Box::pin(async { Err(error.into()) }),
        };
        let reply = self.inner.call(request);
        Box::pin(async move { Ok(reply.await?.map(|body| guarded(body, permit))) })
    }
}
