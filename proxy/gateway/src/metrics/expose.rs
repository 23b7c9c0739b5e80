//! `GET /metrics`: the counters in the format of Prometheus. `docs/operating/metrics.md` lists them.

use std::{borrow::Cow, fmt, sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::{EncodeMetric, text::encode},
    metrics::{
        TypedMetric,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::{Registry, Unit},
};

use super::{Counts, Metrics};

/// OpenMetrics 1.0, which Prometheus prefers.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A number of another crate.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The metric's name without the prefix `metaclaw_` and the suffix `_total`.
    pub name: &'static str,
    /// Its description without a full stop.
    pub help: &'static str,
    /// A label's name and value, which distinguish it from others of its metric.
    pub label: Option<(&'static str, Cow<'static, str>)>,
    /// The present number. All series of a metric have the same kind.
    pub value: SeriesValue,
}

/// A number and its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SeriesValue {
    /// It only grows.
    Counter(u64),
    /// It can grow and shrink.
    Gauge(u64),
    /// It can grow and shrink, and is not an integer.
    Measure(f64),
}

type LabelPairs = Vec<(&'static str, String)>;
type Measured = Gauge<f64, AtomicU64>;

/// Writes the metrics. `unflushed` is the age of the oldest turn that the log has not flushed. Series of the same
/// metric are adjacent in `others`.
///
/// # Errors
///
/// It cannot fail in practice, because a text accepts everything that is written to it.
pub(crate) fn text(
    metrics: &Metrics,
    unflushed: Option<Duration>,
    others: &[Series],
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("metaclaw");
    let counts = metrics.counts();
    traffic(&mut registry, metrics);
    passed(&mut registry, metrics);
    gauges(&mut registry, &counts, unflushed);
    counters(&mut registry, &counts);
    for metric in others.chunk_by(|a, b| a.name == b.name) {
        other(&mut registry, metric);
    }
    let mut text = String::with_capacity(8 << 10);
    encode(&mut text, &registry)?;
    Ok(text)
}

fn other(registry: &mut Registry, metric: &[Series]) {
    let Some(first) = metric.first() else { return };
    if first.label.is_none() {
        return alone(registry, first);
    }
    match first.value {
        SeriesValue::Counter(_) => labelled(registry, metric, |counter: &Counter, value| {
            if let SeriesValue::Counter(n) = value {
                counter.inc_by(n);
            }
        }),
        SeriesValue::Gauge(_) => labelled(registry, metric, |gauge: &Gauge, value| {
            if let SeriesValue::Gauge(n) = value {
                gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
            }
        }),
        SeriesValue::Measure(_) => labelled(registry, metric, |gauge: &Measured, value| {
            if let SeriesValue::Measure(measured) = value {
                gauge.set(measured);
            }
        }),
    }
}

fn labelled<M>(registry: &mut Registry, metric: &[Series], set: impl Fn(&M, SeriesValue))
where
    M: EncodeMetric + TypedMetric + fmt::Debug + Default + Send + Sync + 'static,
{
    let family = Family::<LabelPairs, M>::default();
    for series in metric {
        let label = series.label.clone();
        let labels = label.map(|(name, value)| (name, value.into_owned()));
        set(
            &family.get_or_create(&labels.into_iter().collect()),
            series.value,
        );
    }
    if let Some(first) = metric.first() {
        registry.register(first.name, first.help, family);
    }
}

/// Adds a metric that is one number, without the empty braces of a family.
fn alone(registry: &mut Registry, series: &Series) {
    let (name, help) = (series.name, series.help);
    match series.value {
        SeriesValue::Counter(value) => registry.register(name, help, ConstCounter::new(value)),
        SeriesValue::Gauge(value) => registry.register(name, help, integer_gauge(value)),
        SeriesValue::Measure(value) => registry.register(name, help, ConstGauge::new(value)),
    }
}

fn integer_gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

fn traffic(registry: &mut Registry, metrics: &Metrics) {
    let traffic = &metrics.traffic;
    registry.register(
        "requests",
        "Requests that were answered; status none: the agent hung up before",
        traffic.requests.clone(),
    );
    #[rustfmt::skip]
    let durations = [
        ("time_to_first_byte", "From a request's headers to the first byte of its reply", &traffic.first_byte),
        ("added_latency", "Our own part of the time from a request's last byte to its reply's headers", &traffic.added),
        ("stream_duration", "From a request's headers to the end of its reply", &traffic.stream),
    ];
    for (name, help, seconds) in durations {
        registry.register_with_unit(name, help, Unit::Seconds, seconds.clone());
    }
}

fn passed(registry: &mut Registry, metrics: &Metrics) {
    let family = Family::<LabelPairs, Counter>::default();
    for (route, n) in metrics.passed() {
        family.get_or_create(&vec![("route", route)]).inc_by(n);
    }
    let help = "Requests that went to an upstream as they came, because they are no chats";
    registry.register("passed_requests", help, family);
}

fn gauges(registry: &mut Registry, counts: &Counts, unflushed: Option<Duration>) {
    let active = integer_gauge(counts.active_streams);
    registry.register("active_streams", "Requests under way", active);
    let held = "Memory held for turns on their way into the log";
    let capture = integer_gauge(counts.capture_bytes);
    registry.register_with_unit("capture", held, Unit::Bytes, capture);
    let bodies = "Memory of request bodies that are held";
    let body = integer_gauge(counts.body_bytes);
    registry.register_with_unit("request_body", bodies, Unit::Bytes, body);
    registry.register_with_unit(
        "oldest_unflushed_turn",
        "Age of the oldest turn that the log has and has not flushed; 0 where there is none",
        Unit::Seconds,
        ConstGauge::new(unflushed.unwrap_or_default().as_secs_f64()),
    );
}

fn counters(registry: &mut Registry, counts: &Counts) {
    #[rustfmt::skip]
    let counters = [
        ("refused_requests", "Requests that were answered with an error of our own", counts.refused),
        ("recorded_turns", "Turns that the log has acknowledged", counts.recorded),
        ("prompt_cache_breaks", "Sessions whose lessons were chosen again after a pause", counts.cache_breaks),
        ("prompt_tokens", "Tokens of recorded prompts, cached ones included, as upstreams count them", counts.prompt_tokens),
        ("cached_prompt_tokens", "Tokens of recorded prompts that came from a provider's cache", counts.cached_prompt_tokens),
        ("trimmed_messages", "Messages that were dropped from prompts longer than max_context_tokens", counts.trimmed_messages),
        ("relayed_only_turns", "Chats that were only relayed, while metaclaw off was in force", counts.relayed_only),
        ("off_record_turns", "Chats of which nothing was kept, as a header or their owner wanted it", counts.off_record),
        ("other_agents", "Requests without a key whose agent counted as _others, because there were too many names", counts.other_agents),
    ];
    for (name, help, n) in counters {
        registry.register(name, help, ConstCounter::new(n));
    }
    let lost = Family::<LabelPairs, Counter>::default();
    for (reason, n) in [
        ("queue_full", counts.dropped),
        ("log_failed", counts.failed),
        ("no_memory", counts.overflowed),
        ("reply_encoding", counts.undecodable),
        ("unreadable_request", counts.unread),
    ] {
        lost.get_or_create(&vec![("reason", reason.to_owned())])
            .inc_by(n);
    }
    registry.register(
        "dropped_captures",
        "Replies that were relayed and are not, or not whole, in the log",
        lost,
    );
}
