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

use super::{
    Metrics,
    traffic::{ApiLabel, Labels},
};
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
    api: ApiLabel,
    came: Instant,
    known: Mutex<Known>,
}

/// What has become known of it.
#[derive(Debug)]
struct Known {
    agent: Option<AgentId>,
    upstream: Option<String>,
    is_counted: bool,
    /// Since when the time is ours: the agent has sent all of its request.
    read: Instant,
    /// Of that, the time that upstreams took.
    theirs: Duration,
}

/// A reply that is timed on its way to the agent.
struct TimedReply {
    body: Body,
    metrics: Arc<Metrics>,
    labels: Labels,
    came: Instant,
    has_begun: bool,
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
            Ok(answer.map(|body| counted.timed(body)))
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
            api: ApiLabel(api),
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
        self.0.known().upstream = Some(upstream.to_owned());
        let asked = Instant::now();
        let answer = asking.await;
        self.0.known().theirs += asked.elapsed();
        answer
    }

    /// The reply, timed where somebody was asked for it.
    fn timed(&self, body: Body) -> Body {
        let Some(upstream) = self.0.known().upstream.clone() else {
            return body;
        };
        let Counted {
            metrics, api, came, ..
        } = &*self.0;
        Body::new(TimedReply {
            body,
            metrics: Arc::clone(metrics),
            labels: Labels {
                api: *api,
                upstream,
            },
            came: *came,
            has_begun: false,
        })
    }

    /// The answer goes to the agent.
    fn answered(&self, status: u16) {
        let mut known = self.0.known();
        known.count(&self.0, Some(status));
        if let Some(upstream) = known.upstream.clone() {
            let ours = known.read.elapsed().saturating_sub(known.theirs);
            let labels = Labels {
                api: self.0.api,
                upstream,
            };
            let added = &self.0.metrics.traffic.added;
            added.get_or_create(&labels).observe(ours.as_secs_f64());
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
            let traffic = &request.metrics.traffic;
            let upstream = self.upstream.as_deref();
            traffic.count(request.api, self.agent.as_ref(), upstream, status);
        }
    }
}

// === impl TimedReply ===

impl Drop for TimedReply {
    fn drop(&mut self) {
        let stream = self.metrics.traffic.stream.get_or_create(&self.labels);
        stream.observe(self.came.elapsed().as_secs_f64());
    }
}

impl HttpBody for TimedReply {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && frame.is_data()
            && !std::mem::replace(&mut self.has_begun, true)
        {
            let first_byte = &self.metrics.traffic.first_byte;
            let seconds = self.came.elapsed().as_secs_f64();
            first_byte.get_or_create(&self.labels).observe(seconds);
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
