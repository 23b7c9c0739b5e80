//! Turns as spans of OpenTelemetry.
//!
//! The gateway says one line per turn (target `metaclaw::turn`), without a word of it; here that line
//! becomes a span of the trace that the client is in. Spans go to a collector as OTLP over HTTP in its
//! JSON form, which needs no library: <https://opentelemetry.io/docs/specs/otlp/#otlphttp>. Chat never
//! waits for it: what a slow collector leaves no room for is dropped, and said.

use std::time::Duration;

use metaclaw_llm::{HttpError, http_client};
use reqwest::{
    Client, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::environment::Environment;

mod span;
#[cfg(test)]
mod tests;
mod turns;

pub(super) use self::turns::Turns;

/// Spans that wait for the collector; beyond it they are dropped.
const QUEUE: usize = 2_048;
/// Spans that are sent at once,
const BATCH: usize = 256;
/// and how long the first of them waits for the others.
const GATHER: Duration = Duration::from_secs(1);
/// For one batch.
const DEADLINE: Duration = Duration::from_secs(10);

/// Where spans go.
#[derive(Debug)]
pub(super) struct Exporter {
    spans: mpsc::Receiver<Value>,
    http: Client,
    url: Url,
    headers: HeaderMap,
    service: String,
}

/// Why there is no exporter where one was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum OtelError {
    /// No address.
    #[error("{name} {value:?} is no http address, as in http://127.0.0.1:4318")]
    Endpoint {
        /// The variable.
        name: &'static str,
        /// What it says.
        value: String,
    },
    /// No headers.
    #[error("OTEL_EXPORTER_OTLP_HEADERS must be NAME=VALUE, several with commas between them")]
    Headers,
    /// No client.
    #[error(transparent)]
    Client(#[from] HttpError),
}

/// The exporter and what feeds it; none where no collector is named.
///
/// # Errors
/// [`OtelError`] names the variable that cannot be used.
pub(super) fn from(environment: &Environment) -> Result<Option<(Turns, Exporter)>, OtelError> {
    let Some(url) = endpoint(environment)? else {
        return Ok(None);
    };
    let http = http_client(&crate::roots::load())?;
    let headers = headers(environment)?;
    let (sender, spans) = mpsc::channel(QUEUE);
    let service = environment.get("OTEL_SERVICE_NAME").unwrap_or("metaclaw");
    let exporter = Exporter {
        spans,
        http,
        url,
        headers,
        service: service.to_owned(),
    };
    Ok(Some((Turns::new(sender), exporter)))
}

/// The address of a collector for traces: named for them, or as the base of all signals.
fn endpoint(environment: &Environment) -> Result<Option<Url>, OtelError> {
    const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let traces = environment
        .get(TRACES)
        .map(|url| (TRACES, url, String::from(url)));
    let base = || {
        let url = environment.get(BASE)?;
        Some((
            BASE,
            url,
            format!("{}/v1/traces", url.trim_end_matches('/')),
        ))
    };
    let Some((name, value, url)) = traces.or_else(base) else {
        return Ok(None);
    };
    let url = Url::parse(&url).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    let error = || OtelError::Endpoint {
        name,
        value: value.to_owned(),
    };
    url.map(Some).ok_or_else(error)
}

fn headers(environment: &Environment) -> Result<HeaderMap, OtelError> {
    let given = environment.get("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or("");
    let pairs = given.split(',').filter(|pair| !pair.trim().is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name = HeaderName::try_from(name.trim()).ok()?;
        let mut value = HeaderValue::try_from(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    let headers = pairs.map(header).collect::<Option<HeaderMap>>();
    headers.ok_or(OtelError::Headers)
}

// === impl Exporter ===

impl Exporter {
    /// Where spans go, for people.
    pub(super) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Sends spans until nobody makes any, or `stop`; then what is left, once.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::new();
        let mut is_failing = false;
        loop {
            let n = stop.run_until_cancelled(self.spans.recv_many(&mut batch, BATCH));
            let goes_on = n.await.is_some_and(|n| n > 0);
            if goes_on {
                self.gather(&mut batch, &stop).await;
            } else {
                while let Ok(span) = self.spans.try_recv() {
                    batch.push(span);
                }
            }
            if !batch.is_empty() {
                let sent = self.send(std::mem::take(&mut batch)).await;
                is_failing = note(sent, is_failing);
            }
            if !goes_on {
                return;
            }
        }
    }

    /// Waits a moment for more.
    async fn gather(&mut self, batch: &mut Vec<Value>, stop: &CancellationToken) {
        let more = async {
            while batch.len() < BATCH {
                let room = BATCH - batch.len();
                if self.spans.recv_many(batch, room).await == 0 {
                    // Nobody makes any more.
                    return;
                }
            }
        };
        let more = timeout(GATHER, more);
        // Either way the batch goes.
        let _ = stop.run_until_cancelled(more).await;
    }

    async fn send(&self, spans: Vec<Value>) -> Result<(), String> {
        let n_spans = spans.len();
        let body = span::request(&self.service, &spans);
        let post = self.http.post(self.url.clone());
        let post = post.headers(self.headers.clone()).timeout(DEADLINE);
        let reply = post.json(&body).send().await;
        let reply = reply.map_err(|error| error.to_string())?;
        let status = reply.status();
        if !status.is_success() {
            return Err(format!("it answers {status}"));
        }
        debug!(n_spans, "spans are with the collector");
        Ok(())
    }
}

/// Says when a collector goes away, and when it is back; not with every batch.
fn note(sent: Result<(), String>, was_failing: bool) -> bool {
    match sent {
        Ok(()) => {
            if was_failing {
                warn!("the collector of traces takes spans again");
            }
            false
        }
        Err(why) => {
            if !was_failing {
                warn!(%why, "the collector of traces takes no spans: they are dropped");
            }
            true
        }
    }
}
