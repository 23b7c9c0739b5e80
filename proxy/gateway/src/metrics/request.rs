//! One request on its way through, as the metrics see it.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Extensions, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use metaclaw_chat::AgentId;
use metaclaw_dialects::Api;
use tokio::time::Instant;
use tower::{Layer, Service};

use super::{Metrics, traffic::UpstreamSeries};
use crate::body::{Body, BoxError};

/// Counts requests, and hands each its [`RequestMetrics`].
#[derive(Debug, Clone)]
pub(crate) struct MetricsLayer(Arc<Metrics>);

/// See [`MetricsLayer`].
#[derive(Debug, Clone)]
pub(crate) struct CountRequests<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

/// A request, from its headers to the answer's. Counted once, however it ended: also where the agent hung
/// up before there was an answer. Clones are the same request.
#[derive(Debug, Clone)]
pub(crate) struct RequestMetrics(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    metrics: Arc<Metrics>,
    api: Option<Api>,
    came: Instant,
    known: Mutex<Known>,
}

/// What has become known of it.
#[derive(Debug)]
struct Known {
    agent: Option<AgentId>,
    upstream: Option<Arc<UpstreamSeries>>,
    is_counted: bool,
    /// Since when the time is ours: the agent has sent all of its request.
    read: Instant,
    /// Of that, the time that upstreams took.
    theirs: Duration,
}

/// Times a reply on its way to the agent.
#[derive(Debug)]
struct ResponseTimer {
    upstream: Arc<UpstreamSeries>,
    came: Instant,
    has_begun: bool,
}

/// A reply that is timed.
struct Timed {
    body: Body,
    timer: ResponseTimer,
}

// === impl MetricsLayer ===

impl MetricsLayer {
    pub(crate) fn new(metrics: &Arc<Metrics>) -> Self {
        Self(Arc::clone(metrics))
    }
}

impl<S> Layer<S> for MetricsLayer {
    type Service = CountRequests<S>;

    fn layer(&self, inner: S) -> CountRequests<S> {
        let metrics = Arc::clone(&self.0);
        CountRequests { inner, metrics }
    }
}

// === impl CountRequests ===

impl<S, B> Service<Request<B>> for CountRequests<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        self.metrics.requests.inc();
        let api = Api::of_path(request.uri().path());
        let counted = RequestMetrics::new(&self.metrics, api);
        request.extensions_mut().insert(counted.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let Ok(answer) = answer.await;
            counted.answered(answer.status().as_u16());
            Ok(match counted.timer() {
                Some(timer) => answer.map(|body| Body::new(Timed { body, timer })),
                None => answer,
            })
        })
    }
}

// === impl RequestMetrics ===

impl RequestMetrics {
    /// A request whose headers have come.
    fn new(metrics: &Arc<Metrics>, api: Option<Api>) -> Self {
        let came = Instant::now();
        Self(Arc::new(Counted {
            metrics: Arc::clone(metrics),
            api,
            came,
            known: Mutex::new(Known {
                agent: None,
                upstream: None,
                is_counted: false,
                read: came,
                theirs: Duration::ZERO,
            }),
        }))
    }

    /// Those of a request; of one that came past [`MetricsLayer`], some that nobody sees.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let given = extensions.get().cloned();
        given.unwrap_or_else(|| Self::new(&Arc::default(), None))
    }

    /// Its body has come: what follows is our own time.
    pub(crate) fn has_read(&self) {
        self.0.known().read = Instant::now();
    }

    /// Who asks.
    pub(crate) fn is_of(&self, agent: &AgentId) {
        self.0.known().agent = Some(agent.clone());
    }

    /// Waits for an upstream; the time is theirs. Pinned, as a future that is handed over takes its size
    /// twice.
    pub(crate) async fn ask<T>(
        &self,
        upstream: &str,
        asking: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let series = self.0.metrics.traffic.series(self.0.api, upstream);
        self.0.known().upstream = Some(series);
        let asked = Instant::now();
        let answer = asking.await;
        self.0.known().theirs += asked.elapsed();
        answer
    }

    /// What times the reply; nothing where nobody was asked.
    fn timer(&self) -> Option<ResponseTimer> {
        Some(ResponseTimer {
            upstream: self.0.known().upstream.clone()?,
            came: self.0.came,
            has_begun: false,
        })
    }

    /// The answer goes to the agent.
    fn answered(&self, status: u16) {
        let mut known = self.0.known();
        known.count(&self.0, Some(status));
        if let Some(upstream) = &known.upstream {
            let ours = known.read.elapsed().saturating_sub(known.theirs);
            upstream.added.observe(ours.as_secs_f64());
        }
    }
}

// === impl Counted ===

impl Counted {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.known().count(self, None);
    }
}

// === impl Known ===

impl Known {
    fn count(&mut self, request: &Counted, status: Option<u16>) {
        if !std::mem::replace(&mut self.is_counted, true) {
            let (agent, upstream) = (self.agent.take(), self.upstream.as_deref());
            let traffic = &request.metrics.traffic;
            traffic.count(request.api, agent, upstream, status);
        }
    }
}

// === impl ResponseTimer ===

impl ResponseTimer {
    /// Bytes of the reply go to the agent.
    fn bytes(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let seconds = self.came.elapsed().as_secs_f64();
            self.upstream.first_byte.observe(seconds);
        }
    }
}

impl Drop for ResponseTimer {
    fn drop(&mut self) {
        let seconds = self.came.elapsed().as_secs_f64();
        self.upstream.stream.observe(seconds);
    }
}

// === impl Timed ===

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && frame.is_data()
        {
            self.timer.bytes();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
