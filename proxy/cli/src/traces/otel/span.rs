//! A span in OTLP's JSON: ids in hex, 64-bit numbers as text, kinds as numbers.

use serde_json::{Value, json};

use super::turns::Fields;

/// `SPAN_KIND_SERVER`: it answers a request.
const SERVER: u8 = 2;
const OK: u8 = 1;
const ERROR: u8 = 2;

/// The trace that a client is in, and its own span there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: String,
    pub(super) span: String,
    /// The client keeps this trace; if not, nobody wants our part of it.
    pub(super) is_sampled: bool,
}

/// Fields of the line that are attributes of the span, under the names that OpenTelemetry gives them
/// where it has one: <https://opentelemetry.io/docs/specs/semconv/gen-ai/>.
const ATTRIBUTES: [(&str, &str); 14] = [
    ("agent", "metaclaw.agent"),
    ("session", "gen_ai.conversation.id"),
    ("api", "gen_ai.operation.name"),
    ("kind", "metaclaw.turn.kind"),
    ("upstream", "gen_ai.provider.name"),
    ("model", "gen_ai.request.model"),
    ("adapter", "metaclaw.adapter"),
    ("skills", "metaclaw.skills"),
    ("status", "http.response.status_code"),
    ("end", "metaclaw.turn.end"),
    ("n_bytes", "http.response.body.size"),
    ("prompt_tokens", "gen_ai.usage.input_tokens"),
    ("cached_tokens", "gen_ai.usage.cache_read.input_tokens"),
    ("completion_tokens", "gen_ai.usage.output_tokens"),
];

/// The span of a turn; none where its client's trace is not kept, or the line says no time.
pub(super) fn of(Fields(fields): Fields) -> Option<Value> {
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let (started_ms, total_ms) = (number("started_ms")?, number("total_ms")?);
    let parent = fields.get("traceparent").and_then(Value::as_str);
    let parent = parent.and_then(Parent::read);
    if parent.as_ref().is_some_and(|parent| !parent.is_sampled) {
        return None;
    }
    let nanos = |ms: u64| (u128::from(ms) * 1_000_000).to_string();
    let attributes = ATTRIBUTES.iter().filter_map(|(field, name)| {
        let value = fields.get(*field)?;
        Some(json!({"key": name, "value": any(value)}))
    });
    let first_byte = number("first_byte_ms")
        .map(|after| json!({"name": "first byte", "timeUnixNano": nanos(started_ms + after)}));
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let is_well = text("end") == Some("Complete");
    let (trace, parent) = match parent {
        Some(parent) => (parent.trace, Some(parent.span)),
        None => (format!("{:032x}", rand::random::<u128>().max(1)), None),
    };
    let mut span = json!({
        "traceId": trace,
        "spanId": format!("{:016x}", rand::random::<u64>().max(1)),
        "name": format!("{} {}", text("api").unwrap_or("chat"), text("model").unwrap_or("")).trim_end(),
        "kind": SERVER,
        "startTimeUnixNano": nanos(started_ms),
        "endTimeUnixNano": nanos(started_ms + total_ms),
        "attributes": attributes.collect::<Vec<_>>(),
        "events": first_byte.into_iter().collect::<Vec<_>>(),
        "status": {"code": if is_well { OK } else { ERROR }},
    });
    if let Some(parent) = parent {
        span["parentSpanId"] = parent.into();
    }
    Some(span)
}

/// What is posted to a collector.
pub(super) fn request(service: &str, spans: &[Value]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [("service.name", service), ("service.version", version)];
    let resource =
        resource.map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}));
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "metaclaw", "version": version}, "spans": spans}],
    }]})
}

fn any(value: &Value) -> Value {
    match value.as_u64() {
        Some(number) => json!({"intValue": number.to_string()}),
        None => json!({"stringValue": value.as_str().unwrap_or_default()}),
    }
}

// === impl Parent ===

impl Parent {
    /// Reads `00-TRACE-SPAN-FLAGS`: <https://www.w3.org/TR/trace-context/#traceparent-header>. A later
    /// version may have more after it; what is no such header is as none.
    pub(super) fn read(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let mut part = |n_digits: usize| {
            let part = parts.next()?;
            let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
            (part.len() == n_digits && part.bytes().all(is_hex)).then(|| part.to_owned())
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let is_nothing = |id: &str| id.bytes().all(|b| b == b'0');
        let is_over = parts.next().is_none();
        if version == "ff"
            || (version == "00" && !is_over)
            || is_nothing(&trace)
            || is_nothing(&span)
        {
            return None;
        }
        let flags = u8::from_str_radix(&flags, 16).ok()?;
        Some(Self {
            trace,
            span,
            is_sampled: flags & 1 == 1,
        })
    }
}
