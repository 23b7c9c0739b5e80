//! Limits the number of concurrent requests (`proxy.max_streams`), and refuses any further one at once. tower's limit
//! would release a permit with a reply's head. Here it is held until the body has ended.

use std::sync::Arc;

use http::Request;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::service_fn;

use crate::{
    body::guarded,
    handler::{Answer, Handler},
    metrics::Metrics,
};

#[derive(Debug, Clone)]
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    limit: usize,
    metrics: Arc<Metrics>,
}

/// The permit of a running request. It is released on drop.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    metrics: Arc<Metrics>,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug, thiserror::Error)]
#[error("{limit} requests are under way already, the most that proxy.max_streams allows")]
pub(crate) struct AdmissionError {
    limit: usize,
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new(limit: usize, metrics: &Arc<Metrics>) -> Self {
        Self {
            // tokio panics beyond its own limit, which nobody needs.
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

    /// Gives each request a permit until its reply has ended.
    pub(crate) fn around<B, E>(self, mut inner: impl Handler<B, E>) -> impl Handler<B, E>
    where
        E: From<AdmissionError> + Send + 'static,
    {
        service_fn(move |request: Request<B>| -> Answer<E> {
            let permit = match self.try_admit() {
                Ok(permit) => permit,
                Err(error) => return Box::pin(async { Err(error.into()) }),
            };
            let reply = inner.call(request);
            Box::pin(async move { Ok(reply.await?.map(|body| guarded(body, permit))) })
        })
    }
}

// === impl InFlightPermit ===

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.metrics.active_streams.sub(1);
    }
}
