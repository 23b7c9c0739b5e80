//! The measurements of one request.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use http::{Extensions, Method, Request};
use http_body_util::BodyExt;
use metaclaw_chat::AgentId;
use metaclaw_dialects::Api;
use tokio::time::Instant;
use tower::service_fn;
use tracing::Span;

use super::{
    Metrics,
    traffic::{ApiLabel, Labels},
};
use crate::{
    body::Body,
    handler::{Answer, Handler},
    lock::lock,
};

/// A request, from its headers to the end of its answer. It is counted once, when the last clone is dropped, however it
/// ended. This includes an agent that closed the connection before there was an answer. Clones are the same request.
#[derive(Debug, Clone)]
pub(crate) struct RequestMetrics(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    metrics: Arc<Metrics>,
    api: ApiLabel,
    came: Instant,
    progress: Mutex<RequestProgress>,
}

#[derive(Debug)]
struct RequestProgress {
    agent: Option<AgentId>,
    upstream: Option<String>,
    status: Option<u16>,
    /// Since when the time counts as ours: the agent has sent all of its request.
    read: Instant,
    theirs: Duration,
}

struct ResponseTimer {
    metrics: Arc<Metrics>,
    labels: Labels,
    came: Instant,
    has_begun: bool,
}

pub(crate) fn count_requests<B>(
    metrics: Arc<Metrics>,
    mut inner: impl Handler<B, Infallible>,
) -> impl Handler<B, Infallible> {
    service_fn(move |mut request: Request<B>| -> Answer<Infallible> {
        metrics.requests.inc();
        let api = Api::of_path(request.uri().path());
        let counted = RequestMetrics::new(&metrics, api);
        request.extensions_mut().insert(counted.clone());
        let answer = inner.call(request);
        Box::pin(async move {
            let Ok(answer) = answer.await;
            let timer = counted.answered(answer.status().as_u16());
            Ok(match timer {
                Some(timer) => answer.map(|body| timer.time(body)),
                None => answer,
            })
        })
    })
}

// === impl RequestMetrics ===

impl RequestMetrics {
    fn new(metrics: &Arc<Metrics>, api: Option<Api>) -> Self {
        let came = Instant::now();
        Self(Arc::new(Counted {
            metrics: Arc::clone(metrics),
            api: ApiLabel(api),
            came,
            progress: Mutex::new(RequestProgress {
                agent: None,
                upstream: None,
                status: None,
                read: came,
                theirs: Duration::ZERO,
            }),
        }))
    }

    /// Returns those of a request. A request that did not pass [`count_requests`] gets some that nobody reads.
    pub(crate) fn from_extensions(extensions: &Extensions) -> Self {
        let given = extensions.get().cloned();
        given.unwrap_or_else(|| Self::new(&Arc::default(), None))
    }

    /// The body has arrived, so the following time is ours.
    pub(crate) fn has_read(&self) {
        self.progress().read = Instant::now();
    }

    pub(crate) fn set_agent(&self, agent: &AgentId) {
        self.progress().agent = Some(agent.clone());
    }

    /// Waits for an upstream, which the request's span names from now on. This time is the upstream's. The future is
    /// pinned, because handing it over would take its size twice.
    pub(crate) async fn ask<T>(
        &self,
        upstream: &str,
        asking: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let before = self.progress().upstream.replace(upstream.to_owned());
        // It is not recorded again for another key, because a span shows everything that was recorded.
        if before.as_deref() != Some(upstream) {
            Span::current().record("upstream", upstream);
        }
        let asked = Instant::now();
        let answer = asking.await;
        self.progress().theirs += asked.elapsed();
        answer
    }

    pub(crate) fn good(&self, upstream: &str) {
        self.0.metrics.answers.good(upstream);
    }

    pub(crate) fn failed(&self, upstream: &str, why: String, is_unable: bool) {
        self.0.metrics.answers.failed(upstream, why, is_unable);
    }

    pub(crate) fn passed(&self, method: &Method, path: &str) {
        self.0.metrics.passed.add(method, path);
    }

    pub(crate) fn trimmed(&self, n_messages: usize) {
        let trimmed = &self.0.metrics.trimmed_messages;
        trimmed.add(n_messages as u64);
    }

    /// The answer goes to the agent. Its duration is measured if an upstream gave it.
    fn answered(&self, status: u16) -> Option<ResponseTimer> {
        let Counted {
            metrics, api, came, ..
        } = &*self.0;
        let mut progress = self.progress();
        progress.status = Some(status);
        let labels = Labels {
            api: *api,
            upstream: progress.upstream.clone()?,
        };
        let ours = progress.read.elapsed().saturating_sub(progress.theirs);
        let added = metrics.traffic.added.get_or_create(&labels);
        added.observe(ours.as_secs_f64());
        Some(ResponseTimer {
            metrics: Arc::clone(metrics),
            labels: labels.clone(),
            came: *came,
            has_begun: false,
        })
    }

    fn progress(&self) -> MutexGuard<'_, RequestProgress> {
        lock(&self.0.progress)
    }
}

// === impl Counted ===

impl Drop for Counted {
    fn drop(&mut self) {
        let known = lock(&self.progress);
        let (agent, upstream) = (known.agent.as_ref(), known.upstream.as_deref());
        let traffic = &self.metrics.traffic;
        traffic.count(self.api, agent, upstream, known.status);
    }
}

// === impl ResponseTimer ===

impl ResponseTimer {
    fn time(mut self, body: Body) -> Body {
        let timed = body.inspect_frame(move |frame| {
            if frame.is_data() && !std::mem::replace(&mut self.has_begun, true) {
                let first_byte = &self.metrics.traffic.first_byte;
                let seconds = self.came.elapsed().as_secs_f64();
                first_byte.get_or_create(&self.labels).observe(seconds);
            }
        });
        timed.boxed_unsync()
    }
}

impl Drop for ResponseTimer {
    fn drop(&mut self) {
        let stream = self.metrics.traffic.stream.get_or_create(&self.labels);
        stream.observe(self.came.elapsed().as_secs_f64());
    }
}
