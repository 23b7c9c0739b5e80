//! Sends the gateway's request spans, with the lines of their turns as events, to a collector as OTLP over HTTP in
//! JSON. The exporter has a thread of its own: spans that a slow collector leaves no space for are dropped and
//! reported.

use std::{collections::HashMap, time::Duration};

use anyhow::Context as _;
use http::HeaderMap;
use metaclaw_llm::tls_config;
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator as _},
    trace::TracerProvider as _,
};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use reqwest::{Url, blocking, redirect};
use tracing::{Metadata, Span, Subscriber, info, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

use crate::{environment::Environment, roots};

const REQUEST: &str = "request";
/// The targets of the gateway's lines about turns and refusals, which contain no text of them.
const LINES: [&str; 2] = ["metaclaw::turn", "metaclaw::refused"];
const DEADLINE: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Traces(Option<(SdkTracerProvider, Url)>);

/// The layer that records spans, and the provider that exports them.
///
/// # Errors
/// Returns the name of the variable that cannot be used.
pub(crate) fn layer<S>(
    environment: &Environment,
) -> anyhow::Result<(Option<impl Layer<S> + use<S>>, Traces)>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let Some(url) = endpoint(environment)? else {
        return Ok((None, Traces(None)));
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(url.as_str())
        .with_headers(headers(environment)?)
        .with_timeout(DEADLINE)
        .with_http_client(client()?)
        .build()?;
    let service = environment.get("OTEL_SERVICE_NAME").unwrap_or("metaclaw");
    let resource = Resource::builder().with_service_name(service.to_owned());
    // A request is sampled like the client's trace, and always if it is in none.
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("metaclaw"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(is_told));
    Ok((Some(layer), Traces(Some((provider, url)))))
}

pub(crate) fn set_parent(span: &Span, headers: &HeaderMap) {
    let parent =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    // This fails if no collector is configured.
    span.set_parent(parent).ok();
}

fn is_told(metadata: &Metadata<'_>) -> bool {
    if metadata.is_span() {
        metadata.name() == REQUEST
    } else {
        LINES.contains(&metadata.target())
    }
}

/// Returns the address of a collector for traces: its own variable, or the base of all signals.
fn endpoint(environment: &Environment) -> anyhow::Result<Option<Url>> {
    let traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    let base = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let (name, value, url) = match (environment.get(traces), environment.get(base)) {
        (Some(url), _) => (traces, url, url.to_owned()),
        (None, Some(url)) => (
            base,
            url,
            format!("{}/v1/traces", url.trim_end_matches('/')),
        ),
        (None, None) => return Ok(None),
    };
    let url = Url::parse(&url).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.with_context(|| {
        format!("{name} {value:?} is no http address, as in http://127.0.0.1:4318")
    })?;
    Ok(Some(url))
}

fn headers(environment: &Environment) -> anyhow::Result<HashMap<String, String>> {
    let given = environment.get("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or("");
    let pairs = given.split(',').filter(|pair| !pair.trim().is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    let headers: Option<_> = pairs.map(header).collect();
    headers
        .context("OTEL_EXPORTER_OTLP_HEADERS must be NAME=VALUE, several with commas between them")
}

fn client() -> anyhow::Result<blocking::Client> {
    let client = blocking::Client::builder()
        .tls_backend_preconfigured(tls_config(&roots::load())?)
        .redirect(redirect::Policy::none());
    Ok(client.build()?)
}

struct Headers<'a>(&'a HeaderMap);

// === impl Headers ===

impl Extractor for Headers<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

// === impl Traces ===

impl Traces {
    pub(crate) fn log_target(&self) {
        if let Self(Some((_, url))) = self {
            let url = url.as_str();
            info!(
                url,
                "a span of each request, without its text, goes to the collector"
            );
        }
    }

    /// Sends the remaining spans, if the collector takes them in time.
    pub(crate) fn end(self) {
        if let Self(Some((provider, _))) = self
            && let Err(error) = provider.shutdown_with_timeout(LAST)
        {
            warn!(%error, "the last spans were not sent");
        }
    }
}

#[cfg(test)]
mod tests;
